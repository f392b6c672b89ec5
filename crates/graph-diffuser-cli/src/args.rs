//! The command line.

use clap::{Parser, Subcommand};

use crate::commands::{
    BenchArgs, DataArgs, EvalArgs, ExplainArgs, ExploreArgs, ExportArgs, PredictArgs, RecipeArgs, ReportArgs,
    SweepArgs, TrainArgs,
};

/// Graph Transformers whose attention is directed by learned diffusion
#[derive(Debug, Parser)]
#[command(
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
