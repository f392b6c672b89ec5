//! Streaming inference over a file; output rows have the order of the input rows.
//!
//! A reader thread parses the next chunk while the model processes the current one, so that only a
//! few thousand rows are in memory. The processes of a group take turns: process `r` of `P`
//! computes the chunks `r`, `r + P`, ..., and the first one writes all of them.

use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::panic;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use graph_diffuser_data::formats::csv_quote;
use graph_diffuser_data::formats::inference_input::{CsvHeader, InferenceInput, InputRow, RowText};
use graph_diffuser_data::{Diagnostic, Graph, LocatedError, ThreadError};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::distributed::{ExchangeError, Group};

use super::Predictor;
use super::chunk::{ChunkOutput, run_chunk};
use super::counts::RowCounts;
use super::embeddings::{EmbeddingFormat, EmbeddingLevel, EmbeddingWriter};
use super::job::{PredictError, PredictEvent, PredictJob};
use super::output::RowOutput;
use super::row::{RowColumns, RowPrediction};

/// Time after which a job that waits for its input notices that it is canceled.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

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
    let write = |out: &mut ChunkOutput, text: &RowText, row: Option<RowPrediction>| {
        if let Some(domain) = row.as_ref().and_then(|row| row.domain) {
            let counts = &mut out.progress.counts;
            counts.outside_domain += u64::from(domain.is_outside());
            counts.dissimilar += u64::from(domain.is_dissimilar());
            counts.unusual_size += u64::from(domain.has_unusual_size);
        }
        match &header {
            Some(header) => {
                write_csv_row(&mut out.bytes, header, text, &columns.cells(row.as_ref()))
            }
            None => write_jsonl_row(&mut out.bytes, text, columns.json(row.as_ref())),
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
    let write = |out: &mut ChunkOutput, text: &RowText, embeddings: Option<Vec<f32>>| {
        let rows = writer.write(&mut out.bytes, text, embeddings.as_deref())?;
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
    write: impl Fn(&mut ChunkOutput, &RowText, Option<T>) -> io::Result<()>,
    mut on_event: impl FnMut(PredictEvent<'_>),
) -> Result<(RowCounts, RowOutput<'o>), PredictError> {
    let PredictJob { mut input, on_invalid, threads, stop, group, .. } = job;
    let path = input.path.clone();
    let infer = |graphs: Vec<Graph>, rows: &[RowText]| {
        let checked = infer(graphs).into_iter().zip(rows).map(|(result, row)| {
            if is_finite(&result) { Ok(result) } else { Err(not_finite(&path, row.line)) }
        });
        checked.collect::<Vec<Result<T, LocatedError>>>()
    };
    let (read, bytes) = (Arc::clone(&input.read), input.bytes);
    let resumed_rows = shared_number(&group, out.resumed_rows())?;
    if resumed_rows > 0 {
        on_event(PredictEvent::Resumed { rows: resumed_rows });
    }
    let (send, receive) = mpsc::sync_channel::<Vec<InputRow>>(1);
    let [rank, processes] = [group.rank(), group.size()];
    let read_rows = move || {
        input.skip_rows(resumed_rows);
        let mut chunks = input.chunks(threads).every(processes, rank);
        // Sending fails when the receiver has stopped, which ends the reader.
        let _ = chunks.try_for_each(|chunk| send.send(chunk));
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
        let next = next_chunk(&receive, stop);
        let status = match &next {
            Next::Chunk(_) => Status::Chunk,
            Next::End => Status::End,
            Next::Stopped => Status::Stopped,
        };
        let all = group.all_gather(vec![status as u8])?.concat();
        if all.contains(&(Status::Stopped as u8)) {
            // The reader is not joined: it may wait for the next bytes of a pipe.
            let saved_rows = out.stop().map_err(PredictError::Output)?;
            return Err(PredictError::Stopped { saved_rows });
        }
        if all.iter().all(|&status| status == Status::End as u8) {
            break;
        }
        let own = match next {
            Next::Chunk(chunk) => Some(run_chunk(chunk, on_invalid, infer, &write)),
            _ => None,
        };
        for chunk in ChunkOutput::gather(own, &group, &path)? {
            match chunk {
                Ok(chunk) => {
                    for error in &chunk.invalid {
                        on_event(PredictEvent::Invalid(error));
                    }
                    out.add(&chunk.bytes, &chunk.progress).map_err(PredictError::Output)?;
                }
                Err(error @ PredictError::Output(_)) => return Err(error),
                Err(error) => {
                    out.discard();
                    return Err(error);
                }
            }
            let (read_bytes, bytes) = InferenceInput::progress(&read, bytes);
            on_event(PredictEvent::Progress { counts: out.progress.counts, read_bytes, bytes });
        }
    }
    if let Err(panic) = reader.join() {
        panic::resume_unwind(panic);
    }
    Ok((out.progress.counts, out))
}

/// Next chunk of rows of this process.
enum Next {
    Chunk(Vec<InputRow>),
    End,
    Stopped,
}

/// State of a process before a chunk, which all processes exchange.
#[derive(Clone, Copy)]
enum Status {
    Chunk,
    End,
    Stopped,
}

/// Waits for the next chunk of the reader, or until the job is canceled.
fn next_chunk(receive: &mpsc::Receiver<Vec<InputRow>>, stop: &AtomicBool) -> Next {
    loop {
        let chunk = receive.recv_timeout(STOP_INTERVAL);
        if stop.load(Ordering::Relaxed) {
            return Next::Stopped;
        }
        match chunk {
            Ok(chunk) => return Next::Chunk(chunk),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Next::End,
        }
    }
}

/// Returns the number of the first process.
fn shared_number(group: &Group, own: u64) -> Result<u64, ExchangeError> {
    let message = group.broadcast(own.to_le_bytes().to_vec())?;
    let bytes = message.try_into().map_err(|_| ExchangeError::malformed(0))?;
    Ok(u64::from_le_bytes(bytes))
}

fn finish(mut out: RowOutput<'_>) -> Result<(), PredictError> {
    out.complete().map_err(PredictError::Output)?;
    Ok(out.persist()?)
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
