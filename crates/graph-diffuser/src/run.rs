//! The run directory: explains itself, is never overwritten, and is all that scoring needs.
//!
//! ```text
//! runs/grid-quick-s0/
//!   recipe.toml        every default written out
//!   environment.json   program, machine, threads
//!   schema.json        what the model is given and what it predicts
//!   metrics.jsonl      one line an epoch
//!   checkpoints/       last, best, and the one before each
//!   predictions.safetensors   of the best epoch for the validation and test graphs
//!   result.json        when training is done
//!   report.md          the same for people
//!   lock               held while a process trains
//! ```

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
use crate::report::Report;
use crate::task::predictions::{from_safetensors, to_safetensors};
use crate::task::{EvalMetrics, Metric, Predictions};
use crate::train::checkpoint::{sync_directory, write_synced};
use crate::train::{
    BestEpoch, CheckpointError, Checkpoints, EpochRecord, Evaluator, TrainError, TrainEvent,
    TrainOutcome, Trainer, load_model,
};

pub use schema::RunSchema;

/// A run directory that is open.
#[derive(Debug)]
pub struct Run {
    directory: PathBuf,
    recipe: Recipe,
}

/// Held by the process that trains a run; let go when dropped.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

/// A path as a shell takes it.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:@,".contains(letter);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// What a finished run came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The run's seed.
    pub seed: u64,
    /// What scores measure.
    pub metric: Metric,
    /// Trainable parameters.
    pub parameters: usize,
    /// The epoch with the best validation score.
    pub best: BestEpoch,
    /// Scores of that epoch's weights on the test graphs.
    pub test: EvalMetrics,
    /// Epochs trained.
    pub epochs: usize,
    /// Wall time of training and validation.
    pub seconds: f64,
}

/// A finished run as its directory tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedRun {
    /// What was trained.
    pub recipe: Recipe,
    /// What it came to.
    pub result: RunResult,
    /// Its epochs, where they were kept.
    pub history: Vec<EpochRecord>,
    /// Where it was made, if that is known.
    pub environment: Option<Environment>,
    /// Predictions for the test graphs, where they were kept.
    pub test_predictions: Option<Predictions>,
}

/// Where and with what a run was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of this program.
    pub version: String,
    /// The commit it was built from, where that is known.
    pub commit: Option<String>,
    /// Operating system and processor family.
    pub platform: String,
    /// Threads of the first session; they change no number.
    pub threads: usize,
    /// The command line of the first session.
    pub command: Vec<String>,
}

impl Environment {
    /// This process, using so many threads.
    pub fn here(threads: usize, commit: Option<&str>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit.map(str::to_owned),
            platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
            threads,
            // The program by its name: where it was installed matters to nobody.
            command: std::iter::once("graph-diffuser".to_owned())
                .chain(std::env::args().skip(1))
                .collect(),
        }
    }
}

/// Why a run cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The directory is taken.
    #[error("`{directory}` already exists, and a run is never overwritten")]
    Exists {
        /// Which.
        directory: PathBuf,
        /// Whether there is a run in it.
        is_run: bool,
    },
    /// The directory holds no run.
    #[error("`{directory}` is not a run: {reason}")]
    NotARun {
        /// Which.
        directory: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// Another process trains it.
    #[error("`{directory}` is being trained by another process")]
    Busy {
        /// Which.
        directory: PathBuf,
    },
    /// Nothing was saved yet.
    #[error("`{directory}` has no weights yet: no epoch was evaluated")]
    NoWeights {
        /// Which.
        directory: PathBuf,
    },
    /// It does not say what its model is given.
    #[error("`{directory}` does not say what its model is given: it has no `schema.json`")]
    NoSchema {
        /// Which.
        directory: PathBuf,
    },
    /// The file system refused.
    #[error("cannot write `{path}`")]
    Write {
        /// What.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Its recipe is not sound.
    #[error("the recipe of the run cannot be used")]
    Recipe(#[from] RecipeError),
    /// Training failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// Its checkpoints cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl RunError {
    /// What the user can do about it, when we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Exists { directory, is_run: true } => Some(format!(
                "go on with it by `graph-diffuser train --resume {}`, or choose another directory with `--out`",
                quoted(directory)
            )),
            Self::Exists { .. } => Some("choose another directory with `--out`".into()),
            Self::NotARun { .. } => {
                Some("give a directory that `graph-diffuser train` wrote".into())
            }
            Self::Busy { .. } => {
                Some("wait for it, or stop it with Ctrl-C: it saves and can be resumed".into())
            }
            Self::NoWeights { directory } => Some(format!(
                "train it further: `graph-diffuser train --resume {}`",
                quoted(directory)
            )),
            Self::NoSchema { directory } => Some(format!(
                "`graph-diffuser train --resume {}` writes it, also where training is done",
                quoted(directory)
            )),
            Self::Write { .. } => Some("check free space and permissions".into()),
            Self::Recipe(error) => error.hint(),
            Self::Train(error) => error.hint(),
            Self::Checkpoint(_) => None,
        }
    }
}

impl Run {
    /// Makes a new run directory.
    ///
    /// # Errors
    /// Where the directory exists or cannot be written.
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
        let environment = serde_json::to_vec_pretty(environment).expect("plain data serialises");
        run.write("environment.json", &environment)?;
        run.write("recipe.toml", run.recipe.to_toml().as_bytes())?; // last: makes it a run
        Ok(run)
    }

    /// Opens a run directory.
    ///
    /// # Errors
    /// Where there is no run in it.
    pub fn open(directory: &Path) -> Result<Self, RunError> {
        let path = directory.join("recipe.toml");
        if !path.is_file() {
            let reason = if directory.is_dir() {
                "it has no `recipe.toml`"
            } else {
                "there is no such directory"
            };
            return Err(RunError::NotARun {
                directory: directory.to_owned(),
                reason: reason.into(),
            });
        }
        Ok(Self { directory: directory.to_owned(), recipe: Recipe::read(&path, &[])? })
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it trains.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// What it came to, where training is done.
    ///
    /// # Errors
    /// Where there is a result that cannot be read.
    pub fn result(&self) -> Result<Option<RunResult>, RunError> {
        let Ok(text) = fs::read(self.directory.join("result.json")) else { return Ok(None) };
        serde_json::from_slice(&text).map(Some).map_err(|error| RunError::NotARun {
            directory: self.directory.clone(),
            reason: format!("its `result.json` is damaged: {error}"),
        })
    }

    /// What its model is given and what it predicts.
    ///
    /// # Errors
    /// Where training has not begun, or began before runs kept it.
    pub fn schema(&self) -> Result<RunSchema, RunError> {
        let Ok(text) = fs::read(self.directory.join("schema.json")) else {
            return Err(RunError::NoSchema { directory: self.directory.clone() });
        };
        serde_json::from_slice(&text).map_err(|error| RunError::NotARun {
            directory: self.directory.clone(),
            reason: format!("its `schema.json` is damaged: {error}"),
        })
    }

    /// Its dataset without graphs, where only what they mean is needed.
    ///
    /// # Errors
    /// As those of [`Run::schema`].
    pub fn empty_dataset(&self) -> Result<Dataset, RunError> {
        let splits = Splits { train: vec![], valid: vec![], test: vec![] };
        Ok(Dataset { graphs: Graphs::Listed(vec![]), schema: self.schema()?.schema, splits })
    }

    /// The epochs trained so far.
    pub fn history(&self) -> Vec<EpochRecord> {
        let text = fs::read_to_string(self.directory.join("metrics.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Predictions of the best epoch for the graphs of one split, where training is done and they were kept.
    pub fn predictions(&self, split: Split) -> Option<Predictions> {
        let name = match split {
            Split::Train => "train",
            Split::Valid => "valid",
            Split::Test => "test",
        };
        from_safetensors(&fs::read(self.directory.join("predictions.safetensors")).ok()?, name)
    }

    /// All that a report needs, where training is done.
    ///
    /// # Errors
    /// Where there is a result that cannot be read.
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

    /// Trains to the end or until `stop` is set, going on from the last checkpoint.
    ///
    /// # Errors
    /// Where training fails; the last checkpoint stays.
    pub fn train(
        &self,
        _lock: &RunLock,
        dataset: &Dataset,
        device: &Device,
        stop: &AtomicBool,
        mut tell: impl FnMut(TrainEvent<'_>),
    ) -> Result<TrainOutcome, RunError> {
        let schema =
            RunSchema { input: self.recipe.data.featurizer(), schema: dataset.schema.clone() };
        self.write(
            "schema.json",
            &serde_json::to_vec_pretty(&schema).expect("plain data serialises"),
        )?;
        let mut trainer =
            Trainer::new(&self.recipe, dataset, device, &self.checkpoints(), &mut tell)?;
        self.write_history(&trainer.progress().history)?;
        let mut failed = None;
        let outcome = trainer.run(stop, |event| {
            if let TrainEvent::Epoch(record) = &event {
                failed = failed.take().or(self.append_history(record).err());
            }
            tell(event);
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
            let json = serde_json::to_vec_pretty(&result).expect("plain data serialises");
            let (recipe, history) = (self.recipe.clone(), history.clone());
            let report = Report::new(&[FinishedRun {
                recipe,
                result,
                history,
                environment: None,
                test_predictions: None,
            }]);
            let [valid, tested] = &**predictions;
            self.write(
                "predictions.safetensors",
                &to_safetensors(&[("valid", valid), ("test", tested)]),
            )?;
            self.write("report.md", report.to_markdown().as_bytes())?;
            self.write("result.json", &json)?; // last: makes the run a finished one
        }
        Ok(outcome)
    }

    /// Scores the best weights so far on one part of the dataset.
    ///
    /// # Errors
    /// Where there are no weights.
    pub fn evaluate(
        &self,
        dataset: &Dataset,
        device: &Device,
        split: Split,
    ) -> Result<(Metric, EvalMetrics), RunError> {
        let model = self.best_model(dataset, device)?;
        let evaluator = Evaluator::new(&self.recipe, dataset, device);
        let scores = evaluator.scores(&model, dataset.split(split));
        Ok((self.recipe.task.init(dataset.schema.targets).metric(), scores))
    }

    /// The model with the weights of the best epoch so far.
    ///
    /// # Errors
    /// Where there are none.
    pub fn best_model(
        &self,
        dataset: &Dataset,
        device: &Device,
    ) -> Result<GraphDiffuser, RunError> {
        self.best_model_for(&dataset.schema, device)
    }

    /// The same from the schema alone.
    ///
    /// # Errors
    /// The same.
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

    /// To be held while training, so that no second process writes the same files.
    ///
    /// # Errors
    /// Where another process holds it.
    pub fn lock(&self) -> Result<RunLock, RunError> {
        let path = self.directory.join("lock");
        let lock = File::create(&path).map_err(|source| RunError::Write { path, source })?;
        match lock.try_lock() {
            Err(fs::TryLockError::WouldBlock) => {
                Err(RunError::Busy { directory: self.directory.clone() })
            }
            // A file system without locks is no reason not to train.
            Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(RunLock { _file: lock }),
        }
    }

    fn write_history(&self, history: &[EpochRecord]) -> Result<(), RunError> {
        let mut lines = Vec::new();
        for record in history {
            serde_json::to_writer(&mut lines, record).expect("plain data serialises");
            lines.push(b'\n');
        }
        self.write("metrics.jsonl", &lines)
    }

    fn append_history(&self, record: &EpochRecord) -> Result<(), RunError> {
        let path = self.directory.join("metrics.jsonl");
        let mut line = serde_json::to_vec(record).expect("plain data serialises");
        line.push(b'\n');
        let appended = File::options()
            .append(true)
            .create(true)
            .open(&path)
            .and_then(|mut file| file.write_all(&line));
        appended.map_err(|source| RunError::Write { path, source })
    }

    /// Writes a file so that it is there whole or not at all.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), RunError> {
        let path = self.directory.join(name);
        let new = self.directory.join(format!("{name}.new"));
        let written = write_synced(&new, content)
            .and_then(|()| fs::rename(&new, &path))
            .and_then(|()| sync_directory(&self.directory));
        written.map_err(|source| RunError::Write { path, source })
    }
}
