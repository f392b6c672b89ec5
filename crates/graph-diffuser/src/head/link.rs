//! Whether two nodes belong together: the dot product of what an MLP makes of each.

use burn::module::Module;
use burn::tensor::{Int, Tensor};

use crate::nn::{ForwardContext, Mlp, MlpConfig, ParamInit};

/// An MLP on each node.
#[derive(Module, Debug)]
pub struct LinkHead {
    mlp: Mlp,
}

impl LinkHead {
    /// Draws the parameters.
    pub fn new(width: usize, shape: MlpConfig, dropout: f64, init: &mut ParamInit) -> Self {
        Self { mlp: Mlp::new(width, width, shape, dropout, init) }
    }

    /// # Shapes
    /// - `x`: `[r, d]`, returned in the same
    pub fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.mlp.forward(x, ctx)
    }

    /// Scores of pairs of nodes.
    ///
    /// # Shapes
    /// - `vectors`: `[r, d]` from [`LinkHead::forward`]; `first` and `second`: `[q]` nodes
    /// - returns `[q, 1]`
    pub fn score(vectors: Tensor<2>, first: Tensor<1, Int>, second: Tensor<1, Int>) -> Tensor<2> {
        (vectors.clone().select(0, first) * vectors.select(0, second)).sum_dim(1)
    }
}
