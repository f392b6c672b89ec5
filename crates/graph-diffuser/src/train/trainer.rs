//! The training loop.

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
use super::memory::readable;
use super::{
    AdamW, BatchSize, Checkpoint, CheckpointError, Checkpoints, Evaluator, LoadedCheckpoint,
    SelectBy, global_norm, recalibration_batches, training_batches,
};

/// Share by which running statistics move towards those of a batch.
const STATISTICS_RATE: f64 = 0.1;

/// What happened in one epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Counted from one.
    pub epoch: usize,
    /// Steps taken since the start of the run.
    pub step: u64,
    /// Learning rate of the epoch's last step.
    pub lr: f64,
    /// Mean training loss over the epoch's targets.
    #[serde(deserialize_with = "null_as_nan")]
    pub train_loss: f64,
    /// Scores on the validation graphs, in epochs that end with an evaluation.
    pub valid: Option<EvalMetrics>,
    /// Whether they were the best so far.
    pub best: bool,
    /// Wall time of the epoch.
    pub seconds: f64,
}

/// The best epoch so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestEpoch {
    /// Counted from one.
    pub epoch: usize,
    /// Its scores on the validation graphs.
    pub valid: EvalMetrics,
}

/// Where a run stands; with weights and moments, all that resuming needs.
///
/// Streams need no positions of their own: the masks of a step and the order of an epoch are found
/// by the numbers `step` and `epoch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainProgress {
    /// The run's seed.
    pub seed: u64,
    /// Whole epochs done.
    pub epoch: usize,
    /// Batches of the current epoch done.
    pub batch: usize,
    /// Steps done.
    pub step: u64,
    /// Sum of the losses of the current epoch's targets.
    pub loss_sum: f64,
    /// What that sum is over: targets of the current epoch seen, or the weights of their classes.
    pub samples: f64,
    /// Wall time of the current epoch before this session.
    pub seconds: f64,
    /// The best epoch so far.
    pub best: Option<BestEpoch>,
    /// All epochs done.
    pub history: Vec<EpochRecord>,
}

/// What a trainer tells while it works.
#[derive(Debug)]
#[non_exhaustive]
pub enum TrainEvent<'a> {
    /// Training goes on from a checkpoint.
    Resumed {
        /// Epochs done.
        epoch: usize,
        /// Batches of the current epoch done.
        batch: usize,
        /// What was wrong with newer checkpoints.
        skipped: &'a [String],
    },
    /// A step is done.
    Step {
        /// Counted from one.
        epoch: usize,
        /// Batches of this epoch done, and in all.
        batches: (usize, usize),
        /// Graphs in the batch.
        graphs: usize,
        /// Its loss.
        loss: f64,
    },
    /// Validation begins.
    Evaluating,
    /// An epoch is done.
    Epoch(&'a EpochRecord),
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TrainOutcome {
    /// All epochs are done, or patience ran out.
    Finished {
        /// The best epoch.
        best: BestEpoch,
        /// Scores of the best epoch's weights on the test graphs.
        test: EvalMetrics,
        /// Their predictions for the validation and the test graphs.
        predictions: Box<[Predictions; 2]>,
    },
    /// Asked to stop; a checkpoint was saved.
    Stopped {
        /// Epochs done.
        epoch: usize,
        /// Batches of the current epoch done.
        batch: usize,
    },
}

/// Why training cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A NaN or an infinity.
    #[error("step {step}: {what} is not finite; first in `{tensor}`, with graphs {graphs:?}")]
    NotFinite {
        /// The step, counted from one.
        step: u64,
        /// `the loss` or `the gradient`.
        what: &'static str,
        /// The first tensor that went wrong.
        tensor: String,
        /// Graph numbers of the batch.
        graphs: Vec<usize>,
    },
    /// A checkpoint could not be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The history file could not be written.
    #[error("cannot write `{path}`")]
    Write {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The checkpoint belongs to a run with another seed.
    #[error("the checkpoint was trained with seed {found}, the recipe asks for {expected}")]
    OtherSeed {
        /// Of the recipe.
        expected: u64,
        /// Of the checkpoint.
        found: u64,
    },
    /// A step takes more memory than there is.
    #[error(
        "a training step would take about {} of memory, and {} is free: a batch has {graphs} graphs of up to {nodes} nodes",
        readable(*needed),
        readable(*available)
    )]
    Memory {
        /// Graphs of the batch that takes most.
        graphs: usize,
        /// Nodes of its largest graph.
        nodes: usize,
        /// Bytes that it takes, about.
        needed: u64,
        /// Bytes that there are.
        available: u64,
        /// A batch that fits, if any does.
        fits: Option<BatchSize>,
    },
    /// Validation gave no number in any epoch.
    #[error("no epoch has a validation score")]
    NoScore,
}

impl TrainError {
    /// What the user can do about it, when we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFinite { .. } => Some(
                "the last good checkpoint is kept; lower `optim.lr`, or lengthen the warm-up, and start a new run"
                    .into(),
            ),
            Self::OtherSeed { found, .. } => {
                Some(format!("set `seed` in the run's `recipe.toml` back to {found}, or start a new run"))
            }
            Self::Memory { fits: Some(BatchSize { max_pairs: Some(most), .. }), .. } => {
                Some(format!("set `train.max_pairs` to {most}"))
            }
            Self::Memory { fits: Some(BatchSize { graphs, max_pairs: None }), .. } => {
                Some(format!("set `train.batch_size` to {graphs}"))
            }
            Self::Memory { nodes, fits: None, .. } => Some(format!(
                "a graph of {nodes} nodes does not fit even alone: lower `model.virtual_edges.num_steps` or `model.layers`, or \
                 train without it; `graph-diffuser eval` scores graphs of any size"
            )),
            Self::Write { .. } | Self::Checkpoint(CheckpointError::Write { .. }) => {
                Some("check free space and permissions, then resume the run".into())
            }
            _ => None,
        }
    }
}

/// Trains one model.
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

/// All that changes while training.
#[derive(Debug)]
struct State {
    model: GraphDiffuser,
    optimizer: AdamW,
    average: Option<Tensor<1>>,
    progress: TrainProgress,
}

impl<'a> Trainer<'a> {
    /// A trainer that keeps its checkpoints in `directory` and goes on from those that are there.
    ///
    /// # Errors
    /// Where checkpoints are there but cannot be used.
    pub fn new(
        recipe: &'a Recipe,
        dataset: &'a Dataset,
        device: &Device,
        directory: &std::path::Path,
        mut tell: impl FnMut(TrainEvent<'_>),
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
            tell(TrainEvent::Resumed { epoch, batch, skipped: &found.skipped });
        }
        Ok(Self {
            recipe,
            dataset,
            seeds,
            task: recipe.task.init(dataset.schema.targets),
            batcher: recipe.model.batcher(&device, DType::F32),
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

    /// Where the run stands.
    pub fn progress(&self) -> &TrainProgress {
        &self.state.progress
    }

    /// The model as it is now.
    pub fn model(&self) -> &GraphDiffuser {
        &self.state.model
    }

    /// What its scores measure.
    pub fn metric(&self) -> Metric {
        self.task.metric()
    }

    /// Trains to the end, or until `stop` is set.
    ///
    /// # Errors
    /// Where a number is not finite or a checkpoint cannot be written; the last checkpoint stays.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        mut tell: impl FnMut(TrainEvent<'_>),
    ) -> Result<TrainOutcome, TrainError> {
        while self.state.progress.epoch < self.recipe.train.epochs && !self.is_out_of_patience() {
            if self.train_epoch(stop, &mut tell)? {
                let TrainProgress { epoch, batch, .. } = self.state.progress;
                return Ok(TrainOutcome::Stopped { epoch, batch });
            }
        }
        let best = self.state.progress.best.clone().ok_or(TrainError::NoScore)?;
        let model = self.best_model()?;
        tell(TrainEvent::Evaluating);
        // The weights come with the statistics that they were selected with, so `eval` repeats these scores.
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

    /// Trains the rest of one epoch and judges it; `true` where asked to stop before its end.
    fn train_epoch(
        &mut self,
        stop: &AtomicBool,
        tell: &mut impl FnMut(TrainEvent<'_>),
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
            tell(TrainEvent::Step {
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
        self.finish_epoch(lr, start, tell)?;
        Ok(stop.load(Ordering::Relaxed) && self.state.progress.epoch < self.recipe.train.epochs)
    }

    /// Judges the epoch and saves.
    fn finish_epoch(
        &mut self,
        lr: f64,
        start: Instant,
        tell: &mut impl FnMut(TrainEvent<'_>),
    ) -> Result<(), TrainError> {
        let train = &self.recipe.train;
        let epoch = self.state.progress.epoch + 1;
        let due = epoch.is_multiple_of(train.eval_every) || epoch == train.epochs;
        let mut improved = None;
        let valid = due.then(|| {
            tell(TrainEvent::Evaluating);
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
            // Before `last`: a kill between the two repeats this epoch and writes the same again.
            let files = [("weights.safetensors".to_owned(), serialize_model(model))];
            self.best.save(&Checkpoint { files: files.into() })?;
        }
        progress.history.push(record.clone());
        progress.epoch = epoch;
        (progress.batch, progress.loss_sum, progress.samples, progress.seconds) =
            (0, 0.0, 0.0, 0.0);
        self.last.save(&self.state.checkpoint())?;
        tell(TrainEvent::Epoch(&record));
        Ok(())
    }

    /// The model that is evaluated: averaged and with re-estimated statistics, where asked.
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

    /// Whether an epoch with these validation scores is better than the best so far.
    fn is_better(&self, scores: &EvalMetrics) -> bool {
        let best = self.state.progress.best.as_ref().map(|best| &best.valid);
        match self.recipe.train.select_by {
            SelectBy::Metric => {
                self.metric().is_better(scores.metric, best.map_or(f64::NAN, |best| best.metric))
            }
            SelectBy::Loss => {
                !scores.loss.is_nan() && best.is_none_or(|best| scores.loss < best.loss)
            }
        }
    }

    /// The weights of the best epoch.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn best_model(&self) -> Result<GraphDiffuser, TrainError> {
        let found = self.best.open()?.ok_or(TrainError::NoScore)?;
        let model =
            self.recipe.model.init(self.dataset, &mut ParamInit::new(self.seeds, &self.device));
        Ok(load_model(model, &found)?)
    }
}

impl State {
    /// One step on `batch`; its loss.
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
        let loss = task.loss(output, &batch.targets);
        let value = loss.clone().into_scalar::<f64>();
        let not_finite = |what, tensor| TrainError::NotFinite {
            step: self.progress.step + 1,
            what,
            tensor,
            graphs: batch.indices.clone(),
        };
        check_loss(value, &self.model, batch, dropout_key)
            .map_err(|tensor| not_finite("the loss", tensor))?;
        let gradients = parameters::gradients(&self.model, &mut loss.backward());
        let gradient = Tensor::cat(gradients.clone(), 0);
        let norm = global_norm(&gradient);
        if !norm.is_finite() {
            let entries =
                parameters::named_params(&self.model).into_iter().filter(|entry| entry.trainable);
            let first =
                entries.zip(&gradients).find(|(_, gradient)| !is_finite((*gradient).clone()));
            let name = first
                .map_or_else(|| "the sum of all gradients".to_owned(), |(entry, _)| entry.name);
            return Err(not_finite("the gradient", name));
        }
        let model = self.optimizer.step(self.model.clone(), gradient, norm, lr);
        self.model =
            parameters::update_running_stats(model, &ctx.into_statistics(), STATISTICS_RATE);
        if let (Some(average), Some(decay)) = (&mut self.average, ema_decay) {
            average.inplace(|average| {
                average * decay + parameters::flatten(&self.model) * (1.0 - decay)
            });
        }
        self.progress.step += 1;
        self.progress.batch += 1;
        let weight = task.weight(&batch.targets);
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
        let progress = serde_json::to_vec_pretty(&self.progress).expect("plain data serialises");
        let files = [
            ("weights.safetensors".to_owned(), serialize_model(&self.model)),
            ("optimiser.safetensors".to_owned(), serialize(vectors.collect())),
            ("progress.json".to_owned(), progress),
        ];
        Checkpoint { files: files.into() }
    }

    fn restore(&mut self, recipe: &Recipe, found: &LoadedCheckpoint) -> Result<(), TrainError> {
        let progress: TrainProgress = serde_json::from_slice(found.file("progress.json")?)
            .map_err(|error| found.incompatible(format!("`progress.json`: {error}")))?;
        if progress.seed != recipe.seed {
            return Err(TrainError::OtherSeed { expected: recipe.seed, found: progress.seed });
        }
        self.model = load_model(self.model.clone(), found)?;
        let flat = parameters::flatten(&self.model);
        let vectors = SafeTensors::deserialize(found.file("optimiser.safetensors")?)
            .map_err(|error| found.incompatible(format!("`optimiser.safetensors`: {error}")))?;
        let vector = |name: &str| {
            let data = vectors.tensor(name).ok().and_then(|view| data(&view));
            let data = data.filter(|data| data.num_elements() == flat.dims()[0]);
            data.map(|data| Tensor::<1>::from_data(data, &flat.device())).ok_or_else(|| {
                found.incompatible(format!("`optimiser.safetensors` has no `{name}` of this model"))
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

/// `Ok` where the loss is finite; otherwise the first tensor of the pass that is not.
///
/// # Errors
/// The name of that tensor.
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

/// All numbers of a model as a safetensors file.
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
        (*name, view.expect("the shape fits the values"))
    });
    safetensors::serialize(views, None).expect("names are distinct and shapes fit")
}

/// `model` with the weights of a checkpoint.
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
    let words = view
        .data()
        .chunks_exact(4)
        .map(|word| f32::from_le_bytes(word.try_into().expect("four bytes")));
    (view.dtype() == Dtype::F32)
        .then(|| TensorData::new(words.collect::<Vec<f32>>(), view.shape().to_vec()))
}

fn host(tensor: &Tensor<1>) -> Vec<f32> {
    tensor.to_data().iter::<f32>().collect()
}
