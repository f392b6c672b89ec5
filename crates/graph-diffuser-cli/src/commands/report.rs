//! `report`: runs over seeds, or a sweep, beside the paper's figures.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use graph_diffuser::report::Report;
use graph_diffuser::run::{FinishedRun, Run, RunError};
use graph_diffuser::sweep::{Sweep, SweepError};

use crate::printer::Printer;

/// Mean and deviation over seeds beside the paper's figure, of runs or of a sweep
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser report runs/grid-quick-s*\n  \
    graph-diffuser report runs/* --format csv > table.csv\n  \
    graph-diffuser report sweeps/grid-diffuser --format html > table.html\n\n\
    Of a sweep each recipe is a row: its configuration with the best validation mean.")]
pub(crate) struct ReportArgs {
    /// Directories written by `graph-diffuser train`, or one written by `graph-diffuser sweep`
    #[arg(required = true, value_name = "SWEEP|RUN")]
    directories: Vec<PathBuf>,
    /// How to write the table; `--json` is short for `--format json`
    #[arg(long, value_enum, default_value_t = Format::Markdown)]
    format: Format,
    /// Write the report in every format, with its curves, into this directory too
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Markdown,
    Csv,
    Json,
    Html,
}

pub(crate) fn report(args: ReportArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    // The `report.md` of a run is its own.
    if let Some(directory) = args.out.clone().filter(|out| out.join("recipe.toml").exists()) {
        return Err(RunError::Exists { directory, is_run: true }.into());
    }
    let report = match &args.directories[..] {
        [sweep] if Sweep::is_in(sweep) => of_sweep(sweep, printer)?,
        runs => match runs.iter().find(|directory| Sweep::is_in(directory)) {
            Some(sweep) => return Err(SweepError::NotAlone { directory: sweep.clone() }.into()),
            None => of_runs(runs, printer)?,
        },
    };
    match args.format {
        _ if printer.is_json() => printer.data(&report, String::new),
        Format::Markdown => printer.raw(report.to_markdown().trim_end()),
        Format::Csv => printer.raw(report.to_csv().trim_end()),
        Format::Json => printer.raw(&serde_json::to_string(&report)?),
        Format::Html => printer.raw(report.to_html().trim_end()),
    }
    if let Some(out) = &args.out {
        for file in report.write(out)? {
            printer.note(&format!("wrote {}", file.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn of_sweep(directory: &Path, printer: &Printer) -> anyhow::Result<Report> {
    let report = Report::of_sweep(&Sweep::open(directory)?);
    for problem in report.sweep.iter().flat_map(|sweep| &sweep.failed_runs) {
        let reason = problem.reason.lines().next().unwrap_or_default();
        printer.note(&format!("warning: run `{}` has no score: {reason}", problem.run));
    }
    Ok(report)
}

fn of_runs(directories: &[PathBuf], printer: &Printer) -> anyhow::Result<Report> {
    let mut finished: Vec<FinishedRun> = Vec::new();
    for directory in directories {
        let run = Run::open(directory)?;
        match run.finished()? {
            Some(_) if finished.iter().any(|known| known.recipe == *run.recipe()) => {
                printer.note(&format!(
                    "warning: `{}` is left out: a run of the same recipe and seed stands before it",
                    directory.display()
                ))
            }
            Some(run) => finished.push(run),
            None => printer.note(&format!(
                "warning: `{}` is left out: it is not finished after {} epochs",
                directory.display(),
                run.history().len()
            )),
        }
    }
    anyhow::ensure!(!finished.is_empty(), "none of the runs is finished");
    Ok(Report::new(&finished))
}
