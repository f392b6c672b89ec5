//! What a trained run says of graphs that it has never seen.
//!
//! A run carries the schema of its data, so nothing but its directory is needed. Numbers are those that
//! [`Run::evaluate`] scores: a graph's prediction does not depend on the graphs it is predicted with.

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
use crate::task::link_prediction::dot;
use crate::task::multiclass::argmax;
use crate::task::predicted_words;
use crate::train::{BatchSize, evaluation_batches, for_each_batch};

pub use atomic_file::AtomicFile;
pub use embeddings::{EmbeddingFormat, EmbeddingLevel};
pub use file::{
    OnInvalidRow, PredictError, PredictEvent, PredictJob, RowCounts, embed_rows, predict_rows,
};

/// Pairs of nodes of a batch: enough to keep threads busy, and a stack of 17 channels takes 9 MB.
const BATCH: BatchSize = BatchSize::pairs(1 << 17);

/// How many pairs of a graph are named.
const LINKS: usize = 10;

/// What is predicted for one graph.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// Numbers, in the order of the targets.
    Values(Vec<f32>),
    /// The probability of each label.
    Probabilities(Vec<f32>),
    /// One of the classes.
    Class(ClassPrediction),
    /// One of the classes for every node.
    NodeClasses(Vec<ClassPrediction>),
    /// The words of its name, by number.
    Words(Vec<u32>),
    /// The pairs of nodes that most likely belong together, the likeliest first.
    Links(Vec<PredictedLink>),
}

/// One of several classes.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassPrediction {
    /// The most likely one; none where the model gives no numbers.
    pub class: Option<u32>,
    /// How likely each is.
    pub probabilities: Vec<f32>,
}

/// A pair of nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictedLink {
    /// Its nodes, the smaller number first.
    pub pair: [u32; 2],
    /// How likely it is that they belong together.
    pub probability: f32,
}

/// A trained model with all that it needs to be asked.
#[derive(Debug)]
pub struct Predictor {
    model: GraphDiffuser,
    batcher: Batcher,
    input: Featurizer,
    schema: Schema,
    smiles_column: Option<String>,
    width: usize,
}

impl Predictor {
    /// The best weights of a run.
    ///
    /// # Errors
    /// Where it has none, or does not say what its model is given.
    pub fn open(run: &Run, device: &Device) -> Result<Self, RunError> {
        let device = device.clone().inner();
        let RunSchema { input, schema } = run.schema()?;
        let model = run.best_model_for(&schema, &device)?.valid();
        let recipe = run.recipe();
        let batcher = recipe.model.batcher(&device, DType::F32);
        let batcher = Batcher { chunked_eval: Some(ChunkedEval::default()), ..batcher };
        let smiles_column = recipe.data.smiles_column().map(str::to_owned);
        Ok(Self { model, batcher, input, schema, smiles_column, width: recipe.model.hidden_dim })
    }

    /// How a row becomes a graph that it can be asked about.
    pub fn input(&self) -> Featurizer {
        self.input
    }

    /// What it is given and what it predicts.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The column of SMILES that it was trained with, where that has a name of its own.
    pub fn smiles_column(&self) -> Option<&str> {
        self.smiles_column.as_deref()
    }

    /// How many numbers a vector of [`Predictor::vectors`] has.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Predictions in the order of the graphs, whose targets say nothing.
    pub fn predict(&self, graphs: Vec<Graph>) -> Vec<Prediction> {
        self.by_graph(graphs, |batch| {
            let output = self.model.forward(batch, &ForwardContext::evaluate());
            let [_, columns] = output.dims();
            let rows: Vec<usize> = match self.schema.targets {
                TargetSchema::NodeMulticlass(_) | TargetSchema::LinkPrediction => {
                    batch.topology.layout.sizes.clone()
                }
                TargetSchema::SubTokens(_) => vec![self.positions(); batch.indices.len()],
                _ => vec![1; batch.indices.len()],
            };
            pieces(output, &rows)
                .into_iter()
                .map(|values| self.interpret(&values, columns))
                .collect()
        })
    }

    /// Vectors that predictions are read off, in the order of the graphs: one a graph, pooled as for its prediction or
    /// as the mean of its nodes, or one a node.
    pub fn vectors(&self, graphs: Vec<Graph>, of: EmbeddingLevel) -> Vec<Vec<f32>> {
        let graphs_only = |batch: &GraphBatch| vec![1; batch.indices.len()];
        self.by_graph(graphs, |batch| match of {
            EmbeddingLevel::Graphs => {
                let pooled = match self.model.pooling() {
                    Some(_) => self.model.graph_embeddings(batch, &ForwardContext::evaluate()),
                    None => Pooling::Mean.pool(
                        self.model.node_embeddings(batch, &ForwardContext::evaluate()),
                        batch,
                    ),
                };
                pieces(pooled, &graphs_only(batch))
            }
            EmbeddingLevel::Nodes => {
                let nodes = self.model.node_embeddings(batch, &ForwardContext::evaluate());
                let [_, width] = nodes.dims();
                let sizes = &batch.layer_topology().layout.sizes;
                let mut vectors = pieces(nodes, sizes);
                for (vectors, &nodes) in vectors.iter_mut().zip(&batch.topology.layout.sizes) {
                    vectors.truncate(nodes * width); // a CLS node stands behind the others
                }
                vectors
            }
        })
    }

    fn positions(&self) -> usize {
        self.batcher.positions.expect("a head for words has positions")
    }

    /// What `ask` says of each graph of a batch, in the order of `graphs`.
    fn by_graph<T>(&self, graphs: Vec<Graph>, ask: impl Fn(&GraphBatch) -> Vec<T>) -> Vec<T> {
        let numbers: Vec<usize> = (0..graphs.len()).collect();
        let splits = Splits { train: vec![], valid: vec![], test: vec![] };
        let dataset =
            Dataset { graphs: Graphs::Listed(graphs), schema: self.schema.clone(), splits };
        let batches = evaluation_batches(&dataset, BATCH, self.batcher.chunked_eval, &numbers);
        let mut answers: Vec<(usize, T)> = Vec::with_capacity(numbers.len());
        for_each_batch(&self.batcher, &dataset, &batches, |batch| {
            answers.extend(batch.indices.iter().copied().zip(ask(&batch)));
            None::<()>
        });
        answers.sort_by_key(|(number, _)| *number);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// What the rows of one graph mean.
    fn interpret(&self, values: &[f32], columns: usize) -> Prediction {
        match self.schema.targets {
            TargetSchema::Regression(_) => Prediction::Values(values.to_vec()),
            TargetSchema::Multilabel(_) => Prediction::Probabilities(
                values.iter().map(|&value| sigmoid(f64::from(value))).collect(),
            ),
            TargetSchema::Multiclass(_) => Prediction::Class(class(values)),
            TargetSchema::NodeMulticlass(_) => {
                Prediction::NodeClasses(values.chunks(columns).map(class).collect())
            }
            TargetSchema::SubTokens(vocabulary) => {
                Prediction::Words(predicted_words(values, vocabulary, self.positions()).concat())
            }
            TargetSchema::LinkPrediction => Prediction::Links(likeliest_links(values, columns)),
        }
    }
}

/// So many rows for each graph, on the host.
fn pieces(rows: Tensor<2>, counts: &[usize]) -> Vec<Vec<f32>> {
    let [_, columns] = rows.dims();
    let values: Vec<f32> = rows.into_data().iter::<f32>().collect();
    let mut rest = values.as_slice();
    let piece = |&count: &usize| {
        let (piece, others) = rest.split_at(count * columns);
        rest = others;
        piece.to_vec()
    };
    counts.iter().map(piece).collect()
}

fn sigmoid(value: f64) -> f32 {
    (1.0 / (1.0 + (-value).exp())) as f32
}

fn class(outputs: &[f32]) -> ClassPrediction {
    let most = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shares: Vec<f64> = outputs.iter().map(|&output| f64::from(output - most).exp()).collect();
    let all: f64 = shares.iter().sum();
    let probabilities = shares.into_iter().map(|share| (share / all) as f32).collect();
    ClassPrediction { class: argmax(outputs, outputs.len())[0], probabilities }
}

/// The pairs with the highest scores by the vectors of their nodes, the first of equals; NaN is no score.
fn likeliest_links(vectors: &[f32], width: usize) -> Vec<PredictedLink> {
    let nodes: Vec<&[f32]> = vectors.chunks(width).collect();
    let mut best: Vec<(f64, [u32; 2])> = Vec::with_capacity(LINKS + 1);
    for (first, vector) in nodes.iter().enumerate() {
        for (second, other) in nodes.iter().enumerate().skip(first + 1) {
            let score = dot(vector, other);
            let enters = best.len() < LINKS || best.last().is_some_and(|(last, _)| score > *last);
            if score.is_nan() || !enters {
                continue;
            }
            let place = best.partition_point(|(higher, _)| *higher >= score);
            best.insert(place, (score, [first as u32, second as u32]));
            best.truncate(LINKS);
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
    fn probabilities_of_classes_sum_to_one_and_survive_large_numbers() {
        // exp(0) : exp(ln 3) = 1 : 3.
        let found = class(&[1000.0, 1000.0 + 3.0_f32.ln()]);
        assert_eq!(found.class, Some(1));
        assert!((found.probabilities[1] - 0.75).abs() < 1e-4, "{found:?}");
        assert_eq!(class(&[f32::NAN, 1.0]).class, None);
    }

    #[test]
    fn the_likeliest_links_come_first_and_each_pair_once() {
        // One number a node: the score of a pair is a product.
        let found = likeliest_links(&[1.0, -1.0, 2.0, 3.0], 1);
        let pairs: Vec<[u32; 2]> = found.iter().map(|link| link.pair).collect();
        assert_eq!(pairs, [[2, 3], [0, 3], [0, 2], [0, 1], [1, 2], [1, 3]]);
        assert!((found[3].probability - 1.0 / (1.0 + 1.0_f32.exp())).abs() < 1e-6);
        let many: Vec<f32> = (0..30).map(|node| node as f32).collect();
        let found = likeliest_links(&many, 1);
        assert_eq!((found.len(), found[0].pair, found[1].pair), (LINKS, [28, 29], [27, 29]));
        assert!(likeliest_links(&[1.0], 1).is_empty());
    }
}
