//! Output of a chunk of rows, and its transfer to the process that writes it.

use std::io;
use std::path::Path;

use graph_diffuser_data::formats::inference_input::{InputRow, RowText};
use graph_diffuser_data::{Diagnostic, Graph, LocatedError};
use serde::{Deserialize, Serialize};

use crate::distributed::{ExchangeError, Group};

use super::job::{OnInvalidRow, PredictError};
use super::output::OutputProgress;

/// Rows of a chunk as they are written.
#[derive(Debug, Default)]
pub(super) struct ChunkOutput {
    /// Formatted rows.
    pub(super) bytes: Vec<u8>,
    /// Counts of these rows.
    pub(super) progress: OutputProgress,
    /// Errors of invalid rows that are dropped or kept.
    pub(super) invalid: Vec<LocatedError>,
}

/// Applies `infer` to the graphs of a chunk and formats its rows.
///
/// # Errors
/// Returns the error of the first row that must not be invalid, or that ends the input.
pub(super) fn run_chunk<T>(
    chunk: Vec<InputRow>,
    on_invalid: OnInvalidRow,
    infer: impl Fn(Vec<Graph>, &[RowText]) -> Vec<Result<T, LocatedError>>,
    write: impl Fn(&mut ChunkOutput, &RowText, Option<T>) -> io::Result<()>,
) -> Result<ChunkOutput, PredictError> {
    let mut out = ChunkOutput::default();
    out.progress.counts.rows = chunk.len() as u64;
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
                    out.progress.counts.predicted += 1;
                    written.push((text, Some(result)));
                    continue;
                }
                (Err(error), _) if on_invalid == OnInvalidRow::Fail => {
                    return Err(PredictError::Invalid(error));
                }
                (Err(error), text) => (text, error),
            },
        };
        out.progress.counts.invalid += 1;
        out.invalid.push(error);
        if on_invalid == OnInvalidRow::Keep {
            written.push((text, None));
        }
    }
    for (text, result) in written {
        write(&mut out, &text, result).map_err(PredictError::Output)?;
    }
    Ok(out)
}

/// Row of a chunk.
enum RowKind {
    /// Row with the next graph of the chunk.
    Graph,
    /// Row without content, which is neither predicted nor invalid.
    Blank(RowText),
    Invalid(RowText, LocatedError),
}

impl ChunkOutput {
    /// Returns the chunks of all processes on the first one, in their order, and nothing on the
    /// others; `own` is `None` if this process has no chunk left.
    ///
    /// # Errors
    /// Returns an error if another process fails.
    pub(super) fn gather(
        own: Option<Result<Self, PredictError>>,
        group: &Group,
        path: &Path,
    ) -> Result<Vec<Result<Self, PredictError>>, PredictError> {
        if group.size() == 1 {
            return Ok(own.into_iter().collect());
        }
        let failed = |is_fatal, error: LocatedError| Message {
            failed: Some((is_fatal, RowError::from(&error))),
            ..Message::default()
        };
        let message = match own {
            None => vec![],
            Some(Ok(chunk)) => Message::of_chunk(&chunk).encode(&chunk.bytes),
            Some(Err(PredictError::Input(error))) => failed(true, error).encode(&[]),
            Some(Err(PredictError::Invalid(error))) => failed(false, error).encode(&[]),
            Some(Err(error)) => return Err(error),
        };
        let messages = group.gather(message)?.into_iter().enumerate();
        let chunks = messages.filter(|(_, message)| !message.is_empty()).map(|(rank, message)| {
            Message::decode(&message, path).ok_or_else(|| ExchangeError::malformed(rank))
        });
        Ok(chunks.collect::<Result<Vec<_>, ExchangeError>>()?)
    }
}

/// Header of the message of a chunk; the formatted rows follow.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Message {
    progress: OutputProgress,
    invalid: Vec<RowError>,
    /// Error that ends the job, and whether it ends the input.
    failed: Option<(bool, RowError)>,
}

impl Message {
    fn of_chunk(chunk: &ChunkOutput) -> Self {
        let invalid = chunk.invalid.iter().map(RowError::from).collect();
        Self { progress: chunk.progress, invalid, failed: None }
    }

    fn encode(&self, rows: &[u8]) -> Vec<u8> {
        let header = serde_json::to_vec(self).expect("the header is plain data");
        [&(header.len() as u64).to_le_bytes(), header.as_slice(), rows].concat()
    }

    /// Decodes a message of [`Message::encode`]; `None` if it is malformed.
    fn decode(message: &[u8], path: &Path) -> Option<Result<ChunkOutput, PredictError>> {
        let (length, rest) = message.split_first_chunk::<8>()?;
        let (header, rows) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        let Self { progress, invalid, failed } = serde_json::from_slice(header).ok()?;
        let located = |error: RowError| error.located(path);
        Some(match failed {
            Some((true, error)) => Err(PredictError::Input(located(error))),
            Some((false, error)) => Err(PredictError::Invalid(located(error))),
            None => Ok(ChunkOutput {
                bytes: rows.to_vec(),
                progress,
                invalid: invalid.into_iter().map(located).collect(),
            }),
        })
    }
}

/// Error of a row of another process.
#[derive(Debug, Serialize, Deserialize)]
struct RowError {
    line: Option<u64>,
    column: Option<String>,
    error: ReceivedError,
}

/// Message, hint and causes of an error of another process.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
struct ReceivedError {
    message: String,
    hint: Option<String>,
    source: Option<Box<ReceivedError>>,
}

impl Diagnostic for ReceivedError {
    fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

impl From<&LocatedError> for RowError {
    fn from(error: &LocatedError) -> Self {
        fn received(error: &dyn std::error::Error, hint: Option<String>) -> ReceivedError {
            let source = error.source().map(|source| Box::new(received(source, None)));
            ReceivedError { message: error.to_string(), hint, source }
        }
        let LocatedError { line, column, error, .. } = error;
        let hint = error.hint();
        Self { line: *line, column: column.clone(), error: received(error.as_ref(), hint) }
    }
}

impl RowError {
    fn located(self, path: &Path) -> LocatedError {
        let Self { line, column, error } = self;
        LocatedError { path: path.to_owned(), line, column, error: Box::new(error) }
    }
}
