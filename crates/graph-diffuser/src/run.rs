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

mod schema;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use graph_diffuser_data::{Dataset, Graphs, Schema, SeedTree, Split, Splits};
use serde::{Deserialize, Serialize};

use crate::model::GraphDiffuser;
use crate::nn::ParamInit;
use crate::recipe::{Recipe, RecipeError};
use crate::task::predictions::{from_safetensors, to_safetensors};
use crate::task::{EvalMetrics, Metric, Predictions};
use crate::train::checkpoint::{sync_directory, write_synced};
use crate::train::{
    BestEpoch, CheckpointError, Checkpoints, EpochRecord, Evaluator, TrainError, TrainEvent,
    TrainOutcome, Trainer, load_model,
};

pub use crate::shell::shell_quote;
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
}

/// Exclusive lock of a run directory, released on drop.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

/// Result of a finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Seed of the run.
    pub seed: u64,
    /// Metric by which epochs are compared.
    pub metric: Metric,
    /// Number of trainable parameters.
    pub parameters: usize,
    /// Epoch with the best validation score.
    pub best: BestEpoch,
    /// Test scores of the weights of that epoch.
    pub test: EvalMetrics,
    /// Number of epochs trained.
    pub epochs: usize,
    /// Wall time of training and validation, in seconds.
    pub seconds: f64,
}

/// Finished run, read from its directory.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedRun {
    /// Recipe of the run.
    pub recipe: Recipe,
    /// Scores and cost.
    pub result: RunResult,
    /// Records of its epochs; empty if they were not saved.
    pub history: Vec<EpochRecord>,
    /// Environment of its first session, if known.
    pub environment: Option<Environment>,
    /// Predictions for the test graphs, if they were saved.
    pub test_predictions: Option<Predictions>,
}

/// Environment in which a run was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of this program.
    pub version: String,
    /// Commit from which the program was built, if known.
    pub commit: Option<String>,
    /// Operating system and CPU architecture, such as `linux-x86_64`.
    pub platform: String,
    /// Number of threads of the first session, which does not affect results.
    pub threads: usize,
    /// Command line of the first session.
    pub command: Vec<String>,
}

impl Environment {
    /// Describes the current process, which uses `threads` threads.
    pub fn current(threads: usize, commit: Option<&str>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit.map(str::to_owned),
            platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
            threads,
            // The program's name instead of its path, which depends on the installation.
            command: std::iter::once("graph-diffuser".to_owned())
                .chain(std::env::args().skip(1))
                .collect(),
        }
    }
}

/// Error of creating, opening or training a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The directory already exists.
    #[error("`{directory}` already exists")]
    Exists {
        /// Path of the directory.
        directory: PathBuf,
        /// True if it is a run directory.
        is_run: bool,
    },
    /// The directory is not a run directory.
    #[error("`{directory}` is not a run directory: {reason}")]
    NotARun {
        /// Path of the directory.
        directory: PathBuf,
        /// Missing or corrupt file.
        reason: String,
    },
    /// Another process holds the lock.
    #[error("`{directory}` is locked by another training process")]
    Busy {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// No checkpoint has been saved yet.
    #[error("`{directory}` has no trained weights: no epoch has been evaluated yet")]
    NoWeights {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// The schema of the model's inputs has not been saved.
    #[error("`{directory}` has no `schema.json`")]
    NoSchema {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// A file cannot be written.
    #[error("cannot write `{path}`")]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Underlying I/O error.
        source: std::io::Error,
    },
    /// The recipe of the run is invalid.
    #[error("invalid recipe in the run directory")]
    Recipe(#[from] RecipeError),
    /// Training failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl RunError {
    /// Returns a suggested fix, if one is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Exists { directory, is_run: true } => Some(format!(
                "resume it with `graph-diffuser train --resume {}`, or choose another directory with \
                 `--output`",
                shell_quote(directory)
            )),
            Self::Exists { .. } => Some("choose another directory with `--output`".into()),
            Self::NotARun { .. } => {
                Some("pass a directory written by `graph-diffuser train`".into())
            }
            Self::Busy { .. } => Some(
                "wait for it, or stop it with Ctrl-C: it saves a checkpoint and can be resumed"
                    .into(),
            ),
            Self::NoWeights { directory } => Some(format!(
                "continue training with `graph-diffuser train --resume {}`",
                shell_quote(directory)
            )),
            Self::NoSchema { directory } => Some(format!(
                "run `graph-diffuser train --resume {}` to write it; a finished run is not trained again",
                shell_quote(directory)
            )),
            Self::Write { .. } => Some("check free disk space and permissions".into()),
            Self::Recipe(error) => error.hint(),
            Self::Train(error) => error.hint(),
            Self::Checkpoint(_) => None,
        }
    }
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
        let failed = |source| RunError::Write { path: directory.to_owned(), source };
        fs::create_dir_all(directory).map_err(failed)?;
        let run = Self { directory: directory.to_owned(), recipe };
        let environment =
            serde_json::to_vec_pretty(environment).expect("plain data can be serialized");
        run.write("environment.json", &environment)?;
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
        Ok(Self { directory: directory.to_owned(), recipe: Recipe::read(&path, &[])? })
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

    /// Trains until the last epoch or until `stop` is set, resuming from the last checkpoint.
    ///
    /// # Errors
    /// Returns an error if training fails; the last checkpoint is kept.
    pub fn train(
        &self,
        _lock: &RunLock,
        dataset: &Dataset,
        device: &Device,
        stop: &AtomicBool,
        mut on_event: impl FnMut(TrainEvent<'_>),
    ) -> Result<TrainOutcome, RunError> {
        let schema =
            RunSchema { input: self.recipe.data.featurizer(), schema: dataset.schema.clone() };
        self.write(
            "schema.json",
            &serde_json::to_vec_pretty(&schema).expect("plain data can be serialized"),
        )?;
        let mut trainer =
            Trainer::new(&self.recipe, dataset, device, &self.checkpoints(), &mut on_event)?;
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
                parameters: crate::parameters::count(trainer.model()),
                best: best.clone(),
                test: test.clone(),
                epochs: history.len(),
                seconds: history.iter().map(|record| record.seconds).sum(),
            };
            let json = serde_json::to_vec_pretty(&result).expect("plain data can be serialized");
            let [valid, test] = &**predictions;
            self.write(
                "predictions.safetensors",
                &to_safetensors(&[("valid", valid), ("test", test)]),
            )?;
            self.write("result.json", &json)?; // last: marks the run as finished
        }
        Ok(outcome)
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
    ) -> Result<(Metric, EvalMetrics), RunError> {
        let model = self.best_model(dataset, device)?;
        let evaluator = Evaluator::new(&self.recipe, dataset, device);
        let scores = evaluator.scores(&model, dataset.split(split));
        Ok((self.recipe.task_for(&dataset.schema).metric(), scores))
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
        let lock = File::create(&path).map_err(|source| RunError::Write { path, source })?;
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
        appended.map_err(|source| RunError::Write { path, source })
    }

    /// Writes a file atomically.
    /// Writes a file of the run directory atomically.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written; a previous version is kept.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), RunError> {
        let path = self.directory.join(name);
        let temporary = self.directory.join(format!("{name}.new"));
        let written = write_synced(&temporary, content)
            .and_then(|()| fs::rename(&temporary, &path))
            .and_then(|()| sync_directory(&self.directory));
        written.map_err(|source| RunError::Write { path, source })
    }
}
