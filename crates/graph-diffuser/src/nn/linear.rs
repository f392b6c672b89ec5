//! Linear layer `y = x Wᵀ + b` for row-major and channels-first tensors.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::ops::{self, Activation, DropoutMask};

use super::ParamInit;

/// Linear layer with the weight layout of `PyTorch`, `[out, in]`.
#[derive(Module, Debug)]
pub struct Linear {
    /// Weight, `[out, in]`.
    pub weight: Param<Tensor<2>>,
    /// Bias, `[out]`.
    pub bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    /// Initializes weight and bias uniformly in `±1/√in`.
    pub fn new(input: usize, output: usize, init: &mut ParamInit) -> Self {
        let bound = 1.0 / (input as f64).sqrt();
        let weight = init.uniform([output, input], bound);
        Self { weight, bias: Some(init.uniform([output], bound)) }
    }

    /// Initializes a layer without bias; the weight is uniform in `±1/√in`.
    pub fn without_bias(input: usize, output: usize, init: &mut ParamInit) -> Self {
        Self { weight: init.uniform([output, input], 1.0 / (input as f64).sqrt()), bias: None }
    }

    /// Initializes the weight uniformly in `±1/√in` and the bias to zero.
    pub fn zero_bias(input: usize, output: usize, init: &mut ParamInit) -> Self {
        Self { bias: Some(init.constant([output], 0.0)), ..Self::without_bias(input, output, init) }
    }

    /// Initializes the weight uniformly in `±√(6 / (in + out))` (Glorot) and the bias to zero, as
    /// for attention projections.
    pub fn glorot(input: usize, output: usize, init: &mut ParamInit) -> Self {
        let weight = init.uniform([output, input], (6.0 / (input + output) as f64).sqrt());
        Self { weight, bias: Some(init.constant([output], 0.0)) }
    }

    /// Returns the weight and the bias as flat tensors.
    pub(crate) fn flat(&self) -> Vec<Tensor<1>> {
        let weight = self.weight.val();
        let count = weight.shape().num_elements();
        let bias = self.bias.as_ref().map(Param::val);
        std::iter::once(weight.reshape([count])).chain(bias).collect()
    }

    /// Applies the layer to every row.
    ///
    /// # Shapes
    /// - `x`: `[rows, in]`
    /// - returns `[rows, out]`
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        ops::linear(x, self.weight.val(), self.bias.as_ref().map(Param::val), Activation::None)
    }

    /// Applies the layer to every row, followed by a ReLU and, if given, a dropout mask.
    ///
    /// # Shapes
    /// - `x`: `[rows, in]`
    /// - returns `[rows, out]`
    pub fn forward_relu(&self, x: Tensor<2>, dropout: Option<DropoutMask>) -> Tensor<2> {
        ops::linear(
            x,
            self.weight.val(),
            self.bias.as_ref().map(Param::val),
            Activation::Relu(dropout),
        )
    }

    /// Applies the layer to every column of a channels-first tensor, the layout of node pairs.
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
