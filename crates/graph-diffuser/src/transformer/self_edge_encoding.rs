//! Self-virtual-edges as positional encoding (Eq. 9).

use burn::module::Module;
use burn::tensor::{Tensor, activation::relu};

use crate::batch::GraphBatch;
use crate::nn::{BatchNorm, Init, Linear, Pass};
use crate::virtual_edges::{SelfEdges, Stacks, VirtualEdgesConfig};

/// Adds `ReLU(W_pe E_ii)` to every node.
#[derive(Module, Debug)]
pub struct SelfEdgeEncoding {
    norm: Option<BatchNorm>,
    linear: Linear,
}

impl SelfEdgeEncoding {
    /// What the config asks for, if anything.
    pub fn new(config: &VirtualEdgesConfig, width: usize, init: &mut Init) -> Option<Self> {
        match config.self_edges {
            SelfEdges::Off => None,
            SelfEdges::AfterFfn => Some(Self { norm: None, linear: Linear::new(config.channels(), width, init) }),
            SelfEdges::BeforeFfn => {
                let c = config.stack_channels();
                Some(Self { norm: Some(BatchNorm::new(c, init)), linear: Linear::new(c, width, init) })
            }
        }
    }

    /// # Shapes
    /// - `x`: `[r, d]`, returned in the same
    pub fn forward(&self, x: Tensor<2>, stacks: &Stacks, batch: &GraphBatch, pass: &Pass) -> Tensor<2> {
        let self_pairs = batch.edge_topology().self_pairs.clone();
        let own = match &self.norm {
            Some(norm) => {
                let own = stacks.raw.clone().select(1, self_pairs); // [c, nodes]
                let weights = batch.shared.as_ref().map(|shared| &shared.node_weights);
                norm.forward_pairs(own, weights, pass)
            }
            None => stacks.mixed.clone().select(1, self_pairs), // [c', nodes]
        };
        let encoding = relu(self.linear.forward(own.transpose())); // Eq. 9, [nodes, d]
        match &batch.shared {
            Some(shared) => x + encoding.select(0, shared.nodes.clone()),
            None => x + encoding,
        }
    }
}
