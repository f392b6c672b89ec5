//! Model and batching of an [`Explainer`](super::Explainer), with outputs as plain vectors.
//!
//! This is the only module of `explain` that depends on tensors and on the internals of the model.

use burn::module::Module as _;
use burn::tensor::Tensor;
use graph_diffuser_data::{Dataset, Graph};

use crate::batch::{Batcher, GraphBatch};
use crate::model::{GraphDiffuser, ModelConfig};
use crate::nn::{CancelFlag, ForwardContext};
use crate::ops::{AttentionComponents, ScoreCombination};
use crate::train::{BatchSize, EvalBatcher};
use crate::transformer::AttentionScores;

use super::trace::{HeadAttention, LayerAttention, NestedMatrix};

/// Batch size in node pairs; small enough that a batch takes a few hundredths of a second.
const BATCH: BatchSize = BatchSize::pairs(1 << 16);

/// Model in evaluation mode.
#[derive(Debug)]
pub(super) struct TracedModel {
    model: GraphDiffuser,
    batcher: EvalBatcher,
}

/// Output of a model: one row per graph, node or token.
#[derive(Debug)]
pub(super) struct ModelOutput {
    /// Values of all rows, one after another.
    pub(super) values: Vec<f32>,
    /// Number of rows.
    pub(super) rows: usize,
    /// Number of values per row.
    pub(super) columns: usize,
}

/// Recorded internals of a forward pass.
#[derive(Debug)]
pub(super) struct RecordedInternals {
    pub(super) layers: Vec<LayerAttention>,
    pub(super) edge_weights: Option<Vec<f32>>,
    pub(super) walks: Option<Vec<NestedMatrix>>,
}

impl TracedModel {
    pub(super) fn new(model: GraphDiffuser, batcher: Batcher) -> Self {
        Self { model: model.valid(), batcher: EvalBatcher::new(batcher, BATCH) }
    }

    /// Groups graphs of similar size into batches for [`TracedModel::predict`].
    pub(super) fn batches(&self, dataset: &Dataset, indices: &[usize]) -> Vec<Vec<usize>> {
        self.batcher.batches(dataset, indices)
    }

    /// Predicts graphs of a dataset.
    pub(super) fn predict(&self, dataset: &Dataset, indices: &[usize]) -> ModelOutput {
        self.forward(&self.batcher.collate(dataset, indices))
    }

    /// Predicts variants of the graph at `index` of a dataset.
    pub(super) fn predict_variants(&self, graphs: &[&Graph], index: usize) -> ModelOutput {
        self.forward(&self.collate(graphs, index))
    }

    /// Predicts one graph and records the query nodes `rows`, in ascending order; `None` if it is
    /// canceled.
    pub(super) fn trace(
        &self,
        graph: &Graph,
        index: usize,
        rows: &[usize],
        cancel: &CancelFlag,
    ) -> Option<(ModelOutput, RecordedInternals)> {
        let batch = self.collate(&[graph], index);
        let (output, trace) = self.model.forward_traced(&batch, rows, cancel)?;
        let node_rows = rows.iter().filter(|&&row| row < graph.num_nodes).count();
        let walks = trace.virtual_edges.as_ref().map(|edges| {
            let values = host(edges.walks.clone());
            let steps: Vec<&[f32]> = values.chunks(node_rows * graph.num_nodes).collect();
            let from = |row: usize| {
                let to = |step: &&[f32]| {
                    step[row * graph.num_nodes..(row + 1) * graph.num_nodes].to_vec()
                };
                steps.iter().map(to).collect()
            };
            (0..node_rows).map(from).collect()
        });
        let internals = RecordedInternals {
            layers: trace.layers.iter().map(layer).collect(),
            edge_weights: trace.virtual_edges.map(|edges| host(edges.weights)),
            walks,
        };
        Some((ModelOutput::new(output), internals))
    }

    fn forward(&self, batch: &GraphBatch) -> ModelOutput {
        ModelOutput::new(self.model.forward(batch, &ForwardContext::evaluate()))
    }

    fn collate(&self, graphs: &[&Graph], index: usize) -> GraphBatch {
        self.batcher.collate_graphs(graphs, vec![index; graphs.len()])
    }
}

impl ModelOutput {
    fn new(output: Tensor<2>) -> Self {
        let [rows, columns] = output.dims();
        Self { values: host(output), rows, columns }
    }
}

/// Returns how position and content scores are combined; `None` if there is only one of them.
pub(super) fn score_combination(config: &ModelConfig) -> Option<ScoreCombination> {
    match config.attention.as_ref()?.scores {
        AttentionScores::PositionAndContent { combine, .. } => Some(combine),
        AttentionScores::Position { .. } | AttentionScores::Content {} => None,
    }
}

/// Converts the recorded tensors of one layer to nested vectors.
fn layer(parts: &AttentionComponents) -> LayerAttention {
    let heads = |part: &Tensor<3>| -> Vec<NestedMatrix> {
        let [_, rows, n] = part.dims();
        let values = host(part.clone());
        values.chunks(rows * n).map(|head| head.chunks(n).map(<[f32]>::to_vec).collect()).collect()
    };
    let (position, content) =
        (parts.position.as_ref().map(heads), parts.content.as_ref().map(heads));
    let of_head = |(head, attention): (usize, NestedMatrix)| HeadAttention {
        position: position.as_ref().map(|heads| heads[head].clone()),
        content: content.as_ref().map(|heads| heads[head].clone()),
        attention,
    };
    LayerAttention::new(heads(&parts.attention).into_iter().enumerate().map(of_head).collect())
}

/// Copies a tensor to a host vector.
fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}
