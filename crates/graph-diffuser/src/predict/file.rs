//! Streaming inference over a file; output rows have the order of the input rows.
//!
//! A reader thread parses the next chunk while the model processes the current one, so that only a
//! few thousand rows are in memory.

use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::panic;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use graph_diffuser_data::formats::inference_input::{CsvHeader, InferenceInput, InputRow, RowText};
use graph_diffuser_data::{Diagnostic, Graph, LocatedError, ThreadError, WriteError};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::Predictor;
use super::columns::csv_quote;
use super::counts::RowCounts;
use super::embeddings::{EmbeddingFormat, EmbeddingLevel, EmbeddingWriter};
use super::output::RowOutput;
use super::row::{RowColumns, RowPrediction};

/// Time after which a job that waits for its input notices that it is canceled.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// Handling of rows that cannot be converted into a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnInvalidRow {
    /// Fails with an error.
    Fail,
    /// Drops the row.
    Skip,
    /// Keeps the row without a prediction.
    Keep,
}

/// Input and options of an inference job.
#[derive(Debug)]
pub struct PredictJob<'a> {
    /// Input rows.
    pub input: InferenceInput,
    /// Handling of invalid rows.
    pub on_invalid: OnInvalidRow,
    /// Number of threads that parse molecules.
    pub threads: usize,
    /// Adds the column `nearest_train_similarity` to predictions.
    pub similarity: bool,
    /// Flag that cancels the job.
    pub stop: &'a AtomicBool,
}

/// Progress event of an inference job.
#[derive(Debug)]
pub enum PredictEvent<'a> {
    /// The job continues the output of an interrupted process.
    Resumed {
        /// Rows processed before.
        rows: u64,
    },
    /// A row is invalid.
    Invalid(&'a LocatedError),
    /// A chunk of rows is done.
    Progress {
        /// Rows processed so far.
        counts: RowCounts,
        /// Bytes read so far, including rows that are not processed yet.
        read_bytes: u64,
        /// Size of the input in bytes; 0 if unknown.
        bytes: u64,
    },
}

/// Error of an inference job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The input cannot be read.
    #[error(transparent)]
    Input(#[from] LocatedError),
    /// A row is invalid.
    #[error("{0}")]
    Invalid(LocatedError),
    /// The input already has a column with the name of a prediction column.
    #[error("the input already has a column `{column}`")]
    ColumnTaken {
        /// Name of the column.
        column: String,
    },
    /// The thread that reads the input cannot be started.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// The output file exists or cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A row cannot be written.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// The job was canceled.
    #[error("interrupted")]
    Stopped {
        /// Number of rows after which the same job continues; 0 if nothing was saved.
        saved_rows: u64,
    },
}

impl Diagnostic for PredictError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Input(error) => error.hint(),
            Self::Invalid(error) => {
                let options = "use `--on-invalid skip` to drop invalid rows, or `--on-invalid keep` to \
                               keep them without a prediction";
                Some(
                    error
                        .hint()
                        .map_or_else(|| options.to_owned(), |hint| format!("{hint}; {options}")),
                )
            }
            Self::Thread(error) => error.hint(),
            Self::ColumnTaken { .. } => Some("rename or remove the column".into()),
            Self::Write(error) => error.hint(),
            Self::Output(_) => Some("check free disk space and permissions".into()),
            Self::Stopped { .. } => None,
        }
    }

    fn is_usage_error(&self) -> bool {
        match self {
            Self::ColumnTaken { .. } => true,
            Self::Write(error) => error.is_usage_error(),
            Self::Input(_)
            | Self::Invalid(_)
            | Self::Thread(_)
            | Self::Output(_)
            | Self::Stopped { .. } => false,
        }
    }
}

/// Writes each input row with its prediction: as additional CSV columns, or as the key `prediction`
/// of a JSON line.
///
/// # Errors
/// Returns an error if the input cannot be read, a row is invalid and must not be, or the output
/// cannot be written.
pub fn predict_rows(
    predictor: &Predictor,
    job: PredictJob<'_>,
    mut out: RowOutput<'_>,
    on_event: impl FnMut(PredictEvent<'_>),
) -> Result<RowCounts, PredictError> {
    let columns = RowColumns {
        schema: predictor.schema(),
        std: predictor.num_members() > 1,
        similarity: job.similarity,
    };
    let header = job.input.header.clone();
    let threads = job.threads;
    if let Some(header) = &header {
        let columns = columns.names();
        if let Some(column) = columns.iter().find(|column| header.names.contains(column)) {
            return Err(PredictError::ColumnTaken { column: column.clone() });
        }
        if out.resumed_rows() == 0 {
            write_cells(&mut out, header, &header.bytes, &columns).map_err(PredictError::Output)?;
        }
    }
    let write = |out: &mut RowOutput<'_>, text: &RowText, row: Option<RowPrediction>| {
        if let Some(domain) = row.as_ref().and_then(|row| row.domain) {
            let counts = &mut out.progress.counts;
            counts.outside_domain += u64::from(domain.is_outside());
            counts.dissimilar += u64::from(domain.is_dissimilar());
            counts.unusual_size += u64::from(domain.has_unusual_size);
        }
        match &header {
            Some(header) => write_csv_row(out, header, text, &columns.cells(row.as_ref())),
            None => write_jsonl_row(out, text, columns.json(row.as_ref())),
        }
    };
    let infer = |graphs: Vec<Graph>| {
        let domain = predictor.domain().map(|domain| domain.check_all(&graphs, threads));
        let mut rows = predictor.predict_with_std(graphs);
        for (row, check) in rows.iter_mut().zip(domain.into_iter().flatten()) {
            row.domain = Some(check);
        }
        rows
    };
    let is_finite = |row: &RowPrediction| row.is_finite;
    let (counts, out) = run(job, out, infer, is_finite, write, on_event)?;
    finish(out)?;
    Ok(counts)
}

/// Writes the embeddings of each input row and returns the number of embeddings beside the row
/// counts; the embedding of an invalid row that is kept is NaN.
///
/// The header of an npy array contains the number of rows. If the output is a stream, the array is
/// therefore written to a temporary file first.
///
/// # Errors
/// Returns the errors of [`predict_rows`].
pub fn embed_rows(
    predictor: &Predictor,
    job: PredictJob<'_>,
    mut out: RowOutput<'_>,
    format: EmbeddingFormat,
    level: EmbeddingLevel,
    on_event: impl FnMut(PredictEvent<'_>),
) -> Result<(RowCounts, u64), PredictError> {
    let writer = EmbeddingWriter { format, level, dim: predictor.embedding_dim() };
    let infer = |graphs| predictor.embeddings(graphs, level);
    let write = |out: &mut RowOutput<'_>, text: &RowText, embeddings: Option<Vec<f32>>| {
        let rows = writer.write(out, text, embeddings.as_deref())?;
        out.progress.embeddings += rows;
        Ok(())
    };
    if format == EmbeddingFormat::Npy && !out.is_seekable() {
        let mut array = tempfile::tempfile().map_err(PredictError::Output)?;
        let written = RowOutput::stream(&array);
        let (counts, written) = run(job, written, infer, are_finite, write, on_event)?;
        let rows = written.progress.embeddings;
        finish(written)?;
        let copied = out.write_all(&writer.header(rows)).and_then(|()| {
            array.seek(SeekFrom::Start(0))?;
            io::copy(&mut array, &mut out)
        });
        copied.map_err(PredictError::Output)?;
        finish(out)?;
        return Ok((counts, rows));
    }
    if out.resumed_rows() == 0 {
        // The header of an npy array is written again at the end, with the number of rows.
        out.write_all(&writer.header(0)).map_err(PredictError::Output)?;
    }
    let (counts, mut out) = run(job, out, infer, are_finite, write, on_event)?;
    let rows = out.progress.embeddings;
    if format == EmbeddingFormat::Npy {
        out.overwrite_start(&writer.header(rows)).map_err(PredictError::Output)?;
    }
    finish(out)?;
    Ok((counts, rows))
}

/// Applies `infer` to all rows and writes the results in the order of the rows.
///
/// The output is kept for a later process if the job is canceled or a row cannot be written.
fn run<'o, T>(
    job: PredictJob<'_>,
    mut out: RowOutput<'o>,
    infer: impl Fn(Vec<Graph>) -> Vec<T>,
    is_finite: impl Fn(&T) -> bool,
    mut write: impl FnMut(&mut RowOutput<'o>, &RowText, Option<T>) -> io::Result<()>,
    mut on_event: impl FnMut(PredictEvent<'_>),
) -> Result<(RowCounts, RowOutput<'o>), PredictError> {
    let PredictJob { mut input, on_invalid, threads, stop, .. } = job;
    let path = input.path.clone();
    let infer = |graphs: Vec<Graph>, rows: &[RowText]| {
        let checked = infer(graphs).into_iter().zip(rows).map(|(result, row)| {
            if is_finite(&result) { Ok(result) } else { Err(not_finite(&path, row.line)) }
        });
        checked.collect::<Vec<Result<T, LocatedError>>>()
    };
    let (read, bytes) = (Arc::clone(&input.read), input.bytes);
    let resumed_rows = out.resumed_rows();
    if resumed_rows > 0 {
        on_event(PredictEvent::Resumed { rows: resumed_rows });
    }
    let (send, receive) = mpsc::sync_channel::<Vec<InputRow>>(1);
    let read_rows = move || {
        input.skip_rows(resumed_rows);
        // Sending fails when the receiver has stopped, which ends the reader.
        let _ = input.chunks(threads).try_for_each(|chunk| send.send(chunk));
    };
    let reader = match thread::Builder::new().spawn(read_rows) {
        Ok(reader) => reader,
        Err(error) => {
            if resumed_rows == 0 {
                out.discard();
            }
            return Err(ThreadError(error).into());
        }
    };
    loop {
        let chunk = receive.recv_timeout(STOP_INTERVAL);
        if stop.load(Ordering::Relaxed) {
            // The reader is not joined: it may wait for the next bytes of a pipe.
            let saved_rows = out.stop().map_err(PredictError::Output)?;
            return Err(PredictError::Stopped { saved_rows });
        }
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        match run_chunk(chunk, &mut out, on_invalid, infer, &mut write, &mut on_event) {
            Ok(()) => {}
            Err(error @ PredictError::Output(_)) => return Err(error),
            Err(error) => {
                out.discard();
                return Err(error);
            }
        }
        let (read_bytes, bytes) = InferenceInput::progress(&read, bytes);
        on_event(PredictEvent::Progress { counts: out.progress.counts, read_bytes, bytes });
    }
    if let Err(panic) = reader.join() {
        panic::resume_unwind(panic);
    }
    Ok((out.progress.counts, out))
}

fn finish(mut out: RowOutput<'_>) -> Result<(), PredictError> {
    out.complete().map_err(PredictError::Output)?;
    Ok(out.persist()?)
}

fn run_chunk<'o, T>(
    chunk: Vec<InputRow>,
    out: &mut RowOutput<'o>,
    on_invalid: OnInvalidRow,
    infer: impl Fn(Vec<Graph>, &[RowText]) -> Vec<Result<T, LocatedError>>,
    mut write: impl FnMut(&mut RowOutput<'o>, &RowText, Option<T>) -> io::Result<()>,
    mut on_event: impl FnMut(PredictEvent<'_>),
) -> Result<(), PredictError> {
    let mut counts = out.progress.counts;
    counts.rows += chunk.len() as u64;
    let mut graphs = Vec::with_capacity(chunk.len());
    let mut predicted = Vec::with_capacity(chunk.len());
    // Text of each row, with the error of an invalid one.
    let mut rows = Vec::with_capacity(chunk.len());
    for InputRow { text, graph, is_fatal } in chunk {
        let row = match graph {
            Ok(Some(graph)) => {
                graphs.push(graph);
                predicted.push(text);
                RowKind::Graph
            }
            Ok(None) => RowKind::Blank(text),
            Err(error) if is_fatal => return Err(PredictError::Input(error)),
            Err(error) if on_invalid == OnInvalidRow::Fail => {
                return Err(PredictError::Invalid(error));
            }
            Err(error) => RowKind::Invalid(text, error),
        };
        rows.push(row);
    }
    let mut results = infer(graphs, &predicted).into_iter().zip(predicted);
    let mut written = Vec::with_capacity(rows.len());
    for row in rows {
        let (text, error) = match row {
            RowKind::Blank(text) => {
                written.push((text, None));
                continue;
            }
            RowKind::Invalid(text, error) => (text, error),
            RowKind::Graph => match results.next().expect("every graph has a result") {
                (Ok(result), text) => {
                    counts.predicted += 1;
                    written.push((text, Some(result)));
                    continue;
                }
                (Err(error), _) if on_invalid == OnInvalidRow::Fail => {
                    return Err(PredictError::Invalid(error));
                }
                (Err(error), text) => (text, error),
            },
        };
        counts.invalid += 1;
        on_event(PredictEvent::Invalid(&error));
        if on_invalid == OnInvalidRow::Keep {
            written.push((text, None));
        }
    }
    out.progress.counts = counts;
    for (text, result) in written {
        write(out, &text, result).map_err(PredictError::Output)?;
    }
    out.end_chunk().map_err(PredictError::Output)
}

/// Row of a chunk.
enum RowKind {
    /// Row with the next graph of the chunk.
    Graph,
    /// Row without content, which is neither predicted nor invalid.
    Blank(RowText),
    Invalid(RowText, LocatedError),
}

/// A prediction is NaN or infinite.
#[derive(Debug, thiserror::Error)]
#[error("the output of the model is not finite")]
struct NonFiniteOutput;

impl Diagnostic for NonFiniteOutput {
    fn hint(&self) -> Option<String> {
        Some("check the features of this row: very large values overflow".into())
    }
}

fn not_finite(path: &Path, line: u64) -> LocatedError {
    let error = Box::new(NonFiniteOutput);
    LocatedError { path: path.to_owned(), line: Some(line), column: None, error }
}

#[expect(clippy::ptr_arg, reason = "the embeddings of one row")]
fn are_finite(embeddings: &Vec<f32>) -> bool {
    embeddings.iter().all(|value| value.is_finite())
}

fn write_cells(
    out: &mut dyn Write,
    header: &CsvHeader,
    bytes: &[u8],
    cells: &[String],
) -> io::Result<()> {
    out.write_all(bytes)?;
    for cell in cells {
        out.write_all(&[header.delimiter])?;
        out.write_all(csv_quote(cell, header.delimiter).as_bytes())?;
    }
    out.write_all(header.line_end.as_bytes())
}

fn write_csv_row(
    out: &mut dyn Write,
    header: &CsvHeader,
    text: &RowText,
    cells: &[String],
) -> io::Result<()> {
    // A row that could not be parsed into cells becomes empty cells, so that columns stay aligned.
    let empty = vec![header.delimiter; header.names.len() - 1];
    write_cells(out, header, if text.bytes.is_empty() { &empty } else { &text.bytes }, cells)
}

#[expect(clippy::zero_sized_map_values, reason = "keys are counted, values are skipped")]
fn write_jsonl_row(out: &mut dyn Write, text: &RowText, prediction: Value) -> io::Result<()> {
    let line = text.bytes.trim_ascii();
    // The values of an invalid line may take much more memory than its text.
    let is_object = || {
        serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(line)
            .is_ok_and(|object| !object.is_empty())
    };
    match line.strip_suffix(b"}") {
        // The line of a valid graph is an object; an invalid line may be anything.
        Some(open) if !prediction.is_null() || is_object() => {
            out.write_all(open)?;
            writeln!(out, ", \"prediction\": {prediction}}}")
        }
        _ => writeln!(out, "{}", json!({ "line": text.line, "prediction": prediction })),
    }
}
