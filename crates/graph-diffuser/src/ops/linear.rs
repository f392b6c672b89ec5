//! Linear layer on rows with a fused activation.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use graph_diffuser_kernels::Isa;
use graph_diffuser_kernels::linear::{self as kernel, LinearParams};

use super::DropoutMask;
use super::fused::{self, Gradient, Input, Output, SliceOp};

/// Activation of a [`linear`] layer.
#[derive(Debug, Clone, Copy)]
pub enum Activation {
    /// No activation.
    None,
    /// ReLU, followed by a dropout mask if given.
    Relu(Option<DropoutMask>),
}

/// Computes `y = x Wᵀ + b` and applies the activation.
///
/// # Shapes
/// - `x`: `[rows, in]`, `weight`: `[out, in]`, `bias`: `[out]`
/// - returns `[rows, out]`
pub fn linear(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    activation: Activation,
) -> Tensor<2> {
    let [rows, _] = x.dims();
    if rows == 0 || !fused::can_run(&x) {
        return linear_reference(x, weight, bias, activation);
    }
    let [outputs, inputs] = weight.dims();
    let activation = match activation {
        Activation::None => kernel::LinearActivation::None,
        Activation::Relu(mask) => kernel::LinearActivation::Relu(mask.map(|mask| mask.0)),
    };
    let op = FusedLinear { inputs, outputs, activation };
    let inputs = [Some(Input::from(x)), Some(Input::from(weight)), bias.map(Input::from)];
    fused::apply_single(op, inputs.into_iter().flatten())
}

/// Reference implementation of [`linear`] in plain tensor operations.
pub fn linear_reference(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    activation: Activation,
) -> Tensor<2> {
    let y = x.matmul(weight.transpose());
    let y = match bias {
        Some(bias) => y + bias.unsqueeze_dim(0),
        None => y,
    };
    match activation {
        Activation::None => y,
        Activation::Relu(mask) => DropoutMask::apply(mask, relu(y)),
    }
}

/// Fused operation of [`linear`] with inputs `x`, `weight` and an optional `bias`.
#[derive(Debug)]
struct FusedLinear {
    inputs: usize,
    outputs: usize,
    activation: kernel::LinearActivation,
}

impl FusedLinear {
    fn params<'a>(&self, inputs: &[&'a [f32]]) -> LinearParams<'a> {
        LinearParams {
            inputs: self.inputs,
            outputs: self.outputs,
            weight: inputs[1],
            bias: inputs.get(2).copied(),
            activation: self.activation,
        }
    }
}

impl SliceOp for FusedLinear {
    type Saved = ();

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, ()) {
        let y = kernel::forward(Isa::best(), &self.params(inputs), inputs[0]);
        (vec![Output::rows(y, self.outputs)], ())
    }

    fn reads_input(&self, index: usize) -> bool {
        index < 2
    }

    fn reads_outputs(&self) -> bool {
        self.activation != kernel::LinearActivation::None
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        outputs: &[&[f32]],
        (): &(),
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let d_y = fused::single(&gradients);
        let y = outputs.first().copied().unwrap_or_default();
        let params = LinearParams { bias: None, ..self.params(inputs) };
        let grads = kernel::backward(Isa::best(), &params, inputs[0], y, d_y);
        [grads.x, grads.weight, grads.bias]
            .into_iter()
            .take(inputs.len())
            .map(Gradient::from)
            .collect()
    }
}
