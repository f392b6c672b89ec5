//! Straight-line drawings of planar graphs.
//!
//! Every biconnected component is embedded on its own, components are joined in their outer faces,
//! and the embedding is drawn as a Tutte embedding: the outer face is a convex polygon, and every
//! other node is at the centroid of its neighbors. Faces are triangulated with an additional node,
//! so the drawing has no crossings.

mod blocks;
mod embedding;

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::TAU;

use crate::canvas::Point;

/// Largest number of nodes of a drawing; the linear system takes cubic time.
const MAX_NODES: usize = 300;

/// Neighbors of every node in the order of their directions.
struct RotationSystem(Vec<Vec<usize>>);

/// Drawing without crossings.
pub(super) struct PlanarDrawing {
    pub(super) points: Vec<Point>,
    /// True if every block has a face with all of its nodes.
    pub(super) is_outerplanar: bool,
}

/// Draws a connected graph without crossings; returns `None` if it is not planar or too large.
pub(super) fn draw(neighbors: &[Vec<usize>]) -> Option<PlanarDrawing> {
    let nodes = neighbors.len();
    if !(3..=MAX_NODES).contains(&nodes) {
        return None;
    }
    let blocks = blocks::blocks(neighbors);
    let mut block_of: BTreeMap<[usize; 2], usize> = BTreeMap::new();
    let mut rotations = RotationSystem(vec![Vec::new(); nodes]);
    let mut is_outerplanar = true;
    let mut outer_face_of: Vec<Option<Vec<usize>>> = vec![None; nodes];
    for (index, block) in blocks.iter().enumerate() {
        for &[from, to] in block {
            block_of.extend([([from, to], index), ([to, from], index)]);
        }
        let faces = embedding::faces(block)?;
        let members: BTreeSet<usize> = block.iter().flatten().copied().collect();
        is_outerplanar &= faces.iter().any(|face| face.len() == members.len());
        rotations.join(&faces, &mut outer_face_of);
    }
    rotations.connect_blocks(block_of, blocks.len());
    let faces = rotations.faces();
    let outer = (0..faces.len()).max_by_key(|&face| (faces[face].len(), usize::MAX - face))?;
    Some(PlanarDrawing { points: tutte_embedding(&rotations.0, &faces, outer), is_outerplanar })
}

impl RotationSystem {
    /// Adds the faces of a block that has at most one node in common with the blocks before it.
    fn join(&mut self, faces: &[Vec<usize>], outer_face_of: &mut [Option<Vec<usize>>]) {
        let shared = faces.iter().flatten().copied().find(|&node| outer_face_of[node].is_some());
        let in_outer = |face: &&Vec<usize>| shared.is_none_or(|node| face.contains(&node));
        let longest =
            |faces: &mut dyn Iterator<Item = &Vec<usize>>| {
                faces.fold(Vec::new(), |longest: Vec<usize>, face| {
                    if face.len() > longest.len() { face.clone() } else { longest }
                })
            };
        let outer = longest(&mut faces.iter().filter(in_outer));
        // `u → v → w` on a face: `w` follows `u` in the rotation of `v`.
        let mut next: BTreeMap<[usize; 2], usize> = BTreeMap::new();
        for face in faces {
            for at in 0..face.len() {
                let [before, node, after] = [0, 1, 2].map(|step| face[(at + step) % face.len()]);
                next.insert([node, before], after);
            }
        }
        let nodes: BTreeSet<usize> = faces.iter().flatten().copied().collect();
        for &node in &nodes {
            // Starts behind the corner of the outer face, or of the longest face of the node.
            let face = if outer.contains(&node) {
                outer.clone()
            } else {
                longest(&mut faces.iter().filter(|face| face.contains(&node)))
            };
            let first = face[(position(&face, node) + 1) % face.len()];
            let mut order = vec![first];
            loop {
                let last = order[order.len() - 1];
                let following = next[&[node, last]];
                if following == first {
                    break;
                }
                order.push(following);
            }
            // The rotation of a shared node also starts behind its outer corner.
            self.0[node].extend(order);
            outer_face_of[node].get_or_insert(face);
        }
    }

    /// Adds edges between blocks until the graph is biconnected.
    fn connect_blocks(&mut self, mut block_of: BTreeMap<[usize; 2], usize>, blocks: usize) {
        let mut group: Vec<usize> = (0..blocks).collect();
        for node in 0..self.0.len() {
            for pair in self.0[node].clone().windows(2) {
                let [left, right] = [pair[0], pair[1]].map(|other| block_of[&[node, other]]);
                let (old, new) = (group[left], group[right]);
                if old != new {
                    self.add_edge(pair[0], node, pair[1]);
                    block_of.extend([([pair[0], pair[1]], left), ([pair[1], pair[0]], left)]);
                    group.iter_mut().filter(|group| **group == old).for_each(|group| *group = new);
                }
            }
        }
    }

    /// Adds the edge from `before` to `after` along the corner `before → node → after`.
    fn add_edge(&mut self, before: usize, node: usize, after: usize) {
        let at = position(&self.0[before], node);
        self.0[before].insert(at, after);
        let at = position(&self.0[after], node);
        self.0[after].insert(at + 1, before);
    }

    fn next(&self, node: usize, before: usize) -> usize {
        let order = &self.0[node];
        order[(position(order, before) + 1) % order.len()]
    }

    /// Returns the faces as directed cycles.
    fn faces(&self) -> Vec<Vec<usize>> {
        let mut seen: BTreeSet<[usize; 2]> = BTreeSet::new();
        let mut faces = Vec::new();
        for (node, others) in self.0.iter().enumerate() {
            for &other in others {
                let mut face = Vec::new();
                let mut side = [node, other];
                while seen.insert(side) {
                    face.push(side[0]);
                    side = [side[1], self.next(side[1], side[0])];
                }
                if !face.is_empty() {
                    faces.push(face);
                }
            }
        }
        faces
    }
}

fn position(values: &[usize], value: usize) -> usize {
    values.iter().position(|&other| other == value).unwrap_or(0)
}

/// Returns the coordinates of the nodes; the face `outer` is a regular polygon.
fn tutte_embedding(rotations: &[Vec<usize>], faces: &[Vec<usize>], outer: usize) -> Vec<Point> {
    let nodes = rotations.len();
    let mut neighbors: Vec<Vec<usize>> = rotations.to_vec();
    for (index, face) in faces.iter().enumerate() {
        if index != outer && face.len() > 3 {
            let center = neighbors.len();
            for &node in face {
                neighbors[node].push(center);
            }
            neighbors.push(face.clone());
        }
    }
    let mut points: Vec<Option<Point>> = vec![None; neighbors.len()];
    let corners = faces[outer].len() as f64;
    for (corner, &node) in faces[outer].iter().enumerate() {
        let (sine, cosine) = (TAU * corner as f64 / corners).sin_cos();
        points[node] = Some([corners / TAU * cosine, corners / TAU * sine]);
    }
    let free: Vec<usize> = (0..neighbors.len()).filter(|&node| points[node].is_none()).collect();
    let mut index_of = vec![usize::MAX; neighbors.len()];
    free.iter().enumerate().for_each(|(index, &node)| index_of[node] = index);
    // One equation per free node: degree * x - sum of its free neighbors = sum of the others.
    let size = free.len();
    let mut matrix = vec![vec![0.0; size]; size];
    let mut right = vec![[0.0; 2]; size];
    for (row, &node) in free.iter().enumerate() {
        matrix[row][row] = neighbors[node].len() as f64;
        for &other in &neighbors[node] {
            match points[other] {
                Some(point) => right[row] = [right[row][0] + point[0], right[row][1] + point[1]],
                None => matrix[row][index_of[other]] -= 1.0,
            }
        }
    }
    let solution = solve(matrix, right);
    (0..nodes).map(|node| points[node].unwrap_or_else(|| solution[index_of[node]])).collect()
}

/// Solves a diagonally dominant system by Gaussian elimination.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<Point>) -> Vec<Point> {
    let size = matrix.len();
    for pivot in 0..size {
        let (above, below) = matrix.split_at_mut(pivot + 1);
        let pivot_row = &above[pivot];
        for (offset, row) in below.iter_mut().enumerate() {
            let factor = row[pivot] / pivot_row[pivot];
            if factor != 0.0 {
                for column in pivot..size {
                    row[column] -= factor * pivot_row[column];
                }
                let [x, y] = right[pivot];
                let target = &mut right[pivot + 1 + offset];
                *target = [target[0] - factor * x, target[1] - factor * y];
            }
        }
    }
    for row in (0..size).rev() {
        for column in row + 1..size {
            let [x, y] = right[column];
            let factor = matrix[row][column];
            right[row] = [right[row][0] - factor * x, right[row][1] - factor * y];
        }
        right[row] = right[row].map(|value| value / matrix[row][row]);
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::crossings::count_crossings;

    #[test]
    fn planar_graphs_are_drawn_without_crossings() {
        // A cube with a pendant path and a triangle at one corner.
        let mut edges: Vec<[u32; 2]> = (0..8_u32)
            .flat_map(|node| [1, 2, 4].map(|bit| [node, node ^ bit]))
            .filter(|[from, to]| from < to)
            .collect();
        edges.extend([[0, 8], [8, 9], [9, 10], [9, 11], [7, 12], [12, 13], [13, 7], [8, 14]]);
        let neighbors = crate::layout::neighbors(15, &edges);
        let PlanarDrawing { points, is_outerplanar } = draw(&neighbors).unwrap();
        assert!(!is_outerplanar);
        let edges: Vec<[usize; 2]> =
            edges.iter().map(|edge| edge.map(|node| node as usize)).collect();
        assert_eq!(count_crossings(&points, &edges), 0);
        let complete: Vec<[u32; 2]> =
            (0..5).flat_map(|node| (0..node).map(move |other| [other, node])).collect();
        assert!(draw(&crate::layout::neighbors(5, &complete)).is_none());
    }
}
