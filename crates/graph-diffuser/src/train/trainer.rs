//! The training loop.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use burn::tensor::DType;
use graph_diffuser_data::{Dataset, SeedTree, Split};

use crate::batch::{Batcher, GraphBatch};
use crate::distributed::Group;
use crate::model::GraphDiffuser;
use crate::ops;
use crate::parameters;
use crate::recipe::{Recipe, SelectBy};
use crate::task::{EvalMetrics, Metric, MetricAccumulator, Task};

use super::batches::{for_each_collated, with_encoding_cache};
use super::state::{CompletedStep, State};
use super::weights::{WEIGHTS, load_model, serialize_model};
use super::{
    BestEpoch, Checkpoint, Checkpoints, EpochRecord, Evaluator, LoadedCheckpoint, RunLock,
    ShardedBatch, Shards, TrainError, TrainEvent, TrainOutcome, TrainProgress,
    recalibration_batches, training_batches,
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
    /// Shards of each batch; `None` if batches are not dealt to shards.
    shards: Option<Shards>,
    state: State,
}

/// Collated batch, whole or dealt to shards.
enum Collated<'a> {
    Whole(GraphBatch),
    Sharded(&'a Shards, ShardedBatch),
}

impl Collated<'_> {
    fn graphs(&self) -> usize {
        match self {
            Self::Whole(batch) => batch.indices.len(),
            Self::Sharded(_, batch) => batch.indices.len(),
        }
    }
}

/// Saves the state after a batch of an epoch that started at `start`.
fn save_in_epoch(last: &Checkpoints, state: &mut State, start: Instant) -> Result<(), TrainError> {
    let seconds = state.progress.seconds;
    state.progress.seconds += start.elapsed().as_secs_f64();
    let saved = last.save(&state.checkpoint());
    state.progress.seconds = seconds;
    Ok(saved?)
}

/// Returns the first batch norm whose input has the same values in all rows.
///
/// It multiplies deviations from these values by `1 / √ε`, about 300. In sequence, such layers
/// overflow for graphs that differ from the training graphs. PyTorch rejects batches of one row for
/// the same reason.
fn constant_norm(model: &GraphDiffuser) -> Option<String> {
    parameters::named_tensors(model).into_iter().find_map(|(param, variance)| {
        let norm = param.name.strip_suffix(".running_variance")?.to_owned();
        variance.into_data().iter::<f32>().all(|value| value < 1e-8).then_some(norm)
    })
}

/// Returns a function that reports a completed batch of an evaluation, and returns whether `stop`
/// interrupts it.
pub(crate) fn interruption(
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(TrainEvent<'_>),
) -> impl FnMut((usize, usize)) -> bool {
    move |batches| {
        on_event(TrainEvent::EvaluatedBatch { batches });
        let (completed, all) = batches;
        stop.load(Ordering::Relaxed) && completed < all
    }
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
        let [last, best] = ["last", "best"].map(|name| Checkpoints::new(directory, name));
        last.finish_interrupted_save()?;
        best.finish_interrupted_save()?;
        let mut state = State::new(recipe, &dataset.schema, model);
        if let Some(found) = last.open()? {
            state.restore(recipe, &found)?;
            let TrainProgress { epoch, batch, .. } = state.progress;
            let lost_best = best.open_best(&state.progress).err().map(|error| error.to_string());
            on_event(TrainEvent::Resumed {
                epoch,
                batch,
                skipped: &found.skipped,
                lost_best: lost_best.as_deref(),
            });
        }
        Self { last, best, ..Self::of_state(recipe, dataset, state) }.with_group(Arc::default())
    }

    /// Creates the trainer of a process that does not write the run: its state is that of the
    /// trainer that the first process of `group` creates at the same time.
    ///
    /// # Errors
    /// Returns an error if another process fails or has another state.
    pub fn follow(
        recipe: &'a Recipe,
        dataset: &'a Dataset,
        model: GraphDiffuser,
        group: Arc<Group>,
    ) -> Result<Self, TrainError> {
        Self::of_state(recipe, dataset, State::new(recipe, &dataset.schema, model))
            .with_group(group)
    }

    fn of_state(recipe: &'a Recipe, dataset: &'a Dataset, state: State) -> Self {
        let seeds = SeedTree::new(recipe.seed);
        let device = parameters::device(&state.model).autodiff();
        let batcher = recipe.model.batcher(&device, DType::F32);
        let task = recipe.task_for(&dataset.schema);
        let [last, best] = ["last", "best"].map(|name| Checkpoints::new(Path::new(""), name));
        Self {
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
            shards: None,
            state,
        }
    }

    /// Shares the work among the processes of a group, of which the first one writes the run. The
    /// others [follow](Self::follow) and continue from its state.
    ///
    /// # Errors
    /// Returns an error if the number of processes does not fit that of the shards, or another
    /// process fails.
    pub fn with_group(mut self, group: Arc<Group>) -> Result<Self, TrainError> {
        let shards = self.recipe.train.shards;
        group.check_shards(shards)?;
        self.shards = (shards > 1).then(|| Shards::new(shards, group.clone())).transpose()?;
        if group.size() > 1 {
            group.check_equal("dataset", &self.dataset.fingerprint())?;
            let own = if group.is_root() { self.state.checkpoint() } else { Checkpoint::default() };
            let files = group.broadcast(own.to_bytes())?;
            if !group.is_root() {
                let found = LoadedCheckpoint::received(Checkpoint::from_bytes(&files)?);
                self.state.restore(self.recipe, &found)?;
            }
        }
        self.evaluator = self.evaluator.with_group(group);
        Ok(self)
    }

    /// Returns the group of processes that share the work.
    fn group(&self) -> Option<&Arc<Group>> {
        self.shards.as_ref().map(Shards::group)
    }

    /// Returns whether this process writes the run.
    fn is_root(&self) -> bool {
        self.group().is_none_or(|group| group.is_root())
    }

    /// Caches raw positional encodings in `directory`; by default they are kept in memory.
    pub fn with_encoding_cache(self, directory: &Path) -> Self {
        let group = self.group().cloned().unwrap_or_default();
        let batcher = with_encoding_cache(self.batcher, Some(directory));
        let evaluator = Evaluator::new(self.recipe, self.dataset, batcher.clone());
        let evaluator = evaluator.with_group(group);
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
        let model = self.shared_best_model()?;
        on_event(TrainEvent::Evaluating);
        // The saved weights include the batch-norm statistics of their selection, so that later
        // evaluations reproduce these scores.
        let mut is_interrupted = interruption(stop, &mut on_event);
        let mut evaluate =
            |split| self.evaluate_split(&model, self.dataset.split(split), &mut is_interrupted);
        let valid = evaluate(Split::Valid)?;
        let test = if valid.is_some() { evaluate(Split::Test)? } else { None };
        let (Some(valid), Some(test)) = (valid, test) else {
            // The state was saved after the last epoch.
            return Ok(TrainOutcome::Stopped { epoch: self.state.progress.epoch, batch: 0 });
        };
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
        let batches = training_batches(
            self.dataset,
            self.recipe.train.batch(),
            self.recipe.train.shuffle_window,
            self.seeds,
            epoch,
        );
        let is_root = self.is_root();
        let Self { recipe, dataset, seeds, task, batcher, last, state, shards, .. } = self;
        let train = &recipe.train;
        let lr_at = |batch: usize| {
            let schedule = recipe.optim.schedule;
            recipe.optim.lr * schedule.factor(epoch, train.epochs, batch, batches.len())
        };
        // That of the last step, if all batches were completed in an earlier session.
        let mut lr = lr_at(state.progress.batch.saturating_sub(1));
        let save_interval =
            train.save_minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes));
        let mut saved = start;
        let remaining = &batches[state.progress.batch.min(batches.len())..];
        let batcher = batcher.for_epoch(*seeds, epoch);
        let collate = |indices: &[usize]| match &shards {
            None => Collated::Whole(batcher.collate(dataset, indices)),
            Some(shards) => Collated::Sharded(shards, shards.collate(&batcher, dataset, indices)),
        };
        let on_device = ops::is_on_gpu(&parameters::device(&state.model));
        let mut report = |completed: CompletedStep| {
            let CompletedStep { batch, graphs, loss } = completed;
            let batches = (batch, batches.len());
            on_event(TrainEvent::Step { epoch: epoch + 1, batches, graphs, loss });
        };
        let interrupted = for_each_collated(remaining, collate, |batch| {
            lr = lr_at(state.progress.batch);
            let is_due = || save_interval.is_some_and(|interval| saved.elapsed() >= interval);
            let step = match &batch {
                Collated::Whole(batch) if on_device => {
                    state.step_on_device(batch, task, *seeds, lr, train.ema_decay);
                    Ok((None, None))
                }
                Collated::Whole(batch) => state
                    .step(batch, task, *seeds, lr, train.ema_decay)
                    .map(|loss| (Some(loss), None)),
                Collated::Sharded(shards, batch) => {
                    // Processes agree on the flags in the step.
                    let flags = [stop.load(Ordering::Relaxed), is_root && is_due()];
                    let rates = (lr, train.ema_decay);
                    let step = state.sharded_step(shards, batch, task, *seeds, rates, flags);
                    step.map(|(loss, flags)| (Some(loss), Some(flags)))
                }
            };
            let (loss, flags) = match step {
                Ok(step) => step,
                Err(error) => return Some(Err(error)),
            };
            if let Some(loss) = loss {
                report(CompletedStep { batch: state.progress.batch, graphs: batch.graphs(), loss });
            }
            let [stops, saves] = flags.unwrap_or_else(|| [stop.load(Ordering::Relaxed), is_due()]);
            let is_last = state.progress.batch == batches.len();
            let stops = stops && !is_last;
            if stops || saves || is_last || state.is_reading_due() {
                match state.read_results(task) {
                    Ok(completed) => completed.into_iter().for_each(&mut report),
                    Err(error) => return Some(Err(error)),
                }
            }
            if (stops || saves) && is_root {
                if let Err(error) = save_in_epoch(last, state, start) {
                    return Some(Err(error));
                }
                saved = Instant::now();
            }
            stops.then_some(Ok(()))
        });
        if let Some(interrupted) = interrupted {
            return interrupted.map(|()| true);
        }
        let is_interrupted = self.finish_epoch(lr, start, stop, on_event)?;
        let stops = stop.load(Ordering::Relaxed);
        let stops = match &self.shards {
            Some(shards) if shards.group().size() > 1 => shards.any(stops)?,
            _ => stops,
        };
        let is_last = self.state.progress.epoch == self.recipe.train.epochs;
        Ok(is_interrupted || stops && !is_last)
    }

    /// Evaluates the epoch and saves checkpoints; returns `true` if the evaluation was interrupted,
    /// and will be repeated.
    fn finish_epoch(
        &mut self,
        lr: f64,
        start: Instant,
        stop: &AtomicBool,
        on_event: &mut impl FnMut(TrainEvent<'_>),
    ) -> Result<bool, TrainError> {
        let train = &self.recipe.train;
        let epoch = self.state.progress.epoch + 1;
        let due = epoch.is_multiple_of(train.eval_every) || epoch == train.epochs;
        let mut improved = None;
        let mut valid = None;
        if due {
            on_event(TrainEvent::Evaluating);
            let Some((model, scores)) = self.evaluate(&mut interruption(stop, on_event))? else {
                save_in_epoch(&self.last, &mut self.state, start)?;
                return Ok(true);
            };
            if let Some(norm) = constant_norm(&model).filter(|_| scores.loss.is_nan()) {
                return Err(TrainError::NoVariance { norm });
            }
            improved = self.is_better(&scores).then_some(model);
            valid = Some(scores);
        }
        let is_root = self.is_root();
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
            let weights = serialize_model(model, &self.state.metadata);
            let files = [(WEIGHTS.to_owned(), weights)];
            if is_root {
                self.best.save(&Checkpoint { epoch, files: files.into() })?;
            }
        }
        progress.history.push(record.clone());
        progress.epoch = epoch;
        (progress.batch, progress.loss_sum, progress.samples, progress.seconds) =
            (0, 0.0, 0.0, 0.0);
        if is_root {
            self.last.save(&self.state.checkpoint())?;
        }
        on_event(TrainEvent::Epoch(&record));
        Ok(false)
    }

    /// Returns the model to evaluate, with averaged weights and recalibrated statistics if
    /// configured, and its validation scores; `None` if it was interrupted.
    fn evaluate(
        &self,
        is_interrupted: &mut dyn FnMut((usize, usize)) -> bool,
    ) -> Result<Option<(GraphDiffuser, EvalMetrics)>, TrainError> {
        let State { model, average, .. } = &self.state;
        let model = match average {
            Some(average) => parameters::assign(model.clone(), average),
            None => model.clone(),
        };
        let model = match (self.recalibration.as_slice(), &self.shards) {
            ([], _) => Some(model),
            (batches, None) => self.evaluator.recalibrated_until(&model, batches, is_interrupted),
            (batches, Some(shards)) => {
                Some(self.evaluator.recalibrated_on(&model, batches, shards)?)
            }
        };
        let Some(model) = model else { return Ok(None) };
        let indices = self.dataset.split(Split::Valid);
        let evaluated = self.evaluate_split(&model, indices, is_interrupted)?;
        Ok(evaluated.map(|evaluated| (model, evaluated.scores())))
    }

    /// Evaluates the graphs at `indices`; `None` if it was interrupted, which several processes
    /// are not.
    fn evaluate_split(
        &self,
        model: &GraphDiffuser,
        indices: &[usize],
        is_interrupted: &mut dyn FnMut((usize, usize)) -> bool,
    ) -> Result<Option<MetricAccumulator>, TrainError> {
        if self.group().is_some_and(|group| group.size() > 1) {
            return Ok(Some(self.evaluator.shared_accumulator(model, indices)?));
        }
        Ok(self.evaluator.metric_accumulator_until(model, indices, is_interrupted))
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
        Ok(load_model(self.state.model.clone(), &self.best_checkpoint()?)?)
    }

    fn best_checkpoint(&self) -> Result<LoadedCheckpoint, TrainError> {
        let best = self.state.progress.best.as_ref().ok_or(TrainError::NoScore)?;
        let found = self.best.open_epoch(best.epoch)?;
        self.state.metadata.check_schema_of(&found)?;
        Ok(found)
    }

    /// Loads the model with the weights of the best epoch, which the first process passes on.
    fn shared_best_model(&self) -> Result<GraphDiffuser, TrainError> {
        let Some(group) = self.group().filter(|group| group.size() > 1) else {
            return self.best_model();
        };
        let own = if group.is_root() {
            self.best_checkpoint()?.checkpoint
        } else {
            Checkpoint::default()
        };
        let files = group.broadcast(own.to_bytes())?;
        let found = LoadedCheckpoint::received(Checkpoint::from_bytes(&files)?);
        Ok(load_model(self.state.model.clone(), &found)?)
    }
}
