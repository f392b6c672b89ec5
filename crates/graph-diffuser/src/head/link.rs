//! Link prediction head: the dot product of two node embeddings.

use burn::module::Module;
use burn::tensor::{Int, Tensor};

use crate::nn::{ForwardContext, Mlp, MlpConfig, ParamInit};

/// Link prediction head: an MLP on each node.
#[derive(Module, Debug)]
pub struct LinkHead {
    mlp: Mlp,
}

impl LinkHead {
    /// Initializes the head.
    pub fn new(hidden_dim: usize, config: MlpConfig, dropout: f64, init: &mut ParamInit) -> Self {
        Self { mlp: Mlp::new(hidden_dim, hidden_dim, config, dropout, init) }
    }

    /// Computes the embedding of every node.
    ///
    /// # Shapes
    /// - `x`: `[r, d]`
    /// - returns `[r, d]`
    pub fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.mlp.forward(x, ctx)
    }

    /// Computes the scores of node pairs.
    ///
    /// # Shapes
    /// - `vectors`: `[r, d]` from [`LinkHead::forward`]
    /// - `first`, `second`: `[q]` node indices
    /// - returns `[q, 1]`
    pub fn score(vectors: Tensor<2>, first: Tensor<1, Int>, second: Tensor<1, Int>) -> Tensor<2> {
        (vectors.clone().select(0, first) * vectors.select(0, second)).sum_dim(1)
    }
}
