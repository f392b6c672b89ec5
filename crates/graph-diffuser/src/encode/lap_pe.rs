//! Laplacian positional encoding: a sum over eigenvectors of an MLP of entry and eigenvalue.
//!
//! The sum is invariant to the order of the eigenvectors but not to their signs, which are
//! therefore flipped at random for every graph in training.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::batch::GraphBatch;
use crate::nn::{ForwardContext, Linear, ParamInit};

use super::Eigenvectors;

/// Laplacian positional encoding: an MLP on each eigenvector, a sum, and a linear layer.
#[derive(Module, Debug)]
pub struct LapPe {
    first: Linear,
    second: Linear,
    output: Linear,
}

impl LapPe {
    /// Initializes the encoding with output dimension `dim`.
    pub fn new(hidden_dim: usize, dim: usize, init: &mut ParamInit) -> Self {
        Self {
            first: Linear::new(2, hidden_dim, init),
            second: Linear::new(hidden_dim, hidden_dim, init),
            output: Linear::new(hidden_dim, dim, init),
        }
    }

    /// Computes the encoding of every node.
    ///
    /// # Shapes
    /// - returns `[r, dim]`
    pub fn forward(
        &self,
        eigenvectors: Eigenvectors,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let Eigenvectors { entries, values, mask } = eigenvectors;
        let [r, count] = entries.dims();
        let entries = match ctx.dropout_mask(0.5) {
            Some(dropout) => {
                let graphs = batch.topology.layout.graphs();
                // With probability 0.5 a dropout mask is 0 or 2, so subtracting one gives a sign.
                let signs =
                    dropout.mask([graphs, count], &entries.device()).cast(entries.dtype()) - 1.0;
                entries * signs.select(0, batch.graph_index.clone())
            }
            None => entries,
        };
        let pairs = Tensor::stack::<3>(vec![entries, values], 2).reshape([r * count, 2]);
        let hidden = self.second.forward_relu(self.first.forward_relu(pairs, None), None);
        let hidden_dim = hidden.dims()[1];
        let hidden = hidden * mask.reshape([r * count, 1]);
        self.output
            .forward(hidden.reshape([r, count, hidden_dim]).sum_dim(1).reshape([r, hidden_dim]))
    }
}
