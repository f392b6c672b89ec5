//! Self-virtual-edges as positional encoding (Eq. 9).

use burn::module::Module;
use burn::tensor::Tensor;

use crate::batch::GraphBatch;
use crate::nn::{BatchNorm, ForwardContext, Linear, ParamInit};
use crate::virtual_edges::{SelfEdges, VirtualEdgesConfig};

/// Adds `ReLU(W_pe E_ii)` to every node.
#[derive(Module, Debug)]
pub struct SelfEdgeEncoding {
    norm: Option<BatchNorm>,
    linear: Linear,
}

impl SelfEdgeEncoding {
    /// What the config asks for, if anything.
    pub fn new(
        config: &VirtualEdgesConfig,
        hidden_dim: usize,
        init: &mut ParamInit,
    ) -> Option<Self> {
        match config.self_edges {
            SelfEdges::Off => None,
            SelfEdges::AfterFfn => {
                Some(Self { norm: None, linear: Linear::new(config.channels(), hidden_dim, init) })
            }
            SelfEdges::BeforeFfn => {
                let c = config.stack_channels();
                Some(Self {
                    norm: Some(BatchNorm::new(c, init)),
                    linear: Linear::new(c, hidden_dim, init),
                })
            }
        }
    }

    /// # Shapes
    /// - `x`: `[r, d]`, returned in the same
    /// - `own`: `[c, nodes]` of the distinct structures
    pub fn forward(
        &self,
        x: Tensor<2>,
        own: Tensor<2>,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let own = match &self.norm {
            Some(norm) => {
                let weights = batch.shared.as_ref().map(|shared| &shared.node_weights);
                norm.forward_channels_first(own, weights, ctx)
            }
            None => own,
        };
        let encoding = self.linear.forward_relu(own.transpose(), None); // Eq. 9, [nodes, d]
        match &batch.shared {
            Some(shared) => x + encoding.select(0, shared.nodes.clone()),
            None => x + encoding,
        }
    }
}
