//! Multi-head attention gated by virtual edges (Eq. 6–8).

use burn::module::Module;
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::{GraphBatch, index_tensor};
use crate::nn::{ForwardContext, Linear, ParamInit};
use crate::ops::{self, AttentionComponents, AttentionOptions, PairScores, ScoreCombination};

use crate::virtual_edges::PositionScores;

use super::ClsToken;

/// Configuration of [`DiffuserAttention`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttentionConfig {
    /// Number of heads, `h`; must divide the hidden dimension.
    pub heads: usize,
    /// Dropout probability of the attention weights.
    #[serde(default)]
    pub dropout: f64,
    /// Scores that determine the attention weights.
    pub scores: AttentionScores,
}

/// Scores that determine the attention weights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum AttentionScores {
    /// Position scores of virtual edges and content scores of queries and keys: Graph Diffuser.
    PositionAndContent {
        /// Combination of the two scores.
        combine: ScoreCombination,
        /// Clamps both scores to `±clamp`, as in the authors' code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clamp: Option<f64>,
    },
    /// Position scores only, without queries and keys.
    Position {
        /// Transformation of the scores: a sigmoid gate or none.
        combine: ScoreCombination,
        /// Clamps the scores to `±clamp`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clamp: Option<f64>,
    },
    /// Content scores only, as in a standard Transformer.
    Content {},
}

impl AttentionScores {
    /// Returns whether position scores are used, which require virtual edges.
    pub fn use_position(self) -> bool {
        !matches!(self, Self::Content {})
    }

    fn use_content(self) -> bool {
        !matches!(self, Self::Position { .. })
    }
}

impl AttentionConfig {
    /// Initializes the layer; `channels` is the number of channels of a virtual edge.
    pub fn init(
        &self,
        hidden_dim: usize,
        channels: Option<usize>,
        init: &mut ParamInit,
    ) -> DiffuserAttention {
        let projections = if self.scores.use_content() { 3 } else { 1 };
        let position = self.scores.use_position().then(|| {
            let channels = channels.expect("`check` requires virtual edges for position scores");
            Linear::new(channels, self.heads, init)
        });
        DiffuserAttention {
            query_key_value: Linear::glorot(hidden_dim, projections * hidden_dim, init),
            position,
            output: Linear::zero_bias(hidden_dim, hidden_dim, init),
            heads: self.heads,
            dropout: self.dropout,
            scores: self.scores,
        }
    }
}

/// Multi-head attention between all nodes of each graph.
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
    /// Returns the projection of virtual edges to position scores (Eq. 6), if they are used.
    pub fn position(&self) -> Option<&Linear> {
        self.position.as_ref()
    }

    /// Applies attention between all nodes of each graph.
    ///
    /// # Shapes
    /// - `x`: `[r, d]` node states, including CLS nodes
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

    /// Applies attention and returns the attention components of the traced rows.
    ///
    /// Tracing requires a batch of one graph.
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
            AttentionScores::Content {} => (ScoreCombination::Gate, None), // not used without position
        };
        let options = AttentionOptions {
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
        let components =
            traced.map(|traced| self.components(&qkv, d, cls_scores.as_ref(), traced, &options));
        let attended = match (scores, &self.position) {
            (PositionScores::Chunked(rows), position) => {
                rows.attention(qkv, d, position.as_ref(), cls_scores, &options, ctx) // Eq. 1–8
            }
            (PositionScores::Dense(scores), Some(_)) => {
                let position =
                    PairScores { scores, starts: batch.edge_starts.clone(), cls: cls_scores };
                ops::attention(qkv, d, Some(position), &batch.layer_topology().layout, &options) // Eq. 7–8
            }
            (_, None) => ops::attention(qkv, d, None, &batch.layer_topology().layout, &options),
            (PositionScores::None, Some(_)) => {
                panic!("position scores are missing")
            }
        };
        (self.output.forward(attended), components)
    }

    /// Computes the attention components of the traced rows in plain tensor operations.
    fn components(
        &self,
        qkv: &Tensor<2>,
        d: usize,
        cls_scores: Option<&Tensor<2>>,
        traced: TracedRows<'_>,
        options: &AttentionOptions,
    ) -> AttentionComponents {
        let ([n, columns], h, rows) = (qkv.dims(), self.heads, traced.rows.len());
        let by_head = |which: usize| {
            let part = qkv.clone().slice([0..n, which * d..(which + 1) * d]);
            part.reshape([n, h, d / h]).swap_dims(0, 1) // [h, n, d_head]
        };
        let content = (columns == 3 * d).then(|| {
            let queries = by_head(0).select(1, index_tensor(traced.rows.to_vec(), &qkv.device()));
            let scale = 1.0 / ((d / h) as f64).sqrt();
            (queries * scale).matmul(by_head(1).transpose()) // Eq. 7, [h, rows, n]
        });
        let position = traced.position.map(|scores| match cls_scores {
            None => scores.reshape([h, rows, n]),
            Some(cls) => {
                // The CLS node is last, and all pairs with it share one score.
                let rows_of_nodes = scores.dims()[1] / (n - 1);
                let cls = |rows, columns| cls.clone().reshape([h, 1, 1]).expand([h, rows, columns]);
                let scores = Tensor::cat(
                    vec![scores.reshape([h, rows_of_nodes, n - 1]), cls(rows_of_nodes, 1)],
                    2,
                );
                if rows == rows_of_nodes {
                    scores
                } else {
                    Tensor::cat(vec![scores, cls(rows - rows_of_nodes, n)], 1)
                }
            }
        });
        AttentionComponents::new(content, position, options)
    }
}

/// Rows whose attention is traced.
#[derive(Debug, Clone)]
pub struct TracedRows<'a> {
    /// Indices of the nodes; the CLS node, if included, is last.
    pub rows: &'a [usize],
    /// Position scores of the layer, `[h, rows · n]`, if they are used; without the CLS node.
    pub position: Option<Tensor<2>>,
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, TensorData};
    use graph_diffuser_data::SeedTree;
    use graph_diffuser_data::grid_histogram::GridHistogram;

    use crate::batch::Batcher;

    use super::*;

    fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
        tensor.into_data().iter::<f64>().collect()
    }

    #[test]
    fn traced_attention_reproduces_the_output_of_the_fused_operation() {
        let device = Device::flex();
        let grid =
            GridHistogram { rows: 3, columns: vec![4], train: 1, ..GridHistogram::default() }
                .generate();
        let batch = Batcher::new(&device, DType::F32).collate(&grid, &[0]);
        let (n, d, h) = (12, 8, 2);
        let both = |combine, clamp| AttentionScores::PositionAndContent { combine, clamp };
        for scores in [
            both(ScoreCombination::Gate, None),
            both(ScoreCombination::Gate, Some(0.5)),
            both(ScoreCombination::Add, None),
            AttentionScores::Position { combine: ScoreCombination::Gate, clamp: None },
            AttentionScores::Position { combine: ScoreCombination::Add, clamp: None },
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
            let (output, components) =
                attention.forward_traced(x.clone(), given, None, &batch, &ctx, Some(traced));
            let components = components.expect("rows are traced");
            let qkv = attention.query_key_value.forward(x);
            let columns = qkv.dims()[1];
            let values =
                qkv.slice([0..n, columns - d..columns]).reshape([n, h, d / h]).swap_dims(0, 1);
            let attended =
                components.attention.clone().matmul(values).swap_dims(0, 1).reshape([n, d]);
            let expected = to_vec(attention.output.forward(attended));
            for (ours, expected) in to_vec(output).iter().zip(&expected) {
                assert!((ours - expected).abs() < 1e-5, "{scores:?}: {ours} is not {expected}");
            }
            // The attention is the normalized product of its components.
            let product = match (&components.position, &components.content) {
                (Some(position), Some(content)) => position.clone() * content.clone(),
                (Some(part), None) | (None, Some(part)) => part.clone(),
                (None, None) => panic!("{scores:?} has no components"),
            };
            let product = product.clone() / product.sum_dim(2);
            for (ours, expected) in to_vec(product).iter().zip(to_vec(components.attention)) {
                assert!((ours - expected).abs() < 1e-5, "{scores:?}: {ours} is not {expected}");
            }
            assert_eq!(
                (components.position.is_some(), components.content.is_some()),
                (scores.use_position(), scores.use_content())
            );
        }
    }
}
