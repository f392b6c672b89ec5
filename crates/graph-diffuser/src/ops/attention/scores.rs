//! Content and position scores: their options, their layout and their combination (Eq. 6–8).

use std::sync::Arc;

use burn::tensor::Tensor;
use burn::tensor::activation::{log_sigmoid, sigmoid, softmax};
use graph_diffuser_kernels::attention::{AttentionKernelOptions, CombineMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ops::DropoutMask;

/// Combination of content and position scores in the softmax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScoreCombination {
    /// `exp(content) · σ(position)`, normalized: Eq. 8 of the paper.
    Gate,
    /// `exp(content + position)`, normalized: the authors' grid script.
    Add,
}

/// Options of [`attention`](super::attention()).
#[derive(Debug, Clone, Copy)]
pub struct AttentionOptions {
    /// Number of heads, `h`.
    pub heads: usize,
    /// Combination of content and position scores.
    pub combine: ScoreCombination,
    /// Clamps both scores to `±clamp` first.
    pub clamp: Option<f64>,
    /// Dropout mask of the attention weights, in training.
    pub dropout: Option<DropoutMask>,
}

/// Position scores of node pairs and the offsets of each graph (Eq. 6).
#[derive(Debug, Clone)]
pub struct PairScores {
    /// Scores of consecutive blocks of pairs, `[h, q]`.
    pub scores: Tensor<2>,
    /// First pair of the block of each graph.
    ///
    /// Graphs may share a block. Every block must belong to at least one graph.
    pub starts: Arc<Vec<usize>>,
    /// Score of every pair with the last node of a graph if it is a CLS node, `[h, 1]`.
    ///
    /// Blocks then hold the pairs of the other nodes only.
    pub cls: Option<Tensor<2>>,
}

impl AttentionOptions {
    /// Returns the options of the kernels; `content` states whether there are queries and keys.
    pub(in crate::ops) fn kernel(&self, d: usize, content: bool) -> AttentionKernelOptions {
        AttentionKernelOptions {
            heads: self.heads,
            width: d,
            content,
            combine: match self.combine {
                ScoreCombination::Gate => CombineMode::Gate,
                ScoreCombination::Add => CombineMode::Add,
            },
            clamp: self.clamp.map(|clamp| clamp as f32),
            dropout: self.dropout.map(|mask| mask.0),
        }
    }

    fn clamped<const D: usize>(&self, scores: Tensor<D>) -> Tensor<D> {
        match self.clamp {
            Some(bound) => scores.clamp(-bound, bound),
            None => scores,
        }
    }

    /// Combines content and position scores into the input of the softmax.
    ///
    /// # Panics
    /// Panics if both scores are `None`.
    pub(in crate::ops) fn combined<const D: usize>(
        &self,
        content: Option<Tensor<D>>,
        position: Option<Tensor<D>>,
    ) -> Tensor<D> {
        let position = position.map(|scores| match self.combine {
            ScoreCombination::Gate => log_sigmoid(self.clamped(scores)),
            ScoreCombination::Add => self.clamped(scores),
        });
        match (content.map(|scores| self.clamped(scores)), position) {
            (Some(content), Some(position)) => content + position,
            (Some(scores), None) | (None, Some(scores)) => scores,
            (None, None) => panic!("attention needs content or position scores"),
        }
    }
}

impl PairScores {
    /// Returns the scores of `count` graphs of `n` nodes, starting with graph `first`.
    ///
    /// # Shapes
    /// - returns `[count, h, n, n]`
    pub(super) fn of_graphs(&self, first: usize, count: usize, n: usize) -> Tensor<4> {
        let [h, _] = self.scores.dims();
        let scored = n - usize::from(self.cls.is_some());
        let (starts, pairs) = (&self.starts[first..first + count], scored * scored);
        let scores = if starts.windows(2).all(|both| both[1] == both[0] + pairs) {
            self.scores.clone().slice([0..h, starts[0]..starts[0] + count * pairs])
        } else {
            let block = |&start: &usize| self.scores.clone().slice([0..h, start..start + pairs]);
            Tensor::cat(starts.iter().map(block).collect(), 1)
        };
        let scores = scores.reshape([h, count, scored, scored]).swap_dims(0, 1);
        match &self.cls {
            Some(cls) => {
                let cls = |rows, columns| {
                    cls.clone().reshape([1, h, 1, 1]).expand([count, h, rows, columns])
                };
                let scores = Tensor::cat(vec![scores, cls(scored, 1)], 3);
                Tensor::cat(vec![scores, cls(1, n)], 2)
            }
            None => scores,
        }
    }
}

/// Position, content and attention weights of some rows of one graph.
#[derive(Debug, Clone)]
pub struct AttentionComponents {
    /// Position weights, `[h, rows, n]`: `σ(position)` for a gate, the softmax for added scores.
    pub position: Option<Tensor<3>>,
    /// Content weights, `[h, rows, n]`: the softmax of the content scores.
    pub content: Option<Tensor<3>>,
    /// Attention weights, `[h, rows, n]`: the normalized product of the two (Eq. 8).
    pub attention: Tensor<3>,
}

impl AttentionComponents {
    /// Computes the components from scores, at least one of which must be given.
    ///
    /// # Shapes
    /// - `content`, `position`: `[h, rows, n]`
    pub fn new(
        content: Option<Tensor<3>>,
        position: Option<Tensor<3>>,
        options: &AttentionOptions,
    ) -> Self {
        let gate = |scores| match options.combine {
            ScoreCombination::Gate => sigmoid(options.clamped(scores)),
            ScoreCombination::Add => softmax(options.clamped(scores), 2),
        };
        Self {
            position: position.clone().map(gate),
            content: content.clone().map(|scores| softmax(options.clamped(scores), 2)),
            attention: softmax(options.combined(content, position), 2),
        }
    }
}
