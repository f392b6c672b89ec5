//! Cache of graphs in a file, built once from slower sources.
//!
//! ```text
//! header: magic, version, key of the sources, offsets and counts,
//!     checksum of header, schema and table
//! records: one per graph
//! schema: JSON
//! table: offset, number of nodes and checksum of every record
//! ```
//!
//! A file is written under a temporary name and renamed once it is complete and on disk. Opening a
//! file validates all of it, including every record. An invalid file is a [`CacheError`], and
//! [`open_or_build`] then rebuilds it.
//!
//! The records of a small file are kept in memory. Those of a large one are read one by one, so
//! that its size is not limited by the memory; if another program modifies the file in place
//! meanwhile, reading a graph is a [`CacheModifiedError`]. A memory map would be as fast, but
//! another process that truncates the file would end this one by a signal.

mod key;
mod modified;
pub(crate) mod record;
mod records;
mod writer;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Crc;
pub(crate) use key::CacheKey;
pub use modified::CacheModifiedError;
use records::{Records, SharedFile};
pub(crate) use writer::CacheWriter;

use crate::error::{Diagnostic, LocatedError};
use crate::graph::Graph;
use crate::io::progress::{ProgressFn, ProgressMeter};
use crate::schema::Schema;
use crate::threads::map_ranges;

const MAGIC: [u8; 8] = *b"GDGRAPHS";
const VERSION: u32 = 2;
/// Magic, version, checksum, key, then graphs, schema offset, table offset and file length.
const HEADER: usize = 8 + 4 + 4 + 32 + 4 * 8;
/// Byte range of the checksum, which does not cover itself.
const CHECKSUM: Range<usize> = 12..16;
/// Bytes of a table entry: offset, number of nodes and checksum.
const ENTRY: usize = 8 + 4 + 4;
/// Number of graphs that are checked faster than a thread is started.
const MIN_GRAPHS_PER_THREAD: usize = 256;
/// Length of the records up to which they are kept in memory.
const MAX_MEMORY: u64 = 256 << 20;

/// Errors of reading or writing a cache file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CacheError {
    /// The file cannot be read.
    #[error("cannot read the graph cache")]
    Read(#[source] io::Error),
    /// The file cannot be written.
    #[error("cannot write the graph cache")]
    Write(#[source] io::Error),
    /// The file is not a graph cache.
    #[error("not a graph cache")]
    NotACache,
    /// The file has another format version.
    #[error("cache format version {found} is not supported, expected {VERSION}")]
    Version {
        /// Version of the file.
        found: u32,
    },
    /// The file was built from other sources.
    #[error("cache was built from different files")]
    OtherSources,
    /// The file is shorter or longer than its header states.
    #[error("cache has {found} bytes, expected {expected}")]
    Length {
        /// Length in the header, in bytes.
        expected: u64,
        /// Length of the file, in bytes.
        found: u64,
    },
    /// Header, schema or table do not match the checksum.
    #[error("cache is corrupt: checksum mismatch")]
    Checksum,
    /// The schema cannot be parsed.
    #[error("cannot parse the schema of the cache")]
    Schema(#[source] serde_json::Error),
    /// A graph does not match its checksum, is invalid or does not match the schema.
    #[error("cache is corrupt: invalid record of graph {graph}")]
    Graph {
        /// Index of the graph.
        graph: usize,
    },
    /// A graph cannot be stored.
    #[error("graph {graph} is too large for the cache or has an invalid number of feature values")]
    TooLarge {
        /// Index of the graph.
        graph: usize,
    },
}

impl Diagnostic for CacheError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Write(_) => Some("use a writable cache directory with enough free space".into()),
            Self::TooLarge { .. } => None,
            _ => Some("delete the file to rebuild it".into()),
        }
    }
}

/// Graphs in a file; clones share it.
#[derive(Debug, Clone)]
pub struct CachedGraphs {
    records: Arc<Records>,
    schema: Arc<Schema>,
    table: Arc<[Entry]>,
    schema_offset: u64,
    path: Arc<PathBuf>,
}

/// Entry of the table.
#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: u64,
    nodes: u32,
    checksum: u32,
}

impl Entry {
    fn parse(bytes: &[u8]) -> Self {
        Self { offset: u64_at(bytes, 0), nodes: u32_at(bytes, 8), checksum: u32_at(bytes, 12) }
    }
}

impl CachedGraphs {
    /// Opens and validates a cache file.
    ///
    /// The file must have been built from the sources of `key`, match its checksums, and hold only
    /// valid graphs that match its schema.
    ///
    /// # Errors
    /// Returns the first [`CacheError`] found.
    pub(crate) fn open(path: &Path, key: &CacheKey) -> Result<Self, LocatedError> {
        Self::open_checked(path, key).map_err(|error| LocatedError::new(path, error))
    }

    fn open_checked(path: &Path, key: &CacheKey) -> Result<Self, CacheError> {
        Self::open_with(path, key, MAX_MEMORY)
    }

    /// Opens a file whose records are kept in memory if they have at most `max_memory` bytes.
    fn open_with(path: &Path, key: &CacheKey, max_memory: u64) -> Result<Self, CacheError> {
        let file = File::open(path).map_err(CacheError::Read)?;
        let found = file.metadata().map_err(CacheError::Read)?.len();
        if found < HEADER as u64 {
            return Err(CacheError::NotACache);
        }
        let records = Records::File(SharedFile::new(file));
        let header = records.read(0..HEADER as u64).map_err(CacheError::Read)?;
        if header[..8] != MAGIC {
            return Err(CacheError::NotACache);
        }
        let version = u32_at(&header, 8);
        if version != VERSION {
            return Err(CacheError::Version { found: version });
        }
        if header[16..48] != key.0 {
            return Err(CacheError::OtherSources);
        }
        let [graphs, schema_offset, table_offset, expected] =
            [48, 56, 64, 72].map(|offset| u64_at(&header, offset));
        if expected != found {
            return Err(CacheError::Length { expected, found });
        }
        let in_order = HEADER as u64 <= schema_offset
            && schema_offset <= table_offset
            && table_offset <= expected;
        let table_length = graphs.checked_mul(ENTRY as u64);
        if !in_order || table_length != Some(expected - table_offset) {
            return Err(CacheError::Checksum);
        }
        let tail = records.read(schema_offset..expected).map_err(CacheError::Read)?;
        if u32_at(&header, CHECKSUM.start) != checksum(&header, &tail) {
            return Err(CacheError::Checksum);
        }
        let (schema, table) = tail.split_at((table_offset - schema_offset) as usize);
        let schema = serde_json::from_slice(schema).map_err(CacheError::Schema)?;
        let table = table.chunks_exact(ENTRY).map(Entry::parse).collect();
        let records = if schema_offset <= max_memory {
            let bytes = records.read(0..schema_offset).map_err(CacheError::Read)?;
            Records::Memory(bytes.into_owned())
        } else {
            records
        };
        let opened = Self {
            records: Arc::new(records),
            schema: Arc::new(schema),
            table,
            schema_offset,
            path: Arc::new(path.to_owned()),
        };
        opened.check_graphs()?;
        Ok(opened)
    }

    /// Returns the schema of the graphs.
    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the number of graphs.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Decodes the graph at `index`.
    ///
    /// # Panics
    /// Panics if `index` is out of bounds, and unwinds with a [`CacheModifiedError`] if a file that
    /// is too large for the memory was modified in place after it was opened.
    pub(crate) fn get(&self, index: usize) -> Graph {
        self.decode(index).unwrap_or_else(|| CacheModifiedError::new(&self.path).unwind())
    }

    /// Returns the number of nodes of the graph at `index` without decoding it.
    ///
    /// # Panics
    /// Panics if `index` is out of bounds.
    pub(crate) fn num_nodes(&self, index: usize) -> usize {
        self.table[index].nodes as usize
    }

    fn decode(&self, index: usize) -> Option<Graph> {
        let entry = self.table[index];
        let end = self.table.get(index + 1).map_or(self.schema_offset, |next| next.offset);
        if entry.offset < HEADER as u64 || entry.offset > end || end > self.schema_offset {
            return None;
        }
        let bytes = self.records.read(entry.offset..end).ok()?;
        let mut crc = Crc::new();
        crc.update(&bytes);
        if crc.sum() != entry.checksum {
            return None;
        }
        record::decode(&bytes)
    }

    /// Checks that every record decodes to a valid graph that matches the schema.
    fn check_graphs(&self) -> Result<(), CacheError> {
        let is_valid = |index: &usize| {
            self.decode(*index).is_some_and(|graph| {
                graph.num_nodes == self.num_nodes(*index)
                    && graph.check().is_ok()
                    && self.schema.mismatch(&graph).is_none()
            })
        };
        let find = |mut indices: Range<usize>| indices.find(|index| !is_valid(index));
        let invalid = map_ranges(self.len(), MIN_GRAPHS_PER_THREAD, find);
        let first_invalid = invalid.into_iter().flatten().min();
        first_invalid.map_or(Ok(()), |graph| Err(CacheError::Graph { graph }))
    }
}

/// Opens the cache file of a key in a directory, and builds it if it is missing or invalid.
///
/// The file is named after `name` and the key. `build` pushes every graph and returns the schema.
///
/// # Errors
/// Returns an error if the file can be neither read nor written, or if `build` fails.
pub(crate) fn open_or_build(
    directory: &Path,
    name: &str,
    key: &CacheKey,
    build: impl FnOnce(&mut CacheWriter) -> Result<Schema, LocatedError>,
) -> Result<CachedGraphs, LocatedError> {
    let path = directory.join(format!("{name}-{key}.graphs"));
    if let Ok(cached) = CachedGraphs::open(&path, key) {
        return Ok(cached);
    }
    let mut writer = CacheWriter::create(&path, key)?;
    let schema = build(&mut writer)?;
    writer.finish(&schema)?;
    CachedGraphs::open(&path, key)
}

/// Opens the cache of the graphs in `file`, and builds it from `graphs` if it is missing or
/// invalid.
///
/// `reader` is the name and version of the reader, and `expected` the approximate number of graphs,
/// for `progress`.
///
/// # Errors
/// Returns an error under the conditions of [`open_or_build`], or if reading a graph fails.
pub(crate) fn open_or_build_from_file<G: Iterator<Item = Result<Graph, LocatedError>>>(
    directory: &Path,
    reader: &str,
    file: &Path,
    schema: Schema,
    expected: u64,
    graphs: impl FnOnce() -> Result<G, LocatedError>,
    progress: &mut ProgressFn<'_>,
) -> Result<CachedGraphs, LocatedError> {
    let mut silent = |_, _| {};
    let key = CacheKey::compute(
        reader,
        std::iter::once(file),
        &mut ProgressMeter::new(std::iter::empty(), 1, &mut silent),
    )?;
    let name = reader.split(' ').next().unwrap_or(reader);
    open_or_build(directory, name, &key, |writer| {
        let mut done = 0;
        for graph in graphs()? {
            writer.push(&graph?)?;
            done += 1;
            if done % 1024 == 0 {
                progress(done, expected.max(done));
            }
        }
        progress(done, done);
        Ok(schema)
    })
}

/// Computes the checksum over the header (without the checksum itself), the schema and the table.
fn checksum(header: &[u8], tail: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(&header[..CHECKSUM.start]);
    crc.update(&header[CHECKSUM.end..]);
    crc.update(tail);
    crc.sum()
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| bytes[offset + byte]))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[offset + byte]))
}

#[cfg(test)]
mod tests;
