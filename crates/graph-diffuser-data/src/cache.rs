//! Many graphs in one compact file that is mapped into memory, built once from slower sources.
//!
//! ```text
//! header: magic, version, key of the sources, places and counts, checksum of header, schema and table
//! one record a graph
//! the schema as JSON
//! table: offset, number of nodes and checksum of every record
//! ```
//!
//! A file is written under another name and takes its own only when it is complete and on disk. Opening checks all
//! of it, records too, so a graph that is asked for later is there. Whatever is not exactly right is a
//! [`CacheError`], and [`open_or_build`] then makes the file anew.

mod key;
pub(crate) mod record;
mod writer;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use flate2::Crc;
use memmap2::Mmap;

pub use key::CacheKey;
pub use writer::CacheWriter;

use crate::dataset::Schema;
use crate::error::{Diagnostic, LocatedError};
use crate::graph::Graph;
use crate::progress::{ProgressFn, ProgressMeter};

const MAGIC: [u8; 8] = *b"GDGRAPHS";
const VERSION: u32 = 1;
/// Magic, version, checksum, key, then graphs, schema offset, table offset and file length.
const HEADER: usize = 8 + 4 + 4 + 32 + 4 * 8;
/// Where the checksum stands, which does not cover itself.
const CHECKSUM: std::ops::Range<usize> = 12..16;
const ENTRY: usize = 8 + 4 + 4;

/// What can be wrong with a cached file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The file cannot be read.
    #[error("the cached graphs cannot be read")]
    Read(#[source] io::Error),
    /// The file cannot be written.
    #[error("the cached graphs cannot be written")]
    Write(#[source] io::Error),
    /// The file is something else.
    #[error("is not a file of cached graphs")]
    Foreign,
    /// The file is of another version of this program.
    #[error("has format version {found} instead of {VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
    /// The file was made from other sources.
    #[error("was made from other files")]
    OtherSources,
    /// The file is shorter or longer than it says.
    #[error("has {found} bytes instead of {expected}")]
    Length {
        /// What the header says.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// Header, schema or table changed since they were written.
    #[error("is damaged: the checksum is wrong")]
    Checksum,
    /// The schema cannot be understood.
    #[error("its schema cannot be understood")]
    Schema(#[source] serde_json::Error),
    /// A graph changed since it was written, or never was sound.
    #[error("graph {graph} is damaged")]
    Graph {
        /// Its number.
        graph: usize,
    },
    /// A graph is too large to be stored.
    #[error("graph {graph} is too large to be stored, or its features do not fill its rows")]
    TooLarge {
        /// Its number.
        graph: usize,
    },
}

impl Diagnostic for CacheError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Write(_) => {
                Some("choose a cache directory that can be written and has room".into())
            }
            Self::TooLarge { .. } => None,
            _ => Some("remove the file: it is made anew from its sources".into()),
        }
    }
}

/// Graphs in a mapped file; a clone shares the mapping.
#[derive(Debug, Clone)]
pub struct CachedGraphs {
    map: Arc<Mmap>,
    path: PathBuf,
    schema: Arc<Schema>,
    graphs: usize,
    schema_offset: usize,
    table_offset: usize,
}

impl CachedGraphs {
    /// Opens a file and checks all of it: that it was made from the sources of this key, that nothing changed since,
    /// and that every graph is sound and fits the schema.
    ///
    /// # Errors
    /// The first [`CacheError`] found.
    pub fn open(path: &Path, key: &CacheKey) -> Result<Self, LocatedError> {
        Self::open_checked(path, key).map_err(|fault| LocatedError::new(path, fault))
    }

    fn open_checked(path: &Path, key: &CacheKey) -> Result<Self, CacheError> {
        let file = File::open(path).map_err(CacheError::Read)?;
        let found = file.metadata().map_err(CacheError::Read)?.len();
        if found < HEADER as u64 {
            return Err(CacheError::Foreign);
        }
        let map = map(&file).map_err(CacheError::Read)?;
        if map.len() < HEADER || map[..8] != MAGIC {
            return Err(CacheError::Foreign);
        }
        let version = u32_at(&map, 8);
        if version != VERSION {
            return Err(CacheError::Version { found: version });
        }
        if map[16..48] != key.0 {
            return Err(CacheError::OtherSources);
        }
        let [graphs, schema_offset, table_offset, expected] =
            [48, 56, 64, 72].map(|place| u64_at(&map, place));
        if expected != map.len() as u64 {
            return Err(CacheError::Length { expected, found });
        }
        let in_order = HEADER as u64 <= schema_offset
            && schema_offset <= table_offset
            && table_offset <= expected;
        let table_length = graphs.checked_mul(ENTRY as u64);
        if !in_order || table_length != Some(expected - table_offset) {
            return Err(CacheError::Checksum);
        }
        // All three are at most the length of the mapping, so they fit.
        let (graphs, schema_offset, table_offset) =
            (graphs as usize, schema_offset as usize, table_offset as usize);
        if u32_at(&map, CHECKSUM.start) != checksum(&map[..HEADER], &map[schema_offset..]) {
            return Err(CacheError::Checksum);
        }
        let schema = serde_json::from_slice(&map[schema_offset..table_offset])
            .map_err(CacheError::Schema)?;
        let opened = Self {
            map: Arc::new(map),
            path: path.to_owned(),
            schema: Arc::new(schema),
            graphs,
            schema_offset,
            table_offset,
        };
        opened.check_graphs()?;
        Ok(opened)
    }

    /// What the numbers of the graphs mean.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many graphs there are.
    pub fn len(&self) -> usize {
        self.graphs
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.graphs == 0
    }

    /// The graph of this number.
    ///
    /// # Panics
    /// When there is no such graph, or when the file was changed in place after it was opened and checked.
    pub fn get(&self, number: usize) -> Graph {
        assert!(number < self.graphs, "graph {number} of {}", self.graphs);
        self.decode(number)
            .expect("the file was sound when it was opened, and its writers only ever replace it")
    }

    /// How many nodes the graph of this number has.
    ///
    /// # Panics
    /// When there is no such graph.
    pub fn nodes(&self, number: usize) -> usize {
        assert!(number < self.graphs, "graph {number} of {}", self.graphs);
        u32_at(&self.map, self.table_offset + number * ENTRY + 8) as usize
    }

    /// Where a record starts; that of the number of graphs is where the last one ends.
    fn offset(&self, number: usize) -> u64 {
        if number == self.graphs {
            self.schema_offset as u64
        } else {
            u64_at(&self.map, self.table_offset + number * ENTRY)
        }
    }

    fn decode(&self, number: usize) -> Option<Graph> {
        let start = usize::try_from(self.offset(number)).ok()?;
        let end = usize::try_from(self.offset(number + 1)).ok()?;
        if start < HEADER || end > self.schema_offset {
            return None;
        }
        let bytes = self.map.get(start..end)?;
        let mut crc = Crc::new();
        crc.update(bytes);
        if crc.sum() != u32_at(&self.map, self.table_offset + number * ENTRY + 12) {
            return None;
        }
        record::decode(bytes)
    }

    /// Every graph decodes, is sound and fits the schema.
    fn check_graphs(&self) -> Result<(), CacheError> {
        let is_sound = |number: &usize| {
            self.decode(*number).is_some_and(|graph| {
                graph.nodes == self.nodes(*number)
                    && graph.check().is_ok()
                    && self.schema.mismatch(&graph).is_none()
            })
        };
        let threads = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(self.graphs.div_ceil(256))
            .max(1);
        let share = self.graphs.div_ceil(threads).max(1);
        let first_damaged = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.graphs)
                .step_by(share)
                .map(|start| {
                    let mut numbers = start..(start + share).min(self.graphs);
                    scope.spawn(move || numbers.find(|number| !is_sound(number)))
                })
                .collect();
            workers
                .into_iter()
                .filter_map(|worker| {
                    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .min()
        });
        first_damaged.map_or(Ok(()), |graph| Err(CacheError::Graph { graph }))
    }
}

/// Opens the cached graphs of this key in a directory, or has them written there when they are missing or damaged.
///
/// The file is called by `name` and the key. `build` pushes every graph and returns the schema.
///
/// # Errors
/// When the file can be neither read nor written, and whatever `build` says.
pub fn open_or_build(
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

/// The same for graphs that are read one by one from files, of which there are about `expected`.
///
/// # Errors
/// As [`open_or_build`].
pub(crate) fn keep<G: Iterator<Item = Result<Graph, LocatedError>>>(
    directory: &Path,
    reader: &str,
    file: &Path,
    schema: Schema,
    expected: u64,
    graphs: impl FnOnce() -> Result<G, LocatedError>,
    progress: &mut ProgressFn<'_>,
) -> Result<CachedGraphs, LocatedError> {
    let mut silent = |_, _| {};
    let key = CacheKey::of(
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

#[expect(unsafe_code, reason = "a mapping is only as fixed as its file, which no type can promise")]
fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the mapping is only read. This program never changes such a file in place: it writes another one and
    // renames it, which leaves this mapping as it is. All that is read is checked before it is used.
    unsafe { Mmap::map(file) }
}

/// Over the header without the checksum itself, the schema and the table.
fn checksum(header: &[u8], tail: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(&header[..CHECKSUM.start]);
    crc.update(&header[CHECKSUM.end..]);
    crc.update(tail);
    crc.sum()
}

fn u32_at(bytes: &[u8], place: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| bytes[place + byte]))
}

fn u64_at(bytes: &[u8], place: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[place + byte]))
}

#[cfg(test)]
mod tests;
