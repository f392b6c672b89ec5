//! Multi-head attention gated by virtual edges (Eq. 6–8).

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::{ChunkedEval, GraphBatch, index_tensor};
use crate::nn::{ForwardContext, Linear, ParamInit};
use crate::ops::{self, AttentionComponents, AttentionOptions, QueryRows, ScoreCombination};
use crate::virtual_edges::{ChunkedScores, PositionScores};

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
    /// Initializes the layer; its position projection belongs to the virtual edges.
    pub fn init(&self, hidden_dim: usize, init: &mut ParamInit) -> DiffuserAttention {
        let projections = if self.scores.use_content() { 3 } else { 1 };
        DiffuserAttention {
            query_key_value: Linear::glorot(hidden_dim, projections * hidden_dim, init),
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
    output: Linear,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    dropout: f64,
    #[module(skip)]
    scores: AttentionScores,
}

impl DiffuserAttention {
    /// Applies attention between all nodes of each graph.
    ///
    /// # Shapes
    /// - `x`: `[r, d]` node states, including CLS nodes
    /// - returns `[r, d]`
    pub fn forward(
        &self,
        x: Tensor<2>,
        position: PositionScores<'_>,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let [_, d] = x.dims();
        let options = self.options(ctx);
        let qkv = self.query_key_value.forward(x); // [r, 3d], or [r, d] without content
        ctx.trace_attention(|rows, traced| {
            self.components(&qkv, d, position.cls(), (rows, traced), &options)
        });
        let attended = if let Some(chunks) = batch.chunked_eval {
            chunked_attention(qkv, d, &position, (batch, chunks), &options)
        } else {
            let position = match position {
                PositionScores::Dense(scores) => Some(scores),
                PositionScores::None => None,
                PositionScores::Chunked(_) => panic!("the batch is not evaluated in chunks"),
            };
            ops::attention(qkv, d, position, &batch.layer_topology().layout, &options) // Eq. 7–8
        };
        self.output.forward(attended)
    }

    fn options(&self, ctx: &ForwardContext) -> AttentionOptions {
        let (combine, clamp) = match self.scores {
            AttentionScores::PositionAndContent { combine, clamp }
            | AttentionScores::Position { combine, clamp } => (combine, clamp),
            AttentionScores::Content {} => (ScoreCombination::Gate, None), // not used without position
        };
        let dropout = ctx.dropout_mask(self.dropout);
        AttentionOptions { heads: self.heads, combine, clamp, dropout }
    }

    /// Computes the attention components of the traced rows in plain tensor operations.
    ///
    /// `traced` holds the rows and their position scores, `[h, rows · n]`, without the CLS node.
    fn components(
        &self,
        qkv: &Tensor<2>,
        d: usize,
        cls_scores: Option<&Tensor<2>>,
        (traced, position): (&[usize], Option<Tensor<2>>),
        options: &AttentionOptions,
    ) -> AttentionComponents {
        let ([n, columns], h, rows) = (qkv.dims(), self.heads, traced.len());
        let by_head = |which: usize| {
            let part = qkv.clone().slice([0..n, which * d..(which + 1) * d]);
            part.reshape([n, h, d / h]).swap_dims(0, 1) // [h, n, d_head]
        };
        let content = (columns == 3 * d).then(|| {
            let queries = by_head(0).select(1, index_tensor(traced.to_vec(), &qkv.device()));
            let scale = 1.0 / ((d / h) as f64).sqrt();
            (queries * scale).matmul(by_head(1).transpose()) // Eq. 7, [h, rows, n]
        });
        let position = position.map(|scores| match cls_scores {
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

/// Computes attention one chunk of rows at a time, for graphs whose pairs do not fit in memory.
///
/// # Shapes
/// - `qkv`: `[r, 3d]` queries, keys and values, or `[r, d]` values only, including CLS nodes
/// - returns `[r, d]`
fn chunked_attention(
    qkv: Tensor<2>,
    d: usize,
    position: &PositionScores<'_>,
    (batch, chunks): (&GraphBatch, ChunkedEval),
    options: &AttentionOptions,
) -> Tensor<2> {
    let position = match position {
        PositionScores::Chunked(scores) => Some(scores),
        PositionScores::None => None,
        PositionScores::Dense(_) => panic!("the batch is evaluated in chunks"),
    };
    let by_head = ops::split_heads(qkv, d, options.heads);
    let steps = position.map(ChunkedScores::num_steps);
    let attended = ops::row_chunks(&batch.topology, steps, chunks.pairs_per_chunk).map(|chunk| {
        let layout = batch.layer_topology().layout.clone();
        let rows = QueryRows { block: Arc::new(chunk), layout, cls: batch.with_cls.is_some() };
        let scores = position.map(|scores| scores.of_chunk(&rows.block)); // Eq. 1–3, 6
        ops::attention_rows(by_head.clone(), scores, &rows, options) // Eq. 7–8
    });
    Tensor::cat(attended.collect(), 0)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, TensorData};
    use graph_diffuser_data::SeedTree;
    use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;

    use crate::batch::Batcher;
    use crate::ops::PairScores;

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
            let attention = config.init(d, &mut ParamInit::new(SeedTree::new(2), &device));
            let mut state = SeedTree::new(1).stream("values");
            let mut draw = |rows, columns| {
                let values: Vec<f32> =
                    (0..rows * columns).map(|_| 2.0 * state.normal() as f32).collect();
                Tensor::<2>::from_data(TensorData::new(values, [rows, columns]), &device)
            };
            let (x, position) = (draw(n, d), scores.use_position().then(|| draw(h, n * n)));
            let given = match position.clone() {
                Some(scores) => PositionScores::Dense(PairScores {
                    scores,
                    starts: batch.edge_starts.clone(),
                    cls: None,
                }),
                None => PositionScores::None,
            };
            let rows: Vec<usize> = (0..n).collect();
            let ctx = ForwardContext::evaluate();
            let output = attention.forward(x.clone(), given, &batch, &ctx);
            let qkv = attention.query_key_value.forward(x);
            let options = attention.options(&ctx);
            let components = attention.components(&qkv, d, None, (&rows, position), &options);
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
