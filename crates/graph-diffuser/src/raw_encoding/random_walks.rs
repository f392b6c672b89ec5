//! Return probabilities of random walks, the raw values of RWSE.

use graph_diffuser_data::Graph;

/// Returns the probabilities that a random walk is back at its start after 1, 2, … steps.
///
/// Incoming probabilities are summed in ascending order, so that the result does not depend on the
/// order of nodes and edges, to the last bit.
///
/// # Shapes
/// - returns `[n, steps]` in row-major order
pub(super) fn return_probabilities(graph: &Graph, steps: usize) -> Vec<f64> {
    let nodes = graph.num_nodes;
    let mut outgoing = vec![0_u32; nodes];
    let mut arriving = vec![Vec::new(); nodes];
    for &[source, target] in &graph.edges {
        outgoing[source as usize] += 1;
        arriving[target as usize].push(source as usize);
    }
    let mut probabilities = vec![0.0; nodes * steps];
    let (mut walk, mut next, mut shares) = (vec![0.0_f64; nodes], vec![0.0_f64; nodes], Vec::new());
    for start in 0..nodes {
        walk.fill(0.0);
        walk[start] = 1.0;
        for step in 0..steps {
            for (sources, mass) in arriving.iter().zip(&mut next) {
                shares.clear();
                shares.extend(sources.iter().map(|&node| walk[node] / f64::from(outgoing[node])));
                shares.sort_by(f64::total_cmp);
                *mass = shares.iter().sum();
            }
            std::mem::swap(&mut walk, &mut next);
            probabilities[start * steps + step] = walk[start];
        }
    }
    probabilities
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::{Features, Targets};

    use super::*;

    #[test]
    fn return_probabilities_of_a_path_match_hand_computed_values() {
        // 0 - 1 - 2: after two steps a walk is back with probability 1/2 from an end and 1 from the
        // middle; node 3 has no edges and return probability 0.
        let path = Graph {
            num_nodes: 4,
            edges: vec![[0, 1], [1, 0], [1, 2], [2, 1]],
            node_features: Features::None,
            edge_features: Features::None,
            targets: Targets::GraphValues(vec![]),
        };
        assert_eq!(return_probabilities(&path, 2), [0.0, 0.5, 0.0, 1.0, 0.0, 0.5, 0.0, 0.0]);
    }
}
