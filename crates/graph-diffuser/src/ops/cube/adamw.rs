//! [`adamw`](crate::ops::adamw()) on a GPU.

use burn::tensor::Tensor;
use graph_diffuser_cube::adamw::{self as kernel, AdamWScalars};
use graph_diffuser_cube::{Buffer, Client};

use crate::ops::AdamWStep;

use super::{CubeOp, CubeOutput, apply};

/// Computes [`adamw`](crate::ops::adamw()) with one launch.
pub(in crate::ops) fn adamw(step: AdamWStep, state: [Tensor<1>; 4]) -> [Tensor<1>; 3] {
    let AdamWStep { lr, beta_1, beta_2, eps, weight_decay, gradient_scale, step_index } = step;
    let exponent = i32::try_from(step_index).unwrap_or(i32::MAX);
    let scalars = AdamWScalars {
        gradient_scale: gradient_scale as f32,
        beta_1: beta_1 as f32,
        rest_1: (1.0 - beta_1) as f32,
        beta_2: beta_2 as f32,
        rest_2: (1.0 - beta_2) as f32,
        decay: (1.0 - lr * weight_decay) as f32,
        rate: (lr / (1.0 - beta_1.powi(exponent))) as f32,
        inverse_correction: (1.0 / (1.0 - beta_2.powi(exponent)).sqrt()) as f32,
        eps: eps as f32,
    };
    let outputs = apply(CubeAdamW { scalars }, state);
    <[Tensor<1>; 3]>::try_from(outputs).expect("there are three outputs")
}

#[derive(Debug)]
struct CubeAdamW {
    scalars: AdamWScalars,
}

impl CubeOp for CubeAdamW {
    type Saved = ();

    fn forward(&self, client: &Client, inputs: &[Buffer]) -> (Vec<CubeOutput>, ()) {
        let [weights, gradient, first, second] = inputs else {
            unreachable!("the operation has four inputs")
        };
        let outputs = kernel::step(client, self.scalars, [weights, gradient, first, second]);
        let shape = vec![weights.len()];
        (outputs.map(|values| CubeOutput { values, shape: shape.clone() }).into(), ())
    }
}
