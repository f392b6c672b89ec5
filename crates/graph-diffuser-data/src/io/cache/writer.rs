//! Writer of cache files, under a temporary name until the file is complete and on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Crc;

use super::{CHECKSUM, CacheError, CacheKey, ENTRY, HEADER, MAGIC, VERSION, checksum, record};
use crate::error::LocatedError;
use crate::graph::Graph;
use crate::schema::Schema;

/// Writes graphs to a cache file, which does not exist under its name until
/// [`CacheWriter::finish`].
#[derive(Debug)]
pub(crate) struct CacheWriter {
    path: PathBuf,
    partial: PartialFile,
    file: BufWriter<File>,
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
            let (partial, file) = PartialFile::create(path)?;
            let mut file = BufWriter::with_capacity(1 << 18, file);
            file.write_all(&[0; HEADER])?;
            Ok((partial, file))
        };
        let (partial, file) =
            begin().map_err(|error| LocatedError::new(path, CacheError::Write(error)))?;
        let (table, record) = (vec![], vec![]);
        Ok(Self {
            path: path.to_owned(),
            partial,
            file,
            key: *key,
            offset: HEADER as u64,
            table,
            record,
        })
    }

    /// Appends a graph.
    ///
    /// # Errors
    /// Returns an error if the graph cannot be stored or the file cannot be written.
    pub(crate) fn push(&mut self, graph: &Graph) -> Result<(), LocatedError> {
        self.record.clear();
        let index = self.table.len() / ENTRY;
        record::encode(graph, &mut self.record)
            .ok_or_else(|| LocatedError::new(&self.path, CacheError::TooLarge { graph: index }))?;
        let mut crc = Crc::new();
        crc.update(&self.record);
        self.table.extend(self.offset.to_le_bytes());
        self.table.extend((graph.num_nodes as u32).to_le_bytes());
        self.table.extend(crc.sum().to_le_bytes());
        self.offset += self.record.len() as u64;
        self.file
            .write_all(&self.record)
            .map_err(|error| LocatedError::new(&self.path, CacheError::Write(error)))
    }

    /// Completes the file, syncs it to disk and renames it to its path.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn finish(self, schema: &Schema) -> Result<(), LocatedError> {
        let path = self.path.clone();
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
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        self.partial.rename(&self.path)
    }
}

/// A temporary file that is deleted on drop unless it was renamed.
#[derive(Debug)]
struct PartialFile(Option<PathBuf>);

impl PartialFile {
    /// Creates a file beside `path`, under a name that no other writer uses.
    fn create(path: &Path) -> io::Result<(Self, File)> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let mut partial = path.as_os_str().to_owned();
            partial.push(format!(".{}-{count}.partial", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&partial) {
                // Left by a killed process, or in use by one on another machine with the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => return Ok((Self(Some(partial.into())), file)),
            }
        }
    }

    fn rename(mut self, path: &Path) -> io::Result<()> {
        if let Some(partial) = &self.0 {
            fs::rename(partial, path)?;
            self.0 = None;
        }
        // The rename is durable once the directory is synced; not every system can open
        // directories.
        if let Some(directory) = path.parent()
            && let Ok(directory) = File::open(directory)
        {
            let _ = directory.sync_all();
        }
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Best effort: the next writer uses another name.
            let _ = fs::remove_file(path);
        }
    }
}
