//! `y = x Wᵀ + b`, for rows and for channel-major pairs.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::ops::{self, Activation};

use super::{DropoutMask, ParamInit};

/// A linear layer; `weight` is `[out, in]`, as `PyTorch` stores it.
#[derive(Module, Debug)]
pub struct Linear {
    /// `[out, in]`
    pub weight: Param<Tensor<2>>,
    /// `[out]`
    pub bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    /// Weight and bias uniform in `±1/√in`.
    pub fn new(input: usize, output: usize, init: &mut ParamInit) -> Self {
        let bound = 1.0 / (input as f64).sqrt();
        let weight = init.uniform([output, input], bound);
        Self { weight, bias: Some(init.uniform([output], bound)) }
    }

    /// The same without a bias.
    pub fn without_bias(input: usize, output: usize, init: &mut ParamInit) -> Self {
        Self { weight: init.uniform([output, input], 1.0 / (input as f64).sqrt()), bias: None }
    }

    /// The same with a bias that starts at zero.
    pub fn zero_bias(input: usize, output: usize, init: &mut ParamInit) -> Self {
        Self { bias: Some(init.constant([output], 0.0)), ..Self::without_bias(input, output, init) }
    }

    /// Weight uniform in `±√(6 / (in + out))` (Glorot), bias zero: as attention projections start.
    pub fn glorot(input: usize, output: usize, init: &mut ParamInit) -> Self {
        let weight = init.uniform([output, input], (6.0 / (input + output) as f64).sqrt());
        Self { weight, bias: Some(init.constant([output], 0.0)) }
    }

    /// Weight and bias as vectors.
    pub(crate) fn flat(&self) -> Vec<Tensor<1>> {
        let weight = self.weight.val();
        let count = weight.shape().num_elements();
        let bias = self.bias.as_ref().map(Param::val);
        std::iter::once(weight.reshape([count])).chain(bias).collect()
    }

    /// Maps every row.
    ///
    /// # Shapes
    /// - `x`: `[rows, in]`
    /// - returns `[rows, out]`
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        ops::linear(x, self.weight.val(), self.bias.as_ref().map(Param::val), Activation::None)
    }

    /// The same, followed by a ReLU and, where there is a mask, dropout.
    pub fn forward_relu(&self, x: Tensor<2>, dropout: Option<DropoutMask>) -> Tensor<2> {
        ops::linear(
            x,
            self.weight.val(),
            self.bias.as_ref().map(Param::val),
            Activation::Relu(dropout),
        )
    }

    /// Maps every column: pairs travel channel-major.
    ///
    /// # Shapes
    /// - `e`: `[in, p]`
    /// - returns `[out, p]`
    pub fn forward_channels_first(&self, e: Tensor<2>) -> Tensor<2> {
        let y = self.weight.val().matmul(e);
        match &self.bias {
            Some(bias) => y + bias.val().unsqueeze_dim(1),
            None => y,
        }
    }
}
