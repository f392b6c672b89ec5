//! Laplacian encoding: what a network makes of each eigenvector's entry and eigenvalue, added up.
//!
//! The sum does not know an order, but the network sees signs: in training they are drawn anew for every graph.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::batch::GraphBatch;
use crate::nn::{ForwardContext, Linear, ParamInit};

use super::Eigenvectors;

/// A network on each eigenvector, a sum over them, and a linear layer.
#[derive(Module, Debug)]
pub struct LapPe {
    first: Linear,
    second: Linear,
    output: Linear,
}

impl LapPe {
    /// To vectors of `dim` through networks as wide as `hidden_dim`.
    pub fn new(hidden_dim: usize, dim: usize, init: &mut ParamInit) -> Self {
        Self {
            first: Linear::new(2, hidden_dim, init),
            second: Linear::new(hidden_dim, hidden_dim, init),
            output: Linear::new(hidden_dim, dim, init),
        }
    }

    /// # Shapes
    /// - returns `[r, dim]`
    pub fn forward(
        &self,
        num_eigenvectors: Eigenvectors,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let Eigenvectors { entries, values, present } = num_eigenvectors;
        let [r, count] = entries.dims();
        let entries = match ctx.dropout_mask(0.5) {
            Some(site) => {
                let graphs = batch.topology.layout.graphs();
                // A mask is 0 or 2: one less is a sign.
                let signs =
                    site.mask([graphs, count], &entries.device()).cast(entries.dtype()) - 1.0;
                entries * signs.select(0, batch.graph_index.clone())
            }
            None => entries,
        };
        let pairs = Tensor::stack::<3>(vec![entries, values], 2).reshape([r * count, 2]);
        let seen = self.second.forward_relu(self.first.forward_relu(pairs, None), None);
        let hidden_dim = seen.dims()[1];
        let seen = seen * present.reshape([r * count, 1]);
        self.output
            .forward(seen.reshape([r, count, hidden_dim]).sum_dim(1).reshape([r, hidden_dim]))
    }
}
