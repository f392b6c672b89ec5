//! The command line.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand, ValueEnum};
use graph_diffuser::pretrained::Pretrained;
use graph_diffuser::recipe::DataDirs;
use graph_diffuser::run::{Run, RunError};
use graph_diffuser_data::Split;

use crate::commands::{
    BenchArgs, DataArgs, EvalArgs, ExplainArgs, ExploreArgs, ExportArgs, PredictArgs, RecipeArgs,
    ReportArgs, SweepArgs, TrainArgs,
};

/// Graph Transformers whose attention is directed by learned diffusion
#[derive(Debug, Parser)]
#[command(
    name = "graph-diffuser",
    version,
    after_help = "Examples:\n  \
        graph-diffuser train grid-quick            solve the grid task in minutes\n  \
        graph-diffuser eval runs/grid-quick-s0     score it on the test graphs\n  \
        graph-diffuser train molecules --set data.path=mine.csv                             your own data\n  \
        graph-diffuser predict runs/molecules-s0 --input new.csv --output predicted.csv     and what it says\n  \
        graph-diffuser recipe show grid-diffuser   every setting and parameter count\n\n\
        Exit codes: 0 done, 1 failed, 2 misused, 130 stopped by Ctrl-C."
)]
pub(crate) struct Arguments {
    /// Print data as JSON, one object a line
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
    Explain(ExplainArgs),
    Explore(ExploreArgs),
    Export(ExportArgs),
    Recipe(RecipeArgs),
    Report(ReportArgs),
    Bench(BenchArgs),
}

/// A trained model: a run, or one inside the program.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct RunArgs {
    /// Directory written by `graph-diffuser train`
    run: Option<PathBuf>,
    /// A trained model inside the program, in place of RUN
    #[arg(long, value_name = "NAME", value_parser = pretrained())]
    pretrained: Option<Pretrained>,
}

fn pretrained() -> impl clap::builder::TypedValueParser<Value = Pretrained> {
    let named = |name: String| Pretrained::ALL.into_iter().find(|model| model.name() == name);
    PossibleValuesParser::new(Pretrained::ALL.map(Pretrained::name))
        .map(move |name| named(name).expect("it is one of the possible values"))
}

impl RunArgs {
    /// Opens it.
    pub(crate) fn open(&self) -> Result<Run, RunError> {
        match (&self.run, self.pretrained) {
            (Some(directory), _) => Run::open(directory),
            (None, Some(model)) => model.open(&DataDirs::here().cache),
            (None, None) => unreachable!("one of the two is required"),
        }
    }
}

/// A part of a dataset.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Part {
    Train,
    Valid,
    Test,
}

impl From<Part> for Split {
    fn from(part: Part) -> Self {
        match part {
            Part::Train => Self::Train,
            Part::Valid => Self::Valid,
            Part::Test => Self::Test,
        }
    }
}

/// Uses so many threads for everything that is computed.
///
/// Results do not depend on it.
pub(crate) fn use_threads(threads: Option<u16>) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.map_or_else(all, usize::from);
    graph_diffuser_kernels::use_threads(threads);
    // The framework's own pool is this thread alone: what is left to it is over before another would wake.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
    threads
}
