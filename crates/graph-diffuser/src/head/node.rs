//! A prediction for every node.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::nn::{ForwardContext, Mlp, MlpConfig, ParamInit};

/// An MLP on each node.
#[derive(Module, Debug)]
pub struct NodeHead {
    mlp: Mlp,
}

impl NodeHead {
    /// Draws the parameters.
    pub fn new(
        width: usize,
        outputs: usize,
        shape: MlpConfig,
        dropout: f64,
        init: &mut ParamInit,
    ) -> Self {
        Self { mlp: Mlp::new(width, outputs, shape, dropout, init) }
    }

    /// # Shapes
    /// - `x`: `[r, d]`
    /// - returns `[r, outputs]`
    pub fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.mlp.forward(x, ctx)
    }
}
