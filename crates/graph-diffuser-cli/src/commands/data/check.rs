//! `data check`: validates a file or directory and reports all errors.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use graph_diffuser::recipe::{DataError, LoadedDataset, Recipe, RecipeError};
use graph_diffuser_data::chem::MoleculeError;
use graph_diffuser_data::formats::Format;
use graph_diffuser_data::summary::Summary;
use graph_diffuser_data::{Diagnostic as _, LocatedError};
use serde_json::json;

use crate::args::TableArgs;
use crate::error::Result;
use crate::input::DataInput;
use crate::printer::{Printer, counted};

/// Validate a file or directory and report all errors
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser data check mine.csv\n  \
    graph-diffuser data check mine.csv --smiles-column structure --target logS\n\n\
    The format is detected from the content: a CSV file with a SMILES column, a JSON or JSON \
    Lines file of graphs, or a directory of OGB CSV files or of a TU dataset. Exits with code 1 if there are \
    errors.")]
pub(super) struct CheckArgs {
    /// File or directory, or `-` for standard input
    path: PathBuf,
    #[command(flatten)]
    table: TableArgs,
}

/// Maximum number of errors that are shown as text; `--json` lists all.
const MAX_SHOWN: usize = 20;

pub(super) fn check(args: CheckArgs, printer: &mut Printer) -> Result<ExitCode> {
    let CheckArgs { path, table } = args;
    let input = DataInput::open(&path)?;
    let format = Format::detect(input.path()).map_err(|error| vec![input.rename(error)]);
    let read = match format {
        Ok(format) => match input.read(&Recipe::for_data(input.path(), &table.overrides())?) {
            Err(RecipeError::Data(DataError::Problems(errors))) => Err(errors),
            read => Ok((format, read?)),
        },
        Err(errors) => Err(errors),
    };
    let (format, loaded) = match read {
        Ok(read) => read,
        Err(errors) => {
            let shown = if printer.is_json() { errors.len() } else { MAX_SHOWN };
            for error in errors.iter().take(shown) {
                printer.data(&to_json(error), || to_text(error));
            }
            if let Some(more @ 1..) = errors.len().checked_sub(shown) {
                printer.raw(&format!("… and {}", counted(more, "other error", "other errors")));
            }
            if !printer.is_json() {
                let skip = if errors.iter().all(LocatedError::is::<MoleculeError>) {
                    "; `--on-invalid skip` skips rows with an invalid SMILES"
                } else {
                    ""
                };
                printer.note(&(counted(errors.len(), "error", "errors") + skip));
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let found = loaded.warnings(&Summary::compute(&loaded.dataset));
    let LoadedDataset { dataset, report, .. } = loaded;
    for warning in &found {
        printer.note(&format!("warning: {warning}"));
    }
    let value = json!({
        "path": path.to_string_lossy(),
        "format": format.name(),
        "graphs": dataset.graphs.len(),
        "valid": true,
        "report": report,
        "warnings": found,
    });
    printer.data(&value, || {
        let found = match found.len() {
            0 => "no problems found".to_owned(),
            count => counted(count, "warning", "warnings"),
        };
        let report = report.map_or_else(String::new, |report| format!("{report}\n"));
        format!("{report}OK: {}, {found}", format.name())
    });
    Ok(ExitCode::SUCCESS)
}

fn to_json(error: &LocatedError) -> serde_json::Value {
    json!({
        "path": error.path.to_string_lossy(),
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
