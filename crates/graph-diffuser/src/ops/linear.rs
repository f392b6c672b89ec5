//! Linear maps of rows, with what often follows them.

use std::sync::Arc;

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use graph_diffuser_kernels::Isa;
use graph_diffuser_kernels::linear::{self as kernel, Linear};

use crate::nn::DropoutMask;

use super::fused::{self, Gradient, Output, Saved, SliceOp};

/// What follows a linear map.
#[derive(Debug, Clone, Copy)]
pub enum Activation {
    /// Nothing.
    None,
    /// Negative numbers become zero; of the others some are dropped, where there is a mask.
    Relu(Option<DropoutMask>),
}

/// `y = x Wᵀ + b`, and what follows.
///
/// # Shapes
/// - `x`: `[rows, in]`, `weight`: `[out, in]`, `bias`: `[out]`
/// - returns `[rows, out]`
pub fn linear(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    then: Activation,
) -> Tensor<2> {
    let [rows, _] = x.dims();
    if rows == 0 || !fused::can_run(&x) {
        return linear_reference(x, weight, bias, then);
    }
    let [outputs, inputs] = weight.dims();
    let then = match then {
        Activation::None => kernel::LinearActivation::None,
        Activation::Relu(site) => kernel::LinearActivation::Relu(site.map(|site| site.0)),
    };
    let bias = bias.map(|bias| bias.unsqueeze_dim(0));
    let op = MapRows { inputs, outputs, then };
    let (mut made, _) =
        fused::apply(op, [Some(x), Some(weight), bias].into_iter().flatten().collect());
    made.remove(0)
}

/// The same in plain tensor operations.
pub fn linear_reference(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    then: Activation,
) -> Tensor<2> {
    let y = x.matmul(weight.transpose());
    let y = match bias {
        Some(bias) => y + bias.unsqueeze_dim(0),
        None => y,
    };
    match then {
        Activation::None => y,
        Activation::Relu(site) => DropoutMask::apply(site, relu(y)),
    }
}

/// The fused operation: inputs `x`, `weight` and, where there is one, `bias`.
#[derive(Debug)]
struct MapRows {
    inputs: usize,
    outputs: usize,
    then: kernel::LinearActivation,
}

impl MapRows {
    fn map<'a>(&self, inputs: &[&'a [f32]]) -> Linear<'a> {
        Linear {
            inputs: self.inputs,
            outputs: self.outputs,
            weight: inputs[1],
            bias: inputs.get(2).copied(),
            then: self.then,
        }
    }
}

impl SliceOp for MapRows {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let values = kernel::forward(Isa::best(), &self.map(inputs), inputs[0]);
        (
            vec![Output { shape: vec![values.len() / self.outputs, self.outputs], values }],
            Arc::new(()),
        )
    }

    fn reads_input(&self, index: usize) -> bool {
        index < 2
    }

    fn reads_outputs(&self) -> bool {
        self.then != kernel::LinearActivation::None
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        outputs: &[&[f32]],
        _: &Saved,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let d_y = gradients[0].as_ref().expect("a single output has a gradient").as_slice();
        let y = outputs.first().copied().unwrap_or_default();
        let map = Linear { bias: None, ..self.map(inputs) };
        let made = kernel::backward(Isa::best(), &map, inputs[0], y, d_y);
        [made.x, made.weight, made.bias]
            .into_iter()
            .take(inputs.len())
            .map(Gradient::from)
            .collect()
    }
}
