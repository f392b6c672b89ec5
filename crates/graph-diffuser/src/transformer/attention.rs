//! Multi-head attention directed by virtual edges (Eq. 6–8).

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;
use crate::nn::{Init, Linear, Pass};
use crate::ops::{self, Combine, ScoreBlocks, ScoreRule};

use crate::virtual_edges::PositionScores;

use super::ClsToken;

/// What [`DiffuserAttention`] needs to exist.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionConfig {
    /// Number of heads, `h`; divides the width.
    pub heads: usize,
    /// Probability that an attention weight is dropped in training.
    #[serde(default)]
    pub dropout: f64,
    /// What attention is decided by.
    pub scores: Scores,
}

/// What attention is decided by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Scores {
    /// What nodes hold and where they stand: Graph Diffuser.
    PositionAndContent {
        /// How the two are combined.
        combine: Combine,
        /// Both are first brought into `±clamp`, as in the authors' code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clamp: Option<f64>,
    },
    /// Where nodes stand alone: no queries and keys.
    Position {
        /// Whether scores pass a gate.
        combine: Combine,
        /// Scores are first brought into `±clamp`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clamp: Option<f64>,
    },
    /// What nodes hold alone: a plain Transformer.
    Content {},
}

impl Scores {
    /// Whether virtual edges are read.
    pub fn use_position(self) -> bool {
        !matches!(self, Self::Content {})
    }

    fn use_content(self) -> bool {
        !matches!(self, Self::Position { .. })
    }
}

impl AttentionConfig {
    /// Draws the parameters; `channels` are those of a virtual edge.
    pub fn init(&self, width: usize, channels: Option<usize>, init: &mut Init) -> DiffuserAttention {
        let parts = if self.scores.use_content() { 3 } else { 1 };
        let position = self.scores.use_position().then(|| {
            let channels = channels.expect("the config was checked: position needs virtual edges");
            Linear::new(channels, self.heads, init)
        });
        DiffuserAttention {
            query_key_value: Linear::glorot(width, parts * width, init),
            position,
            output: Linear::zero_bias(width, width, init),
            heads: self.heads,
            dropout: self.dropout,
            scores: self.scores,
        }
    }
}

/// Each node gathers from every node of its own graph.
#[derive(Module, Debug)]
pub struct DiffuserAttention {
    query_key_value: Linear,
    position: Option<Linear>,
    output: Linear,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    dropout: f64,
    #[module(skip)]
    scores: Scores,
}

impl DiffuserAttention {
    /// The projection of virtual edges to position scores, where position is read (Eq. 6).
    pub fn position(&self) -> Option<&Linear> {
        self.position.as_ref()
    }

    /// # Shapes
    /// - `x`: `[r, d]` nodes, CLS nodes among them
    /// - `scores`: where position scores are found, where position is read
    /// - returns `[r, d]`
    pub fn forward(
        &self,
        x: Tensor<2>,
        scores: PositionScores<'_>,
        cls: Option<&ClsToken>,
        batch: &GraphBatch,
        pass: &Pass,
    ) -> Tensor<2> {
        let [_, d] = x.dims();
        let (combine, clamp) = match self.scores {
            Scores::PositionAndContent { combine, clamp } | Scores::Position { combine, clamp } => (combine, clamp),
            Scores::Content {} => (Combine::Gate, None), // without position nothing is combined
        };
        let rule = ScoreRule { heads: self.heads, combine, clamp, dropout: pass.dropout_site(self.dropout) };
        let qkv = self.query_key_value.forward(x); // [r, 3d], or [r, d] without content
        let cls_scores = self.position.as_ref().zip(cls).map(|(linear, cls)| linear.forward_pairs(cls.edge()));
        let gathered = match (scores, &self.position) {
            (PositionScores::ByRows(rows), position) => {
                rows.attend(qkv, d, position.as_ref(), cls_scores, &rule, pass) // Eq. 1–8
            }
            (PositionScores::AllAtOnce(scores), Some(_)) => {
                let position = ScoreBlocks { scores, starts: batch.edge_starts.clone(), cls: cls_scores };
                ops::attend(qkv, d, Some(position), &batch.layer_topology().layout, &rule) // Eq. 7–8
            }
            (_, None) => ops::attend(qkv, d, None, &batch.layer_topology().layout, &rule),
            (PositionScores::None, Some(_)) => panic!("the config was checked: position needs virtual edges"),
        };
        self.output.forward(gathered)
    }
}
