//! The edge-wise feed-forward network over all pairs (Eq. 2–3), and the position scores of every
//! Transformer layer that are read off it (Eq. 6): forward and backward.
//!
//! Per pair the network is a few products with small matrices, so memory is the price, and batch norm
//! is what makes one pass impossible: its statistics are those of all pairs. Three things keep the
//! passes few and the products in them few.
//!
//! - What a batch norm needs follows from sums over its input, because it stands behind a linear map.
//!   Mean and covariance of `x` give the statistics of `W₁ x + b₁` without forming it; `Σ g ⊗ x` gives
//!   `∂W₁` and both sums of the backward; and `W₁ᵀ` times the backward's terms in `x` is one matrix.
//! - A pass ends where a sum over all pairs is needed and nowhere else. Forward: sums of the stack;
//!   one pass for each layer but the last, which keeps its output; the last layer and the scores.
//!   Backward: one pass for each layer, and one that ends in the gradient of the stack.
//! - Between passes only the input of each layer is kept. The output of the last is never stored, and
//!   the gradient on its way down takes the place of the last input, tile by tile.
//!
//! A layer is `x + W₂ ReLU(BN(W₁ x + b₁)) + b₂`; before the first stands `x₀ = BN(transform(E))`, which
//! is kept in normalised form, without γ and β: those are multiplied into the matrices around it.

mod algebra;
mod network;
mod upper;
mod walk;

#[cfg(test)]
mod tests;

use std::sync::{Mutex, PoisonError};

pub use crate::tile::PairTransform;

use crate::simd::Isa;
use crate::tile::{Buffer, WIDTH};

use algebra::{Correction, First, Moments, Normal, double, single};
use network::Network;
use upper::Upper;
use walk::Stack;

/// Added to a variance before the root.
const EPSILON: f64 = 1e-5;

/// Scale and shift of a batch norm.
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a> {
    /// Scale.
    pub gamma: &'a [f32],
    /// Shift.
    pub beta: &'a [f32],
}

/// Parameters of one layer.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'a> {
    /// `[hidden, c]`
    pub first_weight: &'a [f32],
    /// `[hidden]`
    pub first_bias: &'a [f32],
    /// Of the hidden units.
    pub norm: Norm<'a>,
    /// `[c, hidden]`
    pub second_weight: &'a [f32],
    /// `[c]`
    pub second_bias: &'a [f32],
}

/// What turns a virtual edge into the position scores of one Transformer layer (Eq. 6).
#[derive(Debug, Clone, Copy)]
pub struct Position<'a> {
    /// `[heads, c]`
    pub weight: &'a [f32],
    /// `[heads]`
    pub bias: &'a [f32],
}

/// All parameters.
#[derive(Debug, Clone)]
pub struct Weights<'a> {
    /// Channels of a virtual edge, `c`.
    pub channels: usize,
    /// Hidden units of a layer.
    pub hidden: usize,
    /// Of the transformed stack.
    pub norm: Norm<'a>,
    /// From the first to the last.
    pub layers: Vec<Layer<'a>>,
    /// Heads of a Transformer layer.
    pub heads: usize,
    /// One for each Transformer layer.
    pub position: Vec<Position<'a>>,
}

/// What the network reads: the virtual edges of all pairs.
#[derive(Debug, Clone, Copy)]
pub struct Pairs<'a> {
    /// `[c, p]`
    pub stack: &'a [f32],
    /// The numbers of the pairs `(i, i)`, rising.
    pub self_pairs: &'a [usize],
    /// `[p]`, how often each pair counts for a batch norm, at least once; all once if there are none.
    pub counts: Option<&'a [f32]>,
}

/// What a batch norm saw.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Mean of each channel.
    pub mean: Vec<f32>,
    /// Biased variance of each channel.
    pub variance: Vec<f32>,
}

/// Whose statistics a batch norm uses.
#[derive(Debug, Clone, Copy)]
pub enum Normalize<'a> {
    /// Those of these pairs.
    Batch,
    /// These: of the stack's norm, then of each layer's.
    Running(&'a [Statistics]),
}

/// What [`forward`] makes.
pub struct EdgeFfnForward {
    /// `[heads, p]` for each of `Weights::position`.
    pub scores: Vec<Vec<f32>>,
    /// `[self_pairs, c]`
    pub own: Option<Vec<f32>>,
    /// For [`backward`].
    pub saved: Saved,
}

/// What [`forward`] leaves for [`backward`].
#[derive(Default)]
pub struct Saved {
    /// What was used: of the stack's norm, then of each layer's.
    pub statistics: Vec<Statistics>,
    /// The same in double precision.
    normals: Vec<Normal>,
    /// Whether they are those of these pairs.
    batch: bool,
    /// Of the input of each layer; none if the statistics were given.
    moments: Vec<Moments>,
    /// What is taken off the input of each layer but the first, so that it is near zero.
    shifts: Vec<Vec<f64>>,
    /// Input of each layer but the first, `[tile][c + 1][WIDTH]`, which [`backward`] takes and makes again where
    /// they are missing: none if the statistics were given.
    inputs: Mutex<Vec<Buffer>>,
}

/// Gradients of a layer, each shaped as in [`Layer`].
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "as in Layer and Norm")]
pub struct LayerGradients {
    pub first_weight: Vec<f32>,
    pub first_bias: Vec<f32>,
    pub gamma: Vec<f32>,
    pub beta: Vec<f32>,
    pub second_weight: Vec<f32>,
    pub second_bias: Vec<f32>,
}

/// Gradients of a position, each shaped as in [`Position`].
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "as in Position")]
pub struct PositionGradients {
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
}

/// Gradients of all parameters.
#[derive(Debug, Clone)]
pub struct Gradients {
    /// `[c, p]`
    pub stack: Vec<f32>,
    /// Of the stack's norm.
    pub gamma: Vec<f32>,
    /// Of the stack's norm.
    pub beta: Vec<f32>,
    /// From the first to the last.
    pub layers: Vec<LayerGradients>,
    /// Zeros for a Transformer layer without gradients.
    pub position: Vec<PositionGradients>,
}

/// Position scores of all pairs for every Transformer layer, and the virtual edges of nodes to themselves.
///
/// `with_own` asks for the latter.
pub fn forward(
    isa: Isa,
    weights: &Weights<'_>,
    transform: PairTransform,
    normalize: Normalize<'_>,
    pairs: Pairs<'_>,
    with_own: bool,
) -> EdgeFfnForward {
    let (stack, self_pairs) =
        (Stack::new(isa, transform, weights.channels, pairs), pairs.self_pairs);
    let (mut saved, mut inputs) = (Saved::default(), vec![]);
    match normalize {
        Normalize::Running(statistics) => {
            assert_eq!(
                statistics.len(),
                weights.layers.len() + 1,
                "statistics of every batch norm"
            );
            for statistics in statistics {
                saved.push(double(&statistics.mean), &double(&statistics.variance));
            }
        }
        Normalize::Batch => {
            saved.batch = true;
            let raw = stack.moments();
            saved.push(raw.mean.clone(), &raw.variances());
            let mut moments = raw.normalised(&saved.normals[0]);
            for index in 0..weights.layers.len() {
                if index > 0 {
                    let network = Network::new(weights, &saved.normals, &saved.shifts);
                    saved.shifts.push(network.sample_mean(&stack, &inputs, index - 1));
                    let network = Network::new(weights, &saved.normals, &saved.shifts);
                    let (input, of_input) = network.apply_layer(&stack, &inputs, index - 1);
                    inputs.push(input);
                    moments = of_input;
                }
                let (mean, variance) =
                    First::new(weights, index, &saved.shifts).statistics(&moments);
                saved.push(mean, &variance);
                saved.moments.push(moments.clone());
            }
        }
    }
    let mut own = with_own.then(|| vec![0.0; self_pairs.len() * weights.channels]);
    let network = Network::new(weights, &saved.normals, &saved.shifts);
    let scores = network.read_scores(
        &stack,
        &inputs,
        weights.position.len(),
        self_pairs,
        own.as_deref_mut(),
    );
    saved.inputs = Mutex::new(inputs);
    EdgeFfnForward { scores, own, saved }
}

/// Gradients of everything that went into [`forward`].
///
/// Not for a handful of pairs: of two, batch norm leaves small differences of large numbers, and sums over
/// pairs lose them. The gradient of the stack was then off by up to a hundredth.
///
/// # Shapes
/// - `pairs`: as they were
/// - `d_scores`: for each of `weights.position` `[heads, p]`, or nothing for zeros; dropped as soon as may be
/// - `d_own`: `[self_pairs, c]`
pub fn backward<D: AsRef<[f32]>>(
    isa: Isa,
    weights: &Weights<'_>,
    transform: PairTransform,
    saved: &Saved,
    pairs: Pairs<'_>,
    d_scores: Vec<Option<D>>,
    d_own: Option<&[f32]>,
) -> Gradients {
    let (c, layers) = (weights.channels, weights.layers.len());
    let (stack, self_pairs) = (Stack::new(isa, transform, c, pairs), pairs.self_pairs);
    let pairs =
        pairs.counts.map_or(stack.plan.pairs as f64, |counts| double(counts).iter().sum()).max(1.0);
    let network = Network::new(weights, &saved.normals, &saved.shifts);
    let mut inputs =
        std::mem::take(&mut *saved.inputs.lock().unwrap_or_else(PoisonError::into_inner));
    for index in inputs.len()..layers.saturating_sub(1) {
        inputs.push(network.apply_layer(&stack, &inputs, index).0);
    }
    let mut d = inputs.pop().unwrap_or_else(|| Buffer::reused(stack.plan.tiles * (c + 1) * WIDTH));

    let mut correction = Correction::none(c);
    let upper = Upper::new(weights, &network, self_pairs, &d_scores, d_own);
    let mut part = network.descend(
        &stack,
        &inputs,
        layers.saturating_sub(1),
        Some(&upper),
        &correction,
        &mut d,
    );
    let position = upper.gradients(weights, &network.levels[layers], &part.position);
    // Σ ∂x over pairs, of the output of the layer at hand.
    let mut sum = upper.sum(&part.position);
    drop(d_scores);
    let mut gradients =
        Gradients { stack: vec![], gamma: vec![], beta: vec![], layers: vec![], position };
    for index in (0..layers).rev() {
        if index + 1 < layers {
            part = network.descend(&stack, &inputs, index, None, &correction, &mut d);
        }
        let moments = saved.batch.then(|| &saved.moments[index]);
        let normal = &saved.normals[index + 1];
        let first = First::new(weights, index, &saved.shifts);
        let (mut layer, next) = first.backward(normal, moments, pairs, &part.first);
        layer.second_weight = single(&part.second);
        layer.second_bias = single(&sum);
        for (j, sum) in sum.iter_mut().enumerate() {
            // It is zero with statistics of the batch: a shift of all pairs changes nothing.
            *sum += (0..weights.hidden)
                .map(|i| first.plain[i * c + j] * f64::from(layer.first_bias[i]))
                .sum::<f64>();
        }
        gradients.layers.push(layer);
        correction = next;
    }
    gradients.layers.reverse();

    // The stack's own batch norm: ∂γ = Σ ∂x ⊙ t, where the last layer's correction is not yet in `part.dots`.
    let covariance = |i: usize, j: usize| {
        saved.moments.first().map_or(0.0, |moments| moments.covariance[i * c + j])
    };
    let d_gamma: Vec<f64> = (0..c)
        .map(|i| {
            part.dots[i]
                - pairs
                    * (0..c).map(|j| correction.matrix[i * c + j] * covariance(j, i)).sum::<f64>()
        })
        .collect();
    if saved.batch {
        for i in 0..c {
            correction.matrix[i * c + i] += d_gamma[i] / pairs;
            correction.constant[i] += sum[i] / pairs;
        }
    }
    gradients.stack = if saved.batch && stack.plan.pairs == 1 {
        // A pair alone is its own mean, whatever it is; rounding would be scaled up here, not small.
        vec![0.0; c]
    } else {
        network.finish(&stack, &correction, &d)
    };
    gradients.gamma = single(&d_gamma);
    gradients.beta = single(&sum);
    inputs.into_iter().chain([d]).for_each(Buffer::give_back);
    gradients
}

impl Saved {
    fn push(&mut self, mean: Vec<f64>, variance: &[f64]) {
        self.statistics.push(Statistics { mean: single(&mean), variance: single(variance) });
        let inverse = variance.iter().map(|variance| 1.0 / (variance + EPSILON).sqrt()).collect();
        self.normals.push(Normal { mean, inverse });
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        self.inputs
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
            .for_each(Buffer::give_back);
    }
}
