//! One row of one head: its memory, its scores and the form of its weights.

use super::inputs::Inputs;
use super::products::ROWS;
use super::{AttentionKernelOptions, CombineMode};
use crate::simd::{Dropout, Simd};

/// Bound of position scores in gates, so that gates are normal numbers.
const MAX_POSITION: f32 = 80.0;

/// Sizes and offsets of one head of one graph.
#[derive(Clone, Copy)]
pub(super) struct GraphHead {
    pub(super) n: usize,
    /// Number of nodes whose pairs have individual scores.
    pub(super) scored: usize,
    pub(super) graph: usize,
    pub(super) head: usize,
    pub(super) d_head: usize,
    pub(super) first_node: usize,
    /// Offset of the first pair in `[h, p]`.
    pub(super) first_pair: usize,
    /// Offset of the first score in `[h, q]`.
    pub(super) first_score: usize,
    pub(super) cls: f32,
}

impl GraphHead {
    #[inline(always)]
    pub(super) fn new(inputs: &Inputs<'_>, graph: usize, head: usize) -> Self {
        let Inputs { graphs, options, position, .. } = inputs;
        Self {
            n: graphs.sizes[graph],
            scored: inputs.scored(graph),
            graph,
            head,
            d_head: options.width / options.heads,
            first_node: graphs.node_starts[graph],
            first_pair: head * graphs.num_pairs() + graphs.pair_starts[graph],
            first_score: position.map_or(0, |position| {
                head * (position.scores.len() / options.heads) + position.starts[graph]
            }),
            cls: position.and_then(|position| position.cls).map_or(0.0, |cls| cls[head]),
        }
    }

    /// Returns row `i` with the position scores at `scores`; the caller sets the other pointers.
    #[inline(always)]
    pub(super) fn row(
        &self,
        options: &AttentionKernelOptions,
        scores: Option<*const f32>,
        i: usize,
        weights: *mut f32,
    ) -> Row {
        let scored = if i < self.scored { self.scored } else { 0 };
        Row {
            n: self.n,
            scored,
            cls: self.cls,
            first_pair: self.first_pair + i * self.n,
            clamp: options.clamp,
            dropout: options.dropout,
            content: None,
            position: scores.map(|scores| scores.wrapping_add(self.first_score + i * scored)),
            d_position: None,
            accumulate_scores: false,
            weights,
        }
    }
}

/// Row of one head: its scores and weights. Memory at `content` and `weights` extends to a full
/// vector, the other arrays end with the row.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) n: usize,
    /// Number of leading pairs with individual scores; the others have the CLS score.
    pub(super) scored: usize,
    pub(super) cls: f32,
    /// Index of its first pair in `[h, p]`.
    pub(super) first_pair: usize,
    pub(super) clamp: Option<f32>,
    pub(super) dropout: Option<Dropout>,
    pub(super) content: Option<*mut f32>,
    pub(super) position: Option<*const f32>,
    pub(super) d_position: Option<*mut f32>,
    /// If true, gradients are added to the values at `d_position` instead of overwriting them.
    pub(super) accumulate_scores: bool,
    pub(super) weights: *mut f32,
}

/// Form of an unnormalized attention weight.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExponentForm {
    /// `exp(content)`.
    Content,
    /// `exp(content) · σ(position)`.
    Gate,
    /// `exp(content + log σ(position))`.
    LogGate,
    /// `exp(content + position)`.
    Add,
}

impl ExponentForm {
    /// Returns the form of the first attempt for a row.
    #[inline(always)]
    pub(super) fn of(combine: CombineMode, row: &Row) -> Self {
        match (row.position, combine) {
            (None, _) => Self::Content,
            (Some(_), CombineMode::Gate) => Self::Gate,
            (Some(_), CombineMode::Add) => Self::Add,
        }
    }
}

impl Row {
    /// Loads content scores from pair `j` on (Eq. 7), not clamped; zeros without content.
    ///
    /// # Safety
    /// `j` is a pair of the row and a multiple of the lanes.
    #[inline(always)]
    pub(super) unsafe fn content<S: Simd>(&self, simd: S, j: usize) -> S::V {
        match self.content {
            // SAFETY: the row extends to a full vector.
            Some(content) => unsafe { simd.load(content.add(j)) },
            None => simd.zero(),
        }
    }

    /// Returns the number of pairs with individual scores in the vector at pair `j`. If `whole`,
    /// these are all lanes, which is then known at compile time.
    #[inline(always)]
    pub(super) fn num_scored<S: Simd>(&self, _: S, j: usize, whole: bool) -> usize {
        if whole { S::LANES } else { self.scored.saturating_sub(j).min(S::LANES) }
    }

    /// Loads position scores from pair `j` on (Eq. 6), not clamped; zeros without position scores.
    ///
    /// # Safety
    /// `j` is a pair of the row and a multiple of the lanes; if `whole`, a full vector of scores
    /// follows.
    #[inline(always)]
    pub(super) unsafe fn position<S: Simd>(&self, simd: S, j: usize, whole: bool) -> S::V {
        let scored = self.num_scored(simd, j, whole);
        match self.position {
            // SAFETY: `scored` scores are readable from pair `j`.
            Some(position) => simd.keep_first(
                unsafe { simd.load_up_to(position.wrapping_add(j), scored) },
                scored,
                self.cls,
            ),
            None => simd.zero(),
        }
    }

    /// Prefetches the scores to be read, and the gradients to be written, at pair `j` of the next
    /// rows.
    #[inline(always)]
    pub(super) fn prefetch_position<S: Simd>(&self, simd: S, j: usize) {
        let ahead = j + ROWS * self.scored;
        if let Some(position) = self.position {
            simd.prefetch(position.wrapping_add(ahead));
        }
        if let Some(d_position) = self.d_position {
            simd.prefetch(d_position.wrapping_add(ahead));
        }
    }

    /// Clamps position scores to the range in which gates are computed.
    #[inline(always)]
    pub(super) fn clamp_for_gate<S: Simd>(&self, simd: S, position: S::V) -> S::V {
        let bound = self.clamp.unwrap_or(MAX_POSITION).min(MAX_POSITION);
        simd.clamp(position, bound)
    }

    /// Clamps `scores` to `±clamp`.
    #[inline(always)]
    fn clamp<S: Simd>(&self, simd: S, scores: S::V) -> S::V {
        match self.clamp {
            Some(bound) => simd.clamp(scores, bound),
            None => scores,
        }
    }

    /// Returns the gradient with respect to the input of [`Row::clamp`], from that of its output.
    #[inline(always)]
    pub(super) fn clamp_gradient<S: Simd>(&self, simd: S, scores: S::V, gradient: S::V) -> S::V {
        match self.clamp {
            Some(bound) => {
                let size = simd.max(scores, simd.sub(simd.zero(), scores));
                simd.select_positive(simd.sub(size, simd.splat(bound)), simd.zero(), gradient)
            }
            None => gradient,
        }
    }

    /// Returns the exponent for these scores, before the maximum is subtracted.
    #[inline(always)]
    pub(super) fn exponent<S: Simd>(
        &self,
        simd: S,
        form: ExponentForm,
        content: S::V,
        position: S::V,
    ) -> S::V {
        let content = self.clamp(simd, content);
        match form {
            ExponentForm::Content | ExponentForm::Gate => content,
            ExponentForm::LogGate => {
                simd.add(content, simd.log_sigmoid(self.clamp(simd, position)))
            }
            ExponentForm::Add => simd.add(content, self.clamp(simd, position)),
        }
    }
}
