//! `predict`: predicts targets for the rows of a file.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use graph_diffuser::domain::TrainingDomain;
use graph_diffuser::predict::{
    OnInvalidRow, PredictError, PredictEvent, PredictJob, Predictor, RowCounts, RowOutput,
    describe_job, predict_rows,
};
use graph_diffuser::run::Run;
use graph_diffuser_data::formats::inference_input::InferenceInput;
use graph_diffuser_data::formats::smiles_csv::SmilesColumn;
use serde::Serialize;
use serde_json::json;

use crate::args::{DeviceArgs, RunArgs, ThreadArgs};
use crate::error::{Failure, Result, UsageError};
use crate::input::{is_stdin, is_stream};
use crate::interrupt::stop_flag;
use crate::output::{Destination, OutputArgs};
use crate::printer::{Printer, counted, path_text};
use crate::progress::TaskProgress;
use crate::session::{Completion, Session};

/// Number of invalid rows reported one by one; the others are counted.
const MAX_WARNINGS: u64 = 20;

/// Predict targets for the rows of a file
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser predict runs/mine-s0 --input new.csv -o predictions.csv\n  \
    graph-diffuser predict runs/graphs-s0 --input new.jsonl -o - --on-invalid skip\n  \
    zcat new.csv.gz | graph-diffuser predict runs/mine-s0 --input - -o - | head\n\n\
    CSV output keeps all input columns and appends NAME_pred for regression targets, NAME_prob \
    for binary targets, or NAME_pred and one NAME_prob_CLASS per class for multi-class targets. \
    An ensemble also appends NAME_std, the standard deviation over its members. JSON Lines \
    output adds the key `prediction`. Rows of a directory have the column \
    `graph`. An output file that ends in .gz is compressed. The file is written as FILE.partial \
    and renamed when it is complete; if the command is interrupted, running it again continues \
    after the last saved row.")]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    rows: RowArgs,
    /// Append `nearest_train_similarity`, the similarity to the nearest training molecule
    #[arg(long)]
    similarity: bool,
}

/// Arguments shared by `predict` and `embed`.
#[derive(Debug, Args)]
#[command(mut_arg("output", |arg| arg.required(true)))]
pub(super) struct RowArgs {
    #[command(flatten)]
    run: RunArgs,
    /// CSV, SMILES, SDF or Parquet file of molecules, JSON file of graphs, or TU or OGB directory;
    /// text files may be gzipped; `-` for standard input
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Handling of invalid rows: abort, drop them, or keep them without a result
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = InvalidRows::Fail)]
    pub(super) on_invalid: InvalidRows,
    /// Name of the SMILES column [default: from the recipe, or `smiles`]
    #[arg(long, value_name = "COLUMN")]
    smiles_column: Option<String>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Output of `predict` or `embed`.
#[derive(Clone, Copy)]
pub(super) struct JobOutput<'a> {
    /// Describes what is written, which distinguishes jobs with the same input.
    pub(super) content: &'a str,
    pub(super) destination: Destination,
    /// Adds the similarity to the nearest training molecule.
    pub(super) similarity: bool,
    pub(super) session: &'a Session,
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
    #[serde(serialize_with = "path_text")]
    run: PathBuf,
    #[serde(serialize_with = "path_text")]
    input: PathBuf,
    #[serde(serialize_with = "path_text")]
    output: PathBuf,
    #[serde(flatten)]
    counts: RowCounts,
    seconds: f64,
    graphs_per_second: f64,
}

pub(crate) fn predict(args: PredictArgs, printer: &mut Printer) -> Result<ExitCode> {
    Session::start().run(|session| {
        let destination = args.rows.destination(session, printer)?;
        let similarity = args.similarity;
        let content = if similarity { "predictions and similarities" } else { "predictions" };
        let job = JobOutput { content, destination, similarity, session };
        args.rows.run_job(job, printer, |predictor, job, output, on_event| {
            Ok((predict_rows(predictor, job, output, on_event)?, String::new()))
        })
    })
}

/// Describes the predicted molecules that are unlike the training molecules.
fn domain_warning(counts: &RowCounts, domain: &TrainingDomain) -> String {
    let RowCounts { predicted, outside_domain, dissimilar, unusual_size, .. } = *counts;
    let mut reasons = Vec::new();
    if dissimilar > 0 {
        reasons.push(format!(
            "{dissimilar} with a similarity below {} to every training molecule",
            TrainingDomain::MIN_SIMILARITY
        ));
    }
    if unusual_size > 0 {
        let [min, max] = domain.atom_limits();
        reasons.push(format!("{unusual_size} with a number of atoms outside of {min} to {max}"));
    }
    format!(
        "warning: predictions for {outside_domain} of {} may be unreliable: {}",
        counted(predicted as usize, "molecule", "molecules"),
        reasons.join(", ")
    )
}

impl RowArgs {
    /// Returns the destination of the output, which the first process writes.
    ///
    /// # Errors
    /// Returns an error under the conditions of [`OutputArgs::destination`], or if several
    /// processes would read a stream.
    pub(super) fn destination(&self, session: &Session, printer: &Printer) -> Result<Destination> {
        let destination = session.first_alone(|| self.output.destination(printer))?;
        if session.group().size() > 1 && is_stream(&self.input) {
            let message = format!("several processes cannot read `{}`", self.input.display());
            let hint = "write the rows to a file, or use one process".to_owned();
            return Err(UsageError { message, hint }.into());
        }
        Ok(destination)
    }

    /// Opens the input.
    fn open_input(&self, predictor: &Predictor) -> Result<InferenceInput, PredictError> {
        let (path, featurizer, schema) = (&self.input, predictor.featurizer(), predictor.schema());
        let of_training = predictor.smiles_column().map(SmilesColumn::OfTraining);
        let smiles_column = self.smiles_column.as_deref().map(SmilesColumn::Named);
        let smiles_column = smiles_column.or(of_training).unwrap_or_default();
        let input = if is_stdin(path) {
            InferenceInput::from_reader(path, io::stdin(), featurizer, schema, smiles_column)
        } else {
            InferenceInput::open(path, featurizer, schema, smiles_column)
        };
        Ok(input?)
    }

    /// Opens the output, which continues an interrupted job if input and output are files.
    fn open_output(
        &self,
        JobOutput { content, destination, session, .. }: JobOutput<'_>,
        predictor: &Predictor,
        printer: &Printer,
    ) -> Result<RowOutput<'static>> {
        if !session.group().is_root() {
            return Ok(RowOutput::stream(io::sink()));
        }
        let (path, force) = (self.output.path(), self.output.force);
        Ok(match destination {
            Destination::Stdout => RowOutput::stream(printer.stream()),
            Destination::Device => RowOutput::stream(self.output.open_device()?),
            Destination::File if is_stream(&self.input) => RowOutput::create(path, force)?,
            Destination::File => {
                let on_invalid = format!("{:?}", self.on_invalid);
                let smiles_column = self.smiles_column.as_deref().or(predictor.smiles_column());
                let options = json!({
                    "content": content,
                    "on_invalid": on_invalid,
                    "smiles_column": smiles_column,
                });
                let job = describe_job(predictor, &self.input, &options).map_err(
                    Failure::caused(format!("cannot access `{}`", self.input.display())),
                )?;
                RowOutput::resumable(path, force, &job)?
            }
        })
    }

    /// Opens the run, the input and the output, runs `work` with progress output, and prints a
    /// summary.
    pub(super) fn run_job(
        &self,
        job_output: JobOutput<'_>,
        printer: &mut Printer,
        work: impl FnOnce(
            &Predictor,
            PredictJob<'_>,
            RowOutput<'_>,
            &mut dyn FnMut(PredictEvent<'_>),
        ) -> Result<(RowCounts, String), PredictError>,
    ) -> Result<Completion> {
        let JobOutput { destination, similarity, session, .. } = job_output;
        let threads = self.threads.apply();
        let (stop, device) = (stop_flag(), self.device.open()?);
        let run = session.first_alone(|| self.run.open())?;
        let predictor = Predictor::open(&run, &device)?;
        if similarity && predictor.domain().is_none() {
            return Err(no_domain(&run).into());
        }
        let input = self.open_input(&predictor)?;
        let output = self.open_output(job_output, &predictor, printer)?;
        let on_invalid = match self.on_invalid {
            InvalidRows::Fail => OnInvalidRow::Fail,
            InvalidRows::Skip => OnInvalidRow::Skip,
            InvalidRows::Keep => OnInvalidRow::Keep,
        };
        let group = session.group().clone();
        let is_shared = group.size() > 1;
        let job = PredictJob { input, on_invalid, threads, similarity, stop: &stop, group };
        let start = Instant::now();
        let mut resumed_rows = 0;
        let mut progress = TaskProgress::bytes("predicting");
        let mut warnings = 0;
        let speed = |counts: &RowCounts, resumed_rows: u64| {
            let rows = counts.predicted.saturating_sub(resumed_rows);
            rows as f64 / start.elapsed().as_secs_f64().max(1e-9)
        };
        let result = work(&predictor, job, output, &mut |event| match event {
            PredictEvent::Resumed { rows } => {
                resumed_rows = rows;
                progress.line(&format!("resuming after {}", counted_rows(rows)));
            }
            PredictEvent::Invalid(error) => {
                warnings += 1;
                if warnings <= MAX_WARNINGS {
                    progress.line(&format!("warning: {error}"));
                }
            }
            PredictEvent::Progress { counts, read_bytes, bytes } => {
                let speed = speed(&counts, resumed_rows);
                let message = format!("{} rows  {speed:.0} graphs/s", counts.rows);
                progress.show(read_bytes, bytes, &message);
            }
        });
        progress.finish();
        let (counts, details) = match result {
            Ok(done) => done,
            Err(PredictError::Stopped { saved_rows: 0 }) => {
                printer.note("interrupted, no output file was written");
                return Ok(Completion::Interrupted);
            }
            Err(PredictError::Stopped { saved_rows }) => {
                let rows = counted_rows(saved_rows);
                printer.note(&format!("interrupted after {rows}; run the command again to resume"));
                return Ok(Completion::Interrupted);
            }
            // The reader of a pipe, such as `head`, needs no more rows.
            Err(PredictError::Output(error))
                if error.kind() == ErrorKind::BrokenPipe && !is_shared =>
            {
                return Ok(Completion::Complete);
            }
            Err(error) => return Err(error.into()),
        };
        if warnings > MAX_WARNINGS {
            printer.note(&format!("warning: {} more invalid rows", warnings - MAX_WARNINGS));
        }
        if let Some(domain) = predictor.domain().filter(|_| counts.outside_domain > 0) {
            printer.note(&domain_warning(&counts, domain));
        }
        let graphs_per_second = speed(&counts, resumed_rows);
        let seconds = start.elapsed().as_secs_f64();
        let output = self.output.path().display().to_string();
        let text = || {
            let RowCounts { rows, predicted, invalid, .. } = counts;
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
        if destination == Destination::Stdout {
            printer.note(&text());
        } else {
            let (input, output) = (self.input.clone(), self.output.path().to_owned());
            let run = run.directory().to_owned();
            let summary = PredictSummary { run, input, output, counts, seconds, graphs_per_second };
            printer.data(&summary, text);
        }
        Ok(Completion::Complete)
    }
}

/// Creates the error of `--similarity` for a run without fingerprints.
fn no_domain(run: &Run) -> UsageError {
    let directory = run.directory().display();
    let [message, hint] = if run.recipe().data.featurizer().accepts_smiles() {
        [
            format!("`{directory}` does not store its training molecules"),
            "it was trained by an earlier version or is a pretrained model; omit `--similarity`"
                .to_owned(),
        ]
    } else {
        [
            format!("`{directory}` was not trained on molecules"),
            "`--similarity` compares molecules; omit it".to_owned(),
        ]
    };
    UsageError { message, hint }
}

fn counted_rows(rows: u64) -> String {
    counted(rows as usize, "row", "rows")
}
