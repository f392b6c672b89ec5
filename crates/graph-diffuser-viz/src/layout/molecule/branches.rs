//! Rearrangement of crowded branches.

use std::collections::BTreeSet;

use crate::canvas::Point;
use crate::layout::crossings::edges_cross;
use crate::layout::euclidean;

use super::rings::bonds_of;

/// Atoms closer than this are penalized when branches are moved.
const PREFERRED_DISTANCE: f64 = 0.95;
/// Penalty of a crossing of two bonds; larger than that of any two close atoms.
const CROSSING: f64 = 5.0;

/// Part of a molecule on one side of a bond that is not in a ring.
struct Branch {
    /// Atom at which the branch is attached.
    root: usize,
    /// First atom of the branch.
    first: usize,
    atoms: Vec<usize>,
    outside: Vec<usize>,
    /// Bonds with at least one atom in the branch.
    bonds: Vec<[usize; 2]>,
    outside_bonds: Vec<[usize; 2]>,
}

/// Change of the direction and length of the bond to a branch.
#[derive(Clone, Copy)]
struct Move {
    is_mirrored: bool,
    degrees: f64,
    stretch: f64,
    /// Prefers moves that preserve angles and bond lengths.
    penalty: f64,
}

/// Mirrors branches at their bond to the rest of the molecule if this reduces crowding; rotates or
/// stretches the bond if that is not enough.
pub(super) fn move_branches(
    coordinates: &mut [Point],
    neighbors: &[Vec<usize>],
    rings: &[Vec<usize>],
) {
    let branches = branches(neighbors, rings);
    let mirror = Move { is_mirrored: true, degrees: 0.0, stretch: 1.0, penalty: 0.0 };
    improve(coordinates, &branches, &[mirror]);
    let bent = [-60.0, -30.0, -15.0, 15.0, 30.0, 60.0].into_iter().flat_map(|degrees: f64| {
        [false, true].map(|is_mirrored| {
            let penalty = 0.02 + 0.001 * degrees.abs();
            Move { is_mirrored, degrees, stretch: 1.0, penalty }
        })
    });
    let stretched = [1.5, 2.0].into_iter().flat_map(|stretch: f64| {
        [-30.0, 0.0, 30.0].map(|degrees: f64| {
            let penalty = 0.1 * stretch + 0.001 * degrees.abs();
            Move { is_mirrored: false, degrees, stretch, penalty }
        })
    });
    improve(coordinates, &branches, &bent.chain(stretched).chain([mirror]).collect::<Vec<_>>());
}

/// Returns the branches with at most half of the atoms.
fn branches(neighbors: &[Vec<usize>], rings: &[Vec<usize>]) -> Vec<Branch> {
    let in_ring: BTreeSet<[usize; 2]> =
        rings.iter().flat_map(|ring| bonds_of(ring).collect::<Vec<_>>()).collect();
    let nodes = neighbors.len();
    let mut branches = Vec::new();
    for root in 0..nodes {
        for &first in &neighbors[root] {
            if in_ring.contains(&[root.min(first), root.max(first)]) {
                continue;
            }
            let mut atoms = BTreeSet::from([root, first]);
            let mut stack = vec![first];
            while let Some(next) = stack.pop() {
                stack.extend(neighbors[next].iter().copied().filter(|&atom| atoms.insert(atom)));
            }
            // A bond in a ring too large to be perceived has no branch.
            let is_bridge = neighbors[root].iter().filter(|atom| atoms.contains(atom)).count() == 1;
            atoms.remove(&root);
            if !is_bridge || 2 * atoms.len() > nodes {
                continue;
            }
            let bonds = (0..nodes).flat_map(|atom| {
                neighbors[atom]
                    .iter()
                    .filter(move |&&other| atom < other)
                    .map(move |&other| [atom, other])
            });
            let (inner, outer) =
                bonds.partition(|bond: &[usize; 2]| bond.iter().any(|atom| atoms.contains(atom)));
            branches.push(Branch {
                root,
                first,
                outside: (0..nodes).filter(|node| !atoms.contains(node)).collect(),
                atoms: atoms.into_iter().collect(),
                bonds: inner,
                outside_bonds: outer,
            });
        }
    }
    branches
}

/// Applies the best move of each branch until none reduces the crowding.
fn improve(coordinates: &mut [Point], branches: &[Branch], moves: &[Move]) {
    const MAX_ROUNDS: usize = 4;
    // Number of compared pairs of atoms and bonds, which bounds the time for large molecules.
    let mut budget: usize = 40_000_000;
    for _ in 0..MAX_ROUNDS {
        let mut improved = false;
        for branch in branches {
            let Some(rest) = budget.checked_sub(branch.num_pairs()) else { return };
            budget = rest;
            let before = branch.crowding(coordinates);
            if before < 1e-6 {
                continue;
            }
            budget = budget.saturating_sub(branch.num_pairs() * moves.len());
            let moved = moves.iter().map(|&step| {
                let moved = branch.moved(coordinates, step);
                (branch.crowding(&moved) + step.penalty, moved)
            });
            let best = moved.min_by(|left, right| left.0.total_cmp(&right.0));
            if let Some((_, moved)) = best.filter(|(after, _)| *after < before - 1e-6) {
                coordinates.copy_from_slice(&moved);
                improved = true;
            }
        }
        if !improved {
            return;
        }
    }
}

impl Branch {
    /// Penalizes atoms of the branch that are close to others, and bonds that cross.
    fn crowding(&self, coordinates: &[Point]) -> f64 {
        let close = |node: usize, other: usize| {
            (PREFERRED_DISTANCE - euclidean(coordinates[node], coordinates[other])).max(0.0).powi(2)
        };
        let atoms = self
            .atoms
            .iter()
            .flat_map(|&node| self.outside.iter().map(move |&other| close(node, other)));
        let crossings = self.bonds.iter().flat_map(|&bond| {
            self.outside_bonds.iter().filter(move |other| edges_cross(coordinates, bond, **other))
        });
        atoms.sum::<f64>() + CROSSING * crossings.count() as f64
    }

    /// Returns the number of pairs that [`Branch::crowding`] compares.
    fn num_pairs(&self) -> usize {
        self.atoms.len() * self.outside.len() + self.bonds.len() * self.outside_bonds.len()
    }

    fn moved(&self, coordinates: &[Point], step: Move) -> Vec<Point> {
        let [center, start] = [coordinates[self.root], coordinates[self.first]];
        let bond = [start[0] - center[0], start[1] - center[1]];
        let axis = bond[1].atan2(bond[0]);
        let (mirror_sine, mirror_cosine) = (2.0 * axis).sin_cos();
        let (sine, cosine) = step.degrees.to_radians().sin_cos();
        let mut moved = coordinates.to_vec();
        for &atom in &self.atoms {
            let [mut x, mut y] =
                [coordinates[atom][0] - center[0], coordinates[atom][1] - center[1]];
            if step.is_mirrored {
                (x, y) = (x * mirror_cosine + y * mirror_sine, x * mirror_sine - y * mirror_cosine);
            }
            let extra = step.stretch - 1.0;
            (x, y) = (x + extra * bond[0], y + extra * bond[1]);
            moved[atom] = [center[0] + x * cosine - y * sine, center[1] + x * sine + y * cosine];
        }
        moved
    }
}
