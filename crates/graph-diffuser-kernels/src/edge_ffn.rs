//! Edge-wise feed-forward network over all pairs (Eq. 2–3), fused with the position scores of every
//! Transformer layer (Eq. 6): forward and backward pass.
//!
//! Per pair the network consists of a few products with small matrices, so it is bound by memory
//! bandwidth, and batch norm prevents a single pass: its statistics are those of all pairs. Three
//! techniques reduce the number of passes and of products per pass.
//!
//! - The quantities of a batch norm follow from sums over the input of the preceding linear layer.
//!   Mean and covariance of `x` give the statistics of `W₁ x + b₁` without forming it; `Σ g ⊗ x`
//!   gives `∂W₁` and both sums of the backward pass; and `W₁ᵀ` times the terms of the backward pass
//!   that are linear in `x` is one matrix.
//! - A pass ends only where a sum over all pairs is needed. Forward: sums of the stack; one pass
//!   for each layer but the last, which stores its output; the last layer with the scores.
//!   Backward: one pass for each layer, and one that computes the gradient of the stack.
//! - Only the input of each layer is kept between passes. The output of the last layer is never
//!   stored, and the gradient overwrites the last input tile by tile.
//!
//! A layer is `x + W₂ ReLU(BN(W₁ x + b₁)) + b₂`. The input of the first layer,
//! `x₀ = BN(transform(E))`, is kept in normalized form without γ and β, which are folded into the
//! adjacent matrices.

mod algebra;
mod tiling;

mod network;

mod forward;
mod output_gradients;

mod backward;

#[cfg(test)]
mod tests;

use std::sync::{Mutex, PoisonError};

pub use crate::tile::PairTransform;

use crate::buffer::CachedBuffer;
use crate::parallel;
use crate::shards::{Exchange, Reduction};
use crate::simd::Isa;
use crate::tile::WIDTH;

use algebra::{Correction, FirstLinear, Moments, Normalization, double, single};
use network::Network;
use output_gradients::OutputGradients;
use tiling::Stack;

/// Term added to the variance before the square root.
const EPSILON: f64 = 1e-5;

/// Parameters of a batch norm.
#[derive(Debug, Clone, Copy)]
pub struct NormParams<'a> {
    /// Scale γ.
    pub gamma: &'a [f32],
    /// Shift β.
    pub beta: &'a [f32],
}

/// Parameters of one layer of the network.
#[derive(Debug, Clone, Copy)]
pub struct EdgeFfnLayerParams<'a> {
    /// `[hidden, c]`
    pub first_weight: &'a [f32],
    /// `[hidden]`
    pub first_bias: &'a [f32],
    /// Batch norm of the hidden units.
    pub norm: NormParams<'a>,
    /// `[c, hidden]`
    pub second_weight: &'a [f32],
    /// `[c]`
    pub second_bias: &'a [f32],
}

/// Projection of virtual edges to the position scores of one Transformer layer (Eq. 6).
#[derive(Debug, Clone, Copy)]
pub struct PositionProjection<'a> {
    /// `[heads, c]`
    pub weight: &'a [f32],
    /// `[heads]`
    pub bias: &'a [f32],
}

/// Parameters of the network and of all position projections.
#[derive(Debug, Clone)]
pub struct EdgeFfnParams<'a> {
    /// Number of channels `c` of a virtual edge.
    pub channels: usize,
    /// Number of hidden units of a layer.
    pub hidden: usize,
    /// Batch norm of the transformed stack.
    pub norm: NormParams<'a>,
    /// Layers in forward order.
    pub layers: Vec<EdgeFfnLayerParams<'a>>,
    /// Number of heads of a Transformer layer.
    pub heads: usize,
    /// Projection of each Transformer layer.
    pub position: Vec<PositionProjection<'a>>,
}

/// Inputs of the network: the diffusion stack of all pairs.
#[derive(Debug, Clone, Copy)]
pub struct PairInputs<'a> {
    /// `[c, p]` diffusion stack.
    pub stack: &'a [f32],
    /// Indices of the pairs `(i, i)`, ascending.
    pub self_pairs: &'a [usize],
    /// `[p]` multiplicity of each pair in the statistics of batch norms, at least 1; `None` if all
    /// are 1.
    pub counts: Option<&'a [f32]>,
}

/// Statistics of one batch norm.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeFfnStatistics {
    /// Mean of each channel.
    pub mean: Vec<f32>,
    /// Biased variance of each channel.
    pub variance: Vec<f32>,
}

/// Statistics used by the batch norms.
#[derive(Clone, Copy)]
pub enum BatchNormMode<'a> {
    /// Statistics of these pairs (training).
    Batch,
    /// Statistics of all shards of the batch, of which these pairs are one.
    Shard(Exchange<'a>),
    /// Running statistics: of the norm of the stack, then of each layer (evaluation).
    Running(&'a [EdgeFfnStatistics]),
}

/// Output of [`forward`].
pub struct EdgeFfnForward {
    /// `[heads, p]` scores for each of [`EdgeFfnParams::position`].
    pub scores: Vec<Vec<f32>>,
    /// `[self_pairs, c]` virtual edges of nodes to themselves, if requested.
    pub diagonal: Option<Vec<f32>>,
    /// State for [`backward`].
    pub saved: EdgeFfnSaved,
}

/// State that [`forward`] saves for [`backward`].
#[derive(Default)]
pub struct EdgeFfnSaved {
    /// Statistics that were used: of the norm of the stack, then of each layer.
    pub statistics: Vec<EdgeFfnStatistics>,
    /// Statistics in double precision.
    normalizations: Vec<Normalization>,
    /// True if the statistics are those of the batch.
    batch: bool,
    /// Number of pairs of the batch, counted with their multiplicities.
    pub pairs: f64,
    /// Moments of the input of each layer; empty with running statistics.
    moments: Vec<Moments>,
    /// Shift subtracted from the input of each layer but the first, so that values are near zero.
    shifts: Vec<Vec<f64>>,
    /// Input of each layer but the first, `[tile][c + 1][WIDTH]`; empty with running statistics.
    /// [`backward`] consumes the inputs and recomputes them if they are missing.
    inputs: Mutex<Vec<CachedBuffer>>,
}

/// Gradients of a layer, in the shapes of [`EdgeFfnLayerParams`].
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "documented at EdgeFfnLayerParams and NormParams")]
pub struct EdgeFfnLayerGradients {
    pub first_weight: Vec<f32>,
    pub first_bias: Vec<f32>,
    pub gamma: Vec<f32>,
    pub beta: Vec<f32>,
    pub second_weight: Vec<f32>,
    pub second_bias: Vec<f32>,
}

/// Gradients of a position projection, in the shapes of [`PositionProjection`].
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "documented at PositionProjection")]
pub struct PositionProjectionGradients {
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
}

/// Gradients computed by [`backward`].
#[derive(Debug, Clone)]
pub struct EdgeFfnGradients {
    /// `[c, p]` gradient of the stack.
    pub stack: Vec<f32>,
    /// Gradient of γ of the norm of the stack.
    pub gamma: Vec<f32>,
    /// Gradient of β of the norm of the stack.
    pub beta: Vec<f32>,
    /// Gradients of the layers, in forward order.
    pub layers: Vec<EdgeFfnLayerGradients>,
    /// Gradients of the projections; zero for Transformer layers without gradients.
    pub position: Vec<PositionProjectionGradients>,
}

/// Computes the position scores of all pairs for every Transformer layer and, if `with_diagonal`,
/// the virtual edges of nodes to themselves.
pub fn forward(
    isa: Isa,
    params: &EdgeFfnParams<'_>,
    transform: PairTransform,
    normalize: BatchNormMode<'_>,
    pairs: PairInputs<'_>,
    with_diagonal: bool,
) -> EdgeFfnForward {
    let (stack, self_pairs) =
        (Stack::new(isa, transform, params.channels, pairs), pairs.self_pairs);
    let (mut saved, mut inputs) = (EdgeFfnSaved::default(), vec![]);
    saved.pairs = pairs.multiplicity(params.channels);
    let exchange = match normalize {
        BatchNormMode::Shard(exchange) => Some(exchange),
        _ => None,
    };
    match normalize {
        BatchNormMode::Running(statistics) => {
            assert_eq!(
                statistics.len(),
                params.layers.len() + 1,
                "there must be statistics for every batch norm"
            );
            for statistics in statistics {
                saved.push(double(&statistics.mean), &double(&statistics.variance));
            }
        }
        BatchNormMode::Batch | BatchNormMode::Shard(_) => {
            saved.batch = true;
            let raw = stack.moments().over_shards(saved.pairs, exchange);
            if exchange.is_some() {
                saved.pairs = raw.count;
            }
            saved.push(raw.mean.clone(), &raw.variances());
            let mut moments = raw.normalized(&saved.normalizations[0]);
            for index in 0..params.layers.len() {
                if index > 0 {
                    let network = Network::new(params, &saved.normalizations, &saved.shifts);
                    let shift = network.sample_mean(&stack, &inputs, index - 1);
                    saved.shifts.push(mean_over_shards(shift, exchange));
                    let network = Network::new(params, &saved.normalizations, &saved.shifts);
                    let (input, of_input) = network.apply_layer(&stack, &inputs, index - 1);
                    inputs.push(input);
                    let own_pairs = pairs.multiplicity(params.channels);
                    moments = of_input.over_shards(own_pairs, exchange);
                }
                let (mean, variance) =
                    FirstLinear::new(params, index, &saved.shifts).statistics(&moments);
                saved.push(mean, &variance);
                saved.moments.push(moments.clone());
            }
        }
    }
    let mut diagonal = with_diagonal.then(|| vec![0.0; self_pairs.len() * params.channels]);
    let network = Network::new(params, &saved.normalizations, &saved.shifts);
    let scores = network.position_scores(
        &stack,
        &inputs,
        params.position.len(),
        self_pairs,
        diagonal.as_deref_mut(),
    );
    saved.inputs = Mutex::new(inputs);
    EdgeFfnForward { scores, diagonal, saved }
}

/// Returns the mean of a vector over all shards.
fn mean_over_shards(mut values: Vec<f64>, exchange: Option<Exchange<'_>>) -> Vec<f64> {
    let Some(exchange) = exchange else { return values };
    values.push(1.0);
    exchange(Reduction::Sum, &mut values);
    let shards = values.pop().unwrap_or(1.0);
    values.iter().map(|value| value / shards).collect()
}

/// Computes the gradients of [`forward`].
///
/// With an `exchange`, the pairs are one shard of the batch, as in [`forward`]: the gradient of the
/// stack includes the effect of this shard on the statistics of all others, and the gradients of
/// parameters are the contribution of this shard, whose sum over shards is the gradient.
///
/// Inaccurate for very few pairs: with two, batch norm leaves small differences of large values
/// that are lost in sums over pairs, and the relative error of the gradient of the stack reaches
/// 1e-2.
///
/// # Shapes
/// - `pairs`: as passed to [`forward`]
/// - `d_scores`: `[heads, p]` for each of `params.position`, or `None` for zeros; dropped as early
///   as possible
/// - `d_diagonal`: `[self_pairs, c]`
pub fn backward<D: AsRef<[f32]>>(
    isa: Isa,
    params: &EdgeFfnParams<'_>,
    transform: PairTransform,
    saved: &EdgeFfnSaved,
    pairs: PairInputs<'_>,
    d_scores: Vec<Option<D>>,
    d_diagonal: Option<&[f32]>,
    exchange: Option<Exchange<'_>>,
) -> EdgeFfnGradients {
    let (c, layers) = (params.channels, params.layers.len());
    let (stack, self_pairs) = (Stack::new(isa, transform, c, pairs), pairs.self_pairs);
    let pairs = saved.pairs.max(1.0);
    // Returns the sums of all shards.
    let of_batch = |sums: &[f64]| {
        let mut sums = sums.to_vec();
        if let Some(exchange) = exchange {
            exchange(Reduction::Sum, &mut sums);
        }
        sums
    };
    let network = Network::new(params, &saved.normalizations, &saved.shifts);
    let mut inputs =
        std::mem::take(&mut *saved.inputs.lock().unwrap_or_else(PoisonError::into_inner));
    for index in inputs.len()..layers.saturating_sub(1) {
        inputs.push(network.apply_layer(&stack, &inputs, index).0);
    }
    let mut d = inputs
        .pop()
        .unwrap_or_else(|| parallel::buffer_cache().take(stack.plan.tiles * (c + 1) * WIDTH));

    // The correction from the sums of all shards, and its part from the sums of this one. Gradients
    // of parameters are linear in these sums and use the part, so that each sum counts once.
    let (mut correction, mut own_correction) = (Correction::none(c), Correction::none(c));
    let d_output = OutputGradients::new(params, &network, self_pairs, &d_scores, d_diagonal);
    let mut sums = network.backward_layer(
        &stack,
        &inputs,
        layers.saturating_sub(1),
        Some(&d_output),
        &correction,
        &mut d,
    );
    let position = d_output.gradients(params, &network.scalings[layers], &sums.position);
    // Σ ∂x over pairs, for the output of the current layer.
    let mut sum = d_output.sum(&sums.position);
    drop(d_scores);
    let mut gradients =
        EdgeFfnGradients { stack: vec![], gamma: vec![], beta: vec![], layers: vec![], position };
    for index in (0..layers).rev() {
        if index + 1 < layers {
            sums = network.backward_layer(&stack, &inputs, index, None, &correction, &mut d);
        }
        let moments = saved.batch.then(|| &saved.moments[index]);
        let normalization = &saved.normalizations[index + 1];
        let first = FirstLinear::new(params, index, &saved.shifts);
        let (mut layer, next) = first.backward(normalization, moments, pairs, &sums.first);
        own_correction = next;
        layer.second_weight = single(&sums.second);
        layer.second_bias = single(&sum);
        for (j, sum) in sum.iter_mut().enumerate() {
            // `first_bias` has no gradient with batch statistics, which remove any common shift.
            *sum += (0..params.hidden)
                .map(|i| first.plain[i * c + j] * f64::from(layer.first_bias[i]))
                .sum::<f64>();
        }
        gradients.layers.push(layer);
        correction = match exchange {
            None => own_correction.clone(),
            Some(_) => first.backward(normalization, moments, pairs, &of_batch(&sums.first)).1,
        };
    }
    gradients.layers.reverse();

    // Batch norm of the stack: ∂γ = Σ ∂x ⊙ t, where `sums.dots` does not include the correction of
    // the first layer yet.
    let covariance = |i: usize, j: usize| {
        saved.moments.first().map_or(0.0, |moments| moments.covariance[i * c + j])
    };
    let d_gamma: Vec<f64> = (0..c)
        .map(|i| {
            sums.dots[i]
                - pairs
                    * (0..c)
                        .map(|j| own_correction.matrix[i * c + j] * covariance(j, i))
                        .sum::<f64>()
        })
        .collect();
    if saved.batch {
        let of_batch = of_batch(&[&d_gamma[..], &sum].concat());
        for i in 0..c {
            correction.matrix[i * c + i] += of_batch[i] / pairs;
            correction.constant[i] += of_batch[c + i] / pairs;
        }
    }
    gradients.stack = if saved.batch && stack.plan.pairs == 1 && exchange.is_none() {
        // A single pair equals its mean, so its gradient is zero; the general formula would amplify
        // rounding errors.
        vec![0.0; c]
    } else {
        network.stack_gradient(&stack, &correction, &d)
    };
    gradients.gamma = single(&d_gamma);
    gradients.beta = single(&sum);
    gradients
}

impl PairInputs<'_> {
    /// Returns the number of pairs, counted with their multiplicities.
    fn multiplicity(&self, channels: usize) -> f64 {
        self.counts
            .map_or((self.stack.len() / channels) as f64, |counts| double(counts).iter().sum())
    }
}

impl EdgeFfnSaved {
    /// Adds the statistics of the next batch norm.
    fn push(&mut self, mean: Vec<f64>, variance: &[f64]) {
        self.statistics.push(EdgeFfnStatistics { mean: single(&mean), variance: single(variance) });
        let inverse = variance.iter().map(|variance| 1.0 / (variance + EPSILON).sqrt()).collect();
        self.normalizations.push(Normalization { mean, inverse });
    }
}
