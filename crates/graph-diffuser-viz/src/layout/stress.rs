//! Stress majorization.

use graph_diffuser_data::SeedTree;

use crate::canvas::Point;

use super::{bfs_distances, euclidean};

/// Graph distances between all nodes of a connected graph.
pub(super) struct Distances(Vec<Vec<usize>>);

impl Distances {
    pub(super) fn new(neighbors: &[Vec<usize>]) -> Self {
        Self((0..neighbors.len()).map(|node| bfs_distances(node, neighbors)).collect())
    }

    /// Returns the terms of the stress that contain a node.
    pub(super) fn stress(&self, node: usize, points: &[Point]) -> f64 {
        let term = |(other, &distance): (usize, &usize)| {
            let target = distance as f64;
            ((euclidean(points[node], points[other]) - target) / target).powi(2)
        };
        self.0[node].iter().enumerate().filter(|(other, _)| *other != node).map(term).sum()
    }
}

/// Returns coordinates derived from the distances to three distant nodes.
pub(super) fn initial_coordinates(Distances(distance): &Distances) -> Vec<Point> {
    let nodes = distance.len();
    // A little noise separates equal points.
    let mut stream = SeedTree::new(0).stream("layout");
    let far =
        |from: usize| {
            (0..nodes).fold(from, |far, node| {
                if distance[from][node] > distance[from][far] { node } else { far }
            })
        };
    let first = far(0);
    let second = far(first);
    let middle = (0..nodes)
        .max_by_key(|&node| (distance[first][node].min(distance[second][node]), usize::MAX - node))
        .unwrap_or(0);
    let third = far(middle);
    (0..nodes)
        .map(|node| {
            let x = (distance[first][node] as f64 - distance[second][node] as f64) / 2.0;
            let y = distance[third][node] as f64 / 2.0;
            [x + 0.1 * stream.normal(), y + 0.1 * stream.normal()]
        })
        .collect()
}

/// Returns the position of a node that minimizes a quadratic bound of the stress.
pub(super) fn stress_target(
    node: usize,
    points: &[Point],
    Distances(distance): &Distances,
) -> Point {
    let (mut sum, mut weights) = ([0.0; 2], 0.0);
    for other in (0..points.len()).filter(|&other| other != node) {
        let target = distance[node][other] as f64;
        let weight = 1.0 / (target * target);
        let current = euclidean(points[node], points[other]).max(1e-9);
        let pull = |axis: usize| {
            let direction = (points[node][axis] - points[other][axis]) / current;
            weight * (points[other][axis] + target * direction)
        };
        sum = [sum[0] + pull(0), sum[1] + pull(1)];
        weights += weight;
    }
    sum.map(|sum| sum / weights)
}

/// Lays out a connected graph by stress majorization.
///
/// Minimizes `Σ (‖x_i - x_j‖ - d_ij)² / d_ij²` over node pairs with graph distance `d_ij`. Each
/// round updates every node in turn, which never increases the stress.
pub(super) fn stress_majorization(mut points: Vec<Point>, distances: &Distances) -> Vec<Point> {
    let nodes = points.len();
    if nodes < 2 {
        return points;
    }
    // A round is quadratic in the number of nodes; this bounds the time to about a second.
    let rounds = (60_000_000 / (nodes * nodes)).clamp(20, 4000);
    for _ in 0..rounds {
        let mut moved = 0.0_f64;
        for node in 0..nodes {
            let next = stress_target(node, &points, distances);
            moved = moved.max(euclidean(points[node], next));
            points[node] = next;
        }
        if moved < 1e-6 {
            break;
        }
    }
    points
}
