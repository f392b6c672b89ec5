//! A whole file through a model: rows in, the same rows out, in their order.
//!
//! The next rows are read while some are predicted, and only a few thousand are held at a time.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use graph_diffuser_data::inference_input::{CsvHeader, InferenceInput, InputRow, RowText};
use graph_diffuser_data::{Graph, LocatedError, Schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::columns::{cells, columns, quoted, to_json};
use super::embeddings::VectorWriter;
use super::{AtomicFile, EmbeddingFormat, EmbeddingLevel, Prediction, Predictor};

/// What happens to a row that is no graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnInvalidRow {
    /// Nothing is written.
    Fail,
    /// It is left out.
    Skip,
    /// It is kept, with nothing predicted.
    Keep,
}

/// What is read, and how.
#[derive(Debug)]
pub struct PredictJob<'a> {
    /// The rows.
    pub input: InferenceInput,
    /// What happens to a row that is no graph.
    pub on_invalid: OnInvalidRow,
    /// Threads that read molecules.
    pub threads: usize,
    /// Set to stop early; nothing is written then.
    pub stop: &'a AtomicBool,
}

/// What came of the rows of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RowCounts {
    /// All of them.
    pub rows: u64,
    /// Those that the model was asked about.
    pub predicted: u64,
    /// Those that are no graphs.
    pub invalid: u64,
}

/// What happens on the way.
#[derive(Debug)]
pub enum PredictEvent<'a> {
    /// A row is no graph.
    Invalid(&'a LocatedError),
    /// Some rows are done.
    Progress {
        /// So far.
        counts: RowCounts,
        /// Bytes of the input that were read, which is a little ahead.
        read_bytes: u64,
        /// Bytes of the input.
        bytes: u64,
    },
}

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The input cannot be read.
    #[error(transparent)]
    Input(#[from] LocatedError),
    /// A row is no graph.
    #[error("{0}")]
    Invalid(LocatedError),
    /// The table has such a column already.
    #[error("the table already has a column `{column}`, which the prediction would have")]
    ColumnTaken {
        /// Its name.
        column: String,
    },
    /// The place is taken.
    #[error("`{path}` already exists")]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot write `{path}`")]
    Write {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The rows cannot be written.
    #[error("the output cannot be written")]
    Output(#[source] io::Error),
    /// The user said stop.
    #[error("stopped, and nothing was written")]
    Stopped,
}

impl PredictError {
    /// What the user can do about it, when we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Input(problem) => problem.hint(),
            Self::Invalid(problem) => {
                let others = "`--on-invalid skip` leaves such rows out, `--on-invalid blank` keeps them without a prediction";
                Some(
                    problem
                        .hint()
                        .map_or_else(|| others.to_owned(), |hint| format!("{hint}; {others}")),
                )
            }
            Self::ColumnTaken { .. } => {
                Some("rename the column, or give the table as it was before prediction".into())
            }
            Self::Exists { .. } => {
                Some("choose another `--output`, or replace it with `--force`".into())
            }
            Self::Write { .. } | Self::Output(_) => Some("check free space and permissions".into()),
            Self::Stopped => None,
        }
    }
}

/// Writes each row with its prediction: cells behind those of a table, or the key `prediction` in a line of JSON.
///
/// # Errors
/// Where the input ends in a fault, a row is no graph and none may be left out, or the output fails.
pub fn predict_rows(
    predictor: &Predictor,
    reading: PredictJob<'_>,
    out: &mut dyn Write,
    tell: impl FnMut(PredictEvent<'_>),
) -> Result<RowCounts, PredictError> {
    let schema = predictor.schema();
    let header = reading.input.header.clone();
    if let Some(header) = &header {
        let columns = columns(schema);
        if let Some(column) = columns.iter().find(|column| header.names.contains(column)) {
            return Err(PredictError::ColumnTaken { column: column.clone() });
        }
        write_row(out, header, &header.bytes, &columns).map_err(PredictError::Output)?;
    }
    let write = |text: &RowText, prediction: Option<Prediction>| match &header {
        Some(header) => write_table_row(out, header, text, prediction.as_ref(), schema),
        None => write_line(out, text, prediction.as_ref(), schema),
    };
    drive(reading, |graphs| predictor.predict(graphs), write, tell)
}

/// Writes the vectors of each row; a row that is kept without any is not a number.
///
/// # Errors
/// As [`predict_rows`].
pub fn embed_rows(
    predictor: &Predictor,
    reading: PredictJob<'_>,
    out: &AtomicFile,
    format: EmbeddingFormat,
    of: EmbeddingLevel,
    tell: impl FnMut(PredictEvent<'_>),
) -> Result<(RowCounts, u64), PredictError> {
    let mut writer = VectorWriter::new(out.file(), format, of, predictor.width())
        .map_err(PredictError::Output)?;
    let write = |text: &RowText, vectors: Option<Vec<f32>>| writer.add(text, vectors.as_deref());
    let counts = drive(reading, |graphs| predictor.vectors(graphs, of), write, tell)?;
    Ok((counts, writer.finish().map_err(PredictError::Output)?))
}

/// Asks about all rows and writes the answers in the order of the rows.
fn drive<T>(
    reading: PredictJob<'_>,
    ask: impl Fn(Vec<Graph>) -> Vec<T>,
    mut write: impl FnMut(&RowText, Option<T>) -> io::Result<()>,
    mut tell: impl FnMut(PredictEvent<'_>),
) -> Result<RowCounts, PredictError> {
    let PredictJob { input, on_invalid, threads, stop } = reading;
    let (read, bytes) = (Arc::clone(&input.read), input.bytes);
    let mut counts = RowCounts::default();
    thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel::<Vec<InputRow>>(1);
        scope.spawn(move || {
            // An error is the other side's wish for no more.
            let _ = input.chunks(threads).try_for_each(|chunk| send.send(chunk));
        });
        for chunk in receive {
            if stop.load(Ordering::Relaxed) {
                return Err(PredictError::Stopped);
            }
            counts.rows += chunk.len() as u64;
            let mut rows: Vec<(RowText, bool)> = Vec::with_capacity(chunk.len());
            let mut graphs = Vec::with_capacity(chunk.len());
            for InputRow { text, graph, ends_file } in chunk {
                match graph {
                    Ok(graph) => {
                        graphs.push(graph);
                        rows.push((text, true));
                    }
                    Err(problem) if ends_file => return Err(PredictError::Input(problem)),
                    Err(problem) if on_invalid == OnInvalidRow::Fail => {
                        return Err(PredictError::Invalid(problem));
                    }
                    Err(problem) => {
                        counts.invalid += 1;
                        tell(PredictEvent::Invalid(&problem));
                        if on_invalid == OnInvalidRow::Keep {
                            rows.push((text, false));
                        }
                    }
                }
            }
            counts.predicted += graphs.len() as u64;
            let mut answers = ask(graphs).into_iter();
            for (text, valid) in rows {
                let answer = if valid { answers.next() } else { None };
                write(&text, answer).map_err(PredictError::Output)?;
            }
            let (read_bytes, bytes) = InferenceInput::progress(&read, bytes);
            tell(PredictEvent::Progress { counts, read_bytes, bytes });
        }
        Ok(counts)
    })
}

fn write_row(
    out: &mut dyn Write,
    header: &CsvHeader,
    bytes: &[u8],
    cells: &[String],
) -> io::Result<()> {
    out.write_all(bytes)?;
    for cell in cells {
        out.write_all(&[header.delimiter])?;
        out.write_all(quoted(cell, header.delimiter).as_bytes())?;
    }
    out.write_all(header.line_end.as_bytes())
}

fn write_table_row(
    out: &mut dyn Write,
    header: &CsvHeader,
    text: &RowText,
    prediction: Option<&Prediction>,
    schema: &Schema,
) -> io::Result<()> {
    let cells = match prediction {
        Some(prediction) => cells(prediction, schema),
        None => vec![String::new(); columns(schema).len()],
    };
    // What could not be cut into cells is a row of empty ones: the others keep their places.
    let empty = vec![header.delimiter; header.names.len() - 1];
    write_row(out, header, if text.bytes.is_empty() { &empty } else { &text.bytes }, &cells)
}

fn write_line(
    out: &mut dyn Write,
    text: &RowText,
    prediction: Option<&Prediction>,
    schema: &Schema,
) -> io::Result<()> {
    let prediction = prediction.map_or(Value::Null, |prediction| to_json(prediction, schema));
    let line = text.bytes.trim_ascii();
    let is_object = || {
        serde_json::from_slice::<Map<String, Value>>(line).is_ok_and(|object| !object.is_empty())
    };
    match line.strip_suffix(b"}") {
        // The line of a graph is an object; that of a fault may be anything.
        Some(open) if !prediction.is_null() || is_object() => {
            out.write_all(open)?;
            writeln!(out, ", \"prediction\": {prediction}}}")
        }
        _ => writeln!(out, "{}", json!({ "line": text.line, "prediction": prediction })),
    }
}
