//! `data example`: writes a small dataset that is part of the program.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::error::Result;
use crate::output::{Destination, OutputArgs};
use crate::printer::Printer;

/// Approximate boiling points of 234 organic compounds at atmospheric pressure in °C, written from
/// general knowledge for demonstration and not checked against a reference.
const BOILING_POINTS: &str = include_str!("boiling-points.csv");

/// Number of generated graphs.
const NUM_GRAPHS: usize = 60;

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

/// Returns paths and rings of 4 to 13 nodes as JSON Lines.
fn paths_and_rings() -> String {
    let graph = |index: usize| {
        let nodes = 4 + index / 2 % 10;
        let is_ring = !index.is_multiple_of(2);
        let mut edges: Vec<[usize; 2]> = (1..nodes).map(|node| [node - 1, node]).collect();
        if is_ring {
            edges.push([nodes - 1, 0]);
        }
        let features: Vec<&str> = (0..nodes)
            .map(|node| if (node + index / 4).is_multiple_of(3) { "a" } else { "b" })
            .collect();
        let target = if is_ring { "ring" } else { "path" };
        json!({ "node_features": features, "edges": edges, "target": target }).to_string() + "\n"
    };
    (0..NUM_GRAPHS).map(graph).collect()
}
