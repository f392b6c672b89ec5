//! Sweep directories: the runs of a grid or random search over settings, repeated over seeds.
//!
//! ```text
//! sweeps/grid-quick/
//!   sweep.toml                        the plan, written first
//!   runs/grid-quick--lr=3e-4-s0/      run directories
//!   logs/grid-quick--lr=3e-4-s0.log   log of each run; failed runs also have a `.log.failed` file
//!   report.md, .csv, .json, .html     results, updated when the sweep ends or is interrupted
//!   configurations.csv                one row per configuration
//!   curves.svg, curves/, plots/       learning curves and evaluation plots
//!   lock                              held while a process runs the sweep
//! ```
//!
//! A sweep has no other state: the state of each run is read from its directory, so that a sweep
//! can be interrupted and resumed at any time.

mod error;
mod grid;
mod random;
mod plan;
mod selection;

use std::fs;
use std::path::{Path, PathBuf};

use graph_diffuser_data::{AtomicFile, WriteError};

use crate::recipe::Recipe;
use crate::run::{Environment, FinishedRun, Run, RunError, RunLock};

pub use error::SweepError;
pub use grid::{Axis, SeedRange};
pub use plan::{Configuration, Plan, PlannedRecipe, file_names};
pub use random::{Dimension, RandomSearch};
pub use selection::{Selection, ValidationScores, select};

const PLAN: &str = "sweep.toml";

/// Open sweep directory.
#[derive(Debug)]
pub struct Sweep {
    directory: PathBuf,
    plan: Plan,
    configurations: Vec<Configuration>,
}

/// Exclusive lock of a sweep directory, released on drop.
#[derive(Debug)]
pub struct SweepLock {
    _lock: RunLock,
}

/// Run of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRun {
    /// Index of its configuration.
    pub configuration: usize,
    /// Seed of the run.
    pub seed: u64,
    /// Name of its directory and log file.
    pub name: String,
}

/// State of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunState {
    /// Not started.
    Missing,
    /// Started and not finished.
    Started {
        /// Number of epochs trained.
        epochs: usize,
        /// Corrupt file, if any; resuming the run repairs it.
        problem: Option<String>,
    },
    /// Failed in its last session; restarted in the next one.
    Failed {
        /// Tail of its log.
        reason: String,
    },
    /// The directory contains something else, which is not touched.
    Unusable {
        /// Content of the directory.
        reason: String,
    },
    /// Finished.
    Finished(Box<FinishedRun>),
}

impl Sweep {
    /// Creates a sweep directory, or opens an existing one that has the same plan.
    ///
    /// # Errors
    /// Returns an error if the plan is invalid or the directory contains anything else.
    pub fn begin(directory: &Path, plan: Plan) -> Result<Self, SweepError> {
        let configurations = plan.configurations()?;
        if directory.join(PLAN).exists() {
            let existing = Self::open(directory)?;
            let differences = plan.differences(&existing.plan);
            if !differences.is_empty() {
                return Err(SweepError::PlanMismatch {
                    directory: directory.to_owned(),
                    differences,
                });
            }
            return Ok(existing);
        }
        // A killed process leaves its temporary file.
        let is_other = |entry: fs::DirEntry| !AtomicFile::is_temporary(&entry.file_name());
        let is_occupied = match fs::read_dir(directory) {
            Ok(mut entries) => entries.any(|entry| entry.is_ok_and(is_other)),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        };
        if is_occupied {
            return Err(SweepError::Exists { directory: directory.to_owned() });
        }
        let text = toml::to_string(&plan).expect("a plan can be serialized as TOML");
        let sweep = Self { directory: directory.to_owned(), plan, configurations };
        let comment = match sweep.plan.random {
            None => "# Every recipe × every combination of `grid` × every seed.\n",
            Some(_) => "# Every recipe × every configuration of `random.trials` × every seed.\n",
        };
        sweep.write(Path::new(PLAN), format!("{comment}{text}").as_bytes())?;
        Ok(sweep)
    }

    /// Opens a sweep directory.
    ///
    /// # Errors
    /// Returns an error if it is not a sweep directory or its plan is invalid.
    pub fn open(directory: &Path) -> Result<Self, SweepError> {
        let not_a_sweep =
            |reason: String| SweepError::NotASweep { directory: directory.to_owned(), reason };
        let text = fs::read_to_string(directory.join(PLAN)).map_err(|error| {
            not_a_sweep(match error.kind() {
                std::io::ErrorKind::NotFound if directory.is_dir() => format!("`{PLAN}` not found"),
                std::io::ErrorKind::NotFound => "no such directory".to_owned(),
                _ => format!("cannot read `{PLAN}`: {error}"),
            })
        })?;
        let corrupt = |message: &str| {
            let message = message.trim_end().to_owned();
            SweepError::Corrupt { directory: directory.to_owned(), message }
        };
        let plan: Plan = toml::from_str(&text).map_err(|error| corrupt(&error.to_string()))?;
        let configurations = plan.configurations().map_err(|error| corrupt(&error.to_string()))?;
        Ok(Self { directory: directory.to_owned(), plan, configurations })
    }

    /// Returns whether the directory contains a plan, valid or not.
    pub fn exists(directory: &Path) -> bool {
        directory.join(PLAN).exists()
    }

    /// Returns the path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns all configurations, grouped by recipe.
    pub fn configurations(&self) -> &[Configuration] {
        &self.configurations
    }

    /// Returns all runs in the order in which they are started: seed by seed, and all
    /// configurations of a seed before the next.
    pub fn runs(&self) -> Vec<PlannedRun> {
        let seeds = self.plan.seeds.0.clone();
        let runs = seeds.flat_map(|seed| {
            self.configurations.iter().enumerate().map(move |(index, configuration)| PlannedRun {
                configuration: index,
                seed,
                name: format!("{}-s{seed}", configuration.name),
            })
        });
        runs.collect()
    }

    /// Returns the recipe of a run.
    pub fn recipe(&self, run: &PlannedRun) -> Recipe {
        Recipe { seed: run.seed, ..self.configurations[run.configuration].resolved.clone() }
    }

    /// Returns the directory of a run.
    pub fn run_directory(&self, run: &PlannedRun) -> PathBuf {
        self.directory.join("runs").join(&run.name)
    }

    /// Returns the path of the log file of a run.
    pub fn log(&self, run: &PlannedRun) -> PathBuf {
        self.directory.join("logs").join(format!("{}.log", run.name))
    }

    fn failure(&self, run: &PlannedRun) -> PathBuf {
        self.log(run).with_added_extension("failed")
    }

    /// Reads the state of a run from its directory.
    pub fn state(&self, run: &PlannedRun) -> RunState {
        let directory = self.run_directory(run);
        let failure = fs::read_to_string(self.failure(run)).ok();
        if !directory.exists() {
            return failure.map_or(RunState::Missing, |reason| RunState::Failed { reason });
        }
        let opened = match Run::open(&directory) {
            Ok(opened) => opened,
            Err(error) => return RunState::Unusable { reason: error.to_string() },
        };
        if *opened.recipe() != self.recipe(run) {
            let reason = format!("`{}` contains a run of another recipe", directory.display());
            return RunState::Unusable { reason };
        }
        match (opened.finished(), failure) {
            (Ok(Some(finished)), _) => RunState::Finished(Box::new(finished)),
            (Ok(None), Some(reason)) => RunState::Failed { reason },
            (Ok(None), None) => {
                RunState::Started { epochs: opened.epochs_completed(), problem: None }
            }
            (Err(error), _) => RunState::Started {
                epochs: opened.epochs_completed(),
                problem: Some(error.to_string()),
            },
        }
    }

    /// Creates the directory of a run, which a training process can then resume.
    ///
    /// # Errors
    /// Returns an error if the directory exists or cannot be written.
    pub fn create_run(&self, run: &PlannedRun, environment: &Environment) -> Result<(), RunError> {
        let directory = self.run_directory(run);
        Run::create(&directory, self.recipe(run), environment).map(drop)
    }

    /// Records that a run failed, and why.
    ///
    /// # Errors
    /// Returns an error if the record cannot be written.
    pub fn record_failure(&self, run: &PlannedRun, reason: &str) -> Result<(), SweepError> {
        let path = self.failure(run);
        let name = path.strip_prefix(&self.directory).expect("logs are inside the sweep directory");
        self.write(name, reason.as_bytes())
    }

    /// Removes the record of a failure before a run is restarted.
    ///
    /// # Errors
    /// Returns an error if the record cannot be removed.
    pub fn clear_failure(&self, run: &PlannedRun) -> Result<(), SweepError> {
        let path = self.failure(run);
        Ok(remove_file_if_exists(&path).map_err(WriteError::at(&path))?)
    }

    /// Acquires the lock of the sweep, so that no second process starts the same runs.
    ///
    /// # Errors
    /// Returns an error if another process holds the lock.
    pub fn lock(&self) -> Result<SweepLock, SweepError> {
        let path = self.directory.join("lock");
        match RunLock::acquire(&self.directory).map_err(WriteError::at(&path))? {
            Some(lock) => Ok(SweepLock { _lock: lock }),
            None => Err(SweepError::Busy { directory: self.directory.clone() }),
        }
    }

    /// Writes a file of the sweep atomically.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written; a previous version is kept.
    pub fn write(&self, name: &Path, content: &[u8]) -> Result<(), SweepError> {
        Ok(AtomicFile::replace(&self.directory.join(name), content)?)
    }
}

fn remove_file_if_exists(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
