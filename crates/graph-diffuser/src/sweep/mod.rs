//! Sweep directories: the runs of a grid search over settings and seeds.
//!
//! ```text
//! sweeps/grid-quick/
//!   sweep.toml                        the plan, written first
//!   runs/grid-quick--lr=3e-4-s0/      run directories
//!   logs/grid-quick--lr=3e-4-s0.log   log of each run; failed runs also have a `.log.failed` file
//!   report.md, .csv, .json, .html     results, updated when the sweep ends or is interrupted
//!   configurations.csv                one row per configuration
//!   curves.svg, curves/               validation curves
//!   lock                              held while a process runs the sweep
//! ```
//!
//! A sweep has no other state: the state of each run is read from its directory, so that a sweep
//! can be interrupted and resumed at any time.

mod plan;
mod selection;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::recipe::{Recipe, RecipeError};
use crate::run::{Environment, FinishedRun, Run, RunError, shell_quote};
use crate::train::checkpoint::{sync_directory, write_synced};

pub use plan::{Axis, Configuration, Plan, PlannedRecipe, SeedRange, file_names};
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
    _file: File,
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

/// Error of creating or opening a sweep.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// A recipe is invalid.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A combination of settings is invalid.
    #[error("invalid configuration of recipe `{recipe}`: {settings}")]
    Configuration {
        /// Name of the recipe.
        recipe: String,
        /// Combination of settings.
        settings: String,
        /// Reason.
        source: Box<RecipeError>,
    },
    /// An axis of the grid cannot be parsed.
    #[error("invalid grid axis `{axis}`: {reason}")]
    Axis {
        /// Text of the axis.
        axis: String,
        /// Reason.
        reason: &'static str,
    },
    /// A setting that a grid cannot contain.
    #[error("cannot search over `{path}`: {reason}")]
    NotSearchable {
        /// Path of the setting.
        path: String,
        /// Reason.
        reason: &'static str,
    },
    /// Two recipes have the same name, so that their run directories would collide.
    #[error("duplicate recipe `{name}`")]
    DuplicateRecipe {
        /// Name of both recipes.
        name: String,
    },
    /// Two combinations of settings are the same configuration.
    #[error("duplicate configuration of recipe `{recipe}`: {left} and {right} are the same")]
    DuplicateConfiguration {
        /// Name of the recipe.
        recipe: String,
        /// First combination.
        left: String,
        /// Second combination.
        right: String,
    },
    /// The grid is too large.
    #[error("the sweep has more than {configurations} configurations or {runs} runs")]
    TooMany {
        /// Maximum number of configurations.
        configurations: u64,
        /// Maximum number of runs.
        runs: u64,
    },
    /// The directory exists and is not a sweep directory.
    #[error("`{directory}` already exists and is not a sweep directory")]
    Exists {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// The directory contains a sweep with another plan.
    #[error("`{directory}` contains a sweep with another plan: {}", differences.join("; "))]
    PlanMismatch {
        /// Path of the directory.
        directory: PathBuf,
        /// Differences between the plans.
        differences: Vec<String>,
    },
    /// The plan cannot be parsed.
    #[error("`sweep.toml` in `{directory}` is corrupt: {message}")]
    Corrupt {
        /// Path of the sweep directory.
        directory: PathBuf,
        /// Message of the parser.
        message: String,
    },
    /// The directory is not a sweep directory.
    #[error("`{directory}` is not a sweep directory: {reason}")]
    NotASweep {
        /// Path of the directory.
        directory: PathBuf,
        /// Missing or unreadable file.
        reason: String,
    },
    /// A sweep directory passed to a report together with other directories.
    #[error(
        "`{directory}` is a sweep directory and cannot be combined with other runs in one report"
    )]
    MixedWithRuns {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// Another process holds the lock.
    #[error("`{directory}` is locked by another sweep process")]
    Busy {
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
}

impl SweepError {
    /// Returns a suggested fix, if one is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Recipe(error) => error.hint(),
            Self::Configuration { source, .. } => source.hint(),
            Self::Axis { .. } => Some("write it as `--grid optim.lr=3e-4,8e-4`".into()),
            Self::NotSearchable { .. } => None,
            Self::DuplicateRecipe { .. } => {
                Some("pass each recipe once, and give each file a unique `name`".into())
            }
            Self::DuplicateConfiguration { .. } => Some("list each value once".into()),
            Self::TooMany { .. } => Some("use a smaller `--grid` or fewer `--seeds`".into()),
            Self::Exists { .. } => Some("choose another directory with `--output`".into()),
            Self::PlanMismatch { directory, .. } => Some(format!(
                "resume it with `graph-diffuser sweep --resume {}`, or choose another directory with \
                 `--output`",
                shell_quote(directory)
            )),
            Self::Corrupt { .. } => Some(
                "fix the file, or start a new sweep in another directory; existing runs are kept"
                    .into(),
            ),
            Self::NotASweep { .. } => {
                Some("pass a directory written by `graph-diffuser sweep`".into())
            }
            Self::MixedWithRuns { directory } => {
                Some(format!("run `graph-diffuser report {}`", shell_quote(directory)))
            }
            Self::Busy { .. } => Some(
                "wait for it, or stop it with Ctrl-C: it saves checkpoints and can be resumed"
                    .into(),
            ),
            Self::Write { .. } => Some("check free disk space and permissions".into()),
        }
    }

    /// Returns whether the error is in the arguments rather than in the environment.
    pub fn is_usage_error(&self) -> bool {
        !matches!(self, Self::Busy { .. } | Self::Write { .. })
    }
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
        let unfinished = format!("{PLAN}.new"); // of a process that was killed
        let is_other = |entry: fs::DirEntry| entry.file_name() != unfinished.as_str();
        let is_occupied = match fs::read_dir(directory) {
            Ok(mut entries) => entries.any(|entry| entry.is_ok_and(is_other)),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        };
        if is_occupied {
            return Err(SweepError::Exists { directory: directory.to_owned() });
        }
        let text = toml::to_string(&plan).expect("a plan can be serialized as TOML");
        let sweep = Self { directory: directory.to_owned(), plan, configurations };
        let comment = "# Every recipe × every combination of `grid` × every seed.\n";
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
            (Ok(None), None) => RunState::Started { epochs: opened.history().len(), problem: None },
            (Err(error), _) => RunState::Started {
                epochs: opened.history().len(),
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
        // Created under another name and renamed, so that a killed process leaves no partial run.
        let new = self.directory.join("runs").join(format!("{}.new", run.name));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| RunError::Write { path, source }
        };
        for name in ["environment.json", "environment.json.new", "recipe.toml", "recipe.toml.new"] {
            remove_file_if_exists(&new.join(name)).map_err(failed(&new))?;
        }
        if new.exists() {
            fs::remove_dir(&new).map_err(failed(&new))?;
        }
        Run::create(&new, self.recipe(run), environment)?;
        fs::rename(&new, &directory).map_err(failed(&directory))
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
        remove_file_if_exists(&path).map_err(|source| SweepError::Write { path, source })
    }

    /// Acquires the lock of the sweep, so that no second process starts the same runs.
    ///
    /// # Errors
    /// Returns an error if another process holds the lock.
    pub fn lock(&self) -> Result<SweepLock, SweepError> {
        let path = self.directory.join("lock");
        let lock = File::create(&path).map_err(|source| SweepError::Write { path, source })?;
        match lock.try_lock() {
            Err(fs::TryLockError::WouldBlock) => {
                Err(SweepError::Busy { directory: self.directory.clone() })
            }
            // Sweeps continue on file systems that do not support locks.
            Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(SweepLock { _file: lock }),
        }
    }

    /// Writes a file of the sweep atomically.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written; a previous version is kept.
    pub fn write(&self, name: &Path, content: &[u8]) -> Result<(), SweepError> {
        write_atomic(&self.directory.join(name), content)
    }
}

/// Writes a file atomically, creating parent directories.
///
/// # Errors
/// Returns an error if the file cannot be written; a previous version is kept.
pub fn write_atomic(path: &Path, content: &[u8]) -> Result<(), SweepError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let temporary = path.with_added_extension("new");
    let written = fs::create_dir_all(directory)
        .and_then(|()| write_synced(&temporary, content))
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| sync_directory(directory));
    written.map_err(|source| SweepError::Write { path: path.to_owned(), source })
}

fn remove_file_if_exists(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tempfile::TempDir;

    use crate::run::RunResult;
    use crate::task::{EvalMetrics, Metric};
    use crate::train::{BestEpoch, EpochRecord};

    use super::*;

    pub(crate) fn plan(recipes: &[&str], grid: &[&str], seeds: std::ops::Range<u64>) -> Plan {
        let owned =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Plan::new(&owned(recipes), &[], &owned(grid), seeds).expect("valid plan")
    }

    pub(crate) fn begin(grid: &[&str], seeds: std::ops::Range<u64>) -> (TempDir, Sweep) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let sweep =
            Sweep::begin(&directory.path().join("table"), plan(&["grid-diffuser"], grid, seeds));
        (directory, sweep.expect("created"))
    }

    fn environment() -> Environment {
        let (version, platform) = ("1.2.3".to_owned(), "linux-x86_64".to_owned());
        Environment {
            version,
            commit: Some("abc".to_owned()),
            platform,
            threads: 1,
            command: Vec::new(),
        }
    }

    /// Writes the files of a run that finished with these scores.
    pub(crate) fn finish(sweep: &Sweep, run: &PlannedRun, valid: f64, test: f64) {
        sweep.create_run(run, &environment()).expect("created");
        let scores = |metric| EvalMetrics {
            metric,
            loss: 0.0,
            samples: 1,
            metrics: [(Metric::Accuracy, metric)].into(),
        };
        let result = RunResult {
            seed: run.seed,
            metric: Metric::Accuracy,
            parameters: 33_073,
            best: BestEpoch { epoch: 2, valid: scores(valid) },
            test: scores(test),
            epochs: 2,
            seconds: 60.0,
        };
        let epoch = |epoch: usize, metric: f64| EpochRecord {
            epoch,
            step: epoch as u64,
            lr: 0.1,
            train_loss: 1.0,
            valid: Some(scores(metric)),
            best: true,
            seconds: 30.0,
        };
        let lines = [epoch(1, valid / 2.0), epoch(2, valid)];
        let lines = lines.map(|record| serde_json::to_string(&record).expect("plain data"));
        let directory = sweep.run_directory(run);
        fs::write(directory.join("metrics.jsonl"), lines.join("\n")).expect("written");
        fs::write(directory.join("result.json"), serde_json::to_vec(&result).expect("plain data"))
            .expect("written");
    }

    #[test]
    fn runs_are_ordered_by_seed_then_configuration() {
        let (_directory, sweep) = begin(&["optim.lr=3e-4,8e-4"], 0..2);
        let names: Vec<String> = sweep.runs().into_iter().map(|run| run.name).collect();
        let expected = [
            "grid-diffuser--optim.lr=3e-4-s0",
            "grid-diffuser--optim.lr=8e-4-s0",
            "grid-diffuser--optim.lr=3e-4-s1",
            "grid-diffuser--optim.lr=8e-4-s1",
        ];
        assert_eq!(names, expected);
        let last = sweep.recipe(&sweep.runs()[3]);
        assert_eq!((last.optim.lr, last.seed), (8e-4, 1));
    }

    #[test]
    fn existing_directory_is_opened_for_the_same_plan_only() {
        let (_directory, sweep) = begin(&["optim.lr=3e-4,8e-4"], 0..2);
        let again = |plan| Sweep::begin(sweep.directory(), plan);
        again(plan(&["grid-diffuser"], &["optim.lr=3e-4,8e-4"], 0..2)).expect("the same plan");
        let other = again(plan(&["grid-diffuser"], &["optim.lr=3e-4"], 0..3))
            .expect_err("another plan")
            .to_string();
        assert!(other.contains("grid: optim.lr=3e-4,8e-4 instead of optim.lr=3e-4"), "{other}");
        assert!(other.contains("seeds: 0..2 instead of 0..3"), "{other}");
        let set = Plan::new(
            &["grid-diffuser".to_owned()],
            &["train.epochs=7".to_owned()],
            &["optim.lr=3e-4,8e-4".to_owned()],
            0..2,
        );
        let other = again(set.expect("valid plan")).expect_err("another plan").to_string();
        assert!(other.contains("instead of train.epochs=7"), "{other}");
        let full = sweep.directory().parent().expect("a parent");
        assert!(matches!(Sweep::begin(full, sweep.plan().clone()), Err(SweepError::Exists { .. })));
    }

    #[test]
    fn corrupt_plan_is_reported_and_not_modified() {
        let (_directory, sweep) = begin(&[], 0..1);
        let path = sweep.directory().join(PLAN);
        let whole = fs::read_to_string(&path).expect("a plan");
        for corrupt in [
            &whole[..whole.len() / 2],
            "",
            &whole.replace("heads", "haeds"),
            &whole.replace("0..1", "1..0"),
        ] {
            fs::write(&path, corrupt).expect("written");
            for error in [
                Sweep::open(sweep.directory()),
                Sweep::begin(sweep.directory(), sweep.plan().clone()),
            ] {
                let error = error.expect_err("corrupt").to_string();
                assert!(
                    error.starts_with("`sweep.toml` in ") && error.contains("is corrupt"),
                    "{error}"
                );
            }
            assert_eq!(fs::read_to_string(&path).expect("a plan"), *corrupt);
        }
    }

    #[test]
    fn run_state_follows_from_the_run_directory() {
        let (_directory, sweep) = begin(&[], 0..1);
        let run = &sweep.runs()[0];
        let directory = sweep.run_directory(run);
        assert_eq!(sweep.state(run), RunState::Missing);
        // A killed process may leave a temporary directory, which must not prevent a restart.
        fs::create_dir_all(directory.with_file_name(format!("{}.new", run.name))).expect("created");
        finish(&sweep, run, 0.5, 0.6);
        assert!(matches!(sweep.state(run), RunState::Finished(_)));
        let result = directory.join("result.json");
        let whole = fs::read(&result).expect("a result");
        fs::write(&result, &whole[..20]).expect("truncated");
        let RunState::Started { epochs: 2, problem: Some(problem) } = sweep.state(run) else {
            panic!("{:?}", sweep.state(run))
        };
        assert!(problem.contains("`result.json` is corrupt"), "{problem}");
        fs::remove_file(&result).expect("removed");
        assert_eq!(sweep.state(run), RunState::Started { epochs: 2, problem: None });
        sweep.record_failure(run, "disk full").expect("recorded");
        assert_eq!(sweep.state(run), RunState::Failed { reason: "disk full".to_owned() });
        // A result takes precedence over an older failure.
        fs::write(&result, &whole).expect("written");
        assert!(matches!(sweep.state(run), RunState::Finished(_)));
        sweep.clear_failure(run).and_then(|()| sweep.clear_failure(run)).expect("cleared");
        let recipe = directory.join("recipe.toml");
        let text = fs::read_to_string(&recipe).expect("a recipe");
        fs::write(&recipe, text.replace("seed = 0", "seed = 7")).expect("written");
        let RunState::Unusable { reason } = sweep.state(run) else {
            panic!("{:?}", sweep.state(run))
        };
        assert!(reason.contains("another recipe"), "{reason}");
    }

    #[test]
    fn lock_is_exclusive() {
        let (_directory, sweep) = begin(&[], 0..1);
        let lock = sweep.lock().expect("free");
        assert!(matches!(sweep.lock(), Err(SweepError::Busy { .. })));
        drop(lock);
        sweep.lock().expect("free again");
    }
}
