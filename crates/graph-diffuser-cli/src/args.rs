//! Arguments that several commands share.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, FromArgMatches, ValueEnum};
use graph_diffuser::Device;
use graph_diffuser::device::{DeviceError, DeviceName};
use graph_diffuser::pretrained::Pretrained;
use graph_diffuser::recipe::DataDirs;
use graph_diffuser::run::{Environment, Run, RunError};
use graph_diffuser_data::{Dataset, Split, set_max_threads};

use crate::printer::{Printer, print_note};

/// A trained model: a run directory or a pretrained model.
#[derive(Debug)]
pub(crate) enum RunArgs {
    /// Run directory.
    Directory(PathBuf),
    /// Pretrained model.
    Pretrained(Pretrained),
}

/// The arguments of [`RunArgs`], of which one is given.
#[derive(Debug, Args)]
#[group(id = "RunArgs", required = true, multiple = false)]
struct RunOptions {
    /// Run directory written by `graph-diffuser train`
    run: Option<PathBuf>,
    /// Use a pretrained model instead of RUN
    #[arg(long, value_name = "NAME", value_parser = pretrained())]
    pretrained: Option<Pretrained>,
}

impl Args for RunArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        RunOptions::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        RunOptions::augment_args_for_update(command)
    }
}

impl FromArgMatches for RunArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let RunOptions { run, pretrained } = RunOptions::from_arg_matches(matches)?;
        let pretrained = pretrained.map(Self::Pretrained);
        run.map(Self::Directory)
            .or(pretrained)
            .ok_or_else(|| clap::Error::new(ErrorKind::MissingRequiredArgument))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn pretrained() -> impl clap::builder::TypedValueParser<Value = Pretrained> {
    let by_name = |name: String| Pretrained::ALL.into_iter().find(|model| model.name() == name);
    PossibleValuesParser::new(Pretrained::ALL.map(Pretrained::name))
        .map(move |name| by_name(name).expect("clap accepts only the possible values"))
}

impl RunArgs {
    /// Opens the run directory or the pretrained model; of an ensemble, its first member.
    pub(crate) fn open_model(&self, printer: &Printer) -> Result<Run, RunError> {
        let run = self.open()?;
        if !run.is_ensemble() {
            return Ok(run);
        }
        let member = run.members()?.into_iter().next().ok_or_else(|| {
            let directory = run.directory().to_owned();
            RunError::IncompleteEnsemble { directory, trained: 0, members: run.num_members() }
        })?;
        printer.note(&format!(
            "{} is an ensemble of {} members: using member 0 only",
            run.directory().display(),
            run.num_members()
        ));
        Ok(member)
    }

    /// Returns the name of the run directory or of the pretrained model.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Directory(directory) => {
                let directory =
                    std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
                directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
            Self::Pretrained(model) => format!("{} (pretrained)", model.name()),
        }
    }

    /// Returns the run directory, of which `run` may be a member, or that of the pretrained model.
    pub(crate) fn directory<'a>(&'a self, run: &'a Run) -> &'a Path {
        match self {
            Self::Directory(directory) => directory,
            Self::Pretrained(_) => run.directory(),
        }
    }

    /// Opens the run directory or the pretrained model.
    pub(crate) fn open(&self) -> Result<Run, RunError> {
        let dirs = DataDirs::from_env();
        let run = match self {
            Self::Directory(directory) => Run::open(directory)?,
            Self::Pretrained(model) => model.open(&dirs.cache)?,
        };
        let (epochs, all) = (run.history().len(), run.recipe().train.epochs);
        if epochs > 0 && run.result()?.is_none() {
            let directory = run.directory().display();
            print_note(&format!(
                "warning: `{directory}` is not finished ({epochs} of {all} epochs); using its best \
                 weights so far"
            ));
        }
        Ok(run.with_encoding_cache(dirs.encoding_cache()))
    }
}

/// The `--split` option.
#[derive(Debug, Args)]
pub(crate) struct SplitArgs {
    /// Dataset split
    #[arg(long, value_enum, default_value_t = SplitName::Test)]
    split: SplitName,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SplitName {
    Train,
    Valid,
    Test,
}

impl SplitArgs {
    /// Returns the chosen split.
    pub(crate) fn split(&self) -> Split {
        match self.split {
            SplitName::Train => Split::Train,
            SplitName::Valid => Split::Valid,
            SplitName::Test => Split::Test,
        }
    }
}

/// The `--allow-changed-data` option.
#[derive(Debug, Args)]
pub(crate) struct ChangedDataArgs {
    /// Use the dataset even if it has changed since training was started
    #[arg(long)]
    pub(crate) allow_changed_data: bool,
}

impl ChangedDataArgs {
    /// Checks that a dataset is that of the run, or warns if it need not be.
    pub(crate) fn check(
        &self,
        run: &Run,
        dataset: &Dataset,
        printer: &Printer,
    ) -> Result<(), RunError> {
        match run.check_data(dataset) {
            Err(error @ RunError::DataChanged { .. }) if self.allow_changed_data => {
                printer.note(&format!("warning: {error}"));
                Ok(())
            }
            checked => checked,
        }
    }
}

/// Warns if a dataset is not the one that the run was trained on.
///
/// A large dataset, whose comparison takes long, is not compared, nor is an empty one, for
/// molecules that are given otherwise.
pub(crate) fn warn_changed_data(run: &Run, dataset: &Dataset, printer: &Printer) {
    const MAX_GRAPHS: usize = 50_000;
    if (1..=MAX_GRAPHS).contains(&dataset.graphs.len())
        && let Err(error) = run.check_data(dataset)
    {
        printer.note(&format!("warning: {error}"));
    }
}

/// The `--set` option.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Override a recipe setting, such as `optim.lr=1e-3` (repeatable)
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Options of user data: columns, tasks and split.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TableArgs {
    /// Target column of a table (repeatable) [default: inferred]
    #[arg(long, value_name = "COLUMN")]
    target: Vec<String>,
    /// SMILES column of a table [default: `smiles`]
    #[arg(long, value_name = "COLUMN")]
    smiles_column: Option<String>,
    /// Task of all targets, or of one column: regression, binary or multiclass (repeatable)
    /// [default: inferred]
    #[arg(long, value_name = "[COLUMN=]TASK")]
    task: Vec<String>,
    /// Split: random, scaffold, or the path of a JSON file [default: the one in the file, or
    /// random]
    #[arg(long, value_name = "SPLIT")]
    split: Option<String>,
    /// Handling of rows with an invalid SMILES: fail or skip [default: fail]
    #[arg(long, value_name = "ACTION")]
    on_invalid: Option<String>,
}

impl TableArgs {
    /// Returns the recipe overrides of the options.
    pub(crate) fn overrides(&self) -> Vec<String> {
        // A JSON string is also a TOML string.
        let quote = |text: &str| serde_json::Value::from(text).to_string();
        let mut overrides = Vec::new();
        if !self.target.is_empty() {
            let columns: Vec<String> = self.target.iter().map(|column| quote(column)).collect();
            overrides.push(format!("data.target_columns=[{}]", columns.join(",")));
        }
        if let Some(column) = &self.smiles_column {
            overrides.push(format!("data.smiles_column={}", quote(column)));
        }
        let by_column: Vec<String> = self
            .task
            .iter()
            .filter_map(|task| task.rsplit_once('='))
            .map(|(column, task)| format!("{}={}", quote(column), quote(task)))
            .collect();
        if by_column.is_empty() {
            overrides.extend(self.task.last().map(|task| format!("data.task={task}")));
        } else {
            overrides.push(format!("data.task={{{}}}", by_column.join(",")));
        }
        overrides.extend(self.split.as_ref().map(|split| {
            if Path::new(split).extension().is_some_and(|extension| extension == "json") {
                format!("data.split={{kind=\"file\",path={}}}", quote(split))
            } else {
                format!("data.split={split}")
            }
        }));
        overrides
            .extend(self.on_invalid.as_ref().map(|action| format!("data.on_invalid={action}")));
        overrides
    }
}

/// Training options that are recipe settings.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TrainingArgs {
    /// Number of epochs [default: from the recipe]
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,
    /// Learning rate [default: from the recipe]
    #[arg(long, value_name = "RATE")]
    lr: Option<f64>,
    /// Number of graphs per batch [default: from the recipe]
    #[arg(long, value_name = "N")]
    batch_size: Option<u64>,
    /// Train an ensemble of N models with different seeds, whose predictions are averaged [default:
    /// from the recipe]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    ensemble: Option<u16>,
    /// Write a TensorBoard event file to RUN/tensorboard
    #[arg(long)]
    tensorboard: bool,
}

impl TrainingArgs {
    /// Returns the recipe overrides of the options.
    pub(crate) fn overrides(&self) -> Vec<String> {
        let epochs = self.epochs.map(|epochs| format!("train.epochs={epochs}"));
        let lr = self.lr.map(|lr| format!("optim.lr={lr:?}"));
        let batch_size = self.batch_size.map(|size| format!("train.batch_size={size}"));
        let ensemble = self.ensemble.map(|members| format!("train.ensemble={members}"));
        let tensorboard = self.tensorboard.then(|| "train.tensorboard=true".to_owned());
        [epochs, lr, batch_size, ensemble, tensorboard].into_iter().flatten().collect()
    }
}

/// The `--threads` option.
#[derive(Debug, Args)]
pub(crate) struct ThreadArgs {
    /// Number of compute threads; does not affect results [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl ThreadArgs {
    /// Returns the number of threads.
    pub(crate) fn count(&self) -> usize {
        let all_cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(all_cores, usize::from)
    }

    /// Sets the number of threads of the process and returns it.
    ///
    /// The global pool of rayon, which is started on its first use, has one thread: the calling
    /// one. Only the framework and the readers of files use it, and all results are independent of
    /// it.
    pub(crate) fn apply(&self) -> usize {
        let threads = self.count();
        set_max_threads(threads);
        graph_diffuser_kernels::set_num_threads(threads);
        let _ = framework_pool().build_global();
        threads
    }
}

/// Compute device.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DeviceArgs {
    /// Compute device: cpu, gpu[:N] or cuda[:N]; see `devices`
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: DeviceName,
}

impl DeviceArgs {
    /// Returns the name of the device.
    pub(crate) fn name(self) -> DeviceName {
        self.device
    }

    /// Opens the device.
    pub(crate) fn open(self) -> Result<Device, DeviceError> {
        self.device.open()
    }
}

/// Returns a pool for the operations that are left to the framework, on the calling thread.
///
/// These operations are shorter than waking a second thread would take. A thread other than the
/// main one needs a pool of its own, which must live as long as the thread computes: the main
/// thread would not run the operations that others hand over to the global pool.
pub(crate) fn framework_pool() -> rayon::ThreadPoolBuilder {
    rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread()
}

/// Describes this process for the run directory.
pub(crate) fn environment(threads: usize) -> Environment {
    // The program's name instead of its path, which depends on the installation.
    let arguments = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let command = std::iter::once("graph-diffuser".to_owned()).chain(arguments);
    Environment::new(threads, option_env!("GRAPH_DIFFUSER_COMMIT"), command.collect())
}
