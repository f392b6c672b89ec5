//! The sweep directory: many runs by one plan, which can be stopped and gone on with.
//!
//! ```text
//! sweeps/grid-quick/
//!   sweep.toml                     the plan; written first
//!   runs/grid-quick--lr=3e-4-s0/   run directories like any other
//!   logs/grid-quick--lr=3e-4-s0.log      what each run said; `.failed` beside it where it failed
//!   report.md, .csv, .json, .html  the table, renewed when the sweep ends or is stopped
//!   configurations.csv             every configuration searched
//!   curves.svg, curves/            validation over epochs
//!   lock                           held while a process sweeps
//! ```
//!
//! Nothing but these files is known of a sweep: what is finished is read off the run directories.

mod plan;
mod selection;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::recipe::{Recipe, RecipeError};
use crate::run::{Environment, FinishedRun, Run, RunError, quoted};
use crate::train::checkpoint::{sync_directory, write_synced};

pub(crate) use plan::file_names;
pub use plan::{Axis, Configuration, Plan, PlannedRecipe, SeedRange};
pub use selection::{Selection, ValidationScores, select};

const PLAN: &str = "sweep.toml";

/// A sweep directory that is open.
#[derive(Debug)]
pub struct Sweep {
    directory: PathBuf,
    plan: Plan,
    configurations: Vec<Configuration>,
}

/// Held by the process that sweeps; let go when dropped.
#[derive(Debug)]
pub struct SweepLock {
    _file: File,
}

/// One run of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRun {
    /// Place of its configuration.
    pub configuration: usize,
    /// Its seed.
    pub seed: u64,
    /// Name of its directory and log.
    pub name: String,
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq)]
pub enum RunState {
    /// Not begun.
    Missing,
    /// Begun and not finished.
    Begun {
        /// Epochs trained.
        epochs: usize,
        /// What is wrong with it, if anything; going on with it puts that right.
        fault: Option<String>,
    },
    /// Ended with an error in the last session that tried; tried again in the next.
    Failed {
        /// What it said last.
        reason: String,
    },
    /// Its directory holds something else, which is left alone.
    Unusable {
        /// What.
        reason: String,
    },
    /// Done.
    Finished(Box<FinishedRun>),
}

/// Why a sweep cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// A recipe cannot be used.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A combination of settings cannot be used.
    #[error("recipe `{recipe}` cannot be used with {settings}")]
    Configuration {
        /// Whose.
        recipe: String,
        /// The combination.
        settings: String,
        /// Why.
        source: RecipeError,
    },
    /// Not a list of values.
    #[error("`{over}` cannot be searched: {reason}")]
    Axis {
        /// What was given.
        over: String,
        /// Why.
        reason: &'static str,
    },
    /// A setting that cannot be searched.
    #[error("`{path}` cannot be searched: {reason}")]
    NotSearchable {
        /// Which.
        path: String,
        /// Why.
        reason: &'static str,
    },
    /// Runs of two recipes would have the same names.
    #[error("two recipes are called `{name}`")]
    SameName {
        /// Theirs.
        name: String,
    },
    /// A configuration would be run twice.
    #[error("recipe `{recipe}`: {left} and {right} are the same")]
    SameConfiguration {
        /// Whose.
        recipe: String,
        /// One combination.
        left: String,
        /// The other.
        right: String,
    },
    /// More than anybody would run.
    #[error("the sweep would have more than {configurations} configurations or {runs} runs")]
    TooMany {
        /// The most configurations.
        configurations: u64,
        /// The most runs.
        runs: u64,
    },
    /// The directory is taken by something else.
    #[error("`{directory}` already exists and is not a sweep")]
    Exists {
        /// Which.
        directory: PathBuf,
    },
    /// The directory holds a sweep by another plan.
    #[error("`{directory}` holds another sweep: {}", differences.join("; "))]
    OtherPlan {
        /// Which.
        directory: PathBuf,
        /// In what the plans differ.
        differences: Vec<String>,
    },
    /// The plan cannot be read.
    #[error("the `sweep.toml` of `{directory}` is damaged: {message}")]
    Damaged {
        /// Where.
        directory: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The directory holds no sweep.
    #[error("`{directory}` is not a sweep: {reason}")]
    NotASweep {
        /// Which.
        directory: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A sweep among other things to report.
    #[error("`{directory}` is a sweep, which is reported alone: what it chose holds inside it")]
    NotAlone {
        /// Which.
        directory: PathBuf,
    },
    /// Another process is at it.
    #[error("`{directory}` is being swept by another process")]
    Busy {
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
}

impl SweepError {
    /// What the user can do about it, when we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Recipe(error) | Self::Configuration { source: error, .. } => error.hint(),
            Self::Axis { .. } => Some("write it as `--over optim.lr=3e-4,8e-4`".into()),
            Self::NotSearchable { .. } => None,
            Self::SameName { .. } => {
                Some("give each recipe once, and each file its own `name`".into())
            }
            Self::SameConfiguration { .. } => Some("give each value once".into()),
            Self::TooMany { .. } => Some("search less at once, or give fewer seeds".into()),
            Self::Exists { .. } => Some("choose another directory with `--out`".into()),
            Self::OtherPlan { directory, .. } => Some(format!(
                "go on with that one by `graph-diffuser sweep --resume {}`, or choose another directory with `--out`",
                quoted(directory)
            )),
            Self::Damaged { .. } => Some(
                "put it right by hand, or begin a new sweep elsewhere; its runs are not touched"
                    .into(),
            ),
            Self::NotASweep { .. } => {
                Some("give a directory that `graph-diffuser sweep` wrote".into())
            }
            Self::NotAlone { directory } => {
                Some(format!("`graph-diffuser report {}`", quoted(directory)))
            }
            Self::Busy { .. } => {
                Some("wait for it, or stop it with Ctrl-C: it saves and can be resumed".into())
            }
            Self::Write { .. } => Some("check free space and permissions".into()),
        }
    }

    /// Whether what was asked for cannot be asked for.
    pub fn is_misuse(&self) -> bool {
        !matches!(self, Self::Busy { .. } | Self::Write { .. })
    }
}

impl Sweep {
    /// Makes a new sweep directory, or opens the one that has the same plan.
    ///
    /// # Errors
    /// Where the plan is not sound, or the directory holds anything else.
    pub fn begin(directory: &Path, plan: Plan) -> Result<Self, SweepError> {
        let configurations = plan.configurations()?;
        if directory.join(PLAN).exists() {
            let there = Self::open(directory)?;
            let differences = plan.differences(&there.plan);
            if !differences.is_empty() {
                return Err(SweepError::OtherPlan { directory: directory.to_owned(), differences });
            }
            return Ok(there);
        }
        let half_made = format!("{PLAN}.new");
        let others = |entry: fs::DirEntry| entry.file_name() != half_made.as_str();
        let taken = match fs::read_dir(directory) {
            Ok(mut entries) => entries.any(|entry| entry.is_ok_and(others)),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        };
        if taken {
            return Err(SweepError::Exists { directory: directory.to_owned() });
        }
        let text = toml::to_string(&plan).expect("a plan is a table of plain values");
        let sweep = Self { directory: directory.to_owned(), plan, configurations };
        let about = "# Every recipe with every combination of `over`, once a seed.\n";
        sweep.write(Path::new(PLAN), format!("{about}{text}").as_bytes())?;
        Ok(sweep)
    }

    /// Opens a sweep directory.
    ///
    /// # Errors
    /// Where there is no sweep in it.
    pub fn open(directory: &Path) -> Result<Self, SweepError> {
        let not_a_sweep =
            |reason: String| SweepError::NotASweep { directory: directory.to_owned(), reason };
        let text = fs::read_to_string(directory.join(PLAN)).map_err(|error| {
            not_a_sweep(match error.kind() {
                std::io::ErrorKind::NotFound if directory.is_dir() => format!("it has no `{PLAN}`"),
                std::io::ErrorKind::NotFound => "there is no such directory".to_owned(),
                _ => format!("its `{PLAN}` cannot be read: {error}"),
            })
        })?;
        let damaged = |message: &str| {
            let message = message.trim_end().to_owned();
            SweepError::Damaged { directory: directory.to_owned(), message }
        };
        let plan: Plan = toml::from_str(&text).map_err(|error| damaged(&error.to_string()))?;
        let configurations = plan.configurations().map_err(|error| damaged(&error.to_string()))?;
        Ok(Self { directory: directory.to_owned(), plan, configurations })
    }

    /// Whether there is a plan in this directory, sound or not.
    pub fn is_in(directory: &Path) -> bool {
        directory.join(PLAN).exists()
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Every recipe with every combination, recipe after recipe.
    pub fn configurations(&self) -> &[Configuration] {
        &self.configurations
    }

    /// All runs in the order in which they are begun: the first seed of every configuration first.
    pub fn runs(&self) -> Vec<PlannedRun> {
        let seeds = self.plan.seeds.0.clone();
        let runs = seeds.flat_map(|seed| {
            self.configurations.iter().enumerate().map(move |(place, configuration)| PlannedRun {
                configuration: place,
                seed,
                name: format!("{}-s{seed}", configuration.name),
            })
        });
        runs.collect()
    }

    /// What a run trains.
    pub fn recipe(&self, run: &PlannedRun) -> Recipe {
        Recipe { seed: run.seed, ..self.configurations[run.configuration].resolved.clone() }
    }

    /// Where a run is or will be.
    pub fn run_directory(&self, run: &PlannedRun) -> PathBuf {
        self.directory.join("runs").join(&run.name)
    }

    /// The file with what a run says.
    pub fn log(&self, run: &PlannedRun) -> PathBuf {
        self.directory.join("logs").join(format!("{}.log", run.name))
    }

    fn failure(&self, run: &PlannedRun) -> PathBuf {
        self.log(run).with_added_extension("failed")
    }

    /// How far a run is, read off its directory.
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
            let reason = format!("`{}` holds a run of another recipe", directory.display());
            return RunState::Unusable { reason };
        }
        match (opened.finished(), failure) {
            (Ok(Some(finished)), _) => RunState::Finished(Box::new(finished)),
            (Ok(None), Some(reason)) => RunState::Failed { reason },
            (Ok(None), None) => RunState::Begun { epochs: opened.history().len(), fault: None },
            (Err(error), _) => {
                RunState::Begun { epochs: opened.history().len(), fault: Some(error.to_string()) }
            }
        }
    }

    /// Makes the directory of a run that is missing; a process can then go on with it.
    ///
    /// # Errors
    /// Where it exists or cannot be written.
    pub fn create_run(&self, run: &PlannedRun, environment: &Environment) -> Result<(), RunError> {
        let directory = self.run_directory(run);
        // Made aside and renamed: a kill between its files must not leave half a run in the way.
        let new = self.directory.join("runs").join(format!("{}.new", run.name));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| RunError::Write { path, source }
        };
        for name in ["environment.json", "environment.json.new", "recipe.toml", "recipe.toml.new"] {
            remove_file_if_there(&new.join(name)).map_err(failed(&new))?;
        }
        if new.exists() {
            fs::remove_dir(&new).map_err(failed(&new))?;
        }
        Run::create(&new, self.recipe(run), environment)?;
        fs::rename(&new, &directory).map_err(failed(&directory))
    }

    /// Keeps that a run failed, and why.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub fn keep_failure(&self, run: &PlannedRun, reason: &str) -> Result<(), SweepError> {
        let path = self.failure(run);
        let name = path.strip_prefix(&self.directory).expect("it is below the sweep");
        self.write(name, reason.as_bytes())
    }

    /// Forgets that a run failed, before it is tried again.
    ///
    /// # Errors
    /// Where the file system refuses.
    pub fn forget_failure(&self, run: &PlannedRun) -> Result<(), SweepError> {
        let path = self.failure(run);
        remove_file_if_there(&path).map_err(|source| SweepError::Write { path, source })
    }

    /// To be held while sweeping, so that no second process starts the same runs.
    ///
    /// # Errors
    /// Where another process holds it.
    pub fn lock(&self) -> Result<SweepLock, SweepError> {
        let path = self.directory.join("lock");
        let lock = File::create(&path).map_err(|source| SweepError::Write { path, source })?;
        match lock.try_lock() {
            Err(fs::TryLockError::WouldBlock) => {
                Err(SweepError::Busy { directory: self.directory.clone() })
            }
            // A file system without locks is no reason not to sweep.
            Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(SweepLock { _file: lock }),
        }
    }

    /// Writes a file of the sweep.
    ///
    /// # Errors
    /// Where the file system refuses; what was there before then still is.
    pub fn write(&self, name: &Path, content: &[u8]) -> Result<(), SweepError> {
        write_whole(&self.directory.join(name), content)
    }
}

/// Writes a file so that it is there whole or not at all, with the directories above it.
///
/// # Errors
/// Where the file system refuses; what was there before then still is.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<(), SweepError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let new = path.with_added_extension("new");
    let written = fs::create_dir_all(directory)
        .and_then(|()| write_synced(&new, content))
        .and_then(|()| fs::rename(&new, path))
        .and_then(|()| sync_directory(directory));
    written.map_err(|source| SweepError::Write { path: path.to_owned(), source })
}

fn remove_file_if_there(path: &Path) -> std::io::Result<()> {
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

    pub(crate) fn plan(recipes: &[&str], over: &[&str], seeds: std::ops::Range<u64>) -> Plan {
        let owned =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Plan::new(&owned(recipes), &[], &owned(over), seeds).expect("sound")
    }

    pub(crate) fn begin(over: &[&str], seeds: std::ops::Range<u64>) -> (TempDir, Sweep) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let sweep =
            Sweep::begin(&directory.path().join("table"), plan(&["grid-diffuser"], over, seeds));
        (directory, sweep.expect("begun"))
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

    /// Leaves the files of a run that finished with these scores.
    pub(crate) fn finish(sweep: &Sweep, run: &PlannedRun, valid: f64, test: f64) {
        sweep.create_run(run, &environment()).expect("made");
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
    fn the_first_seed_of_every_configuration_comes_first() {
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
    fn the_same_plan_goes_on_and_another_is_refused() {
        let (_directory, sweep) = begin(&["optim.lr=3e-4,8e-4"], 0..2);
        let again = |plan| Sweep::begin(sweep.directory(), plan);
        again(plan(&["grid-diffuser"], &["optim.lr=3e-4,8e-4"], 0..2)).expect("the same");
        let other = again(plan(&["grid-diffuser"], &["optim.lr=3e-4"], 0..3))
            .expect_err("another")
            .to_string();
        assert!(other.contains("optim.lr=3e-4,8e-4 there, optim.lr=3e-4 here"), "{other}");
        assert!(other.contains("seeds: 0..2 there, 0..3 here"), "{other}");
        let set = Plan::new(
            &["grid-diffuser".to_owned()],
            &["train.epochs=7".to_owned()],
            &["optim.lr=3e-4,8e-4".to_owned()],
            0..2,
        );
        let other = again(set.expect("sound")).expect_err("another").to_string();
        assert!(other.contains("train.epochs=7 here"), "{other}");
        let full = sweep.directory().parent().expect("it has one");
        assert!(matches!(Sweep::begin(full, sweep.plan().clone()), Err(SweepError::Exists { .. })));
    }

    #[test]
    fn a_damaged_plan_is_named_and_left_as_it_is() {
        let (_directory, sweep) = begin(&[], 0..1);
        let path = sweep.directory().join(PLAN);
        let whole = fs::read_to_string(&path).expect("a plan");
        for damaged in [
            &whole[..whole.len() / 2],
            "",
            &whole.replace("heads", "haeds"),
            &whole.replace("0..1", "1..0"),
        ] {
            fs::write(&path, damaged).expect("damaged");
            for error in [
                Sweep::open(sweep.directory()),
                Sweep::begin(sweep.directory(), sweep.plan().clone()),
            ] {
                let error = error.expect_err("damaged").to_string();
                assert!(
                    error.starts_with("the `sweep.toml` of ") && error.contains("is damaged"),
                    "{error}"
                );
            }
            assert_eq!(fs::read_to_string(&path).expect("a plan"), *damaged);
        }
    }

    #[test]
    fn what_is_in_a_run_directory_decides_its_state() {
        let (_directory, sweep) = begin(&[], 0..1);
        let run = &sweep.runs()[0];
        let directory = sweep.run_directory(run);
        assert_eq!(sweep.state(run), RunState::Missing);
        // A kill while the directory was being made leaves something aside, which is in nobody's way.
        fs::create_dir_all(directory.with_file_name(format!("{}.new", run.name))).expect("made");
        finish(&sweep, run, 0.5, 0.6);
        assert!(matches!(sweep.state(run), RunState::Finished(_)));
        let result = directory.join("result.json");
        let whole = fs::read(&result).expect("a result");
        fs::write(&result, &whole[..20]).expect("damaged");
        let RunState::Begun { epochs: 2, fault: Some(fault) } = sweep.state(run) else {
            panic!("{:?}", sweep.state(run))
        };
        assert!(fault.contains("`result.json` is damaged"), "{fault}");
        fs::remove_file(&result).expect("removed");
        assert_eq!(sweep.state(run), RunState::Begun { epochs: 2, fault: None });
        sweep.keep_failure(run, "it was full").expect("kept");
        assert_eq!(sweep.state(run), RunState::Failed { reason: "it was full".to_owned() });
        // A score counts more than an older failure.
        fs::write(&result, &whole).expect("written");
        assert!(matches!(sweep.state(run), RunState::Finished(_)));
        sweep.forget_failure(run).and_then(|()| sweep.forget_failure(run)).expect("forgotten");
        let recipe = directory.join("recipe.toml");
        let text = fs::read_to_string(&recipe).expect("a recipe");
        fs::write(&recipe, text.replace("seed = 0", "seed = 7")).expect("written");
        let RunState::Unusable { reason } = sweep.state(run) else {
            panic!("{:?}", sweep.state(run))
        };
        assert!(reason.contains("another recipe"), "{reason}");
    }

    #[test]
    fn one_process_at_a_time() {
        let (_directory, sweep) = begin(&[], 0..1);
        let lock = sweep.lock().expect("free");
        assert!(matches!(sweep.lock(), Err(SweepError::Busy { .. })));
        drop(lock);
        sweep.lock().expect("free again");
    }
}
