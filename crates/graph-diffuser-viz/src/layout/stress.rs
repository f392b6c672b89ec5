//! Stress majorization.

use graph_diffuser_data::SeedTree;

use crate::canvas::Point;

use super::{bfs_distances, euclidean, neighbors};

/// Lays out a connected graph by stress majorization.
///
/// Minimizes `Σ (‖x_i - x_j‖ - d_ij)² / d_ij²` over node pairs with graph distance `d_ij`. Each
/// round updates every node in turn, which never increases the stress.
pub(super) fn stress_majorization(
    nodes: usize,
    edges: &[[u32; 2]],
    start: Option<Vec<Point>>,
) -> Vec<Point> {
    if nodes < 2 {
        return vec![[0.0; 2]; nodes];
    }
    let neighbors = neighbors(nodes, edges);
    let distance: Vec<Vec<usize>> =
        (0..nodes).map(|node| bfs_distances(node, &neighbors)).collect();
    let mut coordinates = start.unwrap_or_else(|| {
        // Start from the distances to distant nodes, with a little noise to separate equal points.
        let mut stream = SeedTree::new(0).stream("layout");
        let far = |from: usize| {
            (0..nodes).fold(from, |far, node| {
                if distance[from][node] > distance[from][far] { node } else { far }
            })
        };
        let first = far(0);
        let second = far(first);
        let middle = (0..nodes)
            .max_by_key(|&node| {
                (distance[first][node].min(distance[second][node]), usize::MAX - node)
            })
            .unwrap_or(0);
        let third = far(middle);
        (0..nodes)
            .map(|node| {
                let x = (distance[first][node] as f64 - distance[second][node] as f64) / 2.0;
                let y = distance[third][node] as f64 / 2.0;
                [x + 0.1 * stream.normal(), y + 0.1 * stream.normal()]
            })
            .collect()
    });
    // A round is quadratic in the number of nodes; this bounds the time to about a second.
    let rounds = (200_000_000 / (nodes * nodes)).clamp(20, 4000);
    for _ in 0..rounds {
        let mut moved = 0.0_f64;
        for node in 0..nodes {
            let (mut sum, mut weights) = ([0.0; 2], 0.0);
            for other in (0..nodes).filter(|&other| other != node) {
                let target = distance[node][other] as f64;
                let weight = 1.0 / (target * target);
                let current = euclidean(coordinates[node], coordinates[other]).max(1e-9);
                let pull = |axis: usize| {
                    let direction = (coordinates[node][axis] - coordinates[other][axis]) / current;
                    weight * (coordinates[other][axis] + target * direction)
                };
                sum = [sum[0] + pull(0), sum[1] + pull(1)];
                weights += weight;
            }
            let next = sum.map(|sum| sum / weights);
            moved = moved.max(euclidean(coordinates[node], next));
            coordinates[node] = next;
        }
        if moved < 1e-6 {
            break;
        }
    }
    coordinates
}
