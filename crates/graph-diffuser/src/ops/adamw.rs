//! One step of AdamW over all parameters as one vector.

use std::sync::Arc;

use burn::tensor::Tensor;
use graph_diffuser_kernels::Isa;
pub use graph_diffuser_kernels::adamw::Step as AdamWStep;
use graph_diffuser_kernels::adamw::step as kernel;

use super::fused::{self, Gradient, Output, Saved, SliceOp};

/// Weights and moments after one step, from weights, gradient, first and second moments.
///
/// # Shapes
/// - all `[count]`
pub fn adamw(step: AdamWStep, state: [Tensor<1>; 4]) -> [Tensor<1>; 3] {
    if !fused::can_run(&state[0]) {
        return adamw_reference(step, state);
    }
    let count = state[0].dims()[0];
    let (outputs, _) = fused::apply(OneStep(step), state.into());
    let outputs = <[Tensor<2>; 3]>::try_from(outputs).expect("weights and two moments");
    outputs.map(|output| output.reshape([count]))
}

/// The same in plain tensor operations.
pub fn adamw_reference(step: AdamWStep, [weights, gradient, first, second]: [Tensor<1>; 4]) -> [Tensor<1>; 3] {
    let AdamWStep { lr, beta_1, beta_2, epsilon, weight_decay, gradient_scale, number } = step;
    let gradient = gradient * gradient_scale;
    let towards = |old: Tensor<1>, new: Tensor<1>, beta: f64| old * beta + new * (1.0 - beta);
    let first = towards(first, gradient.clone(), beta_1);
    let second = towards(second, gradient.square(), beta_2);
    let exponent = i32::try_from(number).unwrap_or(i32::MAX);
    let (correct_1, correct_2) = (1.0 - beta_1.powi(exponent), 1.0 - beta_2.powi(exponent));
    let scale = second.clone().sqrt() / correct_2.sqrt() + epsilon;
    let weights = weights * (1.0 - lr * weight_decay) - first.clone() / scale * (lr / correct_1);
    [weights, first, second]
}

/// The fused operation; nothing is differentiated through it.
#[derive(Debug)]
struct OneStep(AdamWStep);

impl SliceOp for OneStep {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let [mut weights, mut first, mut second] = [inputs[0], inputs[2], inputs[3]].map(<[f32]>::to_vec);
        kernel(Isa::best(), self.0, &mut weights, inputs[1], &mut first, &mut second);
        let output = |values: Vec<f32>| Output { shape: vec![1, values.len()], values };
        ([weights, first, second].map(output).into(), Arc::new(()))
    }

    fn backward(&self, _: &[&[f32]], _: &[&[f32]], _: &Saved, _: Vec<Option<Gradient>>) -> Vec<Gradient> {
        unreachable!("weights outside of training are not tracked")
    }
}
