//! `data example`: writes a small dataset that is part of the program.

use std::process::ExitCode;

use clap::Args;
use graph_diffuser_data::examples::{BOILING_POINTS, paths_and_rings};
use serde_json::json;

use crate::error::Result;
use crate::output::{Destination, OutputArgs};
use crate::printer::Printer;

/// Write an example dataset: boiling points of 234 organic compounds in °C, or small graphs
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    graph-diffuser data example -o boiling-points.csv\n  \
    graph-diffuser train boiling-points.csv")]
#[command(mut_arg("output", |arg| arg.help("Output file [default: standard output]")))]
pub(super) struct ExampleArgs {
    /// Write JSON Lines of graphs instead: paths and rings, to be classified
    #[arg(long)]
    graphs: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn example(args: &ExampleArgs, printer: &mut Printer) -> Result<ExitCode> {
    let text = if args.graphs { paths_and_rings() } else { BOILING_POINTS.to_owned() };
    let Some(path) = &args.output.path else {
        printer.raw(text.trim_end());
        return Ok(ExitCode::SUCCESS);
    };
    let destination = args.output.destination(printer)?;
    args.output.write(text.as_bytes(), destination, printer)?;
    if destination != Destination::Stdout {
        printer.data(&json!({ "path": path.to_string_lossy() }), || {
            format!("wrote {}", path.display())
        });
    }
    Ok(ExitCode::SUCCESS)
}
