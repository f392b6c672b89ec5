//! `report`: aggregates runs over seeds, or a sweep, and compares them with the paper.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use graph_diffuser::recipe::DataDirs;
use graph_diffuser::run::{FinishedRun, Run, RunError};
use graph_diffuser::sweep::{Sweep, SweepError};
use graph_diffuser_data::WriteError;
use graph_diffuser_viz::report::Report;

use crate::error::{Failure, Result, UsageError};
use crate::output::DirectoryArgs;
use crate::printer::Printer;

/// Aggregate runs or a sweep over seeds and compare with the paper
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser report runs/grid-quick-s*\n  \
    graph-diffuser report runs/* --format csv > table.csv\n  \
    graph-diffuser report sweeps/grid-diffuser -o report\n\n\
    The report of a sweep has one row per recipe: the configuration with the best mean validation \
    score. Reports in HTML have plots of the test predictions; the structures of the worst \
    predictions are drawn if the dataset is available.")]
#[command(mut_arg("output", |arg| { arg.help("Also write the report in all formats, with evaluation plots and learning curves, to this directory") }))]
pub(crate) struct ReportArgs {
    /// Run directories, or one sweep directory
    #[arg(required = true, value_name = "SWEEP|RUN")]
    directories: Vec<PathBuf>,
    /// Format of the table on standard output; `--json` is short for `--format json`
    #[arg(long, value_enum, default_value_t = TableFormat::Markdown)]
    format: TableFormat,
    #[command(flatten)]
    output: DirectoryArgs,
    /// Overwrite existing files of an earlier report
    #[arg(long, requires = "output")]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TableFormat {
    Markdown,
    Csv,
    Json,
    Html,
}

pub(crate) fn report(args: ReportArgs, printer: &mut Printer) -> Result<ExitCode> {
    // A run directory has a `report.md` that must not be overwritten.
    let is_run = |directory: &PathBuf| directory.join("recipe.toml").exists();
    if let Some(directory) = args.output.directory.clone().filter(is_run) {
        return Err(RunError::Exists { directory, is_run: true }.into());
    }
    if let Some(directory) = &args.output.directory {
        check_output(directory, args.force)?;
    }
    let mut report = match &args.directories[..] {
        [sweep] if Sweep::exists(sweep) => sweep_report(sweep, printer)?,
        runs => match runs.iter().find(|directory| Sweep::exists(directory)) {
            Some(sweep) => {
                return Err(SweepError::MixedWithRuns { directory: sweep.clone() }.into());
            }
            None => runs_report(runs, printer)?,
        },
    };
    let has_worst_cases = matches!(args.format, TableFormat::Html | TableFormat::Json);
    if args.output.directory.is_some() || has_worst_cases || printer.is_json() {
        draw_worst_cases(&mut report);
    }
    match args.format {
        _ if printer.is_json() => printer.data(&report, String::new),
        TableFormat::Markdown => printer.raw(report.to_markdown().trim_end()),
        TableFormat::Csv => printer.raw(report.to_csv().trim_end()),
        TableFormat::Json => {
            printer.raw(&serde_json::to_string(&report).expect("reports are plain data"));
        }
        TableFormat::Html => printer.raw(report.to_html().trim_end()),
    }
    if let Some(output) = &args.output.directory {
        for file in report.write(output)? {
            printer.note(&format!("wrote {}", file.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Largest dataset that is read to draw the worst predictions.
const MAX_GRAPHS: usize = 50_000;

/// Names and draws the graphs of the worst predictions, of runs whose dataset is available and not
/// large.
pub(super) fn draw_worst_cases(report: &mut Report) {
    report.draw_worst_cases(|directory| {
        let run = Run::open(directory).ok()?;
        if run.data().ok()?.is_some_and(|data| data.graphs > MAX_GRAPHS) {
            return None;
        }
        let loaded = run.load(&DataDirs::from_env(), &mut |_, _| {});
        // The graphs of changed data are not those of the predictions.
        loaded.ok().filter(|loaded| run.check_data(&loaded.dataset).is_ok())
    });
}

/// Checks that a report can be written to `directory`.
fn check_output(directory: &Path, force: bool) -> Result<()> {
    if directory.as_os_str() == "-" {
        let message = "`--output` is a directory; the table is printed to standard output anyway";
        let hint = "omit `--output`, and choose the format with `--format`";
        return Err(UsageError { message: message.into(), hint: hint.into() }.into());
    }
    if directory.exists() && !directory.is_dir() {
        let message = format!("`{}` is not a directory", directory.display());
        return Err(UsageError { message, hint: "choose another `--output`".into() }.into());
    }
    let existing = directory.join("report.md");
    if existing.exists() && !force {
        return Err(WriteError::Exists { path: existing }.into());
    }
    Ok(())
}

fn sweep_report(directory: &Path, printer: &Printer) -> Result<Report> {
    let report = Report::from_sweep(&Sweep::open(directory)?);
    for failed in report.sweep.iter().flat_map(|sweep| &sweep.failed_runs) {
        let reason = failed.reason.lines().next().unwrap_or_default();
        printer.note(&format!("warning: run `{}` has no result: {reason}", failed.run));
    }
    Ok(report)
}

fn runs_report(directories: &[PathBuf], printer: &Printer) -> Result<Report> {
    let mut finished: Vec<FinishedRun> = Vec::new();
    for directory in directories {
        let run = Run::open(directory)?;
        match run.finished()? {
            Some(_) if finished.iter().any(|known| known.recipe == *run.recipe()) => {
                printer.note(&format!(
                    "warning: ignoring `{}`: duplicate of a run with the same recipe and seed",
                    directory.display()
                ));
            }
            Some(run) => finished.push(run),
            None => printer.note(&format!(
                "warning: ignoring `{}`: not finished ({} epochs completed)",
                directory.display(),
                run.epochs_completed()
            )),
        }
    }
    if finished.is_empty() {
        return Err(Failure::new("no finished run to report").into());
    }
    Ok(Report::new(&finished))
}
