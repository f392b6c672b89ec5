//! Multi-head attention directed by virtual edges (Eq. 6–8).

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::batch::{GraphBatch, indices};
use crate::nn::{ForwardContext, Linear, ParamInit};
use crate::ops::{self, AttentionComponents, AttentionOptions, Combine, PairScores};

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
    pub scores: AttentionScores,
}

/// What attention is decided by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum AttentionScores {
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

impl AttentionScores {
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
    pub fn init(
        &self,
        hidden_dim: usize,
        channels: Option<usize>,
        init: &mut ParamInit,
    ) -> DiffuserAttention {
        let parts = if self.scores.use_content() { 3 } else { 1 };
        let position = self.scores.use_position().then(|| {
            let channels = channels.expect("the config was checked: position needs virtual edges");
            Linear::new(channels, self.heads, init)
        });
        DiffuserAttention {
            query_key_value: Linear::glorot(hidden_dim, parts * hidden_dim, init),
            position,
            output: Linear::zero_bias(hidden_dim, hidden_dim, init),
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
    scores: AttentionScores,
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
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        self.forward_traced(x, scores, cls, batch, ctx, None).0
    }

    /// The same, and what the attention of the asked rows is made of; the batch is one graph.
    pub fn forward_traced(
        &self,
        x: Tensor<2>,
        scores: PositionScores<'_>,
        cls: Option<&ClsToken>,
        batch: &GraphBatch,
        ctx: &ForwardContext,
        traced: Option<TracedRows<'_>>,
    ) -> (Tensor<2>, Option<AttentionComponents>) {
        let [_, d] = x.dims();
        let (combine, clamp) = match self.scores {
            AttentionScores::PositionAndContent { combine, clamp }
            | AttentionScores::Position { combine, clamp } => (combine, clamp),
            AttentionScores::Content {} => (Combine::Gate, None), // without position nothing is combined
        };
        let rule = AttentionOptions {
            heads: self.heads,
            combine,
            clamp,
            dropout: ctx.dropout_mask(self.dropout),
        };
        let qkv = self.query_key_value.forward(x); // [r, 3d], or [r, d] without content
        let cls_scores = self
            .position
            .as_ref()
            .zip(cls)
            .map(|(linear, cls)| linear.forward_channels_first(cls.edge()));
        let parts = traced.map(|traced| self.parts(&qkv, d, cls_scores.as_ref(), traced, &rule));
        let gathered = match (scores, &self.position) {
            (PositionScores::Chunked(rows), position) => {
                rows.attend(qkv, d, position.as_ref(), cls_scores, &rule, ctx) // Eq. 1–8
            }
            (PositionScores::Dense(scores), Some(_)) => {
                let position =
                    PairScores { scores, starts: batch.edge_starts.clone(), cls: cls_scores };
                ops::attention(qkv, d, Some(position), &batch.layer_topology().layout, &rule) // Eq. 7–8
            }
            (_, None) => ops::attention(qkv, d, None, &batch.layer_topology().layout, &rule),
            (PositionScores::None, Some(_)) => {
                panic!("the config was checked: position needs virtual edges")
            }
        };
        (self.output.forward(gathered), parts)
    }

    /// In plain tensor operations, for the asked rows alone.
    fn parts(
        &self,
        qkv: &Tensor<2>,
        d: usize,
        cls_scores: Option<&Tensor<2>>,
        traced: TracedRows<'_>,
        rule: &AttentionOptions,
    ) -> AttentionComponents {
        let ([n, columns], h, rows) = (qkv.dims(), self.heads, traced.rows.len());
        let by_head = |which: usize| {
            let part = qkv.clone().slice([0..n, which * d..(which + 1) * d]);
            part.reshape([n, h, d / h]).swap_dims(0, 1) // [h, n, d_head]
        };
        let content = (columns == 3 * d).then(|| {
            let queries = by_head(0).select(1, indices(traced.rows.to_vec(), &qkv.device()));
            let scale = 1.0 / ((d / h) as f64).sqrt();
            (queries * scale).matmul(by_head(1).transpose()) // Eq. 7, [h, rows, n]
        });
        let position = traced.position.map(|scores| match cls_scores {
            None => scores.reshape([h, rows, n]),
            Some(cls) => {
                // The CLS node is the last; every pair with it has one score.
                let own = scores.dims()[1] / (n - 1);
                let cls = |rows, columns| cls.clone().reshape([h, 1, 1]).expand([h, rows, columns]);
                let scores = Tensor::cat(vec![scores.reshape([h, own, n - 1]), cls(own, 1)], 2);
                if rows == own { scores } else { Tensor::cat(vec![scores, cls(rows - own, n)], 1) }
            }
        });
        AttentionComponents::new(content, position, rule)
    }
}

/// Rows whose attention is asked for.
#[derive(Debug, Clone)]
pub struct TracedRows<'a> {
    /// Nodes of the graph; the CLS node, where it is among them, is the last.
    pub rows: &'a [usize],
    /// `[h, rows · n]` position scores of this layer, where position is read; without the CLS node.
    pub position: Option<Tensor<2>>,
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, TensorData};
    use graph_diffuser_data::SeedTree;
    use graph_diffuser_data::grid_histogram::GridHistogram;

    use crate::batch::Batcher;

    use super::*;

    fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
        tensor.into_data().iter::<f64>().collect()
    }

    #[test]
    fn values_gathered_by_the_traced_attention_are_what_the_fused_operation_gathers() {
        let device = Device::flex();
        let grid =
            GridHistogram { rows: 3, columns: vec![4], train: 1, ..GridHistogram::default() }
                .generate();
        let batch = Batcher::new(&device, DType::F32).collate(&grid, &[0]);
        let (n, d, h) = (12, 8, 2);
        let both = |combine, clamp| AttentionScores::PositionAndContent { combine, clamp };
        for scores in [
            both(Combine::Gate, None),
            both(Combine::Gate, Some(0.5)),
            both(Combine::Add, None),
            AttentionScores::Position { combine: Combine::Gate, clamp: None },
            AttentionScores::Position { combine: Combine::Add, clamp: None },
            AttentionScores::Content {},
        ] {
            let config = AttentionConfig { heads: h, dropout: 0.0, scores };
            let attention = config.init(d, Some(3), &mut ParamInit::new(SeedTree::new(2), &device));
            let mut state = SeedTree::new(1).stream("values");
            let mut draw = |rows, columns| {
                let values: Vec<f32> =
                    (0..rows * columns).map(|_| 2.0 * state.normal() as f32).collect();
                Tensor::<2>::from_data(TensorData::new(values, [rows, columns]), &device)
            };
            let (x, position) = (draw(n, d), scores.use_position().then(|| draw(h, n * n)));
            let given = position.clone().map_or(PositionScores::None, PositionScores::Dense);
            let rows: Vec<usize> = (0..n).collect();
            let traced = TracedRows { rows: &rows, position };
            let ctx = ForwardContext::evaluate();
            let (output, parts) =
                attention.forward_traced(x.clone(), given, None, &batch, &ctx, Some(traced));
            let parts = parts.expect("they were asked for");
            let qkv = attention.query_key_value.forward(x);
            let columns = qkv.dims()[1];
            let values =
                qkv.slice([0..n, columns - d..columns]).reshape([n, h, d / h]).swap_dims(0, 1);
            let gathered = parts.attention.clone().matmul(values).swap_dims(0, 1).reshape([n, d]);
            let expected = numbers(attention.output.forward(gathered));
            for (ours, expected) in numbers(output).iter().zip(&expected) {
                assert!((ours - expected).abs() < 1e-5, "{scores:?}: {ours} is not {expected}");
            }
            // The attention is the normalised product of its parts.
            let product = match (&parts.position, &parts.content) {
                (Some(position), Some(content)) => position.clone() * content.clone(),
                (Some(part), None) | (None, Some(part)) => part.clone(),
                (None, None) => panic!("{scores:?} has no part"),
            };
            let product = product.clone() / product.sum_dim(2);
            for (ours, expected) in numbers(product).iter().zip(numbers(parts.attention)) {
                assert!((ours - expected).abs() < 1e-5, "{scores:?}: {ours} is not {expected}");
            }
            assert_eq!(
                (parts.position.is_some(), parts.content.is_some()),
                (scores.use_position(), scores.use_content())
            );
        }
    }
}
