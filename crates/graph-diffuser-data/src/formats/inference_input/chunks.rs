//! Chunks of rows, whose molecules are parsed in parallel.

use rayon::ThreadPool;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::error::LocatedError;
use crate::formats::graph_directory::DirectoryGraphs;
use crate::formats::jsonl::GraphStream;
use crate::formats::table::TableColumn;
use crate::formats::{Featurizer, Table};
use crate::graph::Graph;
use crate::io::csv_records::TableRecord;
use crate::schema::TargetSchema;

use super::rows::{InputRow, directory_row, graph_row, molecule_row};

/// Rows per chunk, enough to keep many threads busy.
const CHUNK_ROWS: usize = 2048;
/// Bytes after which a chunk ends early, because rows of large graphs are long.
const CHUNK_BYTES: usize = 8 << 20;

/// Open file or directory.
pub(super) enum Source {
    Molecules { table: Table, smiles: TableColumn, featurizer: Featurizer, targets: TargetSchema },
    Graphs(GraphStream),
    Directory(std::iter::Enumerate<DirectoryGraphs>),
}

/// Iterator over chunks of rows, created by
/// [`InferenceInput::chunks`](super::InferenceInput::chunks).
pub struct InputChunks {
    source: Source,
    pool: Option<ThreadPool>,
    /// Index of the next chunk.
    index: usize,
    period: usize,
    offset: usize,
}

impl InputChunks {
    pub(super) fn new(source: Source, pool: Option<ThreadPool>) -> Self {
        Self { source, pool, index: 0, period: 1, offset: 0 }
    }

    /// Returns only the chunks `offset`, `offset + period`, ...; the molecules of other chunks are
    /// not parsed.
    pub fn every(self, period: usize, offset: usize) -> Self {
        Self { period: period.max(1), offset, ..self }
    }

    /// Skips chunks up to the next one that is returned.
    fn skip_chunks(&mut self) {
        while self.index % self.period != self.offset {
            let rows = match &mut self.source {
                Source::Graphs(stream) => take_chunk(stream, |graph| graph.raw.len()).len(),
                Source::Directory(graphs) => take_chunk(graphs, directory_bytes).len(),
                Source::Molecules { table, .. } => take_chunk(table, record_bytes).len(),
            };
            if rows == 0 {
                return;
            }
            self.index += 1;
        }
    }
}

impl Iterator for InputChunks {
    type Item = Vec<InputRow>;

    fn next(&mut self) -> Option<Vec<InputRow>> {
        self.skip_chunks();
        self.index += 1;
        let rows = match &mut self.source {
            Source::Graphs(stream) => take_chunk(stream, |graph| graph.raw.len())
                .into_iter()
                .map(graph_row)
                .collect::<Vec<InputRow>>(),
            Source::Directory(graphs) => {
                let chunk = take_chunk(graphs, directory_bytes);
                chunk.into_iter().map(directory_row).collect()
            }
            Source::Molecules { table, smiles, featurizer, targets } => {
                let chunk = take_chunk(table, record_bytes);
                let row = |record| molecule_row(smiles, *featurizer, targets, record);
                match &self.pool {
                    Some(pool) => pool.install(|| chunk.into_par_iter().map(row).collect()),
                    None => chunk.into_iter().map(row).collect(),
                }
            }
        };
        (!rows.is_empty()).then_some(rows)
    }
}

fn take_chunk<T>(source: &mut impl Iterator<Item = T>, bytes_of: impl Fn(&T) -> usize) -> Vec<T> {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    while chunk.len() < CHUNK_ROWS && bytes < CHUNK_BYTES {
        let Some(item) = source.next() else { break };
        bytes += bytes_of(&item);
        chunk.push(item);
    }
    chunk
}

fn directory_bytes((_, graph): &(usize, Result<Graph, LocatedError>)) -> usize {
    graph.as_ref().map_or(0, |graph| 64 * graph.num_nodes)
}

fn record_bytes(record: &Result<TableRecord, LocatedError>) -> usize {
    record.as_ref().map_or(0, TableRecord::num_bytes)
}
