//! Flipping of crowded branches.

use std::collections::BTreeSet;

use crate::canvas::Point;
use crate::layout::euclidean;

use super::rings::bonds_of;

/// Atoms closer than this are penalized when branches are flipped.
const PREFERRED_DISTANCE: f64 = 0.95;

/// Mirrors branches at their bond to the rest of the molecule if this reduces crowding.
pub(super) fn flip_branches(
    coordinates: &mut [Point],
    neighbors: &[Vec<usize>],
    rings: &[Vec<usize>],
) {
    let in_ring: BTreeSet<[usize; 2]> =
        rings.iter().flat_map(|ring| bonds_of(ring).collect::<Vec<_>>()).collect();
    let nodes = coordinates.len();
    let mut branches: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for node in 0..nodes {
        for &other in neighbors[node]
            .iter()
            .filter(|&&other| !in_ring.contains(&[node.min(other), node.max(other)]))
        {
            let mut branch = BTreeSet::from([node, other]);
            let mut stack = vec![other];
            while let Some(next) = stack.pop() {
                stack.extend(neighbors[next].iter().copied().filter(|&atom| branch.insert(atom)));
            }
            branch.remove(&node);
            if branch.len() > 1 && 2 * branch.len() <= nodes {
                branches.push((node, other, branch.into_iter().collect()));
            }
        }
    }
    let crowding = |coordinates: &[Point], branch: &[usize]| {
        let inside: BTreeSet<usize> = branch.iter().copied().collect();
        let outside: Vec<usize> = (0..nodes).filter(|node| !inside.contains(node)).collect();
        let pair = |&(node, other): &(usize, usize)| {
            (PREFERRED_DISTANCE - euclidean(coordinates[node], coordinates[other])).max(0.0).powi(2)
        };
        let pairs = branch.iter().flat_map(|&node| outside.iter().map(move |&other| (node, other)));
        pairs.map(|both| pair(&both)).sum::<f64>()
    };
    for _ in 0..4 {
        let mut improved = false;
        for (node, other, branch) in &branches {
            let before = crowding(coordinates, branch);
            if before < 1e-6 {
                continue;
            }
            let mut flipped = coordinates.to_vec();
            let angle = (coordinates[*other][1] - coordinates[*node][1])
                .atan2(coordinates[*other][0] - coordinates[*node][0]);
            let (sine, cosine) = (2.0 * angle).sin_cos();
            for &atom in branch {
                let [x, y] = [
                    coordinates[atom][0] - coordinates[*node][0],
                    coordinates[atom][1] - coordinates[*node][1],
                ];
                flipped[atom] = [
                    coordinates[*node][0] + x * cosine + y * sine,
                    coordinates[*node][1] + x * sine - y * cosine,
                ];
            }
            if crowding(&flipped, branch) < before - 1e-6 {
                coordinates.copy_from_slice(&flipped);
                improved = true;
            }
        }
        if !improved {
            return;
        }
    }
}
