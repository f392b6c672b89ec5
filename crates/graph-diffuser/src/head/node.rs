//! A prediction for every node.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::nn::{Init, Mlp, MlpShape};

/// An MLP on each node.
#[derive(Module, Debug)]
pub struct NodeHead {
    mlp: Mlp,
}

impl NodeHead {
    /// Draws the parameters.
    pub fn new(width: usize, outputs: usize, shape: MlpShape, init: &mut Init) -> Self {
        Self { mlp: Mlp::new(width, outputs, shape, init) }
    }

    /// # Shapes
    /// - `x`: `[r, d]`
    /// - returns `[r, outputs]`
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.mlp.forward(x)
    }
}
