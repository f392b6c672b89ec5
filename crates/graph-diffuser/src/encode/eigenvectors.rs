//! Eigenvectors of the normalised Laplacian, as definite as they can be made.
//!
//! An eigenvector has no sign, and those of one eigenvalue can be turned into one another at will. Where several
//! share an eigenvalue, the first chosen is the part of that space along what every numbering of the nodes agrees on
//! (the constant, degrees, return probabilities of walks), then the next, each at right angles to those before. What no
//! such vector reaches is left to the solver: in a graph that looks the same from several sides, as a square grid does,
//! there is nothing to choose by. Each is turned so that its largest entry is positive.

use faer::{Mat, Side};
use graph_diffuser_data::Graph;

use super::rwse::return_probabilities;

/// Eigenvalues closer than this are one: they lie between 0 and 2, and are good to about 1e-14.
const SAME: f64 = 1e-8;
/// A part shorter than this, of a vector of length one, is rounding.
const NOTHING: f64 = 1e-6;
/// How many return probabilities are tried before the solver's basis is taken.
const WALKS: usize = 12;

/// `[n, 3 count]`: for each of the `count` smallest eigenvalues the entry of its eigenvector (of length `√n`, so that
/// entries are about one in graphs of any size), then the eigenvalues, then one where there is such an eigenvector.
pub(super) fn num_eigenvectors(graph: &Graph, count: usize) -> Vec<f64> {
    let nodes = graph.nodes;
    let (values, basis) = decompose(graph);
    let mut chosen: Vec<(f64, Vec<f64>)> = Vec::with_capacity(nodes);
    let mut landmarks: Option<Vec<Vec<f64>>> = None;
    let mut first = 0;
    while first < nodes && chosen.len() < count {
        let last = (first..nodes)
            .take_while(|&place| values[place] - values[first] < SAME)
            .last()
            .unwrap_or(first);
        let space = &basis[first..=last];
        if space.len() == 1 {
            chosen.push((values[first], space[0].clone()));
        } else {
            let landmarks = landmarks.get_or_insert_with(|| landmarks_of(graph));
            let turned = turn(space, landmarks);
            chosen.extend(turned.into_iter().map(|vector| (values[first], vector)));
        }
        first = last + 1;
    }
    chosen.truncate(count);
    let mut table = vec![0.0; nodes * 3 * count];
    let scale = (nodes as f64).sqrt();
    for (place, (value, vector)) in chosen.iter().enumerate() {
        let sign = sign_of(vector);
        for (row, entry) in table.chunks_mut(3 * count).zip(vector) {
            row[place] = sign * scale * entry;
            row[count + place] = *value;
            row[2 * count + place] = 1.0;
        }
    }
    table
}

/// Eigenvalues in rising order, and their eigenvectors.
///
/// Every edge counts once and in both directions; loops and nodes without edges have nothing to share.
fn decompose(graph: &Graph) -> (Vec<f64>, Vec<Vec<f64>>) {
    let nodes = graph.nodes;
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
    let lap_pe = Mat::<f64>::from_fn(nodes, nodes, |row, column| {
        if row == column {
            return if degrees[row] > 0.0 { 1.0 } else { 0.0 };
        }
        if adjacent[row * nodes + column] {
            -1.0 / (degrees[row] * degrees[column]).sqrt()
        } else {
            0.0
        }
    });
    let decomposed =
        lap_pe.self_adjoint_eigen(Side::Lower).expect("a finite symmetric matrix has eigenvalues");
    let values = decomposed.S().column_vector();
    let vectors = decomposed.U();
    let column = |place| (0..nodes).map(|node| vectors[(node, place)]).collect();
    (
        (0..nodes).map(|place| values[place].clamp(0.0, 2.0)).collect(),
        (0..nodes).map(column).collect(),
    )
}

/// Vectors that renumbering the nodes renumbers, each of length one.
fn landmarks_of(graph: &Graph) -> Vec<Vec<f64>> {
    let mut degrees = vec![0.0; graph.nodes];
    for &[source, target] in &graph.edges {
        degrees[source as usize] += 0.5;
        degrees[target as usize] += 0.5;
    }
    let walks = return_probabilities(graph, WALKS);
    let walk = |step| walks.iter().skip(step).step_by(WALKS).copied().collect();
    let all = [vec![1.0; graph.nodes], degrees].into_iter().chain((1..WALKS).map(walk));
    all.filter_map(|vector| unit(vector, f64::MIN_POSITIVE)).collect()
}

/// Another orthonormal basis of the same space: along the landmarks first, then along what is left.
fn turn(space: &[Vec<f64>], landmarks: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut turned: Vec<Vec<f64>> = Vec::with_capacity(space.len());
    for vector in landmarks.iter().chain(space) {
        if turned.len() == space.len() {
            break;
        }
        let mut part = vec![0.0; vector.len()];
        for axis in space {
            add(&mut part, axis, dot(axis, vector));
        }
        // Twice, so that rounding leaves nothing of what was taken before.
        for _ in 0..2 {
            for taken in &turned {
                let along = dot(taken, &part);
                add(&mut part, taken, -along);
            }
        }
        turned.extend(unit(part, NOTHING));
    }
    turned
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

fn add(sum: &mut [f64], vector: &[f64], factor: f64) {
    sum.iter_mut().zip(vector).for_each(|(sum, entry)| *sum += factor * entry);
}

/// The vector at length one, unless it is no longer than `least`.
fn unit(vector: Vec<f64>, least: f64) -> Option<Vec<f64>> {
    let length = dot(&vector, &vector).sqrt();
    (length > least).then(|| vector.into_iter().map(|entry| entry / length).collect())
}

/// What makes the largest entry positive; of nearly equal ones the first counts.
fn sign_of(vector: &[f64]) -> f64 {
    let largest = vector.iter().fold(0.0_f64, |largest, entry| largest.max(entry.abs()));
    let decisive = vector.iter().find(|entry| entry.abs() > largest - NOTHING);
    if decisive.is_some_and(|entry| *entry < 0.0) { -1.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::{Features, SeedTree, Targets};

    use super::*;

    fn graph(nodes: usize, bonds: &[[u32; 2]]) -> Graph {
        Graph {
            nodes,
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
    fn two_nodes_by_hand() {
        // L = [[1, -1], [-1, 1]]: 0 with (1, 1)/√2 and 2 with (1, -1)/√2, at length √2; there is no third.
        let table = num_eigenvectors(&graph(2, &[[0, 1]]), 3);
        let expected = [
            1.0, 1.0, 0.0, 0.0, 2.0, 0.0, 1.0, 1.0, 0.0, 1.0, -1.0, 0.0, 0.0, 2.0, 0.0, 1.0, 1.0,
            0.0,
        ];
        for (found, expected) in table.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{table:?}");
        }
    }

    #[test]
    fn renumbered_nodes_have_the_same_eigenvectors_but_for_the_sign() {
        // Three components, one a node alone: the eigenvalue 0 has three eigenvectors.
        let mut parts = grid(3, 4);
        parts.nodes = 18;
        parts.edges.extend(
            graph(5, &[[0, 1], [1, 2], [2, 0], [2, 3], [3, 4]])
                .edges
                .iter()
                .map(|ends| ends.map(|node| node + 12)),
        );
        let cases =
            [grid(4, 5), grid(3, 6), parts, graph(6, &[[0, 1], [1, 2], [2, 3], [3, 4], [1, 5]])];
        for (case, graph) in cases.into_iter().enumerate() {
            let (count, nodes) = (5, graph.nodes);
            let mut order: Vec<u32> = (0..nodes as u32).collect();
            SeedTree::new(3).stream("order").shuffle(&mut order);
            let edges =
                graph.edges.iter().map(|ends| ends.map(|node| order[node as usize])).collect();
            let (before, after) = (
                num_eigenvectors(&graph, count),
                num_eigenvectors(&Graph { edges, ..graph.clone() }, count),
            );
            for place in 0..count {
                let entry = |table: &[f64], node: usize| table[node * 3 * count + place];
                let pairs = (0..nodes)
                    .map(|node| (entry(&before, node), entry(&after, order[node] as usize)));
                let apart = |sign: f64| {
                    pairs.clone().map(|(x, y)| (x - sign * y).abs()).fold(0.0, f64::max)
                };
                let apart = apart(1.0).min(apart(-1.0));
                assert!(apart < 1e-6, "graph {case}, eigenvector {place}: {apart}");
            }
        }
    }

    #[test]
    fn they_are_eigenvectors_at_right_angles_whatever_the_graph() {
        // A cycle, whose symmetry nothing breaks; and loops, doubled and one-way edges, nodes without edges.
        let cycle = graph(7, &[[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 0]]);
        let mut odd = graph(6, &[[0, 1], [0, 1], [1, 2]]);
        odd.edges.extend([[3, 3], [0, 2]]);
        for graph in [cycle, odd, graph(1, &[]), graph(4, &[])] {
            let nodes = graph.nodes;
            let table = num_eigenvectors(&graph, nodes);
            let column = |place: usize| {
                table.iter().skip(place).step_by(3 * nodes).copied().collect::<Vec<_>>()
            };
            for first in 0..nodes {
                for second in 0..nodes {
                    let expected = if first == second { nodes as f64 } else { 0.0 };
                    assert!((dot(&column(first), &column(second)) - expected).abs() < 1e-9);
                }
            }
            // Σ λ v vᵀ is the Laplacian again.
            let mut neighbors = vec![std::collections::BTreeSet::new(); nodes];
            for &[source, target] in graph.edges.iter().filter(|ends| ends[0] != ends[1]) {
                neighbors[source as usize].insert(target as usize);
                neighbors[target as usize].insert(source as usize);
            }
            for row in 0..nodes {
                for other in 0..nodes {
                    let sum: f64 = (0..nodes)
                        .map(|place| {
                            column(nodes + place)[0] * column(place)[row] * column(place)[other]
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
