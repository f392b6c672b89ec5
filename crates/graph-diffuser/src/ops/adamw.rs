//! One step of AdamW over all parameters as one vector, and the length of a gradient.

use std::sync::Arc;

use burn::tensor::{DType, Tensor, TensorData};
use graph_diffuser_kernels::Isa;
pub use graph_diffuser_kernels::adamw::Step as AdamWStep;
use graph_diffuser_kernels::adamw::{step as kernel, sum_of_squares as square_sum_kernel};

use super::fused::{self, Gradient, Output, Saved, SliceOp};

/// Weights and moments after one step, from weights, gradient, first and second moments.
///
/// What nobody else holds is changed where it is.
///
/// # Shapes
/// - all `[count]`
pub fn adamw(step: AdamWStep, state: [Tensor<1>; 4]) -> [Tensor<1>; 3] {
    if !fused::can_run(&state[0]) {
        return adamw_reference(step, state);
    }
    let device = state[0].device();
    let numbers =
        |tensor: Tensor<1>| tensor.into_data().try_into_vec::<f32>().expect("single precision");
    let [mut weights, gradient, mut first, mut second] = state.map(numbers);
    kernel(Isa::best(), step, &mut weights, &gradient, &mut first, &mut second);
    [weights, first, second].map(|values| {
        let count = values.len();
        Tensor::from_data(TensorData::new(values, [count]), (&device, DType::F32))
    })
}

/// The same in plain tensor operations.
pub fn adamw_reference(
    step: AdamWStep,
    [weights, gradient, first, second]: [Tensor<1>; 4],
) -> [Tensor<1>; 3] {
    let AdamWStep { lr, beta_1, beta_2, eps, weight_decay, gradient_scale, number } = step;
    let gradient = gradient * gradient_scale;
    let towards = |old: Tensor<1>, new: Tensor<1>, beta: f64| old * beta + new * (1.0 - beta);
    let first = towards(first, gradient.clone(), beta_1);
    let second = towards(second, gradient.square(), beta_2);
    let exponent = i32::try_from(number).unwrap_or(i32::MAX);
    let (correct_1, correct_2) = (1.0 - beta_1.powi(exponent), 1.0 - beta_2.powi(exponent));
    let scale = second.clone().sqrt() / correct_2.sqrt() + eps;
    let weights = weights * (1.0 - lr * weight_decay) - first.clone() / scale * (lr / correct_1);
    [weights, first, second]
}

/// Sum of the squares of `[count]`, in double precision where kernels run.
pub fn sum_of_squares(values: Tensor<1>) -> f64 {
    if !fused::can_run(&values) {
        return values.square().sum().into_scalar::<f64>();
    }
    let (_, sum) = fused::apply(SumOfSquares, vec![values]);
    *sum.downcast_ref::<f64>().expect("what `forward` saved")
}

/// The fused operation; nothing is differentiated through it.
#[derive(Debug)]
struct SumOfSquares;

impl SliceOp for SumOfSquares {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let sum = square_sum_kernel(Isa::best(), inputs[0]);
        (vec![Output { values: vec![sum as f32], shape: vec![1, 1] }], Arc::new(sum))
    }

    fn backward(
        &self,
        _: &[&[f32]],
        _: &[&[f32]],
        _: &Saved,
        _: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        unreachable!("gradients are not tracked")
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn tensor(seed: u32, count: u32) -> Tensor<1> {
        let number = |at| graph_diffuser_kernels::hash32(seed ^ at) as f32 / u32::MAX as f32;
        let values: Vec<f32> = (0..count).map(number).collect();
        Tensor::from_data(TensorData::new(values, [count as usize]), (&Device::flex(), DType::F32))
    }

    fn numbers(tensor: &Tensor<1>) -> Vec<f32> {
        tensor.to_data().iter::<f32>().collect()
    }

    #[test]
    fn a_step_is_that_of_plain_operations_and_leaves_what_others_hold() {
        let state = [1 << 20, 2 << 20, 3 << 20, 4 << 20].map(|seed| tensor(seed, 1000));
        let before = state.each_ref().map(numbers);
        let step = AdamWStep {
            lr: 0.1,
            beta_1: 0.9,
            beta_2: 0.99,
            eps: 1e-8,
            weight_decay: 0.01,
            gradient_scale: 0.5,
            number: 2,
        };
        let ours = adamw(step, state.clone());
        assert_eq!(state.each_ref().map(numbers), before);
        for (ours, plain) in ours.iter().zip(&adamw_reference(step, state)) {
            for (ours, plain) in numbers(ours).into_iter().zip(numbers(plain)) {
                assert!((ours - plain).abs() <= 1e-6, "{ours} is not {plain}");
            }
        }
    }

    #[test]
    fn squares_are_summed_in_double_precision() {
        let values = tensor(5 << 20, 40_000);
        let exact: f64 = numbers(&values).iter().map(|value| f64::from(*value).powi(2)).sum();
        assert!((sum_of_squares(values.clone()) - exact).abs() < 1e-9 * exact);
        assert!((sum_of_squares(values.cast(DType::F64)) - exact).abs() < 1e-9 * exact);
    }
}
