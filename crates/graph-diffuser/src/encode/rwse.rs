//! Random-walk encoding: how likely a walk is to be back after 1, 2, … steps.

use burn::module::Module;
use burn::tensor::Tensor;
use graph_diffuser_data::Graph;

use crate::nn::{BatchNorm, ForwardContext, Linear, ParamInit};

/// Return probabilities, normalised and projected.
#[derive(Module, Debug)]
pub struct Rwse {
    norm: BatchNorm,
    linear: Linear,
}

impl Rwse {
    /// From `steps` probabilities to vectors of `dim`.
    pub fn new(steps: usize, dim: usize, init: &mut ParamInit) -> Self {
        Self { norm: BatchNorm::new(steps, init), linear: Linear::new(steps, dim, init) }
    }

    /// # Shapes
    /// - `probabilities`: `[r, steps]`
    /// - returns `[r, dim]`
    pub fn forward(&self, probabilities: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.linear.forward(self.norm.forward(probabilities, ctx))
    }
}

/// `[n, steps]` probabilities of being back after 1, 2, … steps, row after row.
///
/// What arrives at a node is added up from the smallest share to the largest, so that the order of nodes and edges
/// changes no bit.
pub(super) fn return_probabilities(graph: &Graph, steps: usize) -> Vec<f64> {
    let nodes = graph.nodes;
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
    fn a_walk_on_a_path_comes_back_after_even_steps() {
        // 0 - 1 - 2: from an end the walk is back after two steps with probability 1/2, from the
        // middle always; node 3 has no edges, so nothing ever comes back.
        let path = Graph {
            nodes: 4,
            edges: vec![[0, 1], [1, 0], [1, 2], [2, 1]],
            node_features: Features::None,
            edge_features: Features::None,
            targets: Targets::GraphValues(vec![]),
        };
        assert_eq!(return_probabilities(&path, 2), [0.0, 0.5, 0.0, 1.0, 0.0, 0.5, 0.0, 0.0]);
    }
}
