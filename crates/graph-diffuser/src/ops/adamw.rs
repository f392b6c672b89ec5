//! AdamW step over all parameters as one flat tensor, and the squared norm of a gradient.

use burn::tensor::{DType, Tensor, TensorData};
use graph_diffuser_kernels::Isa;
pub use graph_diffuser_kernels::adamw::AdamWStep;
use graph_diffuser_kernels::adamw::{step as kernel, sum_of_squares as sum_of_squares_kernel};

use super::fused::{self, Output, SliceOp};

/// Performs one AdamW step; takes weights, gradient, first and second moments, and returns the
/// updated weights and moments.
///
/// Buffers without other references are updated in place.
///
/// # Shapes
/// - all tensors: `[count]`
pub fn adamw(step: AdamWStep, state: [Tensor<1>; 4]) -> [Tensor<1>; 3] {
    #[cfg(feature = "cube")]
    if super::cube::can_run(&state[0]) {
        return super::cube::adamw(step, state);
    }
    if !fused::can_run(&state[0]) {
        return adamw_reference(step, state);
    }
    let device = state[0].device();
    let to_vec = |tensor: Tensor<1>| {
        tensor.into_data().try_into_vec::<f32>().expect("`can_run` requires f32")
    };
    let [mut weights, gradient, mut first, mut second] = state.map(to_vec);
    kernel(Isa::best(), step, &mut weights, &gradient, &mut first, &mut second);
    [weights, first, second].map(|values| {
        let count = values.len();
        Tensor::from_data(TensorData::new(values, [count]), (&device, DType::F32))
    })
}

/// Reference implementation of [`adamw`] in plain tensor operations.
pub fn adamw_reference(
    step: AdamWStep,
    [weights, gradient, first, second]: [Tensor<1>; 4],
) -> [Tensor<1>; 3] {
    let AdamWStep { lr, beta_1, beta_2, eps, weight_decay, gradient_scale, step_index } = step;
    let gradient = gradient * gradient_scale;
    let interpolate = |old: Tensor<1>, new: Tensor<1>, beta: f64| old * beta + new * (1.0 - beta);
    let first = interpolate(first, gradient.clone(), beta_1);
    let second = interpolate(second, gradient.square(), beta_2);
    let exponent = i32::try_from(step_index).unwrap_or(i32::MAX);
    let (correct_1, correct_2) = (1.0 - beta_1.powi(exponent), 1.0 - beta_2.powi(exponent));
    let scale = second.clone().sqrt() / correct_2.sqrt() + eps;
    let weights = weights * (1.0 - lr * weight_decay) - first.clone() / scale * (lr / correct_1);
    [weights, first, second]
}

/// Performs one AdamW step like [`adamw`], with the gradient scaled to an L2 norm of at most
/// `max_norm` unless that is 0; also returns the squared norm of the gradient before that, `[1]`.
///
/// The norm is not read on the host, which would have to wait for a GPU.
pub fn clipped_adamw(
    step: AdamWStep,
    max_norm: f64,
    state: [Tensor<1>; 4],
) -> ([Tensor<1>; 3], Tensor<1>) {
    #[cfg(feature = "cube")]
    if super::cube::can_run(&state[0]) {
        return super::cube::clipped_adamw(step, max_norm, state);
    }
    clipped_adamw_reference(step, max_norm, state)
}

/// Reference implementation of [`clipped_adamw`] in plain tensor operations.
pub fn clipped_adamw_reference(
    step: AdamWStep,
    max_norm: f64,
    [weights, gradient, first, second]: [Tensor<1>; 4],
) -> ([Tensor<1>; 3], Tensor<1>) {
    let squared_norm = gradient.clone().square().sum();
    let gradient = if max_norm > 0.0 {
        let scale = (squared_norm.clone().sqrt() + 1e-6).recip() * max_norm;
        gradient * scale.clamp_max(1.0)
    } else {
        gradient
    };
    (adamw_reference(step, [weights, gradient, first, second]), squared_norm)
}

/// Computes the sum of squares of a tensor `[count]`, in double precision if the kernel can run.
pub fn sum_of_squares(values: Tensor<1>) -> f64 {
    if !fused::can_run(&values) {
        return values.square().sum().into_scalar::<f64>();
    }
    *fused::apply(SumOfSquares, [values]).1.saved()
}

/// Fused operation of [`sum_of_squares`], without a backward pass.
#[derive(Debug)]
struct SumOfSquares;

impl SliceOp for SumOfSquares {
    type Saved = f64;

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, f64) {
        let sum = sum_of_squares_kernel(Isa::best(), inputs[0]);
        (vec![Output::rows(vec![sum as f32], 1)], sum)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn tensor(seed: u32, count: u32) -> Tensor<1> {
        let value = |index| graph_diffuser_kernels::hash32(seed ^ index) as f32 / u32::MAX as f32;
        let values: Vec<f32> = (0..count).map(value).collect();
        Tensor::from_data(TensorData::new(values, [count as usize]), (&Device::flex(), DType::F32))
    }

    fn to_vec(tensor: &Tensor<1>) -> Vec<f32> {
        tensor.to_data().iter::<f32>().collect()
    }

    #[test]
    fn fused_step_equals_reference_and_leaves_shared_tensors_unchanged() {
        let state = [1 << 20, 2 << 20, 3 << 20, 4 << 20].map(|seed| tensor(seed, 1000));
        let before = state.each_ref().map(to_vec);
        let step = AdamWStep {
            lr: 0.1,
            beta_1: 0.9,
            beta_2: 0.99,
            eps: 1e-8,
            weight_decay: 0.01,
            gradient_scale: 0.5,
            step_index: 2,
        };
        let ours = adamw(step, state.clone());
        assert_eq!(state.each_ref().map(to_vec), before);
        for (ours, plain) in ours.iter().zip(&adamw_reference(step, state)) {
            for (ours, plain) in to_vec(ours).into_iter().zip(to_vec(plain)) {
                assert!((ours - plain).abs() <= 1e-6, "{ours} is not {plain}");
            }
        }
    }

    #[test]
    fn clipped_step_equals_a_step_with_a_scaled_gradient() {
        let state = [1 << 20, 2 << 20, 3 << 20, 4 << 20].map(|seed| tensor(seed, 1000));
        let norm = sum_of_squares(state[1].clone()).sqrt();
        for (max_norm, gradient_scale) in [(0.0, 1.0), (norm + 1.0, 1.0), (1.0, 1.0 / norm)] {
            let step = AdamWStep {
                lr: 0.1,
                beta_1: 0.9,
                beta_2: 0.99,
                eps: 1e-8,
                weight_decay: 0.01,
                gradient_scale: 1.0,
                step_index: 2,
            };
            let (ours, squared_norm) = clipped_adamw(step, max_norm, state.clone());
            assert!((f64::from(to_vec(&squared_norm)[0]) - norm * norm).abs() < 1e-4 * norm * norm);
            let expected = adamw_reference(AdamWStep { gradient_scale, ..step }, state.clone());
            for (ours, expected) in ours.iter().zip(&expected) {
                for (ours, expected) in to_vec(ours).into_iter().zip(to_vec(expected)) {
                    assert!((ours - expected).abs() <= 1e-6, "{ours} is not {expected}");
                }
            }
        }
    }

    #[test]
    fn sum_of_squares_is_accurate_to_double_precision() {
        let values = tensor(5 << 20, 40_000);
        let exact: f64 = to_vec(&values).iter().map(|value| f64::from(*value).powi(2)).sum();
        assert!((sum_of_squares(values.clone()) - exact).abs() < 1e-9 * exact);
        assert!((sum_of_squares(values.cast(DType::F64)) - exact).abs() < 1e-9 * exact);
    }
}
