//! Random-walk structural encoding (RWSE): return probabilities after 1, 2, … steps.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::nn::{BatchNorm, ForwardContext, Linear, ParamInit};

/// Random-walk structural encoding: batch norm and a linear layer on the return probabilities.
#[derive(Module, Debug)]
pub struct Rwse {
    norm: BatchNorm,
    linear: Linear,
}

impl Rwse {
    /// Initializes the encoding of `steps` return probabilities with output dimension `dim`.
    pub fn new(steps: usize, dim: usize, init: &mut ParamInit) -> Self {
        Self { norm: BatchNorm::new(steps, init), linear: Linear::new(steps, dim, init) }
    }

    /// Computes the encoding of every node.
    ///
    /// # Shapes
    /// - `probabilities`: `[r, steps]`
    /// - returns `[r, dim]`
    pub fn forward(&self, probabilities: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.linear.forward(self.norm.forward(probabilities, ctx))
    }
}
