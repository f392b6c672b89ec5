//! Inference with a trained run: predictions and embeddings of new graphs.
//!
//! The run directory stores the data schema; no other file is required. Predictions equal those
//! that [`Run::evaluate`] scores and do not depend on the other graphs of a batch. An ensemble
//! predicts the average of its members, with the standard deviation over them. Predictions of a run
//! with `train.forest_blend` are averages with its random forest. Molecules are compared with the
//! training molecules of the run.

mod counts;
mod embeddings;
mod job;
mod output;
mod row;

mod chunk;
mod file;

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};
use graph_diffuser_data::formats::Featurizer;
use graph_diffuser_data::{Dataset, Graph, Graphs, Schema, Splits};
use sha2::{Digest, Sha256};

use crate::batch::{Batcher, GraphBatch};
use crate::domain::TrainingDomain;
use crate::forest::ForestBlend;
use crate::model::GraphDiffuser;
use crate::nn::ForwardContext;
use crate::parameters::named_tensors;
use crate::raw_encoding::PositionalEncodingCache;
use crate::recipe::Recipe;
use crate::run::{Run, RunError, RunSchema, SavedModel, SavedModelError};
use crate::task::{Pooling, Prediction, Task};
use crate::train::{BatchSize, EvalBatcher};

pub use counts::RowCounts;
pub use embeddings::{EmbeddingFormat, EmbeddingLevel};
pub use file::{embed_rows, predict_rows};
pub use job::{OnInvalidRow, PredictError, PredictEvent, PredictJob};
pub use output::{RowOutput, describe_job};
pub use row::RowPrediction;

/// Node pairs per batch: enough to keep all threads busy; a stack of 17 channels takes 9 MB.
const BATCH: BatchSize = BatchSize::pairs(1 << 17);

/// Trained model with everything that inference needs.
///
/// # Examples
/// ```
/// use graph_diffuser::Device;
/// use graph_diffuser::predict::Predictor;
/// use graph_diffuser::pretrained::Pretrained;
/// use graph_diffuser::task::Prediction;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cache = tempfile::tempdir()?;
/// let run = Pretrained::Zinc.open(cache.path())?;
/// let predictor = Predictor::open(&run, &Device::flex())?;
/// let featurizer = predictor.featurizer();
/// let ethanol = featurizer.featurize_smiles("CCO", &predictor.schema().targets)?;
/// assert!(matches!(predictor.predict(vec![ethanol])[0], Prediction::Graph(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Predictor {
    /// One model, or the members of an ensemble.
    models: Vec<GraphDiffuser>,
    blend: Option<ForestBlend>,
    task: Task,
    batcher: EvalBatcher,
    featurizer: Featurizer,
    schema: Schema,
    smiles_column: Option<String>,
    embedding_dim: usize,
    domain: Option<TrainingDomain>,
}

impl Predictor {
    /// Loads the best weights of a run.
    ///
    /// # Errors
    /// Returns an error if the run has no weights or no schema yet, or a file is corrupt.
    pub fn open(run: &Run, device: &Device) -> Result<Self, RunError> {
        let device = device.clone().inner();
        let schema = run.schema()?;
        let models = run.best_models(&schema.schema, &device)?;
        let (batcher, domain) = (run.batcher(&device), run.training_domain()?);
        Ok(Self::new(run.recipe(), schema, models, run.forest_blend()?, batcher, domain))
    }

    /// Creates the predictor of a saved model, which needs no run directory.
    ///
    /// # Errors
    /// Returns an error if the weights or fingerprints are corrupt or do not fit the recipe.
    pub fn from_saved(saved: &SavedModel, device: &Device) -> Result<Self, SavedModelError> {
        let device = device.clone().inner();
        let (models, domain) = (saved.models(&device)?, saved.training_domain()?);
        let batcher = saved.recipe.model.batcher(&device, DType::F32);
        let blend = saved.forest_blend()?;
        Ok(Self::new(&saved.recipe, saved.schema.clone(), models, blend, batcher, domain))
    }

    fn new(
        recipe: &Recipe,
        schema: RunSchema,
        models: Vec<GraphDiffuser>,
        blend: Option<ForestBlend>,
        batcher: Batcher,
        domain: Option<TrainingDomain>,
    ) -> Self {
        let RunSchema { input: featurizer, schema } = schema;
        let models: Vec<GraphDiffuser> = models.into_iter().map(|model| model.valid()).collect();
        // A file of graphs may be larger than memory.
        let disabled = |cache: Arc<PositionalEncodingCache>| {
            Arc::new(PositionalEncodingCache::disabled(cache.encoding()))
        };
        let batcher =
            Batcher { encoding_cache: batcher.encoding_cache.clone().map(disabled), ..batcher };
        let batcher = EvalBatcher::new(batcher, BATCH);
        let smiles_column = recipe.data.smiles_column().map(str::to_owned);
        let embedding_dim = models.len() * recipe.model.hidden_dim;
        let task = recipe.task_for(&schema);
        Self {
            models,
            blend,
            task,
            batcher,
            featurizer,
            schema,
            smiles_column,
            embedding_dim,
            domain,
        }
    }

    /// Returns the number of models whose predictions are averaged.
    pub fn num_members(&self) -> usize {
        self.models.len()
    }

    /// Returns the training molecules, if they are known.
    pub fn domain(&self) -> Option<&TrainingDomain> {
        self.domain.as_ref()
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

    /// Returns the dimension of the embeddings; those of the members of an ensemble are
    /// concatenated.
    pub fn embedding_dim(&self) -> usize {
        self.embedding_dim
    }

    /// Returns a hash of the weights, the random forest and the schema.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for (param, values) in self.models.iter().flat_map(named_tensors) {
            hash.update(param.name);
            values.into_data().iter::<f32>().for_each(|value| hash.update(value.to_le_bytes()));
        }
        if let Some(ForestBlend { forests, weight }) = &self.blend {
            hash.update(forests.to_bytes());
            hash.update(weight.to_le_bytes());
        }
        hash.update(serde_json::to_vec(&self.schema).expect("a schema can be serialized"));
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
    }

    /// Predicts the targets of `graphs`, in their order; the targets they contain are ignored.
    pub fn predict(&self, graphs: Vec<Graph>) -> Vec<Prediction> {
        self.map_batches(graphs, |dataset, batch| {
            self.task.predictions(self.average(dataset, batch).0, batch)
        })
    }

    /// Predicts the targets of `graphs` like [`Predictor::predict`], with the standard deviation
    /// over the members of an ensemble.
    pub fn predict_with_std(&self, graphs: Vec<Graph>) -> Vec<RowPrediction> {
        self.map_batches(graphs, |dataset, batch| {
            let (average, outputs) = self.average(dataset, batch);
            let members: Vec<Vec<Prediction>> = match &outputs[..] {
                [_] => Vec::new(),
                outputs => {
                    let decode = |output: &Tensor<2>| self.task.predictions(output.clone(), batch);
                    outputs.iter().map(decode).collect()
                }
            };
            let finite: Vec<Vec<bool>> =
                outputs.into_iter().map(|output| self.task.are_finite(output, batch)).collect();
            let predictions = self.task.predictions(average, batch).into_iter().enumerate();
            let row = |(graph, prediction): (usize, Prediction)| {
                let members: Vec<&Prediction> =
                    members.iter().map(|predictions| &predictions[graph]).collect();
                let mut row = RowPrediction::new(prediction, &members);
                row.is_finite &= finite.iter().all(|finite| finite[graph]);
                row
            };
            predictions.map(row).collect()
        })
    }

    /// Returns the average output of all models and the random forest, and the output of each
    /// model.
    fn average(&self, dataset: &Dataset, batch: &GraphBatch) -> (Tensor<2>, Vec<Tensor<2>>) {
        let forward = |model: &GraphDiffuser| model.forward(batch, &ForwardContext::evaluate());
        let outputs: Vec<Tensor<2>> = self.models.iter().map(forward).collect();
        let average = self.task.average(&outputs);
        let average = match &self.blend {
            Some(blend) => blend.average(&self.task, average, dataset, batch),
            None => average,
        };
        (average, outputs)
    }

    /// Returns the embeddings that the prediction head reads, in the order of the graphs.
    ///
    /// A graph embedding is pooled as for its prediction, or is the mean of the node embeddings if
    /// the head does not pool. Node embeddings are the concatenated rows of all nodes of a graph.
    /// An embedding of an ensemble is the concatenation of those of its members, in their order.
    pub fn embeddings(&self, graphs: Vec<Graph>, level: EmbeddingLevel) -> Vec<Vec<f32>> {
        self.map_batches(graphs, |_, batch| {
            let embeddings = self.models.iter().map(|model| embeddings(model, batch, level));
            let tensor = Tensor::cat(embeddings.collect(), 1);
            let [_, dim] = tensor.dims();
            match level {
                EmbeddingLevel::Graphs => split_rows(tensor, &vec![1; batch.indices.len()]),
                EmbeddingLevel::Nodes => {
                    let sizes = &batch.layer_topology().layout.sizes;
                    let mut embeddings = split_rows(tensor, sizes);
                    for (rows, &nodes) in embeddings.iter_mut().zip(&batch.topology.layout.sizes) {
                        rows.truncate(nodes * dim); // drops the CLS node, which is last
                    }
                    embeddings
                }
            }
        })
    }

    /// Applies `infer` to batches of `graphs` and returns its results in the order of `graphs`.
    fn map_batches<T>(
        &self,
        graphs: Vec<Graph>,
        infer: impl Fn(&Dataset, &GraphBatch) -> Vec<T>,
    ) -> Vec<T> {
        let indices: Vec<usize> = (0..graphs.len()).collect();
        let splits = Splits { train: vec![], valid: vec![], test: vec![] };
        let dataset =
            Dataset { graphs: Graphs::InMemory(graphs), schema: self.schema.clone(), splits };
        let mut results: Vec<(usize, T)> = Vec::with_capacity(indices.len());
        self.batcher.for_each(&dataset, &indices, |batch| {
            results.extend(batch.indices.iter().copied().zip(infer(&dataset, &batch)));
        });
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// Computes the graph or node embeddings of one model.
fn embeddings(model: &GraphDiffuser, batch: &GraphBatch, level: EmbeddingLevel) -> Tensor<2> {
    let ctx = ForwardContext::evaluate();
    match (level, model.pooling()) {
        (EmbeddingLevel::Graphs, Some(_)) => model.graph_embeddings(batch, &ctx),
        (EmbeddingLevel::Graphs, None) => {
            Pooling::Mean.pool(model.node_embeddings(batch, &ctx), batch)
        }
        (EmbeddingLevel::Nodes, _) => model.node_embeddings(batch, &ctx),
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
