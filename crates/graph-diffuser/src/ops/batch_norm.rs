//! Batch norm over rows, with the residual branch before it and the ReLU or the dot product behind it.
//!
//! The reference is in [`BatchNorm`](crate::nn::BatchNorm), which calls this where kernels can run.

use std::sync::Arc;

use burn::tensor::Tensor;
use graph_diffuser_kernels::batch_norm::{self as kernel, Branch, Normalized, Statistics};
use graph_diffuser_kernels::{Dropout, Isa};

use super::fused::{self, Gradient, Output, Saved, SliceOp};

/// Normalises `[rows, channels]`.
#[derive(Debug)]
pub(crate) struct NormalizeRows {
    /// Whether negative results become zero.
    pub(crate) relu: bool,
    /// Whether there is a residual branch.
    pub(crate) joins: bool,
    /// What drops some of the branch first.
    pub(crate) dropout: Option<Dropout>,
    /// Statistics of other batches, in evaluation.
    pub(crate) running: Option<Statistics>,
}

/// Rows on their way into batch norm.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    /// `[rows, channels]`
    pub(crate) x: Tensor<2>,
    /// The residual branch that is added to them, in the same shape.
    pub(crate) branch: Option<Tensor<2>>,
}

impl NormalizeRows {
    /// Normalised rows, and mean and biased variance of each channel.
    pub(crate) fn apply(
        self,
        rows: Rows,
        gamma: Tensor<1>,
        beta: Tensor<1>,
    ) -> (Tensor<2>, Arc<Kept>) {
        let inputs =
            [Some(gamma.unsqueeze_dim(0)), Some(beta.unsqueeze_dim(0)), Some(rows.x), rows.branch];
        let (mut outputs, saved) = fused::apply(self, inputs.into_iter().flatten().collect());
        (outputs.remove(0), saved.downcast().expect("what `forward` saved"))
    }
}

/// What the backward pass needs of the forward pass.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) statistics: Statistics,
    /// The rows with their branch, where there was one.
    sum: Option<Vec<f32>>,
}

impl SliceOp for NormalizeRows {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let [gamma, beta, x] = *inputs.first_chunk().expect("scale, shift and rows");
        let branch = inputs.get(3).copied();
        let (values, kept) = if let Some(statistics) = &self.running {
            let y = kernel::evaluate(Isa::best(), x, branch, statistics, gamma, beta, self.relu);
            (y, Kept { statistics: statistics.clone(), sum: None })
        } else {
            let branch = branch.map(|values| Branch { values, dropout: self.dropout });
            let Normalized { y, sum, statistics } =
                kernel::forward(Isa::best(), x, branch, gamma, beta, self.relu);
            (y, Kept { statistics, sum })
        };
        (vec![Output { shape: vec![x.len() / gamma.len(), gamma.len()], values }], Arc::new(kept))
    }

    fn reads_input(&self, index: usize) -> bool {
        // Rows with a branch are kept as their sum.
        index < 2 || !self.joins
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        _: &[&[f32]],
        saved: &Saved,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        assert!(self.running.is_none(), "evaluation keeps no gradients");
        let [gamma, beta, x] = *inputs.first_chunk().expect("scale, shift and rows");
        let Kept { statistics, sum } = saved.downcast_ref().expect("what `forward` saved");
        let x = sum.as_deref().unwrap_or(x);
        let d_y = gradients[0].as_ref().expect("a single output has a gradient").as_slice();
        let made =
            kernel::backward(Isa::best(), x, self.dropout, gamma, beta, statistics, self.relu, d_y);
        let d_x = Gradient::from(made.x);
        // Where nothing was dropped the branch gets what the rows get.
        let d_branch = self.joins.then(|| made.branch.map_or_else(|| d_x.clone(), Gradient::from));
        [Some(made.gamma.into()), Some(made.beta.into()), Some(d_x), d_branch]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Normalises `[rows, channels]`, and gives `weight · ReLU` of each row.
#[derive(Debug)]
pub(crate) struct NormalizeDot {
    /// Statistics of other batches, in evaluation.
    pub(crate) running: Option<Statistics>,
}

impl NormalizeDot {
    /// One number a row, and mean and biased variance of each channel.
    ///
    /// # Shapes
    /// - `x`: `[rows, channels]`
    /// - `weight`: `[1, channels]`
    /// - returns `[rows, 1]`
    pub(crate) fn apply(
        self,
        x: Tensor<2>,
        gamma: Tensor<1>,
        beta: Tensor<1>,
        weight: Tensor<2>,
    ) -> (Tensor<2>, Arc<Statistics>) {
        let inputs = vec![gamma.unsqueeze_dim(0), beta.unsqueeze_dim(0), weight, x];
        let (mut outputs, saved) = fused::apply(self, inputs);
        (outputs.remove(0), saved.downcast().expect("what `forward` saved"))
    }
}

impl SliceOp for NormalizeDot {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let [gamma, beta, weight, x] =
            *inputs.first_chunk().expect("scale, shift, weights and rows");
        let (values, statistics) = if let Some(statistics) = &self.running {
            (
                kernel::evaluate_dot(Isa::best(), x, statistics, gamma, beta, weight),
                statistics.clone(),
            )
        } else {
            kernel::forward_dot(Isa::best(), x, gamma, beta, weight)
        };
        (vec![Output { shape: vec![values.len(), 1], values }], Arc::new(statistics))
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        _: &[&[f32]],
        saved: &Saved,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        assert!(self.running.is_none(), "evaluation keeps no gradients");
        let [gamma, beta, weight, x] =
            *inputs.first_chunk().expect("scale, shift, weights and rows");
        let statistics = saved.downcast_ref().expect("what `forward` saved");
        let d = gradients[0].as_ref().expect("a single output has a gradient").as_slice();
        let (made, d_weight) =
            kernel::backward_dot(Isa::best(), x, gamma, beta, weight, statistics, d);
        [made.gamma, made.beta, d_weight, made.x].into_iter().map(Gradient::from).collect()
    }
}
