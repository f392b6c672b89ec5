//! `report`: runs over seeds, beside the paper's figure.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use graph_diffuser::report::Report;
use graph_diffuser::run::Run;

use crate::printer::Printer;

/// Mean and deviation over runs of one recipe, beside the paper's figure
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser report runs/grid-quick-s*\n  \
    graph-diffuser report runs/* --format csv > table.csv")]
pub(crate) struct ReportArgs {
    /// Directories written by `graph-diffuser train`
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// How to write the table; `--json` is short for `--format json`
    #[arg(long, value_enum, default_value_t = Format::Markdown)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Markdown,
    Csv,
    Json,
}

pub(crate) fn report(args: ReportArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    let mut finished = Vec::new();
    for directory in &args.runs {
        let run = Run::open(directory)?;
        match run.result()? {
            Some(_) if finished.iter().any(|(recipe, _)| recipe == run.recipe()) => printer.note(&format!(
                "warning: `{}` is left out: a run of the same recipe and seed stands before it",
                directory.display()
            )),
            Some(result) => finished.push((run.recipe().clone(), result)),
            None => printer.note(&format!(
                "warning: `{}` is left out: it is not finished after {} epochs",
                directory.display(),
                run.history().len()
            )),
        }
    }
    anyhow::ensure!(!finished.is_empty(), "none of the runs is finished");
    let report = Report::new(&finished);
    match args.format {
        _ if printer.is_json() => printer.data(&report, String::new),
        Format::Markdown => printer.raw(report.to_markdown().trim_end()),
        Format::Csv => printer.raw(report.to_csv().trim_end()),
        Format::Json => printer.raw(&serde_json::to_string(&report)?),
    }
    Ok(ExitCode::SUCCESS)
}
