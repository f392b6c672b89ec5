//! `data example`: writes a small dataset that is part of the program.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::error::Result;
use crate::output::{Destination, OutputArgs};
use crate::printer::Printer;

/// Boiling points of 234 common organic compounds at atmospheric pressure, in °C.
const BOILING_POINTS: &str = include_str!("boiling-points.csv");

/// Write an example dataset: boiling points of 234 organic compounds in °C
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    graph-diffuser data example -o boiling-points.csv\n  \
    graph-diffuser train boiling-points.csv")]
#[command(mut_arg("output", |arg| arg.help("Output file [default: standard output]")))]
pub(super) struct ExampleArgs {
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn example(args: &ExampleArgs, printer: &mut Printer) -> Result<ExitCode> {
    let Some(path) = &args.output.path else {
        printer.raw(BOILING_POINTS.trim_end());
        return Ok(ExitCode::SUCCESS);
    };
    let destination = args.output.destination(printer)?;
    args.output.write(BOILING_POINTS.as_bytes(), destination, printer)?;
    if destination != Destination::Stdout {
        printer.data(&json!({ "path": path }), || format!("wrote {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}
