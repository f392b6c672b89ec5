//! `predict`: what a run says of the rows of a file.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use graph_diffuser::Device;
use graph_diffuser::predict::{
    AtomicFile, OnInvalidRow, PredictError, PredictEvent, PredictJob, Predictor, RowCounts,
    predict_rows,
};
use graph_diffuser_data::inference_input::InferenceInput;
use serde::Serialize;

use crate::args::{RunArgs, use_threads};
use crate::interrupt::stop_flag;
use crate::printer::{Misuse, Printer};
use crate::progress::FileProgress;

/// Most rows that are named before the rest is only counted.
const NAMED: u64 = 20;

/// Predict for the molecules or graphs of a file
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser predict runs/molecules-s0 --input new.csv --output predicted.csv\n  \
    graph-diffuser predict runs/graphs-s0 --input new.jsonl --output - --on-invalid skip\n\n\
    A table keeps its columns and gets those of the prediction: NAME_pred for numbers, NAME_prob for labels, and for \
    classes `class`, `class_prob` and prob_NAME for each of them. A line of JSON gets the key `prediction`.\n\
    The output appears when all of it is written.")]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    rows: RowArgs,
}

/// What goes through a model, and where to.
#[derive(Debug, Args)]
pub(super) struct RowArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Table with a column of SMILES, or graphs as JSON lines; gzip or not
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// File to write; with `predict`, `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) output: PathBuf,
    /// What happens to rows that are no molecule or graph: nothing is written, they are left out, or kept empty
    #[arg(long, value_enum, default_value_t = Invalid::Fail)]
    pub(super) on_invalid: Invalid,
    /// Column of SMILES [default: that of the recipe, or `smiles`]
    #[arg(long, value_name = "COLUMN")]
    smiles: Option<String>,
    /// Replace the output if it exists
    #[arg(long)]
    pub(super) force: bool,
    /// Threads to compute with; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Invalid {
    Fail,
    Skip,
    Keep,
}

#[derive(Debug, Serialize)]
struct Predicted {
    run: PathBuf,
    input: PathBuf,
    output: PathBuf,
    #[serde(flatten)]
    counts: RowCounts,
    seconds: f64,
    graphs_per_second: f64,
}

pub(crate) fn predict(args: PredictArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    let to_stdout = args.rows.output.as_os_str() == "-";
    if to_stdout && printer.is_json() {
        let what = "`--json` and `--output -` would both write to standard output".to_owned();
        return Err(Misuse { what, hint: "name a file for the predictions" }.into());
    }
    args.rows.check_output()?;
    let new = if to_stdout {
        None
    } else {
        Some(AtomicFile::create(&args.rows.output, args.rows.force)?)
    };
    let stdout = printer.stream();
    args.rows.through(printer, |predictor, reading, tell| {
        let out: Box<dyn Write> = match &new {
            Some(new) => Box::new(new.file()),
            None => Box::new(stdout),
        };
        let mut out = BufWriter::with_capacity(1 << 16, out);
        let counts = predict_rows(predictor, reading, &mut out, tell)?;
        out.flush().map_err(PredictError::Output)?;
        drop(out);
        if let Some(new) = new {
            new.keep()?;
        }
        Ok((counts, String::new()))
    })
}

impl RowArgs {
    /// A name that says compressed would be a lie.
    pub(super) fn check_output(&self) -> Result<(), Misuse> {
        if self.output.extension().is_some_and(|extension| extension == "gz") {
            let what = format!("`{}` would not be compressed", self.output.display());
            return Err(Misuse {
                what,
                hint: "leave `.gz` away, or write to `-` and pipe it through gzip",
            });
        }
        Ok(())
    }

    /// Opens run and input, does the work with a bar over it, and tells what came of it.
    pub(super) fn through(
        self,
        printer: &mut Printer,
        work: impl FnOnce(
            &Predictor,
            PredictJob<'_>,
            &mut dyn FnMut(PredictEvent<'_>),
        ) -> Result<(RowCounts, String), PredictError>,
    ) -> anyhow::Result<ExitCode> {
        let threads = use_threads(self.threads);
        let stop = stop_flag();
        let run = self.run.open()?;
        let predictor = Predictor::open(&run, &Device::flex())?;
        let smiles = self.smiles.as_deref().or(predictor.smiles_column());
        let input =
            InferenceInput::open(&self.input, predictor.input(), predictor.schema(), smiles);
        let on_invalid = match self.on_invalid {
            Invalid::Fail => OnInvalidRow::Fail,
            Invalid::Skip => OnInvalidRow::Skip,
            Invalid::Keep => OnInvalidRow::Keep,
        };
        let reading = PredictJob {
            input: input.map_err(PredictError::Input)?,
            on_invalid,
            threads,
            stop: &stop,
        };
        let start = Instant::now();
        let speed =
            |counts: &RowCounts| counts.predicted as f64 / start.elapsed().as_secs_f64().max(1e-9);
        let mut progress = FileProgress::new("predicting");
        let mut named = 0;
        let done = work(&predictor, reading, &mut |told| match told {
            PredictEvent::Invalid(problem) => {
                named += 1;
                if named <= NAMED {
                    progress.line(&format!("warning: {problem}"));
                }
            }
            PredictEvent::Progress { counts, read_bytes, bytes } => {
                let message = format!("{} rows  {:.0} graphs/s", counts.rows, speed(&counts));
                progress.show(read_bytes, bytes, &message);
            }
        });
        progress.finish();
        let (counts, more) = match done {
            Ok(done) => done,
            Err(PredictError::Stopped) => {
                printer.note(&PredictError::Stopped.to_string());
                return Ok(ExitCode::from(130));
            }
            Err(error) => return Err(error.into()),
        };
        if named > NAMED {
            printer.note(&format!("warning: {} more rows are no molecule or graph", named - NAMED));
        }
        let graphs_per_second = speed(&counts);
        let seconds = start.elapsed().as_secs_f64();
        let output = self.output.display().to_string();
        let text = || {
            let RowCounts { rows, predicted, invalid } = counts;
            let invalid = match (invalid, on_invalid) {
                (0, _) => String::new(),
                (count, OnInvalidRow::Keep) => format!(", {count} left blank"),
                (count, _) => format!(", {count} left out"),
            };
            format!(
                "{output}: {predicted} of {rows} rows{invalid}{more}, {graphs_per_second:.0} graphs/s"
            )
        };
        if output == "-" {
            printer.note(&text());
        } else {
            let Self { input, output, .. } = self;
            let run = run.directory().to_owned();
            printer
                .data(&Predicted { run, input, output, counts, seconds, graphs_per_second }, text);
        }
        Ok(ExitCode::SUCCESS)
    }
}
