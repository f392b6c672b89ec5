//! Batch norm over packed rows or pairs: every row is a real node, every column a real pair.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::{Init, Pass};

/// Added to the variance before the root.
const EPSILON: f64 = 1e-5;

/// How often each column stands for a pair of the batch.
///
/// Graphs of one structure share their virtual edges when the adjacency is fixed. Counting a
/// shared column as often as it is used makes the statistics those of the whole batch.
#[derive(Debug, Clone)]
pub struct Weights {
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
    pub fn new(channels: usize, init: &mut Init) -> Self {
        Self {
            gamma: init.constant([channels], 1.0),
            beta: init.constant([channels], 0.0),
            running_mean: init.statistic(channels, 0.0),
            running_variance: init.statistic(channels, 1.0),
        }
    }

    /// Normalises the columns of `[rows, channels]`.
    pub fn forward(&self, x: Tensor<2>, pass: &Pass) -> Tensor<2> {
        self.normalise(x, 0, None, pass)
    }

    /// Normalises the rows of `[channels, p]`.
    pub fn forward_pairs(&self, e: Tensor<2>, weights: Option<&Weights>, pass: &Pass) -> Tensor<2> {
        self.normalise(e, 1, weights, pass)
    }

    /// `axis` is the one that statistics are taken over.
    fn normalise(&self, x: Tensor<2>, axis: usize, weights: Option<&Weights>, pass: &Pass) -> Tensor<2> {
        let other = 1 - axis;
        let along = |channel: Tensor<1>| channel.unsqueeze_dim::<2>(axis);
        let rows = x.dims()[axis];
        if rows == 0 {
            return x; // a batch without a single edge has nothing to normalise
        }
        let (centred, variance) = if pass.uses_batch_statistics() {
            let average = |values: Tensor<2>| match weights {
                Some(weights) => (values * weights.share.clone()).sum_dim(axis),
                None => values.mean_dim(axis),
            };
            let mean = average(x.clone());
            let centred = x - mean.clone();
            let variance = average(centred.clone().square());
            pass.collect(
                [self.running_mean.id, self.running_variance.id],
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
