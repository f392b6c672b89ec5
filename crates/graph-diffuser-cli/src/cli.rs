//! The command line: all commands, and hints for unknown options.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use crate::commands::{
    BenchArgs, DataArgs, EmbedArgs, EvalArgs, ExplainArgs, ExploreArgs, PredictArgs, RecipeArgs,
    ReportArgs, SweepArgs, TrainArgs,
};

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
