//! Batch norm over rows, with ReLU behind it where that follows.
//!
//! The reference is in [`BatchNorm`](crate::nn::BatchNorm), which calls this where kernels can run.

use std::sync::Arc;

use burn::tensor::Tensor;
use graph_diffuser_kernels::Isa;
use graph_diffuser_kernels::batch_norm::{self as kernel, Statistics};

use super::fused::{self, Gradient, Output, Saved, SliceOp};

/// Normalises `[rows, channels]` by the statistics of the batch.
#[derive(Debug)]
pub(crate) struct NormaliseRows {
    /// Whether negative results become zero.
    pub(crate) relu: bool,
}

impl NormaliseRows {
    /// Normalised rows, and mean and biased variance of each channel.
    pub(crate) fn apply(self, x: Tensor<2>, gamma: Tensor<1>, beta: Tensor<1>) -> (Tensor<2>, [Vec<f64>; 2]) {
        let (mut outputs, saved) = fused::apply(self, vec![x, gamma.unsqueeze_dim(0), beta.unsqueeze_dim(0)]);
        let statistics = saved.downcast_ref::<Statistics>().expect("what `forward` saved");
        (outputs.remove(0), [statistics.mean.clone(), statistics.variance.clone()])
    }
}

impl SliceOp for NormaliseRows {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let [x, gamma, beta] = *inputs else { panic!("rows, scale and shift") };
        let mut y = vec![0.0; x.len()];
        let statistics = kernel::forward(Isa::best(), x, gamma.len(), gamma, beta, self.relu, &mut y);
        let shape = vec![x.len() / gamma.len(), gamma.len()];
        (vec![Output { values: y, shape }], Arc::new(statistics))
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        _: &[&[f32]],
        saved: &Saved,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Vec<f32>> {
        let [x, gamma, beta] = *inputs else { panic!("rows, scale and shift") };
        let statistics = saved.downcast_ref::<Statistics>().expect("what `forward` saved");
        let d_y = gradients[0].as_ref().expect("a single output has a gradient").as_slice();
        let [mut d_x, mut d_gamma, mut d_beta] = [x, gamma, beta].map(|input| vec![0.0; input.len()]);
        kernel::backward(
            Isa::best(),
            x,
            gamma.len(),
            gamma,
            beta,
            statistics,
            self.relu,
            d_y,
            &mut d_x,
            &mut d_gamma,
            &mut d_beta,
        );
        vec![d_x, d_gamma, d_beta]
    }
}
