//! Node-level prediction head.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::nn::{ForwardContext, Mlp, MlpConfig, ParamInit};

/// Node-level head: an MLP on each node.
#[derive(Module, Debug)]
pub struct NodeHead {
    mlp: Mlp,
}

impl NodeHead {
    /// Initializes the head.
    pub fn new(
        hidden_dim: usize,
        outputs: usize,
        config: MlpConfig,
        dropout: f64,
        init: &mut ParamInit,
    ) -> Self {
        Self { mlp: Mlp::new(hidden_dim, outputs, config, dropout, init) }
    }

    /// Computes the predictions of every node.
    ///
    /// # Shapes
    /// - `x`: `[r, d]`
    /// - returns `[r, outputs]`
    pub fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.mlp.forward(x, ctx)
    }
}
