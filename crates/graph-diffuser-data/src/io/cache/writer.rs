//! Writer of cache files, under a temporary name until the file is complete and on disk.

use std::fs;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use flate2::Crc;

use super::{CHECKSUM, CacheError, CacheKey, ENTRY, HEADER, MAGIC, VERSION, checksum, record};
use crate::atomic_file::AtomicFile;
use crate::error::LocatedError;
use crate::graph::Graph;
use crate::schema::Schema;

/// Writes graphs to a cache file, which does not exist under its name until
/// [`CacheWriter::finish`].
#[derive(Debug)]
pub(crate) struct CacheWriter {
    file: BufWriter<AtomicFile>,
    key: CacheKey,
    offset: u64,
    table: Vec<u8>,
    record: Vec<u8>,
}

impl CacheWriter {
    /// Creates a temporary file beside `path`, and its directory if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created.
    pub(crate) fn create(path: &Path, key: &CacheKey) -> Result<Self, LocatedError> {
        let begin = || {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            let mut file = BufWriter::with_capacity(1 << 18, AtomicFile::create(path, true)?);
            file.write_all(&[0; HEADER])?;
            Ok(file)
        };
        let file = begin().map_err(|error| LocatedError::new(path, CacheError::Write(error)))?;
        let (table, record) = (vec![], vec![]);
        Ok(Self { file, key: *key, offset: HEADER as u64, table, record })
    }

    /// Appends a graph.
    ///
    /// # Errors
    /// Returns an error if the graph cannot be stored or the file cannot be written.
    pub(crate) fn push(&mut self, graph: &Graph) -> Result<(), LocatedError> {
        self.record.clear();
        let index = self.table.len() / ENTRY;
        let failed = |error| LocatedError::new(self.file.get_ref().path(), error);
        record::encode(graph, &mut self.record)
            .ok_or_else(|| failed(CacheError::TooLarge { graph: index }))?;
        let mut crc = Crc::new();
        crc.update(&self.record);
        self.table.extend(self.offset.to_le_bytes());
        self.table.extend((graph.num_nodes as u32).to_le_bytes());
        self.table.extend(crc.sum().to_le_bytes());
        self.offset += self.record.len() as u64;
        let written = self.file.write_all(&self.record);
        written.map_err(|error| {
            LocatedError::new(self.file.get_ref().path(), CacheError::Write(error))
        })
    }

    /// Completes the file, syncs it to disk and renames it to its path.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn finish(self, schema: &Schema) -> Result<(), LocatedError> {
        let path = self.file.get_ref().path().to_owned();
        self.complete(schema).map_err(|error| LocatedError::new(&path, CacheError::Write(error)))
    }

    fn complete(mut self, schema: &Schema) -> io::Result<()> {
        let mut tail = serde_json::to_vec(schema)?;
        let table_offset = self.offset + tail.len() as u64;
        let graphs = (self.table.len() / ENTRY) as u64;
        tail.append(&mut self.table);
        self.file.write_all(&tail)?;
        let mut header = Vec::with_capacity(HEADER);
        header.extend(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend([0; 4]);
        header.extend(self.key.0);
        for field in [graphs, self.offset, table_offset, self.offset + tail.len() as u64] {
            header.extend(field.to_le_bytes());
        }
        let checksum = checksum(&header, &tail);
        header[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header)?;
        Ok(self.file.into_inner()?.persist()?)
    }
}
