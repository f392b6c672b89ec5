//! Inference with a trained run: predictions and embeddings of new graphs.
//!
//! The run directory stores the data schema; no other file is required. Predictions equal those
//! that [`Run::evaluate`] scores and do not depend on the other graphs of a batch.

mod atomic_file;
mod columns;
mod embeddings;
mod file;

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};
use graph_diffuser_data::inference_input::Featurizer;
use graph_diffuser_data::{Dataset, Graph, Graphs, Schema, Splits, TargetSchema};

use crate::batch::{Batcher, ChunkedEval, GraphBatch};
use crate::head::Pooling;
use crate::model::GraphDiffuser;
use crate::nn::ForwardContext;
use crate::run::{Run, RunError, RunSchema};
use crate::task::decode_tokens;
use crate::task::link_prediction::dot;
use crate::task::multiclass::argmax;
use crate::train::{BatchSize, evaluation_batches, for_each_batch};

pub use atomic_file::AtomicFile;
pub use embeddings::{EmbeddingFormat, EmbeddingLevel};
pub use file::{
    OnInvalidRow, PredictError, PredictEvent, PredictJob, RowCounts, embed_rows, predict_rows,
};

/// Node pairs per batch: enough to keep all threads busy; a stack of 17 channels takes 9 MB.
const BATCH: BatchSize = BatchSize::pairs(1 << 17);

/// Number of links reported per graph.
const MAX_LINKS: usize = 10;

/// Prediction for one graph.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// Value of each regression target.
    Regression(Vec<f32>),
    /// Probability of each binary label.
    Probabilities(Vec<f32>),
    /// Class of the graph.
    Class(ClassPrediction),
    /// Class of each node.
    NodeClasses(Vec<ClassPrediction>),
    /// Indices of the predicted sub-tokens in the vocabulary.
    SubTokens(Vec<u32>),
    /// Most probable links, in descending order of probability.
    Links(Vec<PredictedLink>),
}

/// Predicted class and class probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassPrediction {
    /// Most probable class; `None` if an output is NaN.
    pub class: Option<u32>,
    /// Probability of each class.
    pub probabilities: Vec<f32>,
}

/// Predicted link between two nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictedLink {
    /// Indices of the nodes, in ascending order.
    pub pair: [u32; 2],
    /// Probability of the link.
    pub probability: f32,
}

/// Trained model with everything that inference needs.
///
/// # Examples
/// ```
/// use graph_diffuser::Device;
/// use graph_diffuser::predict::{Prediction, Predictor};
/// use graph_diffuser::pretrained::Pretrained;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cache = tempfile::tempdir()?;
/// let run = Pretrained::Zinc.open(cache.path())?;
/// let predictor = Predictor::open(&run, &Device::flex())?;
/// let featurizer = predictor.featurizer();
/// let ethanol = featurizer.featurize_smiles("CCO", predictor.schema().targets)?;
/// assert!(matches!(predictor.predict(vec![ethanol])[0], Prediction::Regression(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Predictor {
    model: GraphDiffuser,
    batcher: Batcher,
    featurizer: Featurizer,
    schema: Schema,
    smiles_column: Option<String>,
    embedding_dim: usize,
}

impl Predictor {
    /// Loads the best weights of a run.
    ///
    /// # Errors
    /// Returns an error if the run has no weights or no schema yet.
    pub fn open(run: &Run, device: &Device) -> Result<Self, RunError> {
        let device = device.clone().inner();
        let RunSchema { input: featurizer, schema } = run.schema()?;
        let model = run.best_model_for(&schema, &device)?.valid();
        let recipe = run.recipe();
        let batcher = recipe.model.batcher(&device, DType::F32);
        let batcher = Batcher { chunked_eval: Some(ChunkedEval::default()), ..batcher };
        let smiles_column = recipe.data.smiles_column().map(str::to_owned);
        let embedding_dim = recipe.model.hidden_dim;
        Ok(Self { model, batcher, featurizer, schema, smiles_column, embedding_dim })
    }

    /// Returns the featurizer that converts input rows into graphs.
    pub fn featurizer(&self) -> Featurizer {
        self.featurizer
    }

    /// Returns the schema of inputs and targets.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the SMILES column named by the recipe, if any.
    pub fn smiles_column(&self) -> Option<&str> {
        self.smiles_column.as_deref()
    }

    /// Returns the dimension of the embeddings.
    pub fn embedding_dim(&self) -> usize {
        self.embedding_dim
    }

    /// Predicts the targets of `graphs`, in their order; the targets they contain are ignored.
    pub fn predict(&self, graphs: Vec<Graph>) -> Vec<Prediction> {
        self.map_batches(graphs, |batch| {
            let output = self.model.forward(batch, &ForwardContext::evaluate());
            let [_, columns] = output.dims();
            let rows: Vec<usize> = match self.schema.targets {
                TargetSchema::NodeMulticlass(_) | TargetSchema::LinkPrediction => {
                    batch.topology.layout.sizes.clone()
                }
                TargetSchema::SubTokens(_) => vec![self.positions(); batch.indices.len()],
                _ => vec![1; batch.indices.len()],
            };
            split_rows(output, &rows)
                .into_iter()
                .map(|values| self.decode(&values, columns))
                .collect()
        })
    }

    /// Returns the inputs of the prediction head, in the order of the graphs.
    ///
    /// A graph embedding is pooled as for its prediction, or is the mean of the node embeddings if
    /// the head does not pool. Node embeddings are the concatenated rows of all nodes of a graph.
    pub fn embeddings(&self, graphs: Vec<Graph>, level: EmbeddingLevel) -> Vec<Vec<f32>> {
        self.map_batches(graphs, |batch| match level {
            EmbeddingLevel::Graphs => {
                let pooled = match self.model.pooling() {
                    Some(_) => self.model.graph_embeddings(batch, &ForwardContext::evaluate()),
                    None => Pooling::Mean.pool(
                        self.model.node_embeddings(batch, &ForwardContext::evaluate()),
                        batch,
                    ),
                };
                split_rows(pooled, &vec![1; batch.indices.len()])
            }
            EmbeddingLevel::Nodes => {
                let nodes = self.model.node_embeddings(batch, &ForwardContext::evaluate());
                let [_, dim] = nodes.dims();
                let sizes = &batch.layer_topology().layout.sizes;
                let mut embeddings = split_rows(nodes, sizes);
                for (rows, &nodes) in embeddings.iter_mut().zip(&batch.topology.layout.sizes) {
                    rows.truncate(nodes * dim); // drops the CLS node, which is last
                }
                embeddings
            }
        })
    }

    fn positions(&self) -> usize {
        self.batcher.max_tokens.expect("a sub-token head sets `max_tokens`")
    }

    /// Applies `infer` to batches of `graphs` and returns its results in the order of `graphs`.
    fn map_batches<T>(&self, graphs: Vec<Graph>, infer: impl Fn(&GraphBatch) -> Vec<T>) -> Vec<T> {
        let indices: Vec<usize> = (0..graphs.len()).collect();
        let splits = Splits { train: vec![], valid: vec![], test: vec![] };
        let dataset =
            Dataset { graphs: Graphs::InMemory(graphs), schema: self.schema.clone(), splits };
        let batches = evaluation_batches(&dataset, BATCH, self.batcher.chunked_eval, &indices);
        let mut results: Vec<(usize, T)> = Vec::with_capacity(indices.len());
        for_each_batch(&self.batcher, &dataset, &batches, |batch| {
            results.extend(batch.indices.iter().copied().zip(infer(&batch)));
            None::<()>
        });
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Converts the output rows of one graph into a prediction.
    fn decode(&self, values: &[f32], columns: usize) -> Prediction {
        match self.schema.targets {
            TargetSchema::Regression(_) => Prediction::Regression(values.to_vec()),
            TargetSchema::Multilabel(_) => Prediction::Probabilities(
                values.iter().map(|&value| sigmoid(f64::from(value))).collect(),
            ),
            TargetSchema::Multiclass(_) => Prediction::Class(class(values)),
            TargetSchema::NodeMulticlass(_) => {
                Prediction::NodeClasses(values.chunks(columns).map(class).collect())
            }
            TargetSchema::SubTokens(vocabulary) => {
                Prediction::SubTokens(decode_tokens(values, vocabulary, self.positions()).concat())
            }
            TargetSchema::LinkPrediction => Prediction::Links(top_links(values, columns)),
        }
    }
}

/// Splits rows by graph and copies them to host memory.
fn split_rows(rows: Tensor<2>, counts: &[usize]) -> Vec<Vec<f32>> {
    let [_, columns] = rows.dims();
    let values: Vec<f32> = rows.into_data().iter::<f32>().collect();
    let mut rest = values.as_slice();
    let take = |&count: &usize| {
        let (taken, others) = rest.split_at(count * columns);
        rest = others;
        taken.to_vec()
    };
    counts.iter().map(take).collect()
}

fn sigmoid(value: f64) -> f32 {
    (1.0 / (1.0 + (-value).exp())) as f32
}

fn class(outputs: &[f32]) -> ClassPrediction {
    let max = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponentials: Vec<f64> =
        outputs.iter().map(|&output| f64::from(output - max).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    let probabilities = exponentials.into_iter().map(|value| (value / sum) as f32).collect();
    ClassPrediction { class: argmax(outputs, outputs.len())[0], probabilities }
}

/// Returns the node pairs with the largest dot products of embeddings; ties are broken by order,
/// and NaN scores are ignored.
fn top_links(embeddings: &[f32], dim: usize) -> Vec<PredictedLink> {
    let nodes: Vec<&[f32]> = embeddings.chunks(dim).collect();
    let mut best: Vec<(f64, [u32; 2])> = Vec::with_capacity(MAX_LINKS + 1);
    for (first, vector) in nodes.iter().enumerate() {
        for (second, other) in nodes.iter().enumerate().skip(first + 1) {
            let score = dot(vector, other);
            let enters =
                best.len() < MAX_LINKS || best.last().is_some_and(|(last, _)| score > *last);
            if score.is_nan() || !enters {
                continue;
            }
            let rank = best.partition_point(|(higher, _)| *higher >= score);
            best.insert(rank, (score, [first as u32, second as u32]));
            best.truncate(MAX_LINKS);
        }
    }
    best.into_iter()
        .map(|(score, pair)| PredictedLink { pair, probability: sigmoid(score) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_probabilities_do_not_overflow_for_large_logits() {
        // exp(0) : exp(ln 3) = 1 : 3.
        let found = class(&[1000.0, 1000.0 + 3.0_f32.ln()]);
        assert_eq!(found.class, Some(1));
        assert!((found.probabilities[1] - 0.75).abs() < 1e-4, "{found:?}");
        assert_eq!(class(&[f32::NAN, 1.0]).class, None);
    }

    #[test]
    fn top_links_are_sorted_and_unique() {
        // Embeddings of dimension 1: the score of a pair is a product.
        let found = top_links(&[1.0, -1.0, 2.0, 3.0], 1);
        let pairs: Vec<[u32; 2]> = found.iter().map(|link| link.pair).collect();
        assert_eq!(pairs, [[2, 3], [0, 3], [0, 2], [0, 1], [1, 2], [1, 3]]);
        assert!((found[3].probability - 1.0 / (1.0 + 1.0_f32.exp())).abs() < 1e-6);
        let many: Vec<f32> = (0..30).map(|node| node as f32).collect();
        let found = top_links(&many, 1);
        assert_eq!((found.len(), found[0].pair, found[1].pair), (MAX_LINKS, [28, 29], [27, 29]));
        assert!(top_links(&[1.0], 1).is_empty());
    }
}
