//! Random-walk encoding: how likely a walk is to be back after 1, 2, … steps.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use burn::module::Module;
use burn::tensor::Tensor;
use graph_diffuser_data::Graph;

use crate::nn::{BatchNorm, Init, Linear, Pass};

/// Return probabilities, normalised and projected.
#[derive(Module, Debug)]
pub struct RandomWalkEncoding {
    norm: BatchNorm,
    linear: Linear,
}

impl RandomWalkEncoding {
    /// From `steps` probabilities to vectors of `width`.
    pub fn new(steps: usize, width: usize, init: &mut Init) -> Self {
        Self { norm: BatchNorm::new(steps, init), linear: Linear::new(steps, width, init) }
    }

    /// # Shapes
    /// - `probabilities`: `[r, steps]`
    /// - returns `[r, width]`
    pub fn forward(&self, probabilities: Tensor<2>, pass: &Pass) -> Tensor<2> {
        self.linear.forward(self.norm.forward(probabilities, pass))
    }
}

/// Computes return probabilities and remembers those of every structure it has seen.
#[derive(Debug)]
pub struct ReturnProbabilities {
    steps: usize,
    known: Mutex<HashMap<Structure, Arc<[f64]>>>,
}

/// What the probabilities depend on: number of nodes and edges.
type Structure = (usize, Vec<[u32; 2]>);

impl ReturnProbabilities {
    /// Of walks of up to so many steps.
    pub fn new(steps: usize) -> Self {
        Self { steps, known: Mutex::default() }
    }

    /// Longest walk.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// `[n, steps]` of one graph, row after row.
    pub fn of(&self, graph: &Graph) -> Arc<[f64]> {
        let mut known = self.known.lock().expect("no thread panics while it holds the cache");
        let structure = (graph.nodes, graph.edges.clone());
        known.entry(structure).or_insert_with(|| self.compute(graph).into()).clone()
    }

    fn compute(&self, graph: &Graph) -> Vec<f64> {
        let nodes = graph.nodes;
        let mut neighbours = vec![Vec::new(); nodes];
        for &[source, target] in &graph.edges {
            neighbours[source as usize].push(target as usize);
        }
        let mut probabilities = vec![0.0; nodes * self.steps];
        for start in 0..nodes {
            let mut walk = vec![0.0_f64; nodes];
            walk[start] = 1.0;
            for step in 0..self.steps {
                let mut next = vec![0.0; nodes];
                for (node, &mass) in walk.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
                    let share = mass / neighbours[node].len() as f64;
                    for &neighbour in &neighbours[node] {
                        next[neighbour] += share;
                    }
                }
                walk = next;
                probabilities[start * self.steps + step] = walk[start];
            }
        }
        probabilities
    }
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
        let encoding = ReturnProbabilities::new(2);
        assert_eq!(*encoding.of(&path), [0.0, 0.5, 0.0, 1.0, 0.0, 0.5, 0.0, 0.0]);
    }
}
