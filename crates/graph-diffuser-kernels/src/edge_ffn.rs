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
//!   the gradient on its way down lives where the gradient of the stack will be.
//!
//! A layer is `x + W₂ ReLU(BN(W₁ x + b₁)) + b₂`; before the first stands `x₀ = BN(transform(E))`, which
//! is kept in normalised form, without γ and β: those are multiplied into the matrices around it.

use std::ops::Range;

use rayon::prelude::*;

pub use crate::tile::Transform;

use crate::simd::Isa;
use crate::tile::{self, Affine, Buffer, Finish, Matrix, RowSums, Slopes, Start, Sums, WIDTH, product};

/// Added to a variance before the root.
const EPSILON: f64 = 1e-5;
/// Pieces that the pairs are cut into, for up to as many threads.
const MOST_CHUNKS: usize = 64;
/// Tiles of a piece, at least: its sums cost as much as one tile to collect.
const LEAST_TILES: usize = 16;

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
pub enum Normalise<'a> {
    /// Those of these pairs.
    Batch,
    /// These: of the stack's norm, then of each layer's.
    Running(&'a [Statistics]),
}

/// What [`forward`] leaves for [`backward`].
pub struct Saved {
    /// What was used: of the stack's norm, then of each layer's.
    pub statistics: Vec<Statistics>,
    /// The same in double precision.
    normals: Vec<Normal>,
    /// Of the input of each layer; none if the statistics were given.
    moments: Vec<Moments>,
    /// Input of each layer but the first, `[tile][c + 1][WIDTH]`; none if the statistics were given.
    inputs: Vec<Buffer>,
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
/// # Shapes
/// - `stack`: `[c, p]`
/// - `self_pairs`: the numbers of the pairs `(i, i)`, rising
/// - `scores`: for each of `weights.position` `[heads, p]`, written
/// - `own`: `[self_pairs, c]`, written
pub fn forward(
    isa: Isa,
    weights: &Weights<'_>,
    transform: Transform,
    normalise: Normalise<'_>,
    stack: &[f32],
    self_pairs: &[usize],
    scores: &mut [&mut [f32]],
    own: Option<&mut [f32]>,
) -> Saved {
    let c = weights.channels;
    let stack = Stack::new(isa, transform, c, stack);
    let plan = stack.plan;
    assert_eq!(scores.len(), weights.position.len(), "one set of scores for each position");
    for scores in scores.iter() {
        assert_eq!(scores.len(), weights.heads * plan.pairs, "scores are [heads, p]");
    }
    let mut saved = Saved { statistics: Vec::new(), normals: Vec::new(), moments: Vec::new(), inputs: Vec::new() };
    let mut keep = |mean: Vec<f64>, variance: Vec<f64>| {
        saved.statistics.push(Statistics { mean: single(&mean), variance: single(&variance) });
        let inverse = variance.iter().map(|variance| 1.0 / (variance + EPSILON).sqrt()).collect();
        saved.normals.push(Normal { mean, inverse });
    };
    if let Normalise::Running(statistics) = normalise {
        assert_eq!(statistics.len(), weights.layers.len() + 1, "statistics of every batch norm");
        for statistics in statistics {
            keep(double(&statistics.mean), double(&statistics.variance));
        }
        let network = Network::new(weights, &saved.normals);
        network.read_scores(&stack, &[], self_pairs, scores, own);
        return saved;
    }
    let moments = stack.moments();
    keep(moments.mean.clone(), moments.variance());
    let mut moments = moments.normalised(&saved.normals[0], weights.norm);
    for (index, layer) in weights.layers.iter().enumerate() {
        let hidden = moments.through(layer.first_weight, layer.first_bias);
        saved.moments.push(moments);
        saved.statistics.push(Statistics { mean: single(&hidden.0), variance: single(&hidden.1) });
        let inverse = hidden.1.iter().map(|variance| 1.0 / (variance + EPSILON).sqrt()).collect();
        saved.normals.push(Normal { mean: hidden.0, inverse });
        if index + 1 == weights.layers.len() {
            break;
        }
        let network = Network::new(weights, &saved.normals);
        let (input, next) = network.apply_layer(&stack, &saved.inputs, index);
        saved.inputs.push(input);
        moments = next;
    }
    Network::new(weights, &saved.normals).read_scores(&stack, &saved.inputs, self_pairs, scores, own);
    saved
}
