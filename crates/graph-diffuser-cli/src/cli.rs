//! The command line: all commands, and hints for unknown options.

use std::io;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use crate::commands::{
    BenchArgs, CompletionsArgs, DataArgs, DevicesArgs, EmbedArgs, EvalArgs, ExplainArgs,
    ExploreArgs, ManArgs, PredictArgs, RecipeArgs, ReportArgs, SweepArgs, TrainArgs,
};
use crate::error::Failure;
use crate::printer::Printer;

/// Train, evaluate and explain graph Transformers with learned diffusion
#[derive(Debug, Parser)]
#[command(
    name = "graph-diffuser",
    version,
    after_help = "Examples:\n  \
        graph-diffuser train mine.csv               train on a table of molecules\n  \
        graph-diffuser eval runs/mine-s0            evaluate the run on the test split\n  \
        graph-diffuser predict runs/mine-s0 --input new.csv -o predictions.csv\n  \
        graph-diffuser train grid-quick             train on the grid task, in minutes\n  \
        graph-diffuser recipe show grid-diffuser    print all settings and parameter counts\n\n\
        Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted (128 + signal number)"
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
    Devices(DevicesArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

impl Command {
    /// Returns whether several processes can share the work of the command.
    pub(crate) fn is_distributed(&self) -> bool {
        matches!(self, Self::Train(_) | Self::Eval(_) | Self::Predict(_) | Self::Embed(_))
    }
}

/// Parses the command line; prints help or a usage error and exits if it names no command to run.
pub(crate) fn parse() -> Arguments {
    Arguments::try_parse().unwrap_or_else(|mut error| {
        match error.kind() {
            ErrorKind::UnknownArgument => suggest_setting(&mut error),
            ErrorKind::InvalidSubcommand => suggest_command(&mut error),
            _ => {}
        }
        let code = error.exit_code();
        match error.print() {
            // Help and version are results.
            Err(failure) if code == 0 && failure.kind() != io::ErrorKind::BrokenPipe => {
                let failure = Failure::caused("cannot write to standard output")(failure);
                let _ = Printer::new(false).error(&failure.into());
                std::process::exit(1)
            }
            _ => std::process::exit(code),
        }
    })
}

/// Options of other training programs, and the recipe settings that replace them.
const SETTINGS: [(&str, &str); 4] = [
    ("--dropout", "model.dropout=P"),
    ("--hidden-dim", "model.hidden_dim=N"),
    ("--layers", "model.layers=N"),
    ("--weight-decay", "optim.weight_decay=RATE"),
];

/// Replaces clap's tip to pass an unknown option as a value, which no command accepts, by the
/// recipe setting of that name if the command has `--set`.
fn suggest_setting(error: &mut clap::Error) {
    error.remove(ContextKind::Suggested);
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    let option = option.split('=').next().unwrap_or_default();
    let mut commands =
        std::env::args_os().skip(1).filter(|arg| !arg.as_encoded_bytes().starts_with(b"-"));
    let has_settings = commands.next().is_some_and(|name| name == "train" || name == "sweep");
    let setting = SETTINGS.iter().find(|(name, _)| *name == option && has_settings);
    if let Some((_, setting)) = setting {
        error.remove(ContextKind::SuggestedArg);
        set_tip(error, format!("use '--set {setting}' to change a recipe setting"));
    } else if option == "--data" && has_settings {
        error.remove(ContextKind::SuggestedArg);
        set_tip(error, "pass the data file without an option".to_owned());
    }
}

/// Commands of other programs, and the commands that replace them.
const COMMANDS: [(&str, &str); 18] = [
    ("check", "data check"),
    ("download", "data fetch"),
    ("embeddings", "embed"),
    ("encode", "embed"),
    ("evaluate", "eval"),
    ("export", "embed"),
    ("fetch", "data fetch"),
    ("fit", "train"),
    ("hpo", "sweep"),
    ("infer", "predict"),
    ("inference", "predict"),
    ("list", "recipe list"),
    ("plot", "explain"),
    ("recipes", "recipe list"),
    ("score", "eval"),
    ("test", "eval"),
    ("tune", "sweep"),
    ("visualize", "explain"),
];

/// Suggests the command that replaces one of another program, instead of a similar name.
fn suggest_command(error: &mut clap::Error) {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    if let Some((_, command)) = COMMANDS.iter().find(|(other, _)| other == name) {
        let tip = format!("use 'graph-diffuser {command}'");
        error.remove(ContextKind::SuggestedSubcommand);
        set_tip(error, tip);
    }
}

fn set_tip(error: &mut clap::Error, tip: String) {
    let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
    error.insert(ContextKind::Suggested, tip);
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn suggested_commands_exist_and_foreign_ones_do_not() {
        for (foreign, command) in COMMANDS {
            let mut names = command.split(' ');
            let mut found = Some(&Arguments::command()).cloned();
            found = names
                .try_fold(found, |parent, name| Some(parent?.find_subcommand(name).cloned()))
                .flatten();
            assert!(found.is_some(), "`{command}` is not a command");
            assert!(Arguments::command().find_subcommand(foreign).is_none(), "`{foreign}` exists");
        }
    }
}
