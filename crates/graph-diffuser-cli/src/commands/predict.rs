//! `predict`: predicts targets for the rows of a file.

use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use graph_diffuser::Device;
use graph_diffuser::predict::{
    OnInvalidRow, PredictError, PredictEvent, PredictJob, Predictor, RowCounts, predict_rows,
};
use graph_diffuser_data::formats::inference_input::InferenceInput;
use graph_diffuser_data::{AtomicFile, WriteError};
use serde::Serialize;

use crate::args::{OutputArgs, RunArgs, ThreadArgs, check_input};
use crate::error::{Result, UsageError};
use crate::interrupt::stop_flag;
use crate::printer::Printer;
use crate::progress::TaskProgress;

/// Number of invalid rows reported one by one; the others are counted.
const MAX_WARNINGS: u64 = 20;

/// Predict targets for the rows of a file
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser predict runs/molecules-s0 --input new.csv -o predictions.csv\n  \
    graph-diffuser predict runs/graphs-s0 --input new.jsonl -o - --on-invalid skip\n\n\
    CSV output keeps all input columns and appends NAME_pred for regression targets, NAME_prob \
    for binary targets, or `class`, `class_prob` and one prob_NAME per class for a multi-class \
    target. JSON Lines output adds the key `prediction`. Rows of a directory have the column \
    `graph`. The output file is written atomically.")]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    rows: RowArgs,
}

/// Arguments shared by `predict` and `embed`.
#[derive(Debug, Args)]
#[command(mut_arg("output", |arg| {
    arg.required(true).help("Output file; `predict` accepts `-` for standard output")
}))]
pub(super) struct RowArgs {
    #[command(flatten)]
    run: RunArgs,
    /// CSV file with a SMILES column, JSON file of graphs, or TU or OGB directory; files may be
    /// gzipped
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
    /// Handling of invalid rows: abort, drop them, or keep them without a result
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = InvalidRows::Fail)]
    pub(super) on_invalid: InvalidRows,
    /// Name of the SMILES column [default: from the recipe, or `smiles`]
    #[arg(long, value_name = "COLUMN")]
    smiles_column: Option<String>,
    #[command(flatten)]
    threads: ThreadArgs,
}

/// Values of `--on-invalid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum InvalidRows {
    Fail,
    Skip,
    Keep,
}

/// Output of `predict --json` and `embed --json`.
#[derive(Debug, Serialize)]
struct PredictSummary {
    run: PathBuf,
    input: PathBuf,
    output: PathBuf,
    #[serde(flatten)]
    counts: RowCounts,
    seconds: f64,
    graphs_per_second: f64,
}

pub(crate) fn predict(args: PredictArgs, printer: &mut Printer) -> Result<ExitCode> {
    let to_stdout = args.rows.output().as_os_str() == "-";
    if to_stdout && printer.is_json() {
        let message = "`--json` and `--output -` both write to standard output".to_owned();
        return Err(
            UsageError { message, hint: "write the predictions to a file".to_owned() }.into()
        );
    }
    args.rows.check_output()?;
    let file = if to_stdout { None } else { Some(args.rows.create_output()?) };
    let stdout = printer.stream();
    args.rows.run_job(printer, |predictor, job, on_event| {
        let output: Box<dyn Write> = match &file {
            Some(file) => Box::new(file.file()),
            None => Box::new(stdout),
        };
        let mut output = BufWriter::with_capacity(1 << 16, output);
        let counts = predict_rows(predictor, job, &mut output, on_event)?;
        output.flush().map_err(PredictError::Output)?;
        drop(output);
        if let Some(file) = file {
            file.persist()?;
        }
        Ok((counts, String::new()))
    })
}

impl RowArgs {
    /// Returns the output path.
    pub(super) fn output(&self) -> &Path {
        self.output.path.as_deref().expect("clap requires an output")
    }

    /// Creates the output file.
    pub(super) fn create_output(&self) -> Result<AtomicFile, WriteError> {
        self.output.create(self.output())
    }

    /// Rejects a `.gz` output, which would not be compressed.
    fn check_output(&self) -> Result<(), UsageError> {
        if self.output().extension().is_some_and(|extension| extension == "gz") {
            let message = format!(
                "cannot write `{}`: compressed output is not supported",
                self.output().display()
            );
            let hint = "remove `.gz`, or use `--output -` and pipe the output to gzip".to_owned();
            return Err(UsageError { message, hint });
        }
        Ok(())
    }

    /// Opens the run and the input, runs `work` with progress output, and prints a summary.
    pub(super) fn run_job(
        self,
        printer: &mut Printer,
        work: impl FnOnce(
            &Predictor,
            PredictJob<'_>,
            &mut dyn FnMut(PredictEvent<'_>),
        ) -> Result<(RowCounts, String), PredictError>,
    ) -> Result<ExitCode> {
        check_input(&self.input)?;
        let threads = self.threads.apply();
        let stop = stop_flag();
        let run = self.run.open()?;
        let predictor = Predictor::open(&run, &Device::flex())?;
        let smiles_column = self.smiles_column.as_deref().or(predictor.smiles_column());
        let input = InferenceInput::open(
            &self.input,
            predictor.featurizer(),
            predictor.schema(),
            smiles_column,
        );
        let on_invalid = match self.on_invalid {
            InvalidRows::Fail => OnInvalidRow::Fail,
            InvalidRows::Skip => OnInvalidRow::Skip,
            InvalidRows::Keep => OnInvalidRow::Keep,
        };
        let job = PredictJob {
            input: input.map_err(PredictError::Input)?,
            on_invalid,
            threads,
            stop: &stop,
        };
        let start = Instant::now();
        let speed =
            |counts: &RowCounts| counts.predicted as f64 / start.elapsed().as_secs_f64().max(1e-9);
        let mut progress = TaskProgress::bytes("predicting");
        let mut warnings = 0;
        let result = work(&predictor, job, &mut |event| match event {
            PredictEvent::Invalid(error) => {
                warnings += 1;
                if warnings <= MAX_WARNINGS {
                    progress.line(&format!("warning: {error}"));
                }
            }
            PredictEvent::Progress { counts, read_bytes, bytes } => {
                let message = format!("{} rows  {:.0} graphs/s", counts.rows, speed(&counts));
                progress.show(read_bytes, bytes, &message);
            }
        });
        progress.finish();
        let (counts, details) = match result {
            Ok(done) => done,
            Err(PredictError::Stopped) => {
                printer.note(&PredictError::Stopped.to_string());
                return Ok(ExitCode::from(130));
            }
            // The reader of a pipe, such as `head`, needs no more rows.
            Err(PredictError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Err(error.into()),
        };
        if warnings > MAX_WARNINGS {
            printer.note(&format!("warning: {} more invalid rows", warnings - MAX_WARNINGS));
        }
        let graphs_per_second = speed(&counts);
        let seconds = start.elapsed().as_secs_f64();
        let output = self.output().display().to_string();
        let text = || {
            let RowCounts { rows, predicted, invalid } = counts;
            let invalid = match (invalid, on_invalid) {
                (0, _) => String::new(),
                (count, OnInvalidRow::Keep) => format!(", {count} invalid kept"),
                (count, _) => format!(", {count} invalid skipped"),
            };
            format!(
                "{output}: {predicted} of {rows} rows predicted{invalid}{details}, \
                 {graphs_per_second:.0} graphs/s"
            )
        };
        if output == "-" {
            printer.note(&text());
        } else {
            let (input, output) = (self.input.clone(), self.output().to_owned());
            let run = run.directory().to_owned();
            let summary = PredictSummary { run, input, output, counts, seconds, graphs_per_second };
            printer.data(&summary, text);
        }
        Ok(ExitCode::SUCCESS)
    }
}
