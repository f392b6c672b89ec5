//! [`adamw`](crate::ops::adamw()) and [`clipped_adamw`](crate::ops::clipped_adamw()) on a GPU.

use burn::tensor::Tensor;
use graph_diffuser_cube::adamw::{self as kernel, AdamWScalars};
use graph_diffuser_cube::{Buffer, Client};

use crate::ops::AdamWStep;

use super::{CubeOp, CubeOutput, apply};

/// Computes [`adamw`](crate::ops::adamw()) with one launch.
pub(in crate::ops) fn adamw(step: AdamWStep, state: [Tensor<1>; 4]) -> [Tensor<1>; 3] {
    let outputs = apply(CubeAdamW { scalars: scalars(step, 0.0), clips: false }, state);
    <[Tensor<1>; 3]>::try_from(outputs).expect("there are three outputs")
}

/// Computes [`clipped_adamw`](crate::ops::clipped_adamw()) with three launches.
pub(in crate::ops) fn clipped_adamw(
    step: AdamWStep,
    max_norm: f64,
    state: [Tensor<1>; 4],
) -> ([Tensor<1>; 3], Tensor<1>) {
    let mut outputs = apply(CubeAdamW { scalars: scalars(step, max_norm), clips: true }, state);
    let squared_norm = outputs.pop().expect("the last output is the squared norm");
    (<[Tensor<1>; 3]>::try_from(outputs).expect("there are three others"), squared_norm)
}

fn scalars(step: AdamWStep, max_norm: f64) -> AdamWScalars {
    let AdamWStep { lr, beta_1, beta_2, eps, weight_decay, gradient_scale, step_index } = step;
    let exponent = i32::try_from(step_index).unwrap_or(i32::MAX);
    AdamWScalars {
        gradient_scale: gradient_scale as f32,
        max_norm: max_norm as f32,
        beta_1: beta_1 as f32,
        rest_1: (1.0 - beta_1) as f32,
        beta_2: beta_2 as f32,
        rest_2: (1.0 - beta_2) as f32,
        decay: (1.0 - lr * weight_decay) as f32,
        rate: (lr / (1.0 - beta_1.powi(exponent))) as f32,
        inverse_correction: (1.0 / (1.0 - beta_2.powi(exponent)).sqrt()) as f32,
        eps: eps as f32,
    }
}

#[derive(Debug)]
struct CubeAdamW {
    scalars: AdamWScalars,
    /// If true, the gradient is clipped by its norm, whose square is the last output.
    clips: bool,
}

impl CubeOp for CubeAdamW {
    type Saved = ();

    fn forward(&self, client: &Client, inputs: &[Buffer]) -> (Vec<CubeOutput>, ()) {
        let [weights, gradient, first, second] = inputs else {
            unreachable!("the operation has four inputs")
        };
        let squared_norm = self.clips.then(|| kernel::squared_norm(client, gradient));
        let state = [weights, gradient, first, second];
        let outputs = kernel::step(client, self.scalars, state, squared_norm.as_ref());
        let vector = |values: Buffer| {
            let shape = vec![values.len()];
            CubeOutput { values, shape }
        };
        (outputs.into_iter().chain(squared_norm).map(vector).collect(), ())
    }
}
