//! The training loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::tensor::{DType, Device, Tensor, TensorData};
use graph_diffuser_data::{Dataset, SeedTree, Split};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use crate::batch::{Batcher, GraphBatch};
use crate::model::GraphDiffuser;
use crate::nn::{ForwardContext, ParamInit, is_finite};
use crate::parameters;
use crate::recipe::Recipe;
use crate::task::{EvalMetrics, Metric, Predictions, Task, null_as_nan};

use super::batches::for_each_batch;
use super::memory::format_bytes;
use super::{
    AdamW, BatchSize, Checkpoint, CheckpointError, Checkpoints, Evaluator, LoadedCheckpoint,
    SelectBy, global_norm, recalibration_batches, training_batches,
};

/// Momentum of the running batch-norm statistics.
const BN_MOMENTUM: f64 = 0.1;

/// Record of one epoch, a line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Epoch, counted from 1.
    pub epoch: usize,
    /// Number of optimizer steps since the start of the run.
    pub step: u64,
    /// Learning rate of the last step of the epoch.
    pub lr: f64,
    /// Mean training loss over the targets of the epoch.
    #[serde(deserialize_with = "null_as_nan")]
    pub train_loss: f64,
    /// Validation scores; `None` if the epoch was not evaluated.
    pub valid: Option<EvalMetrics>,
    /// True if the scores are the best so far.
    pub best: bool,
    /// Wall time of the epoch in seconds.
    pub seconds: f64,
}

/// Best epoch so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestEpoch {
    /// Epoch, counted from 1.
    pub epoch: usize,
    /// Validation scores of the epoch.
    pub valid: EvalMetrics,
}

/// Progress of a run; together with weights and optimizer moments the complete state of training.
///
/// Random streams have no state of their own: dropout masks are determined by `step`, the order of
/// graphs by `epoch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainProgress {
    /// Seed of the run.
    pub seed: u64,
    /// Number of completed epochs.
    pub epoch: usize,
    /// Number of completed batches of the current epoch.
    pub batch: usize,
    /// Number of completed steps.
    pub step: u64,
    /// Weighted sum of the losses of the current epoch.
    pub loss_sum: f64,
    /// Total weight of that sum: number of targets, or sum of their class weights.
    pub samples: f64,
    /// Wall time of the current epoch in earlier sessions, in seconds.
    pub seconds: f64,
    /// Best epoch so far.
    pub best: Option<BestEpoch>,
    /// Records of all completed epochs.
    pub history: Vec<EpochRecord>,
}

/// Progress event of a [`Trainer`].
#[derive(Debug)]
#[non_exhaustive]
pub enum TrainEvent<'a> {
    /// Training resumes from a checkpoint.
    Resumed {
        /// Number of completed epochs.
        epoch: usize,
        /// Number of completed batches of the current epoch.
        batch: usize,
        /// Reasons why newer checkpoints were skipped.
        skipped: &'a [String],
    },
    /// A step is completed.
    Step {
        /// Epoch, counted from 1.
        epoch: usize,
        /// Number of completed batches of this epoch, and of all its batches.
        batches: (usize, usize),
        /// Number of graphs in the batch.
        graphs: usize,
        /// Loss of the batch.
        loss: f64,
    },
    /// Evaluation starts.
    Evaluating,
    /// An epoch is completed.
    Epoch(&'a EpochRecord),
}

/// Outcome of a training session.
#[derive(Debug, Clone, PartialEq)]
pub enum TrainOutcome {
    /// All epochs are completed, or training stopped early.
    Finished {
        /// Best epoch.
        best: BestEpoch,
        /// Test scores of the weights of the best epoch.
        test: EvalMetrics,
        /// Predictions of the best epoch for the validation and test graphs.
        predictions: Box<[Predictions; 2]>,
    },
    /// Interrupted after saving a checkpoint.
    Stopped {
        /// Number of completed epochs.
        epoch: usize,
        /// Number of completed batches of the current epoch.
        batch: usize,
    },
}

/// Error of training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The loss or gradient is NaN or infinite.
    #[error("step {step}: {what} is not finite (first in `{tensor}`, graphs {graphs:?})")]
    NonFinite {
        /// Step, counted from 1.
        step: u64,
        /// `loss` or `gradient`.
        what: &'static str,
        /// Name of the first tensor that is not finite.
        tensor: String,
        /// Indices of the graphs of the batch.
        graphs: Vec<usize>,
    },
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The metrics file cannot be written.
    #[error("cannot write `{path}`")]
    Write {
        /// Path of the file.
        path: std::path::PathBuf,
        /// Underlying I/O error.
        source: std::io::Error,
    },
    /// The checkpoint belongs to a run with another seed.
    #[error("the checkpoint has seed {found}, but the recipe has seed {expected}")]
    SeedMismatch {
        /// Seed of the recipe.
        expected: u64,
        /// Seed of the checkpoint.
        found: u64,
    },
    /// A step needs more memory than is available.
    #[error(
        "a training step needs about {} of memory, but {} is available (batch of {graphs} graphs \
         with up to {nodes} nodes)",
        format_bytes(*needed),
        format_bytes(*available)
    )]
    Memory {
        /// Number of graphs of the largest batch.
        graphs: usize,
        /// Number of nodes of its largest graph.
        nodes: usize,
        /// Estimated memory in bytes.
        needed: u64,
        /// Available memory in bytes.
        available: u64,
        /// Batch size that fits, if any.
        fits: Option<BatchSize>,
    },
    /// The validation score is NaN in every epoch.
    #[error("the validation score is NaN in every epoch")]
    NoScore,
}

impl TrainError {
    /// Returns a suggested fix, if one is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NonFinite { .. } => Some(
                "start a new run with a lower `optim.lr` or a longer warmup; the last checkpoint is kept"
                    .into(),
            ),
            Self::SeedMismatch { found, .. } => {
                Some(format!("set `seed = {found}` in the run's `recipe.toml`, or start a new run"))
            }
            Self::Memory { fits: Some(BatchSize { max_pairs: Some(max_pairs), .. }), .. } => {
                Some(format!("set `train.max_pairs` to {max_pairs}"))
            }
            Self::Memory { fits: Some(BatchSize { graphs, max_pairs: None }), .. } => {
                Some(format!("set `train.batch_size` to {graphs}"))
            }
            Self::Memory { nodes, fits: None, .. } => Some(format!(
                "a single graph of {nodes} nodes does not fit: lower `model.virtual_edges.num_steps` or \
                 `model.layers`, or remove it from the training split (`graph-diffuser eval` \
                 supports graphs of any size)"
            )),
            Self::Write { .. } | Self::Checkpoint(CheckpointError::Write { .. }) => {
                Some("check free disk space and permissions, then resume the run".into())
            }
            _ => None,
        }
    }
}

/// Trains a model, with checkpoints from which it can resume exactly.
///
/// # Examples
/// ```no_run
/// use std::{path::Path, sync::atomic::AtomicBool};
/// use graph_diffuser::{Device, recipe::Recipe, train::Trainer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let recipe = Recipe::find("grid-quick", &[])?;
/// let dataset = recipe.dataset()?;
/// let checkpoints = Path::new("checkpoints");
/// let mut trainer = Trainer::new(&recipe, &dataset, &Device::flex(), checkpoints, |_| {})?;
/// let outcome = trainer.run(&AtomicBool::new(false), |event| println!("{event:?}"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Trainer<'a> {
    recipe: &'a Recipe,
    dataset: &'a Dataset,
    device: Device,
    seeds: SeedTree,
    task: Task,
    batcher: Batcher,
    evaluator: Evaluator<'a>,
    last: Checkpoints,
    best: Checkpoints,
    /// Training batches from which batch-norm statistics are re-estimated.
    recalibration: Vec<Vec<usize>>,
    state: State,
}

/// Mutable state of training.
#[derive(Debug)]
struct State {
    model: GraphDiffuser,
    optimizer: AdamW,
    average: Option<Tensor<1>>,
    progress: TrainProgress,
}

impl<'a> Trainer<'a> {
    /// Creates a trainer with checkpoints in `directory`, resuming from an existing checkpoint.
    ///
    /// # Errors
    /// Returns an error if checkpoints exist but are corrupt or incompatible.
    pub fn new(
        recipe: &'a Recipe,
        dataset: &'a Dataset,
        device: &Device,
        directory: &std::path::Path,
        mut on_event: impl FnMut(TrainEvent<'_>),
    ) -> Result<Self, TrainError> {
        let device = device.clone().autodiff();
        let seeds = SeedTree::new(recipe.seed);
        let model = recipe.model.init(dataset, &mut ParamInit::new(seeds, &device));
        let average = recipe.train.ema_decay.map(|_| parameters::flatten(&model));
        let last = Checkpoints::new(directory, "last");
        let mut state = State {
            model,
            optimizer: AdamW::new(&recipe.optim),
            average,
            progress: TrainProgress {
                seed: recipe.seed,
                epoch: 0,
                batch: 0,
                step: 0,
                loss_sum: 0.0,
                samples: 0.0,
                seconds: 0.0,
                best: None,
                history: Vec::new(),
            },
        };
        if let Some(found) = last.open()? {
            state.restore(recipe, &found)?;
            let TrainProgress { epoch, batch, .. } = state.progress;
            on_event(TrainEvent::Resumed { epoch, batch, skipped: &found.skipped });
        }
        let task = recipe.task_for(&dataset.schema);
        let batcher = recipe.model.batcher(&device, DType::F32);
        Ok(Self {
            recipe,
            dataset,
            seeds,
            batcher: batcher.with_targets(Arc::new(task.clone())),
            task,
            evaluator: Evaluator::new(recipe, dataset, &device),
            device,
            last,
            best: Checkpoints::new(directory, "best"),
            recalibration: recalibration_batches(
                dataset,
                recipe.train.batch(),
                seeds,
                recipe.train.bn_recalibration_batches,
            ),
            state,
        })
    }

    /// Returns the progress of the run.
    pub fn progress(&self) -> &TrainProgress {
        &self.state.progress
    }

    /// Returns the current model.
    pub fn model(&self) -> &GraphDiffuser {
        &self.state.model
    }

    /// Returns the metric that selects the best epoch.
    pub fn metric(&self) -> Metric {
        self.task.metric()
    }

    /// Trains until the last epoch or until `stop` is set.
    ///
    /// # Errors
    /// Returns an error if the loss or gradient is not finite or a checkpoint cannot be written;
    /// the last checkpoint is kept.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        mut on_event: impl FnMut(TrainEvent<'_>),
    ) -> Result<TrainOutcome, TrainError> {
        while self.state.progress.epoch < self.recipe.train.epochs && !self.is_out_of_patience() {
            if self.train_epoch(stop, &mut on_event)? {
                let TrainProgress { epoch, batch, .. } = self.state.progress;
                return Ok(TrainOutcome::Stopped { epoch, batch });
            }
        }
        let best = self.state.progress.best.clone().ok_or(TrainError::NoScore)?;
        let model = self.best_model()?;
        on_event(TrainEvent::Evaluating);
        // The saved weights include the batch-norm statistics of their selection, so that later
        // evaluations reproduce these scores.
        let [valid, test] = [Split::Valid, Split::Test]
            .map(|split| self.evaluator.metric_accumulator(&model, self.dataset.split(split)));
        let predictions = Box::new([valid.predictions(), test.predictions()]);
        Ok(TrainOutcome::Finished { best, test: test.scores(), predictions })
    }

    fn is_out_of_patience(&self) -> bool {
        let progress = &self.state.progress;
        let since_best = progress.history.iter().rev().filter(|record| record.valid.is_some());
        let waited = since_best.take_while(|record| !record.best).count();
        self.recipe
            .train
            .patience
            .is_some_and(|patience| progress.best.is_some() && waited >= patience)
    }

    /// Trains the remaining batches of an epoch and evaluates it; returns `true` if interrupted.
    fn train_epoch(
        &mut self,
        stop: &AtomicBool,
        on_event: &mut impl FnMut(TrainEvent<'_>),
    ) -> Result<bool, TrainError> {
        let start = Instant::now();
        let epoch = self.state.progress.epoch;
        let batches = training_batches(self.dataset, self.recipe.train.batch(), self.seeds, epoch);
        let Self { recipe, dataset, seeds, task, batcher, last, state, .. } = self;
        let train = &recipe.train;
        let mut lr = recipe.optim.lr;
        let remaining = &batches[state.progress.batch.min(batches.len())..];
        let batcher = batcher.for_epoch(*seeds, epoch);
        let interrupted = for_each_batch(&batcher, dataset, remaining, |batch| {
            let factor = recipe.optim.schedule.factor(
                epoch,
                train.epochs,
                state.progress.batch,
                batches.len(),
            );
            lr = recipe.optim.lr * factor;
            let loss = match state.step(&batch, task, *seeds, lr, train.ema_decay) {
                Ok(loss) => loss,
                Err(error) => return Some(Err(error)),
            };
            on_event(TrainEvent::Step {
                epoch: epoch + 1,
                batches: (state.progress.batch, batches.len()),
                graphs: batch.indices.len(),
                loss,
            });
            if stop.load(Ordering::Relaxed) && state.progress.batch < batches.len() {
                state.progress.seconds += start.elapsed().as_secs_f64();
                return Some(last.save(&state.checkpoint()).map_err(TrainError::from));
            }
            None
        });
        if let Some(interrupted) = interrupted {
            return interrupted.map(|()| true);
        }
        self.finish_epoch(lr, start, on_event)?;
        Ok(stop.load(Ordering::Relaxed) && self.state.progress.epoch < self.recipe.train.epochs)
    }

    /// Evaluates the epoch and saves checkpoints.
    fn finish_epoch(
        &mut self,
        lr: f64,
        start: Instant,
        on_event: &mut impl FnMut(TrainEvent<'_>),
    ) -> Result<(), TrainError> {
        let train = &self.recipe.train;
        let epoch = self.state.progress.epoch + 1;
        let due = epoch.is_multiple_of(train.eval_every) || epoch == train.epochs;
        let mut improved = None;
        let valid = due.then(|| {
            on_event(TrainEvent::Evaluating);
            let model = self.eval_model();
            let scores = self.evaluator.scores(&model, self.dataset.split(Split::Valid));
            if self.is_better(&scores) {
                improved = Some(model);
            }
            scores
        });
        let progress = &mut self.state.progress;
        let record = EpochRecord {
            epoch,
            step: progress.step,
            lr,
            train_loss: if progress.samples > 0.0 {
                progress.loss_sum / progress.samples
            } else {
                0.0
            },
            valid,
            best: improved.is_some(),
            seconds: progress.seconds + start.elapsed().as_secs_f64(),
        };
        if let (Some(model), Some(valid)) = (&improved, record.valid.clone()) {
            progress.best = Some(BestEpoch { epoch, valid });
            // Saved before `last`: if the process is killed in between, this epoch is repeated and
            // the same weights are saved again.
            let files = [("weights.safetensors".to_owned(), serialize_model(model))];
            self.best.save(&Checkpoint { files: files.into() })?;
        }
        progress.history.push(record.clone());
        progress.epoch = epoch;
        (progress.batch, progress.loss_sum, progress.samples, progress.seconds) =
            (0, 0.0, 0.0, 0.0);
        self.last.save(&self.state.checkpoint())?;
        on_event(TrainEvent::Epoch(&record));
        Ok(())
    }

    /// Returns the model to evaluate: with averaged weights and recalibrated statistics if
    /// configured.
    fn eval_model(&self) -> GraphDiffuser {
        let State { model, average, .. } = &self.state;
        let model = match average {
            Some(average) => parameters::assign(model.clone(), average),
            None => model.clone(),
        };
        match self.recalibration.as_slice() {
            [] => model,
            batches => self.evaluator.recalibrated(&model, batches),
        }
    }

    /// Returns whether an epoch with these validation scores is better than the best so far.
    fn is_better(&self, scores: &EvalMetrics) -> bool {
        let best = self.state.progress.best.as_ref().map(|best| &best.valid);
        match self.recipe.train.select_by {
            SelectBy::Metric => {
                self.metric().is_better(scores.metric, best.map_or(f64::NAN, |best| best.metric))
            }
            SelectBy::Loss => {
                scores.loss.is_finite() && best.is_none_or(|best| scores.loss < best.loss)
            }
        }
    }

    /// Loads the model with the weights of the best epoch.
    ///
    /// # Errors
    /// Returns an error if there is no such checkpoint or it cannot be read.
    pub fn best_model(&self) -> Result<GraphDiffuser, TrainError> {
        let found = self.best.open()?.ok_or(TrainError::NoScore)?;
        let model =
            self.recipe.model.init(self.dataset, &mut ParamInit::new(self.seeds, &self.device));
        Ok(load_model(model, &found)?)
    }
}

impl State {
    /// Performs one optimizer step and returns the loss of the batch.
    fn step(
        &mut self,
        batch: &GraphBatch,
        task: &Task,
        seeds: SeedTree,
        lr: f64,
        ema_decay: Option<f64>,
    ) -> Result<f64, TrainError> {
        let dropout_key = seeds.stream_at("dropout", self.progress.step).key();
        let ctx = ForwardContext::train(dropout_key);
        let output = self.model.forward(batch, &ctx);
        let loss = task.loss(output, batch);
        let value = loss.clone().into_scalar::<f64>();
        let non_finite = |what, tensor| TrainError::NonFinite {
            step: self.progress.step + 1,
            what,
            tensor,
            graphs: batch.indices.clone(),
        };
        check_loss(value, &self.model, batch, dropout_key)
            .map_err(|tensor| non_finite("loss", tensor))?;
        let gradients = parameters::gradients(&self.model, &mut loss.backward());
        let gradient = Tensor::cat(gradients.clone(), 0);
        let norm = global_norm(&gradient);
        if !norm.is_finite() {
            let entries =
                parameters::named_params(&self.model).into_iter().filter(|entry| entry.trainable);
            let first =
                entries.zip(&gradients).find(|(_, gradient)| !is_finite((*gradient).clone()));
            let name = first
                .map_or_else(|| "sum of squared gradients".to_owned(), |(entry, _)| entry.name);
            return Err(non_finite("gradient", name));
        }
        let model = self.optimizer.step(self.model.clone(), gradient, norm, lr);
        self.model = parameters::update_running_stats(model, &ctx.into_statistics(), BN_MOMENTUM);
        if let (Some(average), Some(decay)) = (&mut self.average, ema_decay) {
            average.inplace(|average| {
                average * decay + parameters::flatten(&self.model) * (1.0 - decay)
            });
        }
        self.progress.step += 1;
        self.progress.batch += 1;
        let weight = task.loss_weight(batch);
        self.progress.loss_sum += value * weight;
        self.progress.samples += weight;
        Ok(value)
    }

    fn checkpoint(&self) -> Checkpoint {
        let mut vectors: Vec<(&str, Vec<f32>)> = Vec::new();
        if let Some([first, second]) = self.optimizer.moments() {
            vectors.push(("first_moment", host(first)));
            vectors.push(("second_moment", host(second)));
        }
        if let Some(average) = &self.average {
            vectors.push(("average", host(average)));
        }
        let vectors =
            vectors.iter().map(|(name, values)| (*name, vec![values.len()], values.as_slice()));
        let progress =
            serde_json::to_vec_pretty(&self.progress).expect("plain data can be serialized");
        let files = [
            ("weights.safetensors".to_owned(), serialize_model(&self.model)),
            ("optimizer.safetensors".to_owned(), serialize(vectors.collect())),
            ("progress.json".to_owned(), progress),
        ];
        Checkpoint { files: files.into() }
    }

    fn restore(&mut self, recipe: &Recipe, found: &LoadedCheckpoint) -> Result<(), TrainError> {
        let progress: TrainProgress = serde_json::from_slice(found.file("progress.json")?)
            .map_err(|error| found.incompatible(format!("`progress.json`: {error}")))?;
        if progress.seed != recipe.seed {
            return Err(TrainError::SeedMismatch { expected: recipe.seed, found: progress.seed });
        }
        self.model = load_model(self.model.clone(), found)?;
        let flat = parameters::flatten(&self.model);
        let vectors = SafeTensors::deserialize(found.file("optimizer.safetensors")?)
            .map_err(|error| found.incompatible(format!("`optimizer.safetensors`: {error}")))?;
        let vector = |name: &str| {
            let data = vectors.tensor(name).ok().and_then(|view| data(&view));
            let data = data.filter(|data| data.num_elements() == flat.dims()[0]);
            data.map(|data| Tensor::<1>::from_data(data, &flat.device())).ok_or_else(|| {
                found.incompatible(format!(
                    "`optimizer.safetensors` has no `{name}` with the size of this model"
                ))
            })
        };
        if progress.step > 0 {
            let moments = [vector("first_moment")?, vector("second_moment")?];
            self.optimizer = AdamW::resume(&recipe.optim, progress.step, moments);
        }
        if self.average.is_some() {
            self.average = Some(vector("average")?);
        }
        self.progress = progress;
        Ok(())
    }
}

/// Checks that the loss is finite; if not, repeats the forward pass to find the cause.
///
/// # Errors
/// Returns the name of the first parameter or activation that is not finite.
pub fn check_loss(
    loss: f64,
    model: &GraphDiffuser,
    batch: &GraphBatch,
    dropout_key: u64,
) -> Result<(), String> {
    if loss.is_finite() {
        return Ok(());
    }
    for (entry, tensor) in parameters::named_tensors(model) {
        if !is_finite(tensor) {
            return Err(entry.name);
        }
    }
    let ctx = ForwardContext::train(dropout_key).detect_non_finite();
    model.forward(batch, &ctx);
    Err(ctx.first_non_finite().unwrap_or_else(|| "loss".to_owned()))
}

/// Serializes parameters and buffers of a model as a safetensors file.
fn serialize_model(model: &GraphDiffuser) -> Vec<u8> {
    let values: Vec<_> = parameters::named_tensors(model)
        .into_iter()
        .map(|(entry, tensor)| (entry, host(&tensor)))
        .collect();
    serialize(
        values
            .iter()
            .map(|(entry, values)| (entry.name.as_str(), entry.shape.clone(), values.as_slice()))
            .collect(),
    )
}

fn serialize(tensors: Vec<(&str, Vec<usize>, &[f32])>) -> Vec<u8> {
    let bytes: Vec<(&str, Vec<usize>, Vec<u8>)> = tensors
        .into_iter()
        .map(|(name, shape, values)| {
            (name, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
        })
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (*name, view.expect("the shape matches the data"))
    });
    safetensors::serialize(views, None).expect("names are unique and shapes match the data")
}

/// Returns `model` with the weights of a checkpoint.
pub(crate) fn load_model(
    model: GraphDiffuser,
    found: &LoadedCheckpoint,
) -> Result<GraphDiffuser, CheckpointError> {
    let weights = SafeTensors::deserialize(found.file("weights.safetensors")?)
        .map_err(|error| found.incompatible(format!("`weights.safetensors`: {error}")))?;
    parameters::load(model, |name| weights.tensor(name).ok().and_then(|view| data(&view)))
        .map_err(|error| found.incompatible(error.to_string()))
}

fn data(view: &TensorView<'_>) -> Option<TensorData> {
    let values = view
        .data()
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")));
    (view.dtype() == Dtype::F32)
        .then(|| TensorData::new(values.collect::<Vec<f32>>(), view.shape().to_vec()))
}

fn host(tensor: &Tensor<1>) -> Vec<f32> {
    tensor.to_data().iter::<f32>().collect()
}
