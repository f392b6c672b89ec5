//! Multi-head attention gated by virtual edges (Eq. 6–8), forward and backward, without storing
//! attention matrices.
//!
//! `Att = normalize(exp(QKᵀ/√d_head) ⊙ σ(position))`. Eight query rows of one head of one graph are
//! processed at a time, so content scores, softmax and weighted sum stay in the first-level cache.
//! Only two statistics per row are kept, from which the backward pass recomputes the weights.
//!
//! The product of Eq. 8 is evaluated directly as `exp(content - max content) · σ(position)`, which
//! saves one logarithm per pair. It can underflow for a whole row; such a row is recomputed as
//! `softmax(content + log σ(position))`, which cannot underflow.

mod exp;
mod inputs;
mod products;

mod row;
mod scratch;

mod softmax;

mod backward;
mod forward;

#[cfg(test)]
mod tests;

pub use backward::backward;
pub use forward::forward;

use crate::simd::Dropout;

/// Combination of content and position scores before normalization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CombineMode {
    /// `exp(content) · σ(position)`: Eq. 8 of the paper.
    Gate,
    /// `exp(content + position)`: the script of the paper's authors.
    Add,
}

/// Options of the attention kernels.
#[derive(Debug, Clone, Copy)]
pub struct AttentionKernelOptions {
    /// Number of heads `h`; must divide `width`.
    pub heads: usize,
    /// Hidden dimension `d` of a node.
    pub width: usize,
    /// If true, there are content scores and `qkv` is `[r, 3d]` (queries, keys, values); otherwise
    /// it is `[r, d]` (values).
    pub content: bool,
    /// Combination of content and position scores.
    pub combine: CombineMode,
    /// Bound of content and position scores, which are clamped to `±clamp`.
    pub clamp: Option<f32>,
    /// Dropout mask of the attention weights; the entry of a pair has index `head · p + pair`.
    pub dropout: Option<Dropout>,
}

impl AttentionKernelOptions {
    /// Returns the number of columns of `qkv`.
    fn columns(&self) -> usize {
        if self.content { 3 * self.width } else { self.width }
    }
}

/// Position scores (Eq. 6) and the block of scores of each graph.
#[derive(Debug, Clone, Copy)]
pub struct AttentionPosition<'a> {
    /// `[h, q]` scores: the concatenated blocks of pairs.
    pub scores: &'a [f32],
    /// `[b]` offset of the block of each graph in a row of `scores`. Graphs may share a block.
    pub starts: &'a [usize],
    /// `[h]` score of all pairs that involve the last node of a graph, if that is a CLS node.
    /// Blocks then contain the pairs of the other nodes only.
    pub cls: Option<&'a [f32]>,
}

/// Output of [`forward`].
#[derive(Debug)]
pub struct AttentionOutput {
    /// `[r, d]` attended values.
    pub out: Vec<f32>,
    /// `[r, h, 2]` statistics of each row and head for [`backward`]: the score subtracted in the
    /// exponents, and the reciprocal of the row sum, negated if the row was computed with
    /// logarithms.
    pub statistics: Vec<f32>,
}

/// Gradients computed by [`backward`]; empty if the input is absent.
#[derive(Debug, PartialEq)]
pub struct AttentionGradients {
    /// Gradient of `qkv`.
    pub qkv: Vec<f32>,
    /// Gradient of [`AttentionPosition::scores`].
    pub scores: Vec<f32>,
    /// Gradient of [`AttentionPosition::cls`].
    pub cls: Vec<f32>,
}
