//! Run directories: recipe, schema, metrics, checkpoints and result of one training run.
//!
//! ```text
//! runs/grid-quick-s0/
//!   recipe.toml               recipe, including defaults
//!   environment.json          version, platform, threads, command line
//!   schema.json               featurizer, feature and target schema
//!   metrics.jsonl             one line per epoch
//!   checkpoints/              `last`, `best`, and the previous version of each
//!   predictions.safetensors   predictions of the best epoch for validation and test graphs
//!   result.json               scores, written when training is finished
//!   report.md                 scores as a Markdown table, written by the program
//!   lock                      held while a process trains
//! ```
//!
//! A run directory is never overwritten. Inference needs no other file; evaluation also reads the
//! dataset.

mod environment;
mod error;
mod result;
mod schema;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use burn::tensor::{DType, Device};
use graph_diffuser_data::{
    AtomicFile, Dataset, Graphs, ProgressFn, Schema, SeedTree, Split, Splits, WriteError,
};
use serde::Serialize;

use crate::batch::Batcher;
use crate::model::GraphDiffuser;
use crate::nn::ParamInit;
use crate::parameters;
use crate::recipe::{DataDirs, LoadedDataset, Recipe};
use crate::task::predictions::{from_safetensors, to_safetensors};
use crate::task::{Baseline, Predictions, TargetScores};
use crate::train::{
    Checkpoints, EpochRecord, Evaluator, TrainEvent, TrainOutcome, Trainer, load_model,
    with_encoding_cache,
};

pub use crate::shell::shell_quote;
pub use environment::Environment;
pub use error::RunError;
pub use result::{Evaluation, FinishedRun, RunResult};
pub use schema::RunSchema;

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
}

/// Exclusive lock of a run directory, released on drop.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

impl Run {
    /// Creates a run directory.
    ///
    /// # Errors
    /// Returns an error if the directory exists or cannot be written.
    pub fn create(
        directory: &Path,
        recipe: Recipe,
        environment: &Environment,
    ) -> Result<Self, RunError> {
        if directory.exists() {
            let is_run = directory.join("recipe.toml").exists();
            return Err(RunError::Exists { directory: directory.to_owned(), is_run });
        }
        fs::create_dir_all(directory).map_err(WriteError::at(directory))?;
        let run = Self { directory: directory.to_owned(), recipe, encoding_cache: None };
        run.write("environment.json", &to_json(environment))?;
        // Last, because it marks a complete run directory.
        run.write("recipe.toml", run.recipe.to_toml().as_bytes())?;
        Ok(run)
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
        Ok(Self { directory: directory.to_owned(), recipe, encoding_cache: None })
    }

    /// Caches raw positional encodings in `directory`; by default they are kept in memory.
    pub fn with_encoding_cache(self, directory: PathBuf) -> Self {
        Self { encoding_cache: Some(directory), ..self }
    }

    /// Returns the path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
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

    /// Reads the dataset like [`Run::dataset`], with the labels of its rows.
    ///
    /// # Errors
    /// Returns the errors of [`Run::dataset`].
    pub fn load(
        &self,
        dirs: &DataDirs,
        progress: &mut ProgressFn<'_>,
    ) -> Result<LoadedDataset, RunError> {
        let mut loaded = self.recipe.load(dirs, progress).map_err(RunError::Dataset)?;
        let dataset = &mut loaded.dataset;
        // A run that was stopped before its first step has no schema.
        if let Ok(RunSchema { schema, .. }) = self.schema() {
            if !schema.same_layout(&dataset.schema) || schema.names != dataset.schema.names {
                return Err(RunError::SchemaMismatch { directory: self.directory.clone() });
            }
            dataset.schema = schema;
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
        let finished = |result| FinishedRun {
            recipe: self.recipe.clone(),
            result,
            history: self.history(),
            environment,
            test_predictions: self.predictions(Split::Test),
        };
        Ok(self.result()?.map(finished))
    }

    /// Trains `model`, the model that [`Recipe::init_model`] returns, until the last epoch or until
    /// `stop` is set; resumes from the last checkpoint.
    ///
    /// # Errors
    /// Returns an error if training fails; the last checkpoint is kept.
    pub fn train(
        &self,
        _lock: &RunLock,
        dataset: &Dataset,
        model: GraphDiffuser,
        stop: &AtomicBool,
        mut on_event: impl FnMut(TrainEvent<'_>),
    ) -> Result<TrainOutcome, RunError> {
        let schema =
            RunSchema { input: self.recipe.data.featurizer(), schema: dataset.schema.clone() };
        self.write("schema.json", &to_json(&schema))?;
        let checkpoints = self.checkpoints();
        let mut trainer = Trainer::new(&self.recipe, dataset, model, &checkpoints, &mut on_event)?;
        if let Some(directory) = &self.encoding_cache {
            trainer = trainer.with_encoding_cache(directory);
        }
        self.write_history(&trainer.progress().history)?;
        let mut failed = None;
        let outcome = trainer.run(stop, |event| {
            if let TrainEvent::Epoch(record) = &event {
                failed = failed.take().or(self.append_history(record).err());
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
                targets: target_scores(&predictions[1], dataset),
                epochs: history.len(),
                seconds: history.iter().map(|record| record.seconds).sum(),
            };
            self.write_result(&result, predictions)?;
        }
        Ok(outcome)
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

    /// Evaluates the best weights so far on one split of the dataset.
    ///
    /// # Errors
    /// Returns an error if there are no weights yet.
    pub fn evaluate(
        &self,
        dataset: &Dataset,
        device: &Device,
        split: Split,
    ) -> Result<Evaluation, RunError> {
        let model = self.best_model(dataset, device)?;
        let evaluator = Evaluator::new(&self.recipe, dataset, self.batcher(device));
        let accumulator = evaluator.metric_accumulator(&model, dataset.split(split));
        Ok(Evaluation {
            metric: self.recipe.task_for(&dataset.schema).metric(),
            scores: accumulator.scores(),
            targets: target_scores(&accumulator.predictions(), dataset),
        })
    }

    /// Loads the model with the weights of the best epoch so far.
    ///
    /// # Errors
    /// Returns an error if there are no weights yet.
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
    /// Returns an error if there are no weights yet.
    pub fn best_model_for(
        &self,
        schema: &Schema,
        device: &Device,
    ) -> Result<GraphDiffuser, RunError> {
        let found = Checkpoints::new(&self.checkpoints(), "best").open()?;
        let found =
            found.ok_or_else(|| RunError::NoWeights { directory: self.directory.clone() })?;
        let model = self
            .recipe
            .model
            .init_for(schema, &mut ParamInit::new(SeedTree::new(self.recipe.seed), device));
        Ok(load_model(model, &found)?)
    }

    fn checkpoints(&self) -> PathBuf {
        self.directory.join("checkpoints")
    }

    /// Acquires the lock that training requires, so that no second process writes the same files.
    ///
    /// # Errors
    /// Returns an error if another process holds the lock.
    pub fn lock(&self) -> Result<RunLock, RunError> {
        let path = self.directory.join("lock");
        let lock = File::create(&path).map_err(WriteError::at(&path))?;
        match lock.try_lock() {
            Err(fs::TryLockError::WouldBlock) => {
                Err(RunError::Busy { directory: self.directory.clone() })
            }
            // Training continues on file systems that do not support locks.
            Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(RunLock { _file: lock }),
        }
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

fn target_scores(predictions: &Predictions, dataset: &Dataset) -> Vec<TargetScores> {
    TargetScores::compute(predictions, &dataset.schema, Baseline::new(dataset).as_ref())
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec_pretty(value).expect("plain data can be serialized")
}
