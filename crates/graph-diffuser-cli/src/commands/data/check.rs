//! `data check`: validates a file or directory and reports all errors.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use graph_diffuser::recipe::DataDirs;
use graph_diffuser_data::formats::Format;
use graph_diffuser_data::formats::smiles_csv::SmilesCsvOptions;
use graph_diffuser_data::summary::warnings;
use graph_diffuser_data::{Diagnostic as _, LocatedError, Schema, TargetSchema};
use serde_json::json;

use crate::args::check_input;
use crate::error::Result;
use crate::printer::{Printer, counted};
use crate::progress::TaskProgress;

/// Maximum number of target names shown in the summary.
const MAX_NAMES: usize = 5;

/// Validate a file or directory and report all errors
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser data check mine.csv\n  \
    graph-diffuser data check mine.csv --smiles-column structure --target logS\n\n\
    The format is detected from the content: a CSV file with a SMILES column, a JSON Lines file \
    of graphs, or a directory of OGB CSV files or of a TU dataset. Exits with code 1 if there are \
    errors.")]
pub(super) struct CheckArgs {
    /// File or directory
    path: PathBuf,
    /// Name of the SMILES column of a CSV file [default: `smiles`]
    #[arg(long, value_name = "COLUMN")]
    smiles_column: Option<String>,
    /// Target column of a CSV file (repeatable) [default: inferred]
    #[arg(long, value_name = "COLUMN")]
    target: Vec<String>,
}

pub(super) fn check(args: CheckArgs, printer: &mut Printer) -> Result<ExitCode> {
    let CheckArgs { path, smiles_column, target } = args;
    check_input(&path)?;
    let options = SmilesCsvOptions {
        smiles_column,
        target_columns: Some(target).filter(|columns| !columns.is_empty()),
        ..SmilesCsvOptions::default()
    };
    let mut progress = TaskProgress::bytes("reading");
    let cache = DataDirs::from_env().graph_cache();
    let read = Format::detect(&path).map_err(|error| vec![error]).and_then(|format| {
        format
            .read(&path, &options, &cache, &mut |done, total| progress.show(done, total, ""))
            .map(|dataset| (format, dataset))
    });
    progress.finish();
    let (format, dataset) = match read {
        Ok(read) => read,
        Err(errors) => {
            for error in &errors {
                printer.data(&to_json(error), || to_text(error));
            }
            if !printer.is_json() {
                printer.note(&counted(errors.len(), "error", "errors"));
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let found = warnings(&dataset);
    for warning in &found {
        printer.note(&format!("warning: {warning}"));
    }
    let graphs = dataset.graphs.len();
    let value = json!({
        "path": path,
        "format": format.name(),
        "graphs": graphs,
        "valid": true,
        "warnings": found,
    });
    printer.data(&value, || {
        let graphs = if format.has_molecules() {
            counted(graphs, "molecule", "molecules")
        } else {
            counted(graphs, "graph", "graphs")
        };
        let found = match found.len() {
            0 => "no problems found".to_owned(),
            count => counted(count, "warning", "warnings"),
        };
        format!("OK: {graphs}, {}, {found}", targets(&dataset.schema))
    });
    Ok(ExitCode::SUCCESS)
}

/// Describes the targets, such as ``1 regression target (`logS`)``.
fn targets(schema: &Schema) -> String {
    let names = &schema.names.targets;
    let mut quoted: Vec<String> =
        names.iter().take(MAX_NAMES).map(|name| format!("`{name}`")).collect();
    if names.len() > MAX_NAMES {
        quoted.push("…".to_owned());
    }
    let names = if quoted.is_empty() { String::new() } else { format!(" ({})", quoted.join(", ")) };
    match schema.targets {
        TargetSchema::Regression(count) => {
            counted(count, "regression target", "regression targets") + &names
        }
        TargetSchema::Multilabel(count) => {
            counted(count, "binary target", "binary targets") + &names
        }
        TargetSchema::Multiclass(classes) => format!("1 multi-class target of {classes} classes"),
        TargetSchema::NodeMulticlass(classes) => format!("node labels of {classes} classes"),
        TargetSchema::SubTokens(size) => format!("sub-token targets, vocabulary of {size}"),
        TargetSchema::LinkPrediction => "link prediction targets".to_owned(),
    }
}

fn to_json(error: &LocatedError) -> serde_json::Value {
    json!({
        "path": error.path,
        "line": error.line,
        "column": error.column,
        "problem": error.error.to_string(),
        "hint": error.hint(),
    })
}

fn to_text(error: &LocatedError) -> String {
    let cause =
        std::error::Error::source(error).map_or(String::new(), |cause| format!(": {cause}"));
    let hint = error.hint().map_or(String::new(), |hint| format!("\n  hint: {hint}"));
    format!("{error}{cause}{hint}")
}
