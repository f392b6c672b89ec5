//! `data check`: every problem of a file, with its place and what to do.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use graph_diffuser::recipe::DataDirs;
use graph_diffuser_data::LocatedError;
use graph_diffuser_data::format::Format;
use graph_diffuser_data::smiles_csv::SmilesCsvOptions;
use graph_diffuser_data::warnings::warnings;
use serde_json::json;

use crate::printer::Printer;
use crate::progress::FileProgress;

/// Find every problem of a file or folder, with its place and what to do
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  graph-diffuser data check mine.csv\n\n\
    The format is seen from the content: a table with a column of SMILES, graphs as JSON lines, a folder in the csv \
    layout of OGB or of the TU collection. Ends with 1 if there is a problem.")]
pub(super) struct CheckArgs {
    /// File or folder to be learned from
    path: PathBuf,
    /// Column of SMILES, where the file is a table [default: `smiles`]
    #[arg(long, value_name = "COLUMN")]
    smiles: Option<String>,
    /// Column to be learned, where the file is a table; may be given again [default: all that can be]
    #[arg(long, value_name = "COLUMN")]
    target: Vec<String>,
}

pub(super) fn check(args: CheckArgs, printer: &mut Printer) -> ExitCode {
    let CheckArgs { path, smiles, target } = args;
    let table = SmilesCsvOptions {
        smiles_column: smiles,
        target_columns: Some(target).filter(|columns| !columns.is_empty()),
        ..SmilesCsvOptions::default()
    };
    let mut progress = FileProgress::new("reading");
    let cache = DataDirs::here().cache.join("graphs");
    let read = Format::of(&path).map_err(|problem| vec![problem]).and_then(|format| {
        format
            .read(&path, &table, &cache, &mut |done, total| progress.show(done, total, ""))
            .map(|data| (format, data))
    });
    progress.finish();
    let (format, dataset) = match read {
        Ok(read) => read,
        Err(problems) => {
            for problem in &problems {
                printer.data(&to_json(problem), || to_text(problem));
            }
            if !printer.is_json() {
                let count = problems.len();
                printer
                    .note(&format!("{count} {}", if count == 1 { "problem" } else { "problems" }));
            }
            return ExitCode::FAILURE;
        }
    };
    let found = warnings(&dataset);
    for warning in &found {
        printer.note(&format!("warning: {warning}"));
    }
    let graphs = dataset.graphs.len();
    let value = json!({ "path": path, "format": format.name(), "graphs": graphs, "sound": true, "warnings": found });
    printer.data(&value, || format!("`{}` is sound: {graphs} graphs", path.display()));
    ExitCode::SUCCESS
}

fn to_json(problem: &LocatedError) -> serde_json::Value {
    json!({
        "path": problem.path,
        "line": problem.line,
        "column": problem.column,
        "problem": problem.fault.to_string(),
        "hint": problem.hint(),
    })
}

fn to_text(problem: &LocatedError) -> String {
    let cause =
        std::error::Error::source(problem).map_or(String::new(), |cause| format!(": {cause}"));
    let hint = problem.hint().map_or(String::new(), |hint| format!("\n  hint: {hint}"));
    format!("{problem}{cause}{hint}")
}
