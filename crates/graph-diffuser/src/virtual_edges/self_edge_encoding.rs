//! Self-virtual-edges as positional encoding (Eq. 9).

use burn::module::Module;
use burn::tensor::Tensor;

use crate::batch::GraphBatch;
use crate::nn::{BatchNorm, ForwardContext, Linear, ParamInit};

use super::{SelfEdges, VirtualEdgesConfig};

/// Positional encoding that adds `ReLU(W_pe E_ii)` to every node.
#[derive(Module, Debug)]
pub struct SelfEdgeEncoding {
    norm: Option<BatchNorm>,
    linear: Linear,
}

impl SelfEdgeEncoding {
    /// Initializes the encoding, or returns `None` if the config has none.
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

    /// Adds the encoding to the node states.
    ///
    /// # Shapes
    /// - `x`: `[r, d]`
    /// - `diagonal`: `[c, nodes]` of the distinct topologies
    /// - returns `[r, d]`
    pub fn forward(
        &self,
        x: Tensor<2>,
        diagonal: Tensor<2>,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let diagonal = match &self.norm {
            Some(norm) => {
                let counts = batch.shared.as_ref().map(|shared| &shared.node_counts);
                norm.forward_channels_first(diagonal, counts, ctx)
            }
            None => diagonal,
        };
        let encoding = self.linear.forward_relu(diagonal.transpose(), None); // Eq. 9, [nodes, d]
        let x = match &batch.shared {
            Some(shared) => x + encoding.select(0, shared.nodes.clone()),
            None => x + encoding,
        };
        ctx.record(|| "self_edge_encoding".into(), &x);
        x
    }
}
