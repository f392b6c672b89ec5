//! Command-line arguments.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, StyledStr, TypedValueParser as _};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};
use graph_diffuser::pretrained::Pretrained;
use graph_diffuser::recipe::DataDirs;
use graph_diffuser::run::{Environment, Run, RunError};
use graph_diffuser_data::{AtomicFile, Split, WriteError};

use crate::commands::{
    BenchArgs, DataArgs, EmbedArgs, EvalArgs, ExplainArgs, ExploreArgs, PredictArgs, RecipeArgs,
    ReportArgs, SweepArgs, TrainArgs,
};
use crate::error::UsageError;

/// Train, evaluate and explain graph Transformers with learned diffusion
#[derive(Debug, Parser)]
#[command(
    name = "graph-diffuser",
    version,
    after_help = "Examples:\n  \
        graph-diffuser train grid-quick             train on the grid task, in minutes\n  \
        graph-diffuser eval runs/grid-quick-s0      evaluate the run on the test split\n  \
        graph-diffuser recipe show grid-diffuser    print all settings and parameter counts\n  \
        graph-diffuser train molecules --set data.path=mine.csv\n  \
        graph-diffuser predict runs/molecules-s0 --input new.csv -o predictions.csv\n\n\
        Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted"
)]
pub(crate) struct Arguments {
    /// Print results as JSON, one object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Data(DataArgs),
    Train(TrainArgs),
    Sweep(SweepArgs),
    Eval(EvalArgs),
    Predict(PredictArgs),
    Embed(EmbedArgs),
    Explain(ExplainArgs),
    Explore(ExploreArgs),
    Recipe(RecipeArgs),
    Report(ReportArgs),
    Bench(BenchArgs),
}

/// Parses the command line; prints help or a usage error and exits if it names no command to run.
pub(crate) fn parse() -> Arguments {
    Arguments::try_parse().unwrap_or_else(|mut error| {
        if error.kind() == ErrorKind::UnknownArgument {
            suggest_setting(&mut error);
        }
        error.exit()
    })
}

/// Options of other training programs, and the recipe settings that replace them.
const SETTINGS: [(&str, &str); 8] = [
    ("--batch-size", "train.batch_size=N"),
    ("--data", "data.path=FILE"),
    ("--dropout", "model.dropout=P"),
    ("--epochs", "train.epochs=N"),
    ("--hidden-dim", "model.hidden_dim=N"),
    ("--layers", "model.layers=N"),
    ("--lr", "optim.lr=RATE"),
    ("--weight-decay", "optim.weight_decay=RATE"),
];

/// Replaces clap's tip to pass an unknown option as a value, which no command accepts, by the
/// recipe setting of that name if there is one.
fn suggest_setting(error: &mut clap::Error) {
    error.remove(ContextKind::Suggested);
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    let option = option.split('=').next().unwrap_or_default();
    if let Some((_, setting)) = SETTINGS.iter().find(|(name, _)| *name == option) {
        let tip = StyledStr::from(format!("use '--set {setting}' to change a recipe setting"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
}

/// A trained model: a run directory or a pretrained model.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct RunArgs {
    /// Run directory written by `graph-diffuser train`
    run: Option<PathBuf>,
    /// Use a pretrained model instead of RUN
    #[arg(long, value_name = "NAME", value_parser = pretrained())]
    pretrained: Option<Pretrained>,
}

fn pretrained() -> impl clap::builder::TypedValueParser<Value = Pretrained> {
    let by_name = |name: String| Pretrained::ALL.into_iter().find(|model| model.name() == name);
    PossibleValuesParser::new(Pretrained::ALL.map(Pretrained::name))
        .map(move |name| by_name(name).expect("clap accepts only the possible values"))
}

impl RunArgs {
    /// Opens the run directory or the pretrained model.
    pub(crate) fn open(&self) -> Result<Run, RunError> {
        let dirs = DataDirs::from_env();
        let run = match (&self.run, self.pretrained) {
            (Some(directory), _) => Run::open(directory)?,
            (None, Some(model)) => model.open(&dirs.cache)?,
            (None, None) => unreachable!("clap requires one of the two"),
        };
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

/// The `--set` option.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Override a recipe setting, such as `optim.lr=1e-3` (repeatable)
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
}

/// The `--output` and `--force` options of commands that write one file.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Output file
    #[arg(id = "output", short, long = "output", value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,
    /// Overwrite an existing output file
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

impl OutputArgs {
    /// Creates the output file, which must not exist without `--force`.
    pub(crate) fn create(&self, path: &Path) -> Result<AtomicFile, WriteError> {
        AtomicFile::create(path, self.force)
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

    /// Sets the size of the compute pool and returns it.
    pub(crate) fn apply(&self) -> usize {
        let threads = self.count();
        graph_diffuser_kernels::set_num_threads(threads);
        // Operations left to the framework are shorter than waking a second thread would take.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
        threads
    }
}

/// Describes this process for the run directory.
pub(crate) fn environment(threads: usize) -> Environment {
    // The program's name instead of its path, which depends on the installation.
    let command = std::iter::once("graph-diffuser".to_owned()).chain(std::env::args().skip(1));
    Environment::new(threads, option_env!("GRAPH_DIFFUSER_COMMIT"), command.collect())
}

/// Rejects standard input and pipes, which cannot be opened again after format detection.
///
/// # Errors
/// Returns an error if `path` is `-`, a pipe or a device.
pub(crate) fn check_input(path: &Path) -> Result<(), UsageError> {
    let is_pipe = std::fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir());
    if !is_pipe && path.as_os_str() != "-" {
        return Ok(());
    }
    let message =
        format!("cannot read `{}`: standard input and pipes are not supported", path.display());
    Err(UsageError { message, hint: "save the input to a file and pass its path".into() })
}
