//! Run directories: recipe, schema, metrics, checkpoints and result of one training run.
//!
//! ```text
//! runs/grid-quick-s0/
//!   recipe.toml               recipe, including defaults
//!   environment.json          version, platform, threads, command line
//!   schema.json               featurizer, feature and target schema
//!   fingerprints.bin          fingerprints of the training molecules, if the graphs are molecules
//!   data.json                 name, size, split and content hash of the dataset
//!   metrics.jsonl             one line per epoch
//!   checkpoints/              `last`, `best`, and the previous version of each
//!   tensorboard/              event file of losses and metrics, if `train.tensorboard` is set
//!   predictions.safetensors   predictions of the best epoch for validation and test graphs
//!   result.json               scores, written when training is finished
//!   report.md                 scores as a Markdown table, written by the program
//!   README.md                 model card, written by the program
//!   lock                      held while a process trains
//!   members/0/, 1/, ...       run directories of the members, if the run is an ensemble
//! ```
//!
//! An ensemble has no metrics and checkpoints of its own; its predictions and result are those of
//! the average of its members.
//!
//! A directory `NAME` is created under the name `.NAME.new` and renamed, and is never overwritten.
//! Inference needs no other file; evaluation also reads the dataset.

mod data;
mod environment;
mod error;
mod result;
mod schema;

mod ensemble;
mod saved_model;
mod tensorboard;
mod transfer;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use burn::tensor::{DType, Device};
use graph_diffuser_data::{
    AtomicFile, Dataset, Graphs, ProgressFn, Schema, SeedTree, Split, Splits, WriteError,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::batch::Batcher;
use crate::domain::TrainingDomain;
use crate::forest::ForestReference;
use crate::model::GraphDiffuser;
use crate::nn::ParamInit;
use crate::parameters;
use crate::recipe::{DataDirs, LoadedDataset, Recipe};
use crate::task::predictions::{from_safetensors, to_safetensors};
use crate::task::{Baseline, Predictions, TargetScores};
use crate::train::{
    Checkpoints, EpochRecord, Evaluator, LoadedCheckpoint, TrainEvent, TrainOutcome, Trainer,
    check_weights, load_model, with_encoding_cache,
};

use tensorboard::EventFile;

pub use crate::shell::shell_quote;
pub use crate::train::RunLock;
pub use data::DataRecord;
pub use ensemble::member_seed;
pub use environment::Environment;
pub use error::RunError;
pub use result::{
    EnsembleEvaluation, EnsembleResult, Evaluation, FinishedRun, MemberResult, RunResult,
};
pub use saved_model::{SavedModel, SavedModelError};
pub use schema::RunSchema;

/// Name of the file with the fingerprints of the training molecules.
const FINGERPRINTS: &str = "fingerprints.bin";

/// Open run directory.
///
/// # Examples
/// ```no_run
/// use std::path::Path;
/// use graph_diffuser::run::Run;
///
/// let run = Run::open(Path::new("runs/grid-quick-s0"))?;
/// if let Some(result) = run.result()? {
///     println!("{} {}", result.metric.name(), result.test.metric);
/// }
/// # Ok::<(), graph_diffuser::run::RunError>(())
/// ```
#[derive(Debug)]
pub struct Run {
    directory: PathBuf,
    recipe: Recipe,
    encoding_cache: Option<PathBuf>,
    split_description: Option<String>,
    allows_changed_data: bool,
    /// Lock of a new run, until it is passed on by [`Run::lock`].
    creation_lock: Mutex<Option<RunLock>>,
    /// Parent directory that is removed with the run.
    _temporary: Option<TempDir>,
}

impl Run {
    /// Creates a run directory, which is locked as long as the run or its [lock](Run::lock) exists.
    ///
    /// The directory is filled under a temporary name and renamed. Creating a run again after the
    /// process was killed in between reuses the temporary directory.
    ///
    /// # Errors
    /// Returns an error if the directory exists or cannot be written.
    pub fn create(
        directory: &Path,
        recipe: Recipe,
        environment: &Environment,
    ) -> Result<Self, RunError> {
        Self::check_new(directory)?;
        let new = new_directory(directory);
        fs::create_dir_all(&new).map_err(WriteError::at(&new))?;
        reject_symlink(&new).map_err(WriteError::at(&new))?;
        let run = Self::at(&new, recipe);
        let lock = run.lock()?;
        // Another process may have completed the directory before it was locked.
        lock.check()?;
        run.check_incomplete()?;
        run.write("environment.json", &to_json(environment))?;
        run.write("recipe.toml", run.recipe.to_toml().as_bytes())?;
        run.remove_temporary_files();
        Self::check_new(directory)?;
        fs::rename(&new, directory).map_err(WriteError::at(directory))?;
        let creation_lock = Mutex::new(Some(lock.moved_to(directory)));
        Ok(Self { directory: directory.to_owned(), creation_lock, ..run })
    }

    /// Checks that a directory has no files except those of an interrupted [`Run::create`].
    fn check_incomplete(&self) -> Result<(), RunError> {
        let entries = fs::read_dir(&self.directory).map_err(WriteError::at(&self.directory))?;
        let mut names = entries.flatten().map(|entry| entry.file_name());
        let is_known = |name: &OsString| {
            ["environment.json", "recipe.toml", "lock"].iter().any(|known| name == known)
                || AtomicFile::is_temporary(name)
        };
        if names.all(|name| is_known(&name)) {
            return Ok(());
        }
        Err(RunError::Exists { directory: self.directory.clone(), is_run: false })
    }

    /// Checks that a run can be created at `directory`.
    ///
    /// # Errors
    /// Returns an error if the directory exists.
    pub fn check_new(directory: &Path) -> Result<(), RunError> {
        if directory.exists() || directory.is_symlink() {
            let is_run = directory.join("recipe.toml").exists();
            return Err(RunError::Exists { directory: directory.to_owned(), is_run });
        }
        Ok(())
    }

    /// Opens a run directory.
    ///
    /// # Errors
    /// Returns an error if it is not a run directory or its recipe is invalid.
    pub fn open(directory: &Path) -> Result<Self, RunError> {
        let path = directory.join("recipe.toml");
        if !path.is_file() {
            let reason =
                if directory.is_dir() { "`recipe.toml` not found" } else { "no such directory" };
            return Err(RunError::NotARun {
                directory: directory.to_owned(),
                reason: reason.into(),
            });
        }
        let recipe = Recipe::read(&path, &[])?;
        Ok(Self::at(directory, recipe))
    }

    fn at(directory: &Path, recipe: Recipe) -> Self {
        Self {
            directory: directory.to_owned(),
            recipe,
            encoding_cache: None,
            split_description: None,
            allows_changed_data: false,
            creation_lock: Mutex::default(),
            _temporary: None,
        }
    }

    /// Caches raw positional encodings in `directory`; by default they are kept in memory.
    pub fn with_encoding_cache(self, directory: PathBuf) -> Self {
        Self { encoding_cache: Some(directory), ..self }
    }

    /// Describes the split of the dataset in `data.json`; by default it is not described.
    pub fn with_split_description(self, description: String) -> Self {
        Self { split_description: Some(description), ..self }
    }

    /// Continues training although the dataset has changed since it was started, and records the
    /// present dataset; by default this is an error.
    pub fn with_changed_data(self) -> Self {
        Self { allows_changed_data: true, ..self }
    }

    /// Removes a temporary directory, which contains that of the run, when the run is dropped.
    pub(crate) fn with_temporary_directory(self, temporary: TempDir) -> Self {
        Self { _temporary: Some(temporary), ..self }
    }

    /// Returns the path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the name of the directory, such as `grid-quick-s0`, or `mine-s0/members/0` for a
    /// member of an ensemble.
    pub fn name(&self) -> String {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let own = name(&self.directory).unwrap_or_default();
        let mut parents = self.directory.ancestors().skip(1).filter_map(name);
        match (parents.next().as_deref(), parents.next()) {
            (Some("members"), Some(ensemble)) => format!("{ensemble}/members/{own}"),
            _ => own,
        }
    }

    /// Returns the recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Reads the result; `None` if training is not finished.
    ///
    /// # Errors
    /// Returns an error if the result is corrupt.
    pub fn result(&self) -> Result<Option<RunResult>, RunError> {
        let Ok(text) = fs::read(self.directory.join("result.json")) else { return Ok(None) };
        serde_json::from_slice(&text).map(Some).map_err(|error| RunError::NotARun {
            directory: self.directory.clone(),
            reason: format!("`result.json` is corrupt: {error}"),
        })
    }

    /// Reads the schema of inputs and targets.
    ///
    /// # Errors
    /// Returns an error if training has not started or the schema is corrupt.
    pub fn schema(&self) -> Result<RunSchema, RunError> {
        let Ok(text) = fs::read(self.directory.join("schema.json")) else {
            return Err(RunError::NoSchema { directory: self.directory.clone() });
        };
        serde_json::from_slice(&text).map_err(|error| RunError::NotARun {
            directory: self.directory.clone(),
            reason: format!("`schema.json` is corrupt: {error}"),
        })
    }

    /// Reads the training molecules; `None` if the graphs are not molecules, or the run was trained
    /// by a version that did not save them.
    ///
    /// # Errors
    /// Returns an error if the file is corrupt.
    pub fn training_domain(&self) -> Result<Option<TrainingDomain>, RunError> {
        // Members are trained on the same molecules.
        let member = self.members()?.into_iter().next();
        let directory = member.as_ref().map_or(&self.directory, |member| &member.directory);
        let Ok(bytes) = fs::read(directory.join(FINGERPRINTS)) else { return Ok(None) };
        let domain = TrainingDomain::from_bytes(&bytes);
        domain.map(Some).ok_or_else(|| RunError::NotARun {
            directory: directory.clone(),
            reason: format!("`{FINGERPRINTS}` is corrupt"),
        })
    }

    /// Reads the description of the dataset; `None` if training has not started, or was started by
    /// an older version.
    pub fn data(&self) -> Option<DataRecord> {
        serde_json::from_slice(&fs::read(self.directory.join("data.json")).ok()?).ok()
    }

    /// Writes the description of the dataset, or checks that the dataset has not changed since
    /// training started.
    fn record_data(&self, dataset: &Dataset) -> Result<(), RunError> {
        let record = DataRecord::new(&self.recipe, dataset, self.split_description.as_deref());
        match self.data() {
            None => self.write("data.json", &to_json(&record)),
            Some(recorded) if recorded.fingerprint == record.fingerprint => Ok(()),
            // The scores of a finished run do not depend on the present data.
            Some(_) if self.result()?.is_some() => Ok(()),
            Some(_) if self.allows_changed_data => self.write("data.json", &to_json(&record)),
            Some(_) => Err(RunError::DataChanged { directory: self.directory.clone() }),
        }
    }

    /// Checks that a dataset has the graphs, targets and splits that the run was trained on, if
    /// they were recorded.
    ///
    /// # Errors
    /// Returns [`RunError::DataChanged`] if it has not.
    pub fn check_data(&self, dataset: &Dataset) -> Result<(), RunError> {
        match self.data() {
            Some(recorded) if recorded.fingerprint != dataset.fingerprint() => {
                Err(RunError::DataChanged { directory: self.directory.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Returns a dataset with the schema of the run and no graphs.
    ///
    /// # Errors
    /// Returns the errors of [`Run::schema`].
    pub fn empty_dataset(&self) -> Result<Dataset, RunError> {
        let splits = Splits { train: vec![], valid: vec![], test: vec![] };
        Ok(Dataset { graphs: Graphs::InMemory(vec![]), schema: self.schema()?.schema, splits })
    }

    /// Reads the dataset of the run from `dirs`, with the schema saved when training started.
    ///
    /// # Errors
    /// Returns an error if the dataset is missing or invalid, or no longer matches the run.
    pub fn dataset(
        &self,
        dirs: &DataDirs,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, RunError> {
        Ok(self.load(dirs, progress)?.dataset)
    }

    /// Reads the dataset as [`Run::dataset`] does, with a description of how its files were
    /// understood and the labels of its rows.
    ///
    /// # Errors
    /// Returns the errors of [`Run::dataset`].
    pub fn load(
        &self,
        dirs: &DataDirs,
        progress: &mut ProgressFn<'_>,
    ) -> Result<LoadedDataset, RunError> {
        let mut recipe = self.recipe.clone();
        // A data file saved in the run directory is moved and copied with it.
        if let Some(path) = recipe.data.path_mut()
            && !path.exists()
            && let Some(saved) = path.file_name().map(|name| self.directory.join(name))
            && saved.is_file()
        {
            *path = saved;
        }
        let mut loaded = recipe.load(dirs, progress).map_err(RunError::Dataset)?;
        // A run that was stopped before its first step has no schema.
        if let Ok(RunSchema { schema, .. }) = self.schema() {
            let current = &mut loaded.dataset.schema;
            if !schema.same_layout(current) || schema.names != current.names {
                return Err(RunError::SchemaMismatch { directory: self.directory.clone() });
            }
            *current = schema;
        }
        Ok(loaded)
    }

    /// Reads the records of the epochs trained so far.
    pub fn history(&self) -> Vec<EpochRecord> {
        let text = fs::read_to_string(self.directory.join("metrics.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Reads the predictions of the best epoch for one split; `None` if they were not saved.
    pub fn predictions(&self, split: Split) -> Option<Predictions> {
        let name = match split {
            Split::Train => "train",
            Split::Valid => "valid",
            Split::Test => "test",
        };
        from_safetensors(&fs::read(self.directory.join("predictions.safetensors")).ok()?, name)
    }

    /// Creates the batcher of the model.
    pub fn batcher(&self, device: &Device) -> Batcher {
        let batcher = self.recipe.model.batcher(device, DType::F32);
        with_encoding_cache(batcher, self.encoding_cache.as_deref())
    }

    /// Reads everything that reports use; `None` if training is not finished.
    ///
    /// # Errors
    /// Returns an error if the result is corrupt.
    pub fn finished(&self) -> Result<Option<FinishedRun>, RunError> {
        let environment = fs::read(self.directory.join("environment.json"));
        let environment = environment.ok().and_then(|text| serde_json::from_slice(&text).ok());
        let member_histories = self.members()?.iter().map(Self::history).collect();
        let finished = |result| FinishedRun {
            directory: self.directory.clone(),
            recipe: self.recipe.clone(),
            schema: self.schema().ok().map(|schema| schema.schema),
            data: self.data(),
            result,
            history: self.history(),
            member_histories,
            environment,
            test_predictions: self.predictions(Split::Test),
        };
        Ok(self.result()?.map(finished))
    }

    /// Trains `model`, the model that [`Recipe::init_model`] returns, until the last epoch or until
    /// `stop` is set; resumes from the last checkpoint. Trains all members of an ensemble, of which
    /// `model` is the first.
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
        if self.is_ensemble() {
            self.write_schema(dataset)?;
            return self.train_ensemble(dataset, model, stop, &mut on_event);
        }
        self.train_model(lock, dataset, model, stop, true, &mut on_event)
    }

    /// Removes the temporary files of a killed process; the run must be locked.
    fn remove_temporary_files(&self) {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| AtomicFile::is_temporary(&entry.file_name())) {
            // A file that cannot be removed does no harm.
            let _ = fs::remove_file(entry.path());
        }
    }

    fn write_schema(&self, dataset: &Dataset) -> Result<(), RunError> {
        let schema =
            RunSchema { input: self.recipe.data.featurizer(), schema: dataset.schema.clone() };
        self.record_data(dataset)?;
        self.write("schema.json", &to_json(&schema))
    }

    /// Trains a single model; if `compare` is true, its scores are compared with those of a random
    /// forest.
    fn train_model(
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
        if self.recipe.data.featurizer().accepts_smiles() && !fingerprints.exists() {
            self.write(FINGERPRINTS, &TrainingDomain::of(dataset).to_bytes())?;
        }
        let checkpoints = self.checkpoints();
        let mut trainer = Trainer::new(&self.recipe, dataset, model, &checkpoints, &mut *on_event)?
            .with_lock(lock);
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
        if let TrainOutcome::Finished { best, test, predictions } = &outcome {
            let history = &trainer.progress().history;
            let result = RunResult {
                seed: self.recipe.seed,
                metric: trainer.metric(),
                parameters: parameters::count(trainer.model()),
                best: best.clone(),
                test: test.clone(),
                targets: if compare {
                    self.compared_scores(&predictions[1], dataset)
                } else {
                    target_scores(&predictions[1], dataset)
                },
                epochs: history.len(),
                seconds: history.iter().map(|record| record.seconds).sum(),
                ensemble: None,
            };
            lock.check()?;
            self.write_result(&result, predictions)?;
        }
        Ok(outcome)
    }

    /// Computes the scores of each target, and those of a random forest on molecules.
    fn compared_scores(&self, predictions: &Predictions, dataset: &Dataset) -> Vec<TargetScores> {
        let scores = target_scores(predictions, dataset);
        match ForestReference::fit(dataset, self.recipe.seed) {
            Some(forest) => {
                TargetScores::with_forest(scores, &forest.predictions(dataset, predictions))
            }
            None => scores,
        }
    }

    /// Writes predictions, report and result of a finished run.
    fn write_result(
        &self,
        result: &RunResult,
        [valid, test]: &[Predictions; 2],
    ) -> Result<(), RunError> {
        let predictions = to_safetensors(&[("valid", valid), ("test", test)]);
        self.write("predictions.safetensors", &predictions)?;
        self.write("result.json", &to_json(result)) // last: marks the run as finished
    }

    /// Evaluates the best weights so far on one split of the dataset; for an ensemble, the average
    /// of its members.
    ///
    /// # Errors
    /// Returns an error if there are no weights yet, or if predictions are not finite.
    pub fn evaluate(
        &self,
        dataset: &Dataset,
        device: &Device,
        split: Split,
    ) -> Result<Evaluation, RunError> {
        let models = self.best_models(&dataset.schema, device)?;
        evaluate_models(&self.recipe, &models, self.batcher(device), dataset, split)
    }

    /// Loads the model with the weights of the best epoch so far.
    ///
    /// # Errors
    /// Returns an error if there are no weights yet, or the run is an ensemble.
    pub fn best_model(
        &self,
        dataset: &Dataset,
        device: &Device,
    ) -> Result<GraphDiffuser, RunError> {
        self.best_model_for(&dataset.schema, device)
    }

    /// Loads the best model given the schema of its dataset.
    ///
    /// # Errors
    /// Returns an error if there are no weights yet, or the run is an ensemble.
    pub fn best_model_for(
        &self,
        schema: &Schema,
        device: &Device,
    ) -> Result<GraphDiffuser, RunError> {
        if self.is_ensemble() {
            return Err(RunError::IsEnsemble { directory: self.directory.clone() });
        }
        self.load_checkpoint(&self.best_checkpoint()?, schema, device)
    }

    /// Reads the checkpoint of the best epoch so far.
    fn best_checkpoint(&self) -> Result<LoadedCheckpoint, RunError> {
        let best = Checkpoints::new(&self.checkpoints(), "best");
        let found = match self.result()? {
            Some(result) => best.open_epoch(result.best.epoch)?,
            None => best.open_newest()?,
        };
        found.ok_or_else(|| RunError::NoWeights { directory: self.directory.clone() })
    }

    /// Creates the model of a checkpoint.
    fn load_checkpoint(
        &self,
        found: &LoadedCheckpoint,
        schema: &Schema,
        device: &Device,
    ) -> Result<GraphDiffuser, RunError> {
        // A wrong schema may describe a model that does not fit into memory.
        let shapes = self.recipe.model.init_for(schema, &mut ParamInit::shapes_only());
        check_weights(&shapes, found)?;
        let model = self
            .recipe
            .model
            .init_for(schema, &mut ParamInit::new(SeedTree::new(self.recipe.seed), device));
        Ok(load_model(model, found)?)
    }

    fn checkpoints(&self) -> PathBuf {
        self.directory.join("checkpoints")
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

    fn write_history(&self, history: &[EpochRecord]) -> Result<(), RunError> {
        let mut lines = Vec::new();
        for record in history {
            serde_json::to_writer(&mut lines, record).expect("plain data can be serialized");
            lines.push(b'\n');
        }
        self.write("metrics.jsonl", &lines)
    }

    fn append_history(&self, record: &EpochRecord) -> Result<(), RunError> {
        let path = self.directory.join("metrics.jsonl");
        reject_symlink(&path).map_err(WriteError::at(&path))?;
        let mut line = serde_json::to_vec(record).expect("plain data can be serialized");
        line.push(b'\n');
        let appended = File::options()
            .append(true)
            .create(true)
            .open(&path)
            .and_then(|mut file| file.write_all(&line));
        Ok(appended.map_err(WriteError::at(&path))?)
    }

    /// Writes a file of the run directory atomically.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written; a previous version is kept.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), RunError> {
        Ok(AtomicFile::replace(&self.directory.join(name), content)?)
    }
}

/// Evaluates one model, or the average of the members of an ensemble.
fn evaluate_models(
    recipe: &Recipe,
    models: &[GraphDiffuser],
    batcher: Batcher,
    dataset: &Dataset,
    split: Split,
) -> Result<Evaluation, RunError> {
    let evaluator = Evaluator::new(recipe, dataset, batcher);
    let (accumulator, ensemble) = match models {
        [model] => (evaluator.metric_accumulator(model, dataset.split(split)), None),
        models => {
            let accumulators = evaluator.ensemble_accumulators(models, dataset.split(split));
            let members = EnsembleEvaluation::new(&accumulators, &dataset.schema);
            (accumulators.average, Some(members))
        }
    };
    if let Some((graphs, graph)) = accumulator.non_finite() {
        return Err(RunError::NonFinite { graphs, graph });
    }
    Ok(Evaluation {
        metric: recipe.task_for(&dataset.schema).metric(),
        scores: accumulator.scores(),
        targets: target_scores(&accumulator.predictions(), dataset),
        ensemble,
    })
}

/// Returns an error if a file of a run directory is a symbolic link, whose target would be changed.
fn reject_symlink(path: &Path) -> io::Result<()> {
    if path.is_symlink() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is a symbolic link"));
    }
    Ok(())
}

/// Returns the temporary directory of a new run.
fn new_directory(directory: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(directory.file_name().unwrap_or_default());
    // A name may have up to 255 bytes.
    if name.len() > 240 {
        let digest = Sha256::digest(name.as_encoded_bytes());
        name = format!(".{:02x?}", &digest[..8]).replace([',', ' ', '[', ']'], "").into();
    }
    name.push(".new");
    directory.with_file_name(name)
}

fn target_scores(predictions: &Predictions, dataset: &Dataset) -> Vec<TargetScores> {
    TargetScores::compute(predictions, &dataset.schema, Baseline::new(dataset).as_ref())
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec_pretty(value).expect("plain data can be serialized")
}
