//! Training of a run, from its last checkpoint on.

use std::fs;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;

use graph_diffuser_data::{CacheModifiedError, Dataset, Split, WriteError};

use crate::domain::TrainingDomain;
use crate::forest::TargetForests;
use crate::model::GraphDiffuser;
use crate::parameters;
use crate::task::Predictions;
use crate::task::predictions::to_safetensors;
use crate::train::{RunLock, TrainError, TrainEvent, TrainOutcome, Trainer};

use super::evaluation::target_scores;
use super::files::{FINGERPRINTS, reject_symlink, to_json};
use super::follow::announce;
use super::tensorboard::EventFile;
use super::{Run, RunError, RunResult, RunSchema};

impl Run {
    /// Trains `model`, the initial model of the [recipe](Run::recipe), until the last epoch or
    /// until `stop` is set; resumes from the last checkpoint. Trains all members of an ensemble, of
    /// which `model` is the first.
    ///
    /// # Errors
    /// Returns an error if training fails; the last checkpoint is kept.
    pub fn train(
        &self,
        lock: &RunLock,
        dataset: &Dataset,
        model: GraphDiffuser,
        stop: &AtomicBool,
        mut on_event: impl FnMut(TrainEvent<'_>),
    ) -> Result<TrainOutcome, RunError> {
        lock.check()?;
        self.remove_temporary_files();
        CacheModifiedError::catch(|| {
            if self.recipe.train.forest_blend {
                TargetForests::check(dataset).map_err(|target| RunError::NoForest { target })?;
            }
            if self.is_ensemble() {
                self.write_schema(dataset)?;
                return self.train_ensemble(dataset, model, stop, &mut on_event);
            }
            self.train_model(lock, dataset, model, stop, true, &mut on_event)
        })?
    }

    /// Acquires the lock that training requires, so that no second process writes the same files.
    ///
    /// # Errors
    /// Returns an error if another process holds the lock.
    pub fn lock(&self) -> Result<RunLock, RunError> {
        let created = self.creation_lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(lock) = created {
            return Ok(lock);
        }
        let lock = RunLock::acquire(&self.directory);
        let lock = lock.map_err(WriteError::at(&self.directory.join("lock")))?;
        lock.ok_or_else(|| RunError::Busy { directory: self.directory.clone() })
    }

    fn write_schema(&self, dataset: &Dataset) -> Result<(), RunError> {
        self.record_data(dataset)?;
        self.write("schema.json", &RunSchema::new(&self.recipe, &dataset.schema).to_json())
    }

    /// Trains a single model; if `compare` is true, its predictions are compared or averaged with
    /// those of a random forest.
    pub(super) fn train_model(
        &self,
        lock: &RunLock,
        dataset: &Dataset,
        model: GraphDiffuser,
        stop: &AtomicBool,
        compare: bool,
        on_event: &mut dyn FnMut(TrainEvent<'_>),
    ) -> Result<TrainOutcome, RunError> {
        self.write_schema(dataset)?;
        let fingerprints = self.directory.join(FINGERPRINTS);
        let is_outdated = self.allows_changed_data || !fingerprints.exists();
        if self.recipe.data.featurizer().accepts_smiles() && is_outdated {
            self.write(FINGERPRINTS, &TrainingDomain::of(dataset).to_bytes())?;
        }
        let checkpoints = self.checkpoints();
        // Runs of a sweep are created before the size of their dataset is known.
        let recipe = self.recipe.for_training_graphs(dataset.split(Split::Train).len());
        let trainer = Trainer::new(&recipe, dataset, model, &checkpoints, &mut *on_event)?;
        self.group.check_shards(self.recipe.train.shards).map_err(TrainError::from)?;
        announce(&self.group, &self.directory)?;
        let mut trainer = trainer.with_group(self.group.clone())?.with_lock(lock);
        if let Some(directory) = &self.encoding_cache {
            trainer = trainer.with_encoding_cache(directory);
        }
        self.write_history(&trainer.progress().history)?;
        let events = if self.recipe.train.tensorboard {
            let directory = self.directory.join("tensorboard");
            reject_symlink(&directory).map_err(WriteError::at(&directory))?;
            fs::create_dir_all(&directory).map_err(WriteError::at(&directory))?;
            Some(EventFile::open(&directory, &trainer.progress().history)?)
        } else {
            None
        };
        let mut failed: Option<RunError> = None;
        let outcome = trainer.run(stop, |event| {
            if let TrainEvent::Epoch(record) = &event {
                let event = events.as_ref().and_then(|events| events.append(record).err());
                failed = failed.take().or(self.append_history(record).err());
                failed = failed.take().or(event.map(RunError::from));
            }
            on_event(event);
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let TrainOutcome::Finished { best, test, predictions } = outcome else {
            return Ok(outcome);
        };
        let history = &trainer.progress().history;
        let mut result = RunResult {
            seed: self.recipe.seed,
            metric: trainer.metric(),
            parameters: parameters::count(trainer.model()),
            best,
            test,
            targets: target_scores(&predictions[1], dataset),
            epochs: history.len(),
            seconds: history.iter().map(|record| record.seconds).sum(),
            ensemble: None,
            blend: None,
        };
        let mut predictions = *predictions;
        if compare {
            let model = trainer.best_model()?;
            if !self.add_forest(&mut result, &mut predictions, &[model], dataset, stop)? {
                return Ok(TrainOutcome::Stopped { epoch: history.len(), batch: 0 });
            }
        }
        lock.check()?;
        self.write_result(&result, &predictions)?;
        Ok(TrainOutcome::Finished {
            best: result.best,
            test: result.test,
            predictions: Box::new(predictions),
        })
    }

    /// Writes predictions, report and result of a finished run.
    pub(super) fn write_result(
        &self,
        result: &RunResult,
        [valid, test]: &[Predictions; 2],
    ) -> Result<(), RunError> {
        let predictions = to_safetensors(&[("valid", valid), ("test", test)]);
        self.write("predictions.safetensors", &predictions)?;
        self.write("result.json", &to_json(result)) // last: marks the run as finished
    }
}
