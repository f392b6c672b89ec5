//! Virtual edges: what diffusion says of every pair of nodes (Eq. 1–5).
//!
//! Edge weights are learned (Eq. 4–5) or fixed, walks along them are stacked (Eq. 1), and a small
//! network mixes the steps of every pair (Eq. 2–3).

mod edge_ffn;
mod transform;
mod weighted_adjacency;

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::batch::{GraphBatch, Topology};
use crate::nn::{Init, Pass};
use crate::ops;

pub use edge_ffn::{EdgeFfn, EdgeFfnConfig};
pub use transform::Transform;
pub use weighted_adjacency::{AdjacencyConfig, Kernel, Projections, WeightedAdjacency};

/// What [`VirtualEdges`] needs to exist.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VirtualEdgesConfig {
    /// Number of diffusion steps, `k`.
    pub steps: usize,
    /// Where edge weights come from.
    #[serde(default)]
    pub adjacency: AdjacencyConfig,
    /// What is done to the stack before the network sees it.
    #[serde(default)]
    pub transform: Transform,
    /// The network over every pair.
    #[serde(default)]
    pub ffn: EdgeFfnConfig,
    /// Which self-virtual-edges are added to the nodes (Eq. 9).
    #[serde(default)]
    pub self_edges: SelfEdges,
}

/// Which self-virtual-edges are added to the nodes (Eq. 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelfEdges {
    /// None.
    Off,
    /// Those after the edge-wise network: the paper.
    #[default]
    AfterFfn,
    /// Those before it, with a batch norm of their own: the authors' code.
    BeforeFfn,
}

impl VirtualEdgesConfig {
    /// Channels of the stack: the identity and `k` powers, `c`.
    pub fn stack_channels(&self) -> usize {
        self.steps + 1
    }

    /// Channels of a virtual edge after the network.
    pub fn channels(&self) -> usize {
        self.ffn.output_channels(self.stack_channels())
    }

    /// Draws the parameters; `edge_width` is that of `e`, where edges have features.
    pub fn init(&self, width: usize, edge_width: Option<usize>, init: &mut Init) -> VirtualEdges {
        VirtualEdges {
            adjacency: match self.adjacency {
                AdjacencyConfig::Fixed {} => None,
                AdjacencyConfig::Weighted { kernel, projections } => {
                    Some(WeightedAdjacency::new(width, edge_width, kernel, projections, init))
                }
            },
            ffn: self.ffn.init(self.stack_channels(), init),
            steps: self.steps,
            transform: self.transform,
        }
    }
}

/// Makes virtual edges from nodes and edges.
#[derive(Module, Debug)]
pub struct VirtualEdges {
    adjacency: Option<WeightedAdjacency>,
    ffn: Option<EdgeFfn>,
    #[module(skip)]
    steps: usize,
    #[module(skip)]
    transform: Transform,
}

/// Virtual edges of the distinct structures of a batch.
#[derive(Debug, Clone)]
pub struct Stacks {
    /// `[c, p]` the transformed stack.
    pub raw: Tensor<2>,
    /// `[c', p]` after the edge-wise network.
    pub mixed: Tensor<2>,
}

impl VirtualEdges {
    /// # Shapes
    /// - `x`: `[r, d]` nodes, `e`: `[m, d]` edges where they have features
    pub fn forward(&self, x: &Tensor<2>, e: Option<&Tensor<2>>, batch: &GraphBatch, pass: &Pass) -> Stacks {
        let topology = batch.edge_topology();
        let weights = self.edge_weights(x, e, topology, pass);
        let stack = ops::walk_stack(weights, topology, self.steps); // [c, p]
        pass.note(|| "virtual_edges.stack".into(), &stack);
        let raw = self.transform.apply(stack);
        let pair_weights = batch.shared.as_ref().map(|shared| &shared.pair_weights);
        let mixed = match &self.ffn {
            Some(ffn) => ffn.forward(raw.clone(), pair_weights, pass), // [c', p]
            None => raw.clone(),
        };
        pass.note(|| "virtual_edges.ffn".into(), &mixed);
        Stacks { raw, mixed }
    }

    /// Rows of A: learned (Eq. 4–5) or uniform over the neighbours.
    ///
    /// # Shapes
    /// - returns `[m]`
    pub fn edge_weights(&self, x: &Tensor<2>, e: Option<&Tensor<2>>, topology: &Topology, pass: &Pass) -> Tensor<1> {
        let m = topology.edges();
        let options = (&x.device(), x.dtype());
        if m == 0 {
            return Tensor::zeros([0], options);
        }
        let weights = match &self.adjacency {
            Some(adjacency) => adjacency.forward(x, e, topology, pass), // [m, 1]
            None => Tensor::ones([m, 1], options),
        };
        let sums = ops::sum_by_row(weights.clone(), topology.sources.clone(), topology.layout.nodes());
        let weights = weights / ops::gather_rows(sums, topology.sources.clone());
        pass.note(|| "virtual_edges.adjacency".into(), &weights);
        weights.squeeze_dim(1)
    }
}
