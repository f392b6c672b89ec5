//! `data`: lists, fetches, inspects and validates datasets, and writes an example.

mod check;
mod example;
mod fetch;
mod list;
mod show;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::error::Result;
use crate::printer::Printer;

/// List, fetch, inspect or validate datasets
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser data example -o boiling-points.csv\n  \
    graph-diffuser data list\n  \
    graph-diffuser data fetch peptides-func\n  \
    graph-diffuser data check mine.csv\n\n\
    Datasets are stored in `data`, or in the directory given by GRAPH_DIFFUSER_DATA.")]
pub(crate) struct DataArgs {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Debug, Subcommand)]
enum DataCommand {
    /// List the published datasets that can be fetched
    #[command(after_help = "Example:\n  graph-diffuser data list")]
    List,
    Example(example::ExampleArgs),
    Fetch(fetch::FetchArgs),
    Show(show::ShowArgs),
    Check(check::CheckArgs),
}

pub(crate) fn data(args: DataArgs, printer: &mut Printer) -> Result<ExitCode> {
    match args.command {
        DataCommand::List => Ok(list::list(printer)),
        DataCommand::Example(args) => example::example(&args, printer),
        DataCommand::Fetch(args) => fetch::fetch(args, printer),
        DataCommand::Show(args) => show::show(args, printer),
        DataCommand::Check(args) => check::check(args, printer),
    }
}
