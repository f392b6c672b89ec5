//! Batch norm over packed rows or pairs: every row is a real node, every column a real pair.

use burn::module::{Module, Param, ParamId};
use burn::tensor::activation::relu;
use burn::tensor::{DType, Device, Tensor, TensorData};
use graph_diffuser_kernels::batch_norm::Statistics;

use crate::ops::{self, NormalizeDot, NormalizeRows, Rows};

use super::{DropoutMask, ForwardContext, Linear, ParamInit};

/// Added to the variance before the root.
const EPSILON: f64 = 1e-5;

/// How often each column stands for a pair of the batch.
///
/// Graphs of one structure share their virtual edges when the adjacency is fixed. Counting a
/// shared column as often as it is used makes the statistics those of the whole batch.
#[derive(Debug, Clone)]
pub struct PairCounts {
    /// `[1, p]`, summing to one.
    pub share: Tensor<2>,
    /// How many pairs of the batch there are in all.
    pub total: usize,
}

/// Normalises each channel by the batch in training and by running statistics in evaluation.
#[derive(Module, Debug)]
pub struct BatchNorm {
    gamma: Param<Tensor<1>>,
    beta: Param<Tensor<1>>,
    running_mean: Param<Tensor<1>>,
    running_variance: Param<Tensor<1>>,
}

impl BatchNorm {
    /// Starts as the identity on standardised channels.
    pub fn new(channels: usize, init: &mut ParamInit) -> Self {
        Self {
            gamma: init.constant([channels], 1.0),
            beta: init.constant([channels], 0.0),
            running_mean: init.buffer(channels, 0.0),
            running_variance: init.buffer(channels, 1.0),
        }
    }

    /// Scale and shift.
    pub(crate) fn scale_and_shift(&self) -> [Tensor<1>; 2] {
        [self.gamma.val(), self.beta.val()]
    }

    /// Running mean and variance.
    pub(crate) fn running(&self) -> [Tensor<1>; 2] {
        [self.running_mean.val(), self.running_variance.val()]
    }

    /// Which parameters the running mean and variance are.
    pub(crate) fn running_ids(&self) -> [ParamId; 2] {
        [self.running_mean.id, self.running_variance.id]
    }

    /// Normalises the columns of `[rows, channels]`.
    pub fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let rows = Rows { x, branch: None };
        self.fused(&rows, None, false, ctx).unwrap_or_else(|| self.normalize(rows.x, 0, None, ctx))
    }

    /// The same, followed by a ReLU.
    pub fn forward_relu(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let rows = Rows { x, branch: None };
        self.fused(&rows, None, true, ctx)
            .unwrap_or_else(|| relu(self.normalize(rows.x, 0, None, ctx)))
    }

    /// The same, followed by a linear map to one number a row.
    pub fn forward_relu_linear(
        &self,
        x: Tensor<2>,
        output: &Linear,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        assert_eq!(output.weight.dims()[0], 1, "one number a row");
        if !self.can_fuse(&x, ctx) {
            return output.forward(self.forward_relu(x, ctx));
        }
        let (device, count) = (x.device(), x.dims()[0]);
        let [gamma, beta] = self.scale_and_shift();
        let op = NormalizeDot { running: self.running_unless_batch(ctx) };
        let (dots, statistics) = op.apply(x, gamma, beta, output.weight.val());
        self.collect(&statistics, &device, count, ctx);
        match &output.bias {
            Some(bias) => dots + bias.val().unsqueeze_dim(0),
            None => dots,
        }
    }

    /// `BN(x + dropout(branch))`: how a residual branch joins its stream.
    pub fn forward_residual(
        &self,
        x: Tensor<2>,
        branch: Tensor<2>,
        dropout: f64,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let site = ctx.dropout_mask(dropout);
        let rows = Rows { x: x.clone(), branch: Some(branch.clone()) };
        let plain = || self.normalize(x + DropoutMask::apply(site, branch), 0, None, ctx);
        self.fused(&rows, site, false, ctx).unwrap_or_else(plain)
    }

    /// By the kernel, where it can run.
    fn fused(
        &self,
        rows: &Rows,
        dropout: Option<DropoutMask>,
        relu: bool,
        ctx: &ForwardContext,
    ) -> Option<Tensor<2>> {
        if !self.can_fuse(&rows.x, ctx) {
            return None;
        }
        let (joins, running) = (rows.branch.is_some(), self.running_unless_batch(ctx));
        let op = NormalizeRows { relu, joins, dropout: dropout.map(|site| site.0), running };
        let (y, kept) = op.apply(rows.clone(), self.gamma.val(), self.beta.val());
        self.collect(&kept.statistics, &rows.x.device(), rows.x.dims()[0], ctx);
        Some(y)
    }

    /// Whether kernels can run: with running statistics they have no gradients.
    fn can_fuse(&self, x: &Tensor<2>, ctx: &ForwardContext) -> bool {
        x.dims()[0] > 0 && ops::can_run(x) && (ctx.uses_batch_statistics() || !x.is_autodiff())
    }

    fn running_unless_batch(&self, ctx: &ForwardContext) -> Option<Statistics> {
        (!ctx.uses_batch_statistics()).then(|| {
            let [mean, variance] =
                self.running().map(|values| values.into_data().iter::<f64>().collect());
            Statistics { mean, variance }
        })
    }

    /// Notes the statistics of `count` rows, where they are those of the batch.
    fn collect(
        &self,
        statistics: &Statistics,
        device: &Device,
        count: usize,
        ctx: &ForwardContext,
    ) {
        if ctx.uses_batch_statistics() {
            let tensor = |values: &Vec<f64>| {
                Tensor::from_data(TensorData::from(values.as_slice()), (device, DType::F32))
            };
            ctx.collect(
                self.running_ids(),
                [&statistics.mean, &statistics.variance].map(tensor),
                count,
            );
        }
    }

    /// Normalises the rows of `[channels, p]`.
    pub fn forward_channels_first(
        &self,
        e: Tensor<2>,
        weights: Option<&PairCounts>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        self.normalize(e, 1, weights, ctx)
    }

    /// `axis` is the one that statistics are taken over.
    fn normalize(
        &self,
        x: Tensor<2>,
        axis: usize,
        weights: Option<&PairCounts>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let other = 1 - axis;
        let along = |channel: Tensor<1>| channel.unsqueeze_dim::<2>(axis);
        let rows = x.dims()[axis];
        if rows == 0 {
            return x; // a batch without a single edge has nothing to normalise
        }
        let (centred, variance) = if ctx.uses_batch_statistics() {
            let average = |values: Tensor<2>| match weights {
                Some(weights) => (values * weights.share.clone()).sum_dim(axis),
                None => values.mean_dim(axis),
            };
            let mean = average(x.clone());
            let centred = x - mean.clone();
            // What rounding left of the mean: a long sum of large numbers is off by more than a
            // small deviation. It is zero but for that, so it has no gradient.
            let rest = average(centred.clone().detach());
            let (centred, mean) = (centred - rest.clone(), mean + rest);
            let variance = average(centred.clone().square());
            ctx.collect(
                self.running_ids(),
                [mean.squeeze_dim(axis), variance.clone().squeeze_dim(axis)],
                weights.map_or(rows, |weights| weights.total),
            );
            (centred, variance)
        } else {
            (x - along(self.running_mean.val()), along(self.running_variance.val()))
        };
        debug_assert_eq!(variance.dims()[other], self.gamma.dims()[0]);
        let scale = along(self.gamma.val()) / (variance + EPSILON).sqrt();
        centred * scale + along(self.beta.val())
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

    fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
        tensor.into_data().iter::<f64>().collect()
    }

    #[test]
    fn four_rows_by_hand() {
        // Channel 0: mean 2, biased variance 1, unbiased 4/3. Channel 1: constant.
        let norm = norm(2);
        let ctx = ForwardContext::train(0);
        let out =
            numbers(norm.forward(rows(&[[1.0, 5.0], [3.0, 5.0], [1.0, 5.0], [3.0, 5.0]]), &ctx));
        let one = 1.0 / (1.0_f64 + EPSILON).sqrt();
        for (ours, expected) in out.iter().zip([-one, 0.0, one, 0.0, -one, 0.0, one, 0.0]) {
            assert!((ours - expected).abs() < 1e-12, "{out:?}");
        }
        let moved = parameters::update_running_stats(norm, &ctx.into_statistics(), 0.1);
        let means = numbers(moved.running_mean.val());
        let variances = numbers(moved.running_variance.val());
        for (ours, expected) in means.iter().chain(&variances).zip([0.2, 0.5, 0.9 + 0.4 / 3.0, 0.9])
        {
            assert!((ours - expected).abs() < 1e-12, "{means:?} {variances:?}");
        }
    }

    #[test]
    fn statistics_stay_right_on_a_badly_scaled_channel() {
        // Mean -13 and deviation 1e-3, as a logarithm of walks may have, in single precision.
        let values: Vec<[f64; 2]> =
            (0..1000).map(|row| [-13.0 + 1e-3 * f64::from(row % 2), 0.0]).collect();
        let norm = BatchNorm::new(2, &mut ParamInit::new(SeedTree::new(0), &Device::flex()));
        let out = numbers(norm.forward(rows(&values).cast(DType::F32), &ForwardContext::train(0)));
        let expected = 5e-4 / (2.5e-7_f64 + EPSILON).sqrt();
        assert!((out[2] - expected).abs() < 1e-3 * expected, "{} is not {expected}", out[2]);
    }

    #[test]
    fn a_weighted_column_counts_as_often_as_it_stands_for() {
        let norm = norm(2);
        let once = rows(&[[1.0, 2.0], [4.0, -1.0]]).transpose();
        let share = Tensor::from_data([[0.25, 0.75]], (&Device::flex(), DType::F64));
        let weighted = norm.forward_channels_first(
            once,
            Some(&PairCounts { share, total: 4 }),
            &ForwardContext::train(0),
        );
        let often = rows(&[[1.0, 2.0], [4.0, -1.0], [4.0, -1.0], [4.0, -1.0]]);
        let expected = numbers(norm.forward(often, &ForwardContext::train(0)));
        let ours = numbers(weighted.transpose());
        for (ours, expected) in ours.iter().zip(&expected) {
            assert!((ours - expected).abs() < 1e-12, "{ours} is not {expected}");
        }
    }

    #[test]
    fn evaluation_uses_running_statistics_and_changes_nothing() {
        let norm = norm(2);
        let ctx = ForwardContext::evaluate();
        let out = numbers(norm.valid().forward(rows(&[[3.0, -2.0]]), &ctx));
        let scale = 1.0 / (1.0_f64 + EPSILON).sqrt();
        assert!((out[0] - 3.0 * scale).abs() < 1e-12 && (out[1] + 2.0 * scale).abs() < 1e-12);
        assert!(ctx.into_statistics().is_empty());
    }

    #[test]
    fn a_single_row_and_no_row_are_no_accident() {
        let norm = norm(2);
        assert_eq!(
            numbers(norm.forward(rows(&[[3.0, -2.0]]), &ForwardContext::train(0))),
            [0.0, 0.0]
        );
        assert_eq!(norm.forward(rows(&[]), &ForwardContext::train(0)).dims(), [0, 2]);
    }
}
