//! Batch norm over packed rows or pairs. There is no padding, so statistics cover real entries
//! only.

use burn::module::{Module, Param, ParamId};
use burn::tensor::activation::relu;
use burn::tensor::{DType, Device, Tensor, TensorData};
use graph_diffuser_kernels::batch_norm::BatchStatistics;

use crate::batch::Multiplicities;
use crate::ops::{self, BatchNormInput, DropoutMask, FusedBatchNorm, FusedBatchNormLinear};

use super::{ForwardContext, Linear, ParamInit};

/// Added to the variance before the square root.
const EPS: f64 = 1e-5;

/// Batch norm: normalizes by batch statistics in training and by running statistics in evaluation.
#[derive(Module, Debug)]
pub struct BatchNorm {
    gamma: Param<Tensor<1>>,
    beta: Param<Tensor<1>>,
    running_mean: Param<Tensor<1>>,
    running_variance: Param<Tensor<1>>,
}

impl BatchNorm {
    /// Initializes the scale to one, the shift to zero, and the running statistics to 0 and 1.
    pub fn new(channels: usize, init: &mut ParamInit) -> Self {
        Self {
            gamma: init.constant([channels], 1.0),
            beta: init.constant([channels], 0.0),
            running_mean: init.buffer(channels, 0.0),
            running_variance: init.buffer(channels, 1.0),
        }
    }

    /// Returns the scale and the shift.
    pub(crate) fn scale_and_shift(&self) -> [Tensor<1>; 2] {
        [self.gamma.val(), self.beta.val()]
    }

    /// Returns the running mean and variance.
    pub(crate) fn running(&self) -> [Tensor<1>; 2] {
        [self.running_mean.val(), self.running_variance.val()]
    }

    /// Returns the parameter ids of the running mean and variance.
    pub(crate) fn running_ids(&self) -> [ParamId; 2] {
        [self.running_mean.id, self.running_variance.id]
    }

    /// Normalizes the columns of `x`.
    ///
    /// # Shapes
    /// - `x`: `[rows, channels]`
    /// - returns `[rows, channels]`
    pub fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let input = BatchNormInput { x, branch: None };
        self.fused(&input, None, false, ctx)
            .unwrap_or_else(|| self.normalize(input.x, 0, None, ctx))
    }

    /// Normalizes the columns of `x`, followed by a ReLU.
    ///
    /// # Shapes
    /// - `x`: `[rows, channels]`
    /// - returns `[rows, channels]`
    pub fn forward_relu(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let input = BatchNormInput { x, branch: None };
        self.fused(&input, None, true, ctx)
            .unwrap_or_else(|| relu(self.normalize(input.x, 0, None, ctx)))
    }

    /// Normalizes the columns of `x`, followed by a ReLU and a linear layer with a single output.
    ///
    /// # Shapes
    /// - `x`: `[rows, channels]`
    /// - returns `[rows, 1]`
    pub fn forward_relu_linear(
        &self,
        x: Tensor<2>,
        output: &Linear,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        assert_eq!(output.weight.dims()[0], 1, "the linear layer has a single output");
        if !self.can_fuse(&x, ctx) {
            return output.forward(self.forward_relu(x, ctx));
        }
        let device = x.device();
        let [gamma, beta] = self.scale_and_shift();
        let op = FusedBatchNormLinear {
            running: self.running_unless_batch(ctx),
            shard: ctx.shard_site(),
        };
        let (dots, statistics) = op.apply(x, gamma, beta, output.weight.val());
        self.collect(&statistics, &device, ctx);
        match &output.bias {
            Some(bias) => dots + bias.val().unsqueeze_dim(0),
            None => dots,
        }
    }

    /// Computes `BN(x + dropout(branch))`, the end of a residual block.
    ///
    /// # Shapes
    /// - `x`, `branch`: `[rows, channels]`
    /// - returns `[rows, channels]`
    pub fn forward_residual(
        &self,
        x: Tensor<2>,
        branch: Tensor<2>,
        dropout: f64,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let mask = ctx.dropout_mask(dropout);
        let input = BatchNormInput { x: x.clone(), branch: Some(branch.clone()) };
        let plain = || self.normalize(x + DropoutMask::apply(mask, branch), 0, None, ctx);
        self.fused(&input, mask, false, ctx).unwrap_or_else(plain)
    }

    /// Applies the fused kernel, or returns `None` if it cannot run.
    fn fused(
        &self,
        input: &BatchNormInput,
        dropout: Option<DropoutMask>,
        relu: bool,
        ctx: &ForwardContext,
    ) -> Option<Tensor<2>> {
        if !self.can_fuse(&input.x, ctx) {
            return self.fused_on_gpu(input, dropout, relu, ctx);
        }
        let (has_branch, running) = (input.branch.is_some(), self.running_unless_batch(ctx));
        let op = FusedBatchNorm {
            relu,
            has_branch,
            dropout: dropout.map(|mask| mask.0),
            running,
            shard: ctx.shard_site(),
        };
        let (y, statistics) = op.apply(input.clone(), self.gamma.val(), self.beta.val());
        self.collect(&statistics, &input.x.device(), ctx);
        Some(y)
    }

    /// Applies the GPU kernel, or returns `None` if it cannot run; it has batch statistics only.
    fn fused_on_gpu(
        &self,
        input: &BatchNormInput,
        dropout: Option<DropoutMask>,
        relu: bool,
        ctx: &ForwardContext,
    ) -> Option<Tensor<2>> {
        if !ctx.uses_batch_statistics() {
            return None;
        }
        let (y, statistics) = ops::batch_norm_on_gpu(input, dropout, relu, self.scale_and_shift())?;
        ctx.collect(self.running_ids(), statistics, input.x.dims()[0]);
        Some(y)
    }

    /// Returns whether the kernels can run; with running statistics they have no backward pass.
    fn can_fuse(&self, x: &Tensor<2>, ctx: &ForwardContext) -> bool {
        x.dims()[0] > 0 && ops::can_run(x) && (ctx.uses_batch_statistics() || !x.is_autodiff())
    }

    fn running_unless_batch(&self, ctx: &ForwardContext) -> Option<BatchStatistics> {
        (!ctx.uses_batch_statistics()).then(|| {
            let [mean, variance] =
                self.running().map(|values| values.into_data().iter::<f64>().collect());
            BatchStatistics { mean, variance, rows: 0 }
        })
    }

    /// Records the statistics of a batch; does nothing in evaluation.
    fn collect(&self, statistics: &BatchStatistics, device: &Device, ctx: &ForwardContext) {
        if ctx.uses_batch_statistics() {
            let tensor = |values: &Vec<f64>| {
                Tensor::from_data(TensorData::from(values.as_slice()), (device, DType::F32))
            };
            ctx.collect(
                self.running_ids(),
                [&statistics.mean, &statistics.variance].map(tensor),
                statistics.rows,
            );
        }
    }

    /// Normalizes the rows of a channels-first tensor; `counts` are the multiplicities of its
    /// columns.
    ///
    /// # Shapes
    /// - `e`: `[channels, p]`
    /// - returns `[channels, p]`
    pub fn forward_channels_first(
        &self,
        e: Tensor<2>,
        counts: Option<&Multiplicities>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        self.normalize(e, 1, counts, ctx)
    }

    /// Reference implementation; statistics are computed over `axis`.
    fn normalize(
        &self,
        x: Tensor<2>,
        axis: usize,
        counts: Option<&Multiplicities>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let other = 1 - axis;
        let along = |channel: Tensor<1>| channel.unsqueeze_dim::<2>(axis);
        let rows = x.dims()[axis];
        if rows == 0 {
            return x; // a batch without edges has no rows
        }
        let (centered, variance) = if ctx.uses_batch_statistics() {
            let fractions = counts.map(|counts| counts.fractions(&x.device(), x.dtype()));
            let own_rows = counts.map_or(rows, |counts| counts.total);
            let own_average = |values: Tensor<2>| match &fractions {
                Some(fractions) => (values * fractions.clone()).sum_dim(axis),
                None => values.mean_dim(axis),
            };
            let site = ctx.shard_site();
            let batch_rows = site.as_ref().map_or(own_rows, |site| site.total(own_rows));
            // A mean over the whole batch is the sum of those of the shards, weighted by rows.
            let average = |values: Tensor<2>| match &site {
                Some(site) => {
                    let weight = own_rows as f64 / batch_rows as f64;
                    ops::shard_sum(own_average(values) * weight, site)
                }
                None => own_average(values),
            };
            let mean = average(x.clone());
            let centered = x - mean.clone();
            // Corrects the rounding error of the mean, which can exceed a small standard deviation
            // when many large values are summed. Exactly, this term is zero, so it has no gradient.
            let residual_mean = average(centered.clone().detach());
            let (centered, mean) = (centered - residual_mean.clone(), mean + residual_mean);
            let variance = average(centered.clone().square());
            ctx.collect(
                self.running_ids(),
                [mean.squeeze_dim(axis), variance.clone().squeeze_dim(axis)],
                batch_rows,
            );
            (centered, variance)
        } else {
            (x - along(self.running_mean.val()), along(self.running_variance.val()))
        };
        debug_assert_eq!(variance.dims()[other], self.gamma.dims()[0]);
        let scale = along(self.gamma.val()) / (variance + EPS).sqrt();
        centered * scale + along(self.beta.val())
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use graph_diffuser_data::SeedTree;

    use crate::parameters;

    use super::*;

    fn norm(channels: usize) -> BatchNorm {
        BatchNorm::new(
            channels,
            &mut ParamInit::with_dtype(SeedTree::new(0), &Device::flex(), DType::F64),
        )
    }

    fn rows(values: &[[f64; 2]]) -> Tensor<2> {
        Tensor::from_data(
            burn::tensor::TensorData::new(values.concat(), [values.len(), 2]),
            (&Device::flex(), DType::F64),
        )
    }

    fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
        tensor.into_data().iter::<f64>().collect()
    }

    #[test]
    fn output_and_running_statistics_match_hand_computed_values() {
        // Channel 0: mean 2, biased variance 1, unbiased 4/3. Channel 1: constant.
        let norm = norm(2);
        let ctx = ForwardContext::train(0);
        let out =
            to_vec(norm.forward(rows(&[[1.0, 5.0], [3.0, 5.0], [1.0, 5.0], [3.0, 5.0]]), &ctx));
        let one = 1.0 / (1.0_f64 + EPS).sqrt();
        for (ours, expected) in out.iter().zip([-one, 0.0, one, 0.0, -one, 0.0, one, 0.0]) {
            assert!((ours - expected).abs() < 1e-12, "{out:?}");
        }
        let updated = parameters::update_running_stats(norm, &ctx.into_statistics(), 0.1);
        let means = to_vec(updated.running_mean.val());
        let variances = to_vec(updated.running_variance.val());
        for (ours, expected) in means.iter().chain(&variances).zip([0.2, 0.5, 0.9 + 0.4 / 3.0, 0.9])
        {
            assert!((ours - expected).abs() < 1e-12, "{means:?} {variances:?}");
        }
    }

    #[test]
    fn statistics_are_accurate_for_a_large_mean_and_a_small_variance() {
        // Mean -13 and standard deviation 5e-4 in single precision, as after a log transform.
        let values: Vec<[f64; 2]> =
            (0..1000).map(|row| [-13.0 + 1e-3 * f64::from(row % 2), 0.0]).collect();
        let norm = BatchNorm::new(2, &mut ParamInit::new(SeedTree::new(0), &Device::flex()));
        let out = to_vec(norm.forward(rows(&values).cast(DType::F32), &ForwardContext::train(0)));
        let expected = 5e-4 / (2.5e-7_f64 + EPS).sqrt();
        assert!((out[2] - expected).abs() < 1e-3 * expected, "{} is not {expected}", out[2]);
    }

    #[test]
    fn weighted_columns_equal_repeated_columns() {
        let norm = norm(2);
        let distinct = rows(&[[1.0, 2.0], [4.0, -1.0]]).transpose();
        let weighted = norm.forward_channels_first(
            distinct,
            Some(&Multiplicities { counts: vec![1, 3], total: 4 }),
            &ForwardContext::train(0),
        );
        let repeated = rows(&[[1.0, 2.0], [4.0, -1.0], [4.0, -1.0], [4.0, -1.0]]);
        let expected = to_vec(norm.forward(repeated, &ForwardContext::train(0)));
        let ours = to_vec(weighted.transpose());
        for (ours, expected) in ours.iter().zip(&expected) {
            assert!((ours - expected).abs() < 1e-12, "{ours} is not {expected}");
        }
    }

    #[test]
    fn evaluation_uses_running_statistics_and_does_not_update_them() {
        let norm = norm(2);
        let ctx = ForwardContext::evaluate();
        let out = to_vec(norm.valid().forward(rows(&[[3.0, -2.0]]), &ctx));
        let scale = 1.0 / (1.0_f64 + EPS).sqrt();
        assert!((out[0] - 3.0 * scale).abs() < 1e-12 && (out[1] + 2.0 * scale).abs() < 1e-12);
        assert!(ctx.into_statistics().is_empty());
    }

    #[test]
    fn single_row_is_normalized_to_zero_and_empty_input_stays_empty() {
        let norm = norm(2);
        assert_eq!(
            to_vec(norm.forward(rows(&[[3.0, -2.0]]), &ForwardContext::train(0))),
            [0.0, 0.0]
        );
        assert_eq!(norm.forward(rows(&[]), &ForwardContext::train(0)).dims(), [0, 2]);
    }
}
