//! Eigenvectors of the normalized Laplacian with a canonical basis and sign.
//!
//! The sign of an eigenvector and the basis of a repeated eigenvalue's eigenspace are arbitrary.
//! For a repeated eigenvalue, the basis is built by projecting node functions that are independent
//! of the node order (the constant, the degrees, random-walk return probabilities) onto the
//! eigenspace, each orthogonalized against the ones before. Directions that no such function
//! reaches keep the solver's basis: in a graph with symmetries, such as a square grid, no canonical
//! choice exists. The sign is chosen so that the largest entry is positive.

use faer::{Mat, Side};
use graph_diffuser_data::Graph;

use super::random_walks::return_probabilities;

/// Eigenvalues closer than this are treated as equal; they are between 0 and 2, accurate to
/// 1e-14.
const EIGENVALUE_TOLERANCE: f64 = 1e-8;
/// Projections of a unit vector with a smaller norm are treated as rounding errors.
const NORM_TOLERANCE: f64 = 1e-6;
/// Number of random-walk steps whose return probabilities are used to choose a basis.
const LANDMARK_STEPS: usize = 12;

/// Returns the eigenvectors of the `count` smallest eigenvalues.
///
/// Eigenvectors have norm `√n`, so that entries are of order one in graphs of any size.
///
/// # Shapes
/// - returns `[n, 3 count]` in row-major order: eigenvector entries, eigenvalues, and a mask that
///   is 0 for eigenvectors beyond the number of nodes
pub(super) fn laplacian_eigenvectors(graph: &Graph, count: usize) -> Vec<f64> {
    let nodes = graph.num_nodes;
    let (values, basis) = decompose(graph);
    let mut chosen: Vec<(f64, Vec<f64>)> = Vec::with_capacity(nodes);
    let mut landmarks: Option<Vec<Vec<f64>>> = None;
    let mut first = 0;
    while first < nodes && chosen.len() < count {
        let last = (first..nodes)
            .take_while(|&index| values[index] - values[first] < EIGENVALUE_TOLERANCE)
            .last()
            .unwrap_or(first);
        let space = &basis[first..=last];
        if space.len() == 1 {
            chosen.push((values[first], space[0].clone()));
        } else {
            let landmarks = landmarks.get_or_insert_with(|| landmarks_of(graph));
            let rotated = rotate_basis(space, landmarks);
            chosen.extend(rotated.into_iter().map(|vector| (values[first], vector)));
        }
        first = last + 1;
    }
    chosen.truncate(count);
    let mut table = vec![0.0; nodes * 3 * count];
    let scale = (nodes as f64).sqrt();
    for (index, (value, vector)) in chosen.iter().enumerate() {
        let sign = sign_of(vector);
        for (row, entry) in table.chunks_mut(3 * count).zip(vector) {
            row[index] = sign * scale * entry;
            row[count + index] = *value;
            row[2 * count + index] = 1.0;
        }
    }
    table
}

/// Returns the eigenvalues in ascending order and their eigenvectors.
///
/// Edges are made undirected and deduplicated; self-loops are ignored, and the row of an isolated
/// node is zero.
fn decompose(graph: &Graph) -> (Vec<f64>, Vec<Vec<f64>>) {
    let nodes = graph.num_nodes;
    let mut adjacent = vec![false; nodes * nodes];
    for &[source, target] in graph.edges.iter().filter(|[source, target]| source != target) {
        let (source, target) = (source as usize, target as usize);
        adjacent[source * nodes + target] = true;
        adjacent[target * nodes + source] = true;
    }
    let degree = |node: usize| {
        adjacent[node * nodes..(node + 1) * nodes].iter().filter(|edge| **edge).count() as f64
    };
    let degrees: Vec<f64> = (0..nodes).map(degree).collect();
    let laplacian = Mat::<f64>::from_fn(nodes, nodes, |row, column| {
        if row == column {
            return if degrees[row] > 0.0 { 1.0 } else { 0.0 };
        }
        if adjacent[row * nodes + column] {
            -1.0 / (degrees[row] * degrees[column]).sqrt()
        } else {
            0.0
        }
    });
    let decomposed = laplacian
        .self_adjoint_eigen(Side::Lower)
        .expect("a finite symmetric matrix has eigenvalues");
    let values = decomposed.S().column_vector();
    let vectors = decomposed.U();
    let column = |index| (0..nodes).map(|node| vectors[(node, index)]).collect();
    (
        (0..nodes).map(|index| values[index].clamp(0.0, 2.0)).collect(),
        (0..nodes).map(column).collect(),
    )
}

/// Returns unit vectors that are equivariant to permutations of the nodes.
fn landmarks_of(graph: &Graph) -> Vec<Vec<f64>> {
    let mut degrees = vec![0.0; graph.num_nodes];
    for &[source, target] in &graph.edges {
        degrees[source as usize] += 0.5;
        degrees[target as usize] += 0.5;
    }
    let walks = return_probabilities(graph, LANDMARK_STEPS);
    let walk = |step| walks.iter().skip(step).step_by(LANDMARK_STEPS).copied().collect();
    let all =
        [vec![1.0; graph.num_nodes], degrees].into_iter().chain((1..LANDMARK_STEPS).map(walk));
    all.filter_map(|vector| unit(vector, f64::MIN_POSITIVE)).collect()
}

/// Returns an orthonormal basis of `space` whose first vectors are projections of the landmarks.
fn rotate_basis(space: &[Vec<f64>], landmarks: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut rotated: Vec<Vec<f64>> = Vec::with_capacity(space.len());
    for vector in landmarks.iter().chain(space) {
        if rotated.len() == space.len() {
            break;
        }
        let mut part = vec![0.0; vector.len()];
        for axis in space {
            add(&mut part, axis, dot(axis, vector));
        }
        // Orthogonalize twice, which removes what rounding leaves after the first pass.
        for _ in 0..2 {
            for taken in &rotated {
                let along = dot(taken, &part);
                add(&mut part, taken, -along);
            }
        }
        rotated.extend(unit(part, NORM_TOLERANCE));
    }
    rotated
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

fn add(sum: &mut [f64], vector: &[f64], factor: f64) {
    sum.iter_mut().zip(vector).for_each(|(sum, entry)| *sum += factor * entry);
}

/// Normalizes the vector, or returns `None` if its norm is at most `min_norm`.
fn unit(vector: Vec<f64>, min_norm: f64) -> Option<Vec<f64>> {
    let norm = dot(&vector, &vector).sqrt();
    (norm > min_norm).then(|| vector.into_iter().map(|entry| entry / norm).collect())
}

/// Returns the sign of the entry with the largest magnitude; among nearly equal ones, of the first.
fn sign_of(vector: &[f64]) -> f64 {
    let largest = vector.iter().fold(0.0_f64, |largest, entry| largest.max(entry.abs()));
    let decisive = vector.iter().find(|entry| entry.abs() > largest - NORM_TOLERANCE);
    if decisive.is_some_and(|entry| *entry < 0.0) { -1.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::{Features, SeedTree, Targets};

    use super::*;

    fn graph(nodes: usize, bonds: &[[u32; 2]]) -> Graph {
        Graph {
            num_nodes: nodes,
            edges: bonds
                .iter()
                .flat_map(|&[first, second]| [[first, second], [second, first]])
                .collect(),
            node_features: Features::None,
            edge_features: Features::None,
            targets: Targets::GraphValues(vec![]),
        }
    }

    fn grid(rows: u32, columns: u32) -> Graph {
        let mut bonds = Vec::new();
        for node in 0..rows * columns {
            if (node + 1) % columns != 0 {
                bonds.push([node, node + 1]);
            }
            if node + columns < rows * columns {
                bonds.push([node, node + columns]);
            }
        }
        graph((rows * columns) as usize, &bonds)
    }

    #[test]
    fn eigenvectors_of_two_nodes_match_hand_computed_values() {
        // L = [[1, -1], [-1, 1]] has eigenvalue 0 with (1, 1)/√2 and eigenvalue 2 with (1, -1)/√2,
        // here scaled to norm √2; there is no third eigenvector.
        let table = laplacian_eigenvectors(&graph(2, &[[0, 1]]), 3);
        let expected = [
            1.0, 1.0, 0.0, 0.0, 2.0, 0.0, 1.0, 1.0, 0.0, 1.0, -1.0, 0.0, 0.0, 2.0, 0.0, 1.0, 1.0,
            0.0,
        ];
        for (found, expected) in table.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{table:?}");
        }
    }

    #[test]
    fn eigenvectors_are_permutation_equivariant_up_to_sign() {
        // Three components, one of them a single node: eigenvalue 0 has multiplicity three.
        let mut parts = grid(3, 4);
        parts.num_nodes = 18;
        parts.edges.extend(
            graph(5, &[[0, 1], [1, 2], [2, 0], [2, 3], [3, 4]])
                .edges
                .iter()
                .map(|ends| ends.map(|node| node + 12)),
        );
        let cases =
            [grid(4, 5), grid(3, 6), parts, graph(6, &[[0, 1], [1, 2], [2, 3], [3, 4], [1, 5]])];
        for (case, graph) in cases.into_iter().enumerate() {
            let (count, nodes) = (5, graph.num_nodes);
            let mut order: Vec<u32> = (0..nodes as u32).collect();
            SeedTree::new(3).stream("order").shuffle(&mut order);
            let edges =
                graph.edges.iter().map(|ends| ends.map(|node| order[node as usize])).collect();
            let (before, after) = (
                laplacian_eigenvectors(&graph, count),
                laplacian_eigenvectors(&Graph { edges, ..graph.clone() }, count),
            );
            for index in 0..count {
                let entry = |table: &[f64], node: usize| table[node * 3 * count + index];
                let pairs = (0..nodes)
                    .map(|node| (entry(&before, node), entry(&after, order[node] as usize)));
                let apart = |sign: f64| {
                    pairs.clone().map(|(x, y)| (x - sign * y).abs()).fold(0.0, f64::max)
                };
                let apart = apart(1.0).min(apart(-1.0));
                assert!(apart < 1e-6, "graph {case}, eigenvector {index}: {apart}");
            }
        }
    }

    #[test]
    fn eigenvectors_are_orthogonal_and_reconstruct_the_laplacian() {
        // A symmetric cycle, and a graph with self-loops, duplicate and directed edges, isolated
        // nodes.
        let cycle = graph(7, &[[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 0]]);
        let mut odd = graph(6, &[[0, 1], [0, 1], [1, 2]]);
        odd.edges.extend([[3, 3], [0, 2]]);
        for graph in [cycle, odd, graph(1, &[]), graph(4, &[])] {
            let nodes = graph.num_nodes;
            let table = laplacian_eigenvectors(&graph, nodes);
            let column = |index: usize| {
                table.iter().skip(index).step_by(3 * nodes).copied().collect::<Vec<_>>()
            };
            for first in 0..nodes {
                for second in 0..nodes {
                    let expected = if first == second { nodes as f64 } else { 0.0 };
                    assert!((dot(&column(first), &column(second)) - expected).abs() < 1e-9);
                }
            }
            // Σ λ v vᵀ reconstructs the Laplacian.
            let mut neighbors = vec![std::collections::BTreeSet::new(); nodes];
            for &[source, target] in graph.edges.iter().filter(|ends| ends[0] != ends[1]) {
                neighbors[source as usize].insert(target as usize);
                neighbors[target as usize].insert(source as usize);
            }
            for row in 0..nodes {
                for other in 0..nodes {
                    let sum: f64 = (0..nodes)
                        .map(|index| {
                            column(nodes + index)[0] * column(index)[row] * column(index)[other]
                        })
                        .sum();
                    let expected = match (row == other, neighbors[row].contains(&other)) {
                        (true, _) => f64::from(u8::from(!neighbors[row].is_empty())),
                        (_, true) => {
                            -1.0 / ((neighbors[row].len() * neighbors[other].len()) as f64).sqrt()
                        }
                        _ => 0.0,
                    };
                    assert!(
                        (sum / nodes as f64 - expected).abs() < 1e-9,
                        "{row} {other}: {sum} {expected}"
                    );
                }
            }
        }
    }
}
