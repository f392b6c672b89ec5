//! Fused batch norm over rows, with a preceding residual branch and a following ReLU or linear
//! layer.
//!
//! The reference implementation is in [`BatchNorm`](crate::nn::BatchNorm), which calls these
//! operations if the kernels can run.

use burn::tensor::Tensor;
use graph_diffuser_kernels::batch_norm::{self as kernel, BatchStatistics, Branch, Normalized};
use graph_diffuser_kernels::{Dropout, Exchange, Isa};

use super::dropout::DropoutMask;
use super::fused::{self, Gradient, Input, Output, SliceOp};
use super::shards::ShardSite;

/// Fused batch norm of `[rows, channels]`.
#[derive(Debug)]
pub(crate) struct FusedBatchNorm {
    /// If `true`, a ReLU follows.
    pub(crate) relu: bool,
    /// If `true`, a residual branch is added first.
    pub(crate) has_branch: bool,
    /// Dropout of the residual branch.
    pub(crate) dropout: Option<Dropout>,
    /// Running statistics, in evaluation.
    pub(crate) running: Option<BatchStatistics>,
    /// Connection to the other shards of the batch.
    pub(crate) shard: Option<ShardSite>,
}

/// Input of a batch norm.
#[derive(Debug, Clone)]
pub(crate) struct BatchNormInput {
    /// Rows, `[rows, channels]`.
    pub(crate) x: Tensor<2>,
    /// Residual branch that is added to `x`, `[rows, channels]`.
    pub(crate) branch: Option<Tensor<2>>,
}

impl FusedBatchNorm {
    /// Returns the normalized rows, and the mean and biased variance of each channel.
    pub(crate) fn apply(
        self,
        input: BatchNormInput,
        gamma: Tensor<1>,
        beta: Tensor<1>,
    ) -> (Tensor<2>, BatchStatistics) {
        let inputs = [
            Some(Input::from(gamma)),
            Some(Input::from(beta)),
            Some(Input::from(input.x)),
            input.branch.map(Input::from),
        ];
        let (mut outputs, call) = fused::apply(self, inputs.into_iter().flatten());
        (outputs.remove(0), call.saved().statistics.clone())
    }
}

/// Returns the rows normalized by their own statistics, and their mean and biased variance, which
/// stay on the GPU; `None` if no GPU kernel supports the rows.
pub(crate) fn batch_norm_on_gpu(
    input: &BatchNormInput,
    dropout: Option<DropoutMask>,
    relu: bool,
    scale_and_shift: [Tensor<1>; 2],
) -> Option<(Tensor<2>, [Tensor<1>; 2])> {
    #[cfg(feature = "cube")]
    {
        let output = super::cube::batch_norm(input, dropout, relu, scale_and_shift)?;
        let [y, statistics] = [output.y, output.statistics];
        let statistics = if statistics.is_autodiff() { statistics.inner() } else { statistics };
        let channels = statistics.dims()[1];
        let row = |row: usize| statistics.clone().slice([row..row + 1, 0..channels]).squeeze_dim(0);
        Some((y, [row(0), row(1)]))
    }
    #[cfg(not(feature = "cube"))]
    {
        let _ = (input, dropout, relu, scale_and_shift);
        None
    }
}

/// Values that [`FusedBatchNorm`] saves for its backward pass.
#[derive(Debug)]
pub(crate) struct SavedBatchNorm {
    /// Mean and biased variance of each channel.
    statistics: BatchStatistics,
    /// Sum of the rows and the residual branch, if there is one.
    sum: Option<Vec<f32>>,
}

impl SliceOp for FusedBatchNorm {
    type Saved = SavedBatchNorm;

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, SavedBatchNorm) {
        let [gamma, beta, x] = *inputs.first_chunk().expect("scale, shift and rows");
        let branch = inputs.get(3).copied();
        let (values, saved) = if let Some(statistics) = &self.running {
            let y = kernel::evaluate(Isa::best(), x, branch, statistics, gamma, beta, self.relu);
            (y, SavedBatchNorm { statistics: statistics.clone(), sum: None })
        } else {
            let branch = branch.map(|values| Branch { values, dropout: self.dropout });
            let callback = self.shard.as_ref().map(ShardSite::forward);
            let exchange = callback.as_ref().map(|callback| callback as Exchange<'_>);
            let Normalized { y, sum, statistics } =
                kernel::forward(Isa::best(), x, branch, gamma, beta, self.relu, exchange);
            (y, SavedBatchNorm { statistics, sum })
        };
        (vec![Output::rows(values, gamma.len())], saved)
    }

    fn reads_input(&self, index: usize) -> bool {
        // With a branch, the backward pass reads the saved sum instead of `x`.
        index < 2 || !self.has_branch
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        _: &[&[f32]],
        SavedBatchNorm { statistics, sum }: &SavedBatchNorm,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        assert!(self.running.is_none(), "there is no backward pass with running statistics");
        let [gamma, beta, x] = *inputs.first_chunk().expect("scale, shift and rows");
        let x = sum.as_deref().unwrap_or(x);
        let d_y = fused::single(&gradients);
        let callback = self.shard.as_ref().map(ShardSite::backward);
        let exchange = callback.as_ref().map(|callback| callback as Exchange<'_>);
        let grads = kernel::backward(
            Isa::best(),
            x,
            self.dropout,
            gamma,
            beta,
            statistics,
            self.relu,
            d_y,
            exchange,
        );
        let d_x = Gradient::from(grads.x);
        // Without dropout, the gradient of the branch equals that of the rows.
        let d_branch =
            self.has_branch.then(|| grads.branch.map_or_else(|| d_x.clone(), Gradient::from));
        [Some(grads.gamma.into()), Some(grads.beta.into()), Some(d_x), d_branch]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Fused batch norm of `[rows, channels]`, ReLU and linear layer with a single output.
#[derive(Debug)]
pub(crate) struct FusedBatchNormLinear {
    /// Running statistics, in evaluation.
    pub(crate) running: Option<BatchStatistics>,
    /// Connection to the other shards of the batch.
    pub(crate) shard: Option<ShardSite>,
}

impl FusedBatchNormLinear {
    /// Returns one value per row, and the mean and biased variance of each channel.
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
    ) -> (Tensor<2>, BatchStatistics) {
        let inputs = [Input::from(gamma), Input::from(beta), Input::from(weight), Input::from(x)];
        let (mut outputs, call) = fused::apply(self, inputs);
        (outputs.remove(0), call.saved().clone())
    }
}

impl SliceOp for FusedBatchNormLinear {
    type Saved = BatchStatistics;

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, BatchStatistics) {
        let [gamma, beta, weight, x] =
            *inputs.first_chunk().expect("scale, shift, weights and rows");
        let (values, statistics) = if let Some(statistics) = &self.running {
            (
                kernel::evaluate_dot(Isa::best(), x, statistics, gamma, beta, weight),
                statistics.clone(),
            )
        } else {
            let callback = self.shard.as_ref().map(ShardSite::forward);
            let exchange = callback.as_ref().map(|callback| callback as Exchange<'_>);
            kernel::forward_dot(Isa::best(), x, gamma, beta, weight, exchange)
        };
        (vec![Output::rows(values, 1)], statistics)
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        _: &[&[f32]],
        statistics: &BatchStatistics,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        assert!(self.running.is_none(), "there is no backward pass with running statistics");
        let [gamma, beta, weight, x] =
            *inputs.first_chunk().expect("scale, shift, weights and rows");
        let d = fused::single(&gradients);
        let callback = self.shard.as_ref().map(ShardSite::backward);
        let exchange = callback.as_ref().map(|callback| callback as Exchange<'_>);
        let (grads, d_weight) =
            kernel::backward_dot(Isa::best(), x, gamma, beta, weight, statistics, d, exchange);
        [grads.gamma, grads.beta, d_weight, grads.x].into_iter().map(Gradient::from).collect()
    }
}
