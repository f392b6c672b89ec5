//! The training loop.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use burn::tensor::DType;
use graph_diffuser_data::{Dataset, SeedTree, Split};

use crate::batch::Batcher;
use crate::model::GraphDiffuser;
use crate::parameters;
use crate::recipe::{Recipe, SelectBy};
use crate::task::{EvalMetrics, Metric, Task};

use super::batches::{for_each_batch, with_encoding_cache};
use super::state::State;
use super::weights::{WEIGHTS, load_model, serialize_model};
use super::{
    BestEpoch, Checkpoint, Checkpoints, EpochRecord, Evaluator, RunLock, TrainError, TrainEvent,
    TrainOutcome, TrainProgress, recalibration_batches, training_batches,
};

/// Trains a model, with checkpoints from which it can resume exactly.
///
/// # Examples
/// ```no_run
/// use std::{path::Path, sync::atomic::AtomicBool};
/// use graph_diffuser::Device;
/// use graph_diffuser::recipe::{DataDirs, Recipe};
/// use graph_diffuser::train::Trainer;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let recipe = Recipe::find("grid-quick", &[])?;
/// let dataset = recipe.dataset(&DataDirs::from_env())?;
/// let model = recipe.init_model(&dataset.schema, &Device::flex());
/// let checkpoints = Path::new("checkpoints");
/// let mut trainer = Trainer::new(&recipe, &dataset, model, checkpoints, |_| {})?;
/// let outcome = trainer.run(&AtomicBool::new(false), |event| println!("{event:?}"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Trainer<'a> {
    recipe: &'a Recipe,
    dataset: &'a Dataset,
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

/// Saves the state after a batch of an epoch that started at `start`.
fn save_in_epoch(last: &Checkpoints, state: &mut State, start: Instant) -> Result<(), TrainError> {
    let seconds = state.progress.seconds;
    state.progress.seconds += start.elapsed().as_secs_f64();
    let saved = last.save(&state.checkpoint());
    state.progress.seconds = seconds;
    Ok(saved?)
}

/// Checks that the validation score that selects the best epoch is defined.
///
/// # Errors
/// Returns an error if it is a ranking metric and no target has both classes in the validation
/// split.
pub fn check_selection(recipe: &Recipe, dataset: &Dataset) -> Result<(), TrainError> {
    let metric = recipe.task_for(&dataset.schema).metric();
    let is_ranking = matches!(metric, Metric::RocAuc | Metric::AveragePrecision);
    let selects_by_metric = recipe.train.select_by == SelectBy::Metric;
    let has_both = |counts: &[usize; 2]| !counts.contains(&0);
    if is_ranking && selects_by_metric && !dataset.label_counts(Split::Valid).iter().any(has_both) {
        return Err(TrainError::OneClass { metric: metric.name() });
    }
    Ok(())
}

impl<'a> Trainer<'a> {
    /// Creates a trainer of `model`, the model that [`Recipe::init_model`] returns, with
    /// checkpoints in `directory`; resumes from an existing checkpoint.
    ///
    /// # Errors
    /// Returns an error if checkpoints exist but are corrupt or incompatible.
    pub fn new(
        recipe: &'a Recipe,
        dataset: &'a Dataset,
        model: GraphDiffuser,
        directory: &Path,
        mut on_event: impl FnMut(TrainEvent<'_>),
    ) -> Result<Self, TrainError> {
        let seeds = SeedTree::new(recipe.seed);
        let batcher = recipe.model.batcher(&parameters::device(&model).autodiff(), DType::F32);
        let [last, best] = ["last", "best"].map(|name| Checkpoints::new(directory, name));
        last.finish_interrupted_save()?;
        best.finish_interrupted_save()?;
        let mut state = State::new(recipe, model);
        if let Some(found) = last.open()? {
            state.restore(recipe, &found)?;
            let TrainProgress { epoch, batch, .. } = state.progress;
            on_event(TrainEvent::Resumed { epoch, batch, skipped: &found.skipped });
        }
        let task = recipe.task_for(&dataset.schema);
        Ok(Self {
            recipe,
            dataset,
            seeds,
            evaluator: Evaluator::new(recipe, dataset, batcher.clone()),
            batcher: batcher.with_targets(Arc::new(task.clone())),
            task,
            last,
            best,
            recalibration: recalibration_batches(
                dataset,
                recipe.train.batch(),
                seeds,
                recipe.train.bn_recalibration_batches,
            ),
            state,
        })
    }

    /// Caches raw positional encodings in `directory`; by default they are kept in memory.
    pub fn with_encoding_cache(self, directory: &Path) -> Self {
        let batcher = with_encoding_cache(self.batcher, Some(directory));
        let evaluator = Evaluator::new(self.recipe, self.dataset, batcher.clone());
        Self { batcher, evaluator, ..self }
    }

    /// Checks before every save that the run directory is still the locked one.
    pub fn with_lock(self, lock: &RunLock) -> Self {
        Self { last: self.last.with_lock(lock), best: self.best.with_lock(lock), ..self }
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
        let save_interval =
            train.save_minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes));
        let mut saved = start;
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
                return Some(save_in_epoch(last, state, start));
            }
            if save_interval.is_some_and(|interval| saved.elapsed() >= interval) {
                if let Err(error) = save_in_epoch(last, state, start) {
                    return Some(Err(error));
                }
                saved = Instant::now();
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
            let files = [(WEIGHTS.to_owned(), serialize_model(model))];
            self.best.save(&Checkpoint { epoch, files: files.into() })?;
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
    /// Returns an error if no epoch was evaluated or its checkpoint cannot be read.
    pub fn best_model(&self) -> Result<GraphDiffuser, TrainError> {
        let best = self.state.progress.best.as_ref().ok_or(TrainError::NoScore)?;
        let found = self.best.open_epoch(best.epoch)?.ok_or(TrainError::NoScore)?;
        Ok(load_model(self.state.model.clone(), &found)?)
    }
}
