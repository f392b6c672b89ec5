//! Streaming inference over a file; output rows have the order of the input rows.
//!
//! A reader thread parses the next chunk while the model processes the current one, so that only a
//! few thousand rows are in memory.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use graph_diffuser_data::formats::inference_input::{CsvHeader, InferenceInput, InputRow, RowText};
use graph_diffuser_data::{AtomicFile, Diagnostic, Graph, LocatedError, Schema, WriteError};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::task::csv_columns;

use super::columns::csv_quote;
use super::embeddings::EmbeddingWriter;
use super::{EmbeddingFormat, EmbeddingLevel, Prediction, Predictor};

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
    /// Flag that cancels the job.
    pub stop: &'a AtomicBool,
}

/// Numbers of rows processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RowCounts {
    /// All rows.
    pub rows: u64,
    /// Rows with a prediction or embedding.
    pub predicted: u64,
    /// Invalid rows.
    pub invalid: u64,
}

/// Progress event of an inference job.
#[derive(Debug)]
pub enum PredictEvent<'a> {
    /// A row is invalid.
    Invalid(&'a LocatedError),
    /// A chunk of rows is done.
    Progress {
        /// Rows processed so far.
        counts: RowCounts,
        /// Bytes read so far, including rows that are not processed yet.
        read_bytes: u64,
        /// Size of the input in bytes.
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
    /// The output file exists or cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A row cannot be written.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// The job was canceled.
    #[error("interrupted, no output was written")]
    Stopped,
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
            Self::ColumnTaken { .. } => Some("rename or remove the column".into()),
            Self::Write(error) => error.hint(),
            Self::Output(_) => Some("check free disk space and permissions".into()),
            Self::Stopped => None,
        }
    }

    fn is_usage_error(&self) -> bool {
        match self {
            Self::ColumnTaken { .. } => true,
            Self::Write(error) => error.is_usage_error(),
            Self::Input(_) | Self::Invalid(_) | Self::Output(_) | Self::Stopped => false,
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
    out: &mut dyn Write,
    on_event: impl FnMut(PredictEvent<'_>),
) -> Result<RowCounts, PredictError> {
    let schema = predictor.schema();
    let header = job.input.header.clone();
    if let Some(header) = &header {
        let columns = csv_columns(schema);
        if let Some(column) = columns.iter().find(|column| header.names.contains(column)) {
            return Err(PredictError::ColumnTaken { column: column.clone() });
        }
        write_cells(out, header, &header.bytes, &columns).map_err(PredictError::Output)?;
    }
    let write = |text: &RowText, prediction: Option<Prediction>| match &header {
        Some(header) => write_csv_row(out, header, text, prediction.as_ref(), schema),
        None => write_jsonl_row(out, text, prediction.as_ref(), schema),
    };
    run(job, |graphs| predictor.predict(graphs), write, on_event)
}

/// Writes the embeddings of each input row and returns the number of embeddings beside the row
/// counts; the embedding of an invalid row that is kept is NaN.
///
/// # Errors
/// Returns the errors of [`predict_rows`].
pub fn embed_rows(
    predictor: &Predictor,
    job: PredictJob<'_>,
    out: &AtomicFile,
    format: EmbeddingFormat,
    level: EmbeddingLevel,
    on_event: impl FnMut(PredictEvent<'_>),
) -> Result<(RowCounts, u64), PredictError> {
    let mut writer = EmbeddingWriter::new(out.file(), format, level, predictor.embedding_dim())
        .map_err(PredictError::Output)?;
    let write =
        |text: &RowText, embeddings: Option<Vec<f32>>| writer.add(text, embeddings.as_deref());
    let counts = run(job, |graphs| predictor.embeddings(graphs, level), write, on_event)?;
    Ok((counts, writer.finish().map_err(PredictError::Output)?))
}

/// Applies `infer` to all rows and writes the results in the order of the rows.
fn run<T>(
    job: PredictJob<'_>,
    infer: impl Fn(Vec<Graph>) -> Vec<T>,
    mut write: impl FnMut(&RowText, Option<T>) -> io::Result<()>,
    mut on_event: impl FnMut(PredictEvent<'_>),
) -> Result<RowCounts, PredictError> {
    let PredictJob { input, on_invalid, threads, stop } = job;
    let (read, bytes) = (Arc::clone(&input.read), input.bytes);
    let mut counts = RowCounts::default();
    thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel::<Vec<InputRow>>(1);
        scope.spawn(move || {
            // Sending fails when the receiver has stopped, which ends the reader.
            let _ = input.chunks(threads).try_for_each(|chunk| send.send(chunk));
        });
        for chunk in receive {
            if stop.load(Ordering::Relaxed) {
                return Err(PredictError::Stopped);
            }
            counts.rows += chunk.len() as u64;
            let mut rows: Vec<(RowText, bool)> = Vec::with_capacity(chunk.len());
            let mut graphs = Vec::with_capacity(chunk.len());
            for InputRow { text, graph, is_fatal } in chunk {
                match graph {
                    Ok(Some(graph)) => {
                        graphs.push(graph);
                        rows.push((text, true));
                    }
                    // A row without content is neither predicted nor invalid.
                    Ok(None) => rows.push((text, false)),
                    Err(error) if is_fatal => return Err(PredictError::Input(error)),
                    Err(error) if on_invalid == OnInvalidRow::Fail => {
                        return Err(PredictError::Invalid(error));
                    }
                    Err(error) => {
                        counts.invalid += 1;
                        on_event(PredictEvent::Invalid(&error));
                        if on_invalid == OnInvalidRow::Keep {
                            rows.push((text, false));
                        }
                    }
                }
            }
            counts.predicted += graphs.len() as u64;
            let mut results = infer(graphs).into_iter();
            for (text, valid) in rows {
                let result = if valid { results.next() } else { None };
                write(&text, result).map_err(PredictError::Output)?;
            }
            let (read_bytes, bytes) = InferenceInput::progress(&read, bytes);
            on_event(PredictEvent::Progress { counts, read_bytes, bytes });
        }
        Ok(counts)
    })
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
    prediction: Option<&Prediction>,
    schema: &Schema,
) -> io::Result<()> {
    let cells = match prediction {
        Some(prediction) => prediction.csv_cells(schema),
        None => vec![String::new(); csv_columns(schema).len()],
    };
    // A row that could not be parsed into cells becomes empty cells, so that columns stay aligned.
    let empty = vec![header.delimiter; header.names.len() - 1];
    write_cells(out, header, if text.bytes.is_empty() { &empty } else { &text.bytes }, &cells)
}

fn write_jsonl_row(
    out: &mut dyn Write,
    text: &RowText,
    prediction: Option<&Prediction>,
    schema: &Schema,
) -> io::Result<()> {
    let prediction = prediction.map_or(Value::Null, |prediction| prediction.to_json(schema));
    let line = text.bytes.trim_ascii();
    let is_object = || {
        serde_json::from_slice::<Map<String, Value>>(line).is_ok_and(|object| !object.is_empty())
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
