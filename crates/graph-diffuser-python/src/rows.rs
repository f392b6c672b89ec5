//! Input rows of a model: SMILES, graphs in memory, or a file.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use graph_diffuser::predict::Predictor;
use graph_diffuser_data::formats::Featurizer;
use graph_diffuser_data::formats::inference_input::{InferenceInput, InputChunks, InputRow};
use graph_diffuser_data::formats::smiles_csv::SmilesColumn;
use graph_diffuser_data::{Graph, LocatedError, TargetSchema};
use pyo3::prelude::*;
use pyo3::types::PyAny;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::errors::{OrRaise as _, RowError, error, invalid_input};
use crate::graphs::to_jsonl;
use crate::threads;

/// Rows per chunk, between which Python handles signals.
const CHUNK_ROWS: usize = 2048;
/// Rows from which SMILES are parsed by several threads.
const MIN_PARALLEL_ROWS: usize = 64;

/// Handling of rows that are not valid inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnInvalid {
    /// Raises an exception.
    Raise,
    /// Keeps the row without a result.
    Keep,
    /// Drops the row.
    Skip,
}

impl OnInvalid {
    pub(crate) fn parse(py: Python<'_>, name: &str) -> PyResult<Self> {
        match name {
            "raise" => Ok(Self::Raise),
            "nan" => Ok(Self::Keep),
            "skip" => Ok(Self::Skip),
            other => {
                let message = format!("on_invalid is {other:?}");
                Err(invalid_input(py, &message, Some("use 'raise', 'nan' or 'skip'")))
            }
        }
    }
}

/// Graph of a row, `None` if the row is empty, or its error.
type RowGraph = Result<Option<Graph>, RowError>;

/// Reads input rows in chunks.
pub(crate) enum Rows {
    Smiles {
        strings: Vec<Option<String>>,
        featurizer: Featurizer,
        targets: TargetSchema,
        next: usize,
    },
    Input {
        chunks: InputChunks,
        is_file: bool,
        next: usize,
    },
}

impl Rows {
    /// Opens rows for a model: `kind` is `smiles`, `graphs` or `path`.
    pub(crate) fn open(
        py: Python<'_>,
        kind: &str,
        data: &Bound<'_, PyAny>,
        predictor: &Predictor,
    ) -> PyResult<Self> {
        let (featurizer, schema) = (predictor.featurizer(), predictor.schema());
        let threads = threads::num_threads(py);
        match kind {
            "smiles" if featurizer.accepts_smiles() => {
                let targets = schema.targets.clone();
                Ok(Self::Smiles { strings: data.extract()?, featurizer, targets, next: 0 })
            }
            "smiles" => {
                let message = "the model was not trained on molecules and does not accept SMILES";
                Err(invalid_input(py, message, Some("pass a list of graph_diffuser.Graph")))
            }
            "graphs" => {
                let text = to_jsonl(&data.extract::<Vec<Bound<'_, PyAny>>>()?)?;
                let mut schema = schema.clone();
                if featurizer.accepts_smiles() {
                    // Features of molecules are category indices, not names.
                    schema.names.node_categories.clear();
                    schema.names.edge_categories.clear();
                }
                if text.is_empty() {
                    let targets = schema.targets;
                    return Ok(Self::Smiles { strings: vec![], featurizer, targets, next: 0 });
                }
                let input = InferenceInput::from_reader(
                    Path::new("graphs.jsonl"),
                    Cursor::new(text.into_bytes()),
                    Featurizer::Graphs,
                    &schema,
                    SmilesColumn::Auto,
                );
                let chunks = input.or_raise(py)?.chunks(threads);
                Ok(Self::Input { chunks, is_file: false, next: 0 })
            }
            _ => {
                let path: PathBuf = data.extract()?;
                let column = predictor.smiles_column().map(SmilesColumn::OfTraining);
                let input =
                    InferenceInput::open(&path, featurizer, schema, column.unwrap_or_default());
                let chunks = input.or_raise(py)?.chunks(threads);
                Ok(Self::Input { chunks, is_file: true, next: 0 })
            }
        }
    }

    /// Reads the next chunk; `Err` if no further row can be read.
    fn next_chunk(&mut self, threads: usize) -> Option<Result<Vec<RowGraph>, LocatedError>> {
        match self {
            Self::Smiles { strings, featurizer, targets, next } => {
                let first = *next;
                *next = strings.len().min(first + CHUNK_ROWS);
                let parse = |row: usize| match &strings[row] {
                    Some(smiles) => featurizer
                        .featurize_smiles(smiles, targets)
                        .map(Some)
                        .map_err(|error| RowError::new(row, &error)),
                    None => Err(RowError {
                        row,
                        message: format!("row {row}: the SMILES is missing"),
                        hint: None,
                    }),
                };
                let rows = first..*next;
                // A pool of this call: the global one does not survive a fork.
                let pool = (rows.len() >= MIN_PARALLEL_ROWS)
                    .then(|| rayon::ThreadPoolBuilder::new().num_threads(threads).build().ok())
                    .flatten();
                let graphs: Vec<RowGraph> = match pool {
                    Some(pool) => pool.install(|| rows.into_par_iter().map(parse).collect()),
                    None => rows.map(parse).collect(),
                };
                (!graphs.is_empty()).then_some(Ok(graphs))
            }
            Self::Input { chunks, is_file, next } => {
                let mut graphs = Vec::new();
                for InputRow { graph, is_fatal, .. } in chunks.next()? {
                    let row = *next;
                    *next += 1;
                    graphs.push(match graph {
                        Err(error) if is_fatal => return Some(Err(error)),
                        Err(error) if *is_file => Err(RowError {
                            row,
                            hint: graph_diffuser_data::Diagnostic::hint(&error),
                            message: error.to_string(),
                        }),
                        Err(error) => Err(RowError::in_memory(row, &error)),
                        Ok(graph) => Ok(graph),
                    });
                }
                Some(Ok(graphs))
            }
        }
    }

    /// Applies `infer` to the graphs of all rows, without the interpreter lock. Parses the next
    /// rows in the meantime.
    pub(crate) fn infer<T: Send>(
        mut self,
        py: Python<'_>,
        on_invalid: OnInvalid,
        infer: impl Fn(Vec<Graph>, usize) -> Vec<T> + Send + Sync,
    ) -> PyResult<Inferred<T>> {
        threads::run(py, |threads| {
            thread::scope(|scope| {
                let (send, receive) = mpsc::sync_channel(1);
                scope.spawn(move || {
                    while let Some(chunk) = self.next_chunk(threads) {
                        if send.send(chunk).is_err() {
                            break; // the receiver has stopped
                        }
                    }
                });
                let mut inferred = Inferred { rows: Vec::new(), results: Vec::new() };
                let mut first_row = 0;
                for chunk in receive {
                    let chunk = chunk.map_err(|found| Python::attach(|py| error(py, &found)))?;
                    let done = inferred.results.len();
                    let (count, graphs) = inferred.take_valid(chunk, first_row, on_invalid)?;
                    first_row += count;
                    let mut results = infer(graphs, threads).into_iter();
                    for result in &mut inferred.results[done..] {
                        if let Pending::Waiting = result {
                            *result = results.next().map_or(Pending::Empty, Pending::Done);
                        }
                    }
                    Python::attach(|py| -> PyResult<()> { py.check_signals() })?;
                }
                Ok(inferred)
            })
        })
    }
}

/// Result of a row.
#[derive(Debug)]
pub(crate) enum Pending<T> {
    /// The row is valid and not computed yet.
    Waiting,
    Done(T),
    /// The row is invalid or empty.
    Empty,
}

/// Results of all rows that are not skipped.
#[derive(Debug)]
pub(crate) struct Inferred<T> {
    /// Indices of the rows.
    pub(crate) rows: Vec<i64>,
    pub(crate) results: Vec<Pending<T>>,
}

impl<T> Inferred<T> {
    /// Adds a chunk of rows and returns their number and the graphs of the valid ones.
    fn take_valid(
        &mut self,
        chunk: Vec<RowGraph>,
        first_row: usize,
        on_invalid: OnInvalid,
    ) -> PyResult<(usize, Vec<Graph>)> {
        let count = chunk.len();
        let mut graphs = Vec::with_capacity(count);
        for (row, graph) in (first_row..).zip(chunk) {
            let result = match graph {
                Ok(Some(graph)) => {
                    graphs.push(graph);
                    Pending::Waiting
                }
                Err(invalid) if on_invalid == OnInvalid::Raise => {
                    return Err(Python::attach(|py| invalid.into_python(py)));
                }
                Ok(None) | Err(_) if on_invalid == OnInvalid::Skip => continue,
                Ok(None) | Err(_) => Pending::Empty,
            };
            self.rows.push(row as i64);
            self.results.push(result);
        }
        Ok((count, graphs))
    }

    /// Returns the results of the rows, `None` for rows without one.
    pub(crate) fn into_results(self) -> impl Iterator<Item = Option<T>> {
        self.results.into_iter().map(|result| match result {
            Pending::Done(result) => Some(result),
            Pending::Waiting | Pending::Empty => None,
        })
    }
}
