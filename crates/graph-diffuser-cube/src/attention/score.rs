//! Score of one pair, the input of the softmax (Eq. 7 and 8).

use cubecl::prelude::*;

use super::{CubeAttentionOptions, CubeAttentionPosition, CubeCombineMode};
use crate::UNITS;
use crate::dropout::dropout_factor;

/// Structure of the scores, which is compiled into the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ScoreShape {
    pub(super) heads: usize,
    pub(super) d_head: usize,
    /// Units of a cube, at least `d_head`.
    pub(super) units: usize,
    /// Columns of `qkv`.
    pub(super) columns: usize,
    pub(super) content: bool,
    pub(super) position: bool,
    pub(super) gate: bool,
    pub(super) cls: bool,
    pub(super) clamp: bool,
    pub(super) dropout: bool,
}

impl ScoreShape {
    pub(super) fn new(
        options: &CubeAttentionOptions,
        position: Option<&CubeAttentionPosition>,
    ) -> Self {
        Self {
            heads: options.heads,
            d_head: options.width / options.heads,
            units: (options.width / options.heads).next_power_of_two().max(UNITS),
            columns: options.columns(),
            content: options.content,
            position: position.is_some(),
            gate: options.combine == CubeCombineMode::Gate,
            cls: position.is_some_and(|position| position.cls.is_some()),
            clamp: options.clamp.is_some(),
            dropout: options.dropout.is_some(),
        }
    }
}

/// Numbers that the scores depend on.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct ScoreScalars {
    /// Number of pairs of the batch.
    pub(super) num_pairs: u32,
    /// Number of scores of a head.
    pub(super) num_scores: u32,
    pub(super) content_scale: f32,
    pub(super) clamp: f32,
    pub(super) key_low: u32,
    pub(super) key_high: u32,
    pub(super) threshold: u32,
    pub(super) keep: f32,
}

impl ScoreScalarsLaunch {
    pub(super) fn of(options: &CubeAttentionOptions, num_pairs: usize, num_scores: usize) -> Self {
        let (key, threshold, keep) =
            options.dropout.map_or(([0; 2], 0, 1.0), |mask| (mask.key, mask.threshold, mask.scale));
        Self::new(
            num_pairs as u32,
            num_scores as u32,
            1.0 / ((options.width / options.heads) as f32).sqrt(),
            options.clamp.unwrap_or(0.0),
            key[0],
            key[1],
            threshold,
            keep,
        )
    }
}

/// Returns the scaled product of a query and a key, not clamped (Eq. 7).
#[cube]
pub(super) fn content_score(
    qkv: &[f32],
    query: usize,
    key: usize,
    head: usize,
    scale: f32,
    #[comptime] shape: ScoreShape,
) -> f32 {
    let (columns, d_head) = comptime!((shape.columns, shape.d_head));
    let first = query * columns + head * d_head;
    let second = key * columns + comptime!(shape.heads * shape.d_head) + head * d_head;
    let mut sum = 0.0f32;
    for c in 0..d_head {
        sum += qkv[first + c] * qkv[second + c];
    }
    sum * scale
}

/// Returns the position score of pair (i, j) of a graph of `n` nodes, not clamped (Eq. 6);
/// `row` is the first score of row i.
#[cube]
pub(super) fn position_score(
    scores: &[f32],
    cls: &[f32],
    row: usize,
    i: usize,
    j: usize,
    n: usize,
    head: usize,
    num_scores: usize,
    #[comptime] shape: ScoreShape,
) -> f32 {
    if comptime!(shape.cls) {
        let mut score = cls[head];
        if i + 1 < n && j + 1 < n {
            score = scores[head * num_scores + row + j];
        }
        score
    } else {
        scores[head * num_scores + row + j]
    }
}

/// Clamps a score, if there is a bound.
#[cube]
pub(super) fn clamped(score: f32, bound: f32, #[comptime] shape: ScoreShape) -> f32 {
    if comptime!(shape.clamp) { max(min(score, bound), 0.0f32 - bound) } else { score }
}

/// Returns the derivative of [`clamped`].
#[cube]
pub(super) fn clamp_gradient(score: f32, bound: f32, #[comptime] shape: ScoreShape) -> f32 {
    if comptime!(shape.clamp) {
        select(max(score, 0.0f32 - score) <= bound, 1.0f32, 0.0f32)
    } else {
        1.0f32.runtime()
    }
}

/// Returns the term of a position score in the exponent: `log σ` for a gate.
#[cube]
fn position_exponent(score: f32, #[comptime] shape: ScoreShape) -> f32 {
    if comptime!(shape.gate) {
        let magnitude = max(score, 0.0f32 - score);
        min(score, 0.0f32) - (1.0f32 + (0.0f32 - magnitude).exp()).ln()
    } else {
        score
    }
}

/// Returns the derivative of [`position_exponent`] of a clamped score.
#[cube]
pub(super) fn position_gradient(score: f32, #[comptime] shape: ScoreShape) -> f32 {
    if comptime!(shape.gate) {
        // 1 - σ(x) = σ(-x); the exponent is bounded so that it cannot overflow.
        1.0f32 / (1.0f32 + min(score, 80.0f32).exp())
    } else {
        1.0f32.runtime()
    }
}

/// Returns the exponent of pair (i, j), where nodes are indices within a graph of `n` nodes that
/// starts at node `first`.
#[cube]
pub(super) fn exponent(
    qkv: &[f32],
    scores: &[f32],
    cls: &[f32],
    node_rows: &[u32],
    first: usize,
    n: usize,
    i: usize,
    j: usize,
    head: usize,
    scalars: &ScoreScalars,
    #[comptime] shape: ScoreShape,
) -> f32 {
    let mut sum = 0.0f32;
    if comptime!(shape.content) {
        let content = content_score(qkv, first + i, first + j, head, scalars.content_scale, shape);
        sum += clamped(content, scalars.clamp, shape);
    }
    if comptime!(shape.position) {
        let row = node_rows[first + i] as usize;
        let count = scalars.num_scores as usize;
        let score = position_score(scores, cls, row, i, j, n, head, count, shape);
        sum += position_exponent(clamped(score, scalars.clamp, shape), shape);
    }
    sum
}

/// Returns the dropout factor of a pair.
#[cube]
pub(super) fn pair_dropout(
    pair: u32,
    head: u32,
    scalars: &ScoreScalars,
    #[comptime] shape: ScoreShape,
) -> f32 {
    if comptime!(shape.dropout) {
        let index = head * scalars.num_pairs + pair;
        dropout_factor(index, scalars.key_low, scalars.key_high, scalars.threshold, scalars.keep)
    } else {
        1.0f32.runtime()
    }
}
