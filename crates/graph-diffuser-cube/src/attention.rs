//! Multi-head attention gated by virtual edges (Eq. 6–8), forward and backward, without storing
//! attention weights.
//!
//! `Att = softmax(QKᵀ/√d_head + log σ(position))`, which equals the normalized product of Eq. 8 and
//! cannot overflow. A cube computes one row of one head: its units share the pairs of the row, and
//! then the dimensions of the head. The maximum and the reciprocal of the sum of each row are
//! saved, and the backward pass recomputes the weights from them.
//!
//! The backward pass has three launches: gradients of the scores and queries, by row; gradients of
//! keys and values, by column; and sums of the gradients of position scores over the graphs that
//! share a block. A fourth sums the gradient of the CLS score.

mod backward;
mod forward;
mod layout;
mod score;

#[cfg(all(test, feature = "wgpu"))]
mod tests;

pub use backward::{CubeAttentionGradients, backward};
pub use forward::{CubeAttentionOutput, forward};
pub use layout::{AttentionLayout, PositionLayout};

use crate::{Buffer, CubeDropout, MAX_CUBES};

/// Largest supported dimension of a head: WebGPU guarantees 256 units in a cube.
const MAX_HEAD: usize = 256;

/// Combination of content and position scores before normalization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CubeCombineMode {
    /// `exp(content) · σ(position)`: Eq. 8 of the paper.
    Gate,
    /// `exp(content + position)`: the script of the paper's authors.
    Add,
}

/// Options of the attention kernels.
#[derive(Debug, Clone, Copy)]
pub struct CubeAttentionOptions {
    /// Number of heads `h`; must divide `width`.
    pub heads: usize,
    /// Hidden dimension `d` of a node.
    pub width: usize,
    /// If true, there are content scores and `qkv` is `[r, 3d]` (queries, keys, values); otherwise
    /// it is `[r, d]` (values).
    pub content: bool,
    /// Combination of content and position scores.
    pub combine: CubeCombineMode,
    /// Bound of content and position scores, which are clamped to `±clamp`.
    pub clamp: Option<f32>,
    /// CubeDropout mask of the attention weights; the entry of a pair has index `head · p + pair`.
    pub dropout: Option<CubeDropout>,
}

impl CubeAttentionOptions {
    /// Returns whether the kernels support these options for a batch of `nodes` nodes and `pairs`
    /// pairs: a head fits into a cube, and indices into 32 bits.
    pub fn supports(&self, nodes: usize, pairs: usize) -> bool {
        self.width / self.heads <= MAX_HEAD
            && self.heads <= MAX_CUBES
            && (1..=MAX_CUBES).contains(&nodes)
            && self.heads * pairs < u32::MAX as usize
            && 3 * nodes * self.width < u32::MAX as usize
    }

    /// Returns the number of columns of `qkv`.
    fn columns(&self) -> usize {
        if self.content { 3 * self.width } else { self.width }
    }
}

/// Position scores (Eq. 6) and their layout.
#[derive(Debug, Clone)]
pub struct CubeAttentionPosition {
    /// `[h, q]` scores: the concatenated blocks of pairs.
    pub scores: Buffer,
    /// `[h]` score of all pairs that involve the last node of a graph, if that is a CLS node.
    pub cls: Option<Buffer>,
    /// Blocks of scores of each graph.
    pub layout: PositionLayout,
}
