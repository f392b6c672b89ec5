//! Cache of raw positional encodings, in memory and optionally on disk.
//!
//! Entries are keyed by a hash of the number of nodes and the edges of a graph. On disk, all
//! entries of one encoding share an append-only file. A record consists of the key, the number of
//! values, the values, and a checksum of the record. Reading stops at the first truncated or
//! damaged record; the file is truncated there, and missing entries are computed and appended
//! again.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

use graph_diffuser_data::Graph;
use sha2::{Digest as _, Sha256};

use super::RawEncoding;

/// Cache of the raw positional encodings of all graphs seen so far.
#[derive(Debug)]
pub struct PositionalEncodingCache {
    encoding: RawEncoding,
    /// `None` if encodings are not kept.
    store: Option<Mutex<Store>>,
}

#[derive(Debug)]
struct Store {
    entries: HashMap<Hash, Arc<[f64]>>,
    /// File that new entries are appended to; dropped after the first write error.
    file: Option<File>,
}

type Hash = [u8; 32];

impl PositionalEncodingCache {
    /// Creates a cache in memory.
    pub fn new(encoding: RawEncoding) -> Self {
        Self::with_directory(encoding, None)
    }

    /// Opens the cache in `directory`, or in memory if it is `None` or cannot be written.
    pub fn with_directory(encoding: RawEncoding, directory: Option<&Path>) -> Self {
        let store = directory.and_then(|directory| Store::open(directory, &encoding.file_name()));
        let store = store.unwrap_or(Store { entries: HashMap::new(), file: None });
        Self { encoding, store: Some(Mutex::new(store)) }
    }

    /// Creates a cache that keeps nothing, for graphs that are needed once.
    pub fn disabled(encoding: RawEncoding) -> Self {
        Self { encoding, store: None }
    }

    /// Returns the cached encoding.
    pub fn encoding(&self) -> RawEncoding {
        self.encoding
    }

    /// Returns the encoding of a graph, `[n, columns]` in row-major order, computing it if needed.
    pub fn get(&self, graph: &Graph) -> Arc<[f64]> {
        let Some(store) = &self.store else { return self.encoding.compute(graph).into() };
        let hash = hash_of(graph);
        let mut store = store.lock().expect("no thread panics while holding the lock");
        if let Some(values) = store.entries.get(&hash)
            && values.len() == graph.num_nodes * self.encoding.columns()
        {
            return values.clone();
        }
        let values: Arc<[f64]> = self.encoding.compute(graph).into();
        store.insert(hash, values.clone());
        values
    }
}

fn hash_of(graph: &Graph) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update((graph.num_nodes as u64).to_le_bytes());
    for [source, target] in &graph.edges {
        hasher.update(source.to_le_bytes());
        hasher.update(target.to_le_bytes());
    }
    hasher.finalize().into()
}

impl Store {
    fn open(directory: &Path, name: &str) -> Option<Self> {
        fs::create_dir_all(directory).ok()?;
        let path = directory.join(name);
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(&path) {
            file.read_to_end(&mut bytes).ok()?;
        }
        let (entries, read) = read_records(&bytes);
        let file = File::options().append(true).create(true).open(&path).ok()?;
        if read < bytes.len() {
            // A record truncated by a killed process would hide all records after it.
            file.set_len(read as u64).ok()?;
        }
        Some(Self { entries, file: Some(file) })
    }

    fn insert(&mut self, hash: Hash, values: Arc<[f64]>) {
        let mut record = Vec::with_capacity(72 + 8 * values.len());
        record.extend(hash);
        record.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| record.extend(value.to_le_bytes()));
        let check: Hash = Sha256::digest(&record).into();
        record.extend(check);
        // A single write to a file opened for appending, so that processes do not interleave
        // records.
        if let Some(Err(_)) = self.file.as_mut().map(|file| file.write_all(&record)) {
            self.file = None;
        }
        self.entries.insert(hash, values);
    }
}

/// Returns the valid records and their total length in bytes.
fn read_records(bytes: &[u8]) -> (HashMap<Hash, Arc<[f64]>>, usize) {
    let mut entries = HashMap::new();
    let mut offset = 0;
    while let Some((head, rest)) = bytes[offset..].split_at_checked(40) {
        let count = u64::from_le_bytes(head[32..].try_into().expect("eight bytes"));
        let Some(length) = usize::try_from(count).ok().and_then(|count| count.checked_mul(8))
        else {
            break;
        };
        let Some((values, rest)) = rest.split_at_checked(length) else { break };
        let Some(check) = rest.get(..32) else { break };
        if Sha256::digest(&bytes[offset..offset + 40 + length]).as_slice() != check {
            break;
        }
        let values = values
            .chunks_exact(8)
            .map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        entries.insert(head[..32].try_into().expect("thirty-two bytes"), values.collect());
        offset += 72 + length;
    }
    (entries, offset)
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;

    use super::*;

    fn grids() -> Vec<Graph> {
        let grids =
            GridHistogram { rows: 2, columns: vec![2, 3, 4], train: 9, ..GridHistogram::default() }
                .generate();
        grids.graphs.iter().take(9).map(std::borrow::Cow::into_owned).collect()
    }

    const ENCODING: RawEncoding = RawEncoding::Eigenvectors { count: 3 };

    fn records(directory: &Path) -> usize {
        let bytes = fs::read(directory.join(ENCODING.file_name())).expect("the cache file exists");
        read_records(&bytes).0.len()
    }

    #[test]
    fn entries_are_written_once_and_read_by_the_next_run() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first = PositionalEncodingCache::with_directory(ENCODING, Some(directory.path()));
        let computed: Vec<_> = grids().iter().map(|grid| first.get(grid)).collect();
        assert_eq!(records(directory.path()), 3, "nine grids have three shapes");
        let second = PositionalEncodingCache::with_directory(ENCODING, Some(directory.path()));
        let store = second.store.as_ref().expect("encodings are kept");
        assert_eq!(store.lock().expect("free").entries.len(), 3);
        for (grid, computed) in grids().iter().zip(computed) {
            assert_eq!(second.get(grid), computed);
        }
        assert_eq!(records(directory.path()), 3, "no entry is written twice");
    }

    #[test]
    fn disabled_cache_computes_equal_encodings() {
        let (kept, disabled) =
            (PositionalEncodingCache::new(ENCODING), PositionalEncodingCache::disabled(ENCODING));
        for grid in grids() {
            assert_eq!(disabled.get(&grid), kept.get(&grid));
        }
        assert!(disabled.store.is_none());
    }

    #[test]
    fn truncated_or_damaged_file_is_repaired() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join(ENCODING.file_name());
        let cache = PositionalEncodingCache::with_directory(ENCODING, Some(directory.path()));
        let expected: Vec<_> = grids().iter().map(|grid| cache.get(grid)).collect();
        let intact = fs::read(&path).expect("the cache file exists");
        let mut damaged: Vec<Vec<u8>> =
            (0..intact.len()).step_by(37).map(|end| intact[..end].to_vec()).collect();
        damaged.extend((0..intact.len()).step_by(41).map(|offset| {
            let mut bytes = intact.clone();
            bytes[offset] ^= 0x55;
            bytes
        }));
        for bytes in damaged {
            fs::write(&path, &bytes).expect("writable");
            let cache = PositionalEncodingCache::with_directory(ENCODING, Some(directory.path()));
            let found: Vec<_> = grids().iter().map(|grid| cache.get(grid)).collect();
            assert_eq!(found, expected);
            assert_eq!(records(directory.path()), 3);
        }
    }

    #[test]
    fn cache_falls_back_to_memory_if_the_directory_cannot_be_created() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let cache =
            PositionalEncodingCache::with_directory(ENCODING, Some(&file.path().join("below")));
        assert_eq!(cache.get(&grids()[0]).len(), grids()[0].num_nodes * 9);
    }
}
