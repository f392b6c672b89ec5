//! What encodings compute from the structure of a graph: once, whoever asks, and kept on disk for the next run.
//!
//! A table is found by a hash of the nodes and edges it was computed from. On disk all tables of one kind are one file that
//! only ever grows: a record is the hash, the number of values, the values, and a hash of all that. A record cut short or
//! damaged ends the reading, and is computed and written again.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use graph_diffuser_data::Graph;
use sha2::{Digest as _, Sha256};

use super::eigenvectors::num_eigenvectors;
use super::rwse::return_probabilities;

/// What is computed of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawEncoding {
    /// Of walks of up to so many steps.
    ReturnProbabilities {
        /// Longest walk.
        num_steps: usize,
    },
    /// Of the smallest eigenvalues.
    Eigenvectors {
        /// How many.
        count: usize,
    },
}

impl RawEncoding {
    /// Numbers a node.
    pub fn columns(self) -> usize {
        match self {
            Self::ReturnProbabilities { num_steps } => num_steps,
            Self::Eigenvectors { count } => 3 * count,
        }
    }

    fn compute(self, graph: &Graph) -> Vec<f64> {
        match self {
            Self::ReturnProbabilities { num_steps } => return_probabilities(graph, num_steps),
            Self::Eigenvectors { count } => num_eigenvectors(graph, count),
        }
    }

    /// Name of its file; the number in it is raised whenever values change.
    fn file_name(self) -> String {
        match self {
            Self::ReturnProbabilities { num_steps } => {
                format!("return-probabilities-1-{num_steps}.tables")
            }
            Self::Eigenvectors { count } => format!("eigenvectors-1-{count}.tables"),
        }
    }
}

static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// Keeps tables in this directory from now on; the first call counts.
pub fn set_encoding_cache_dir(directory: PathBuf) {
    let _ = DIRECTORY.set(directory);
}

/// The tables of every structure seen so far.
#[derive(Debug)]
pub struct PositionalEncodingCache {
    table: RawEncoding,
    store: Mutex<Store>,
}

#[derive(Debug)]
struct Store {
    known: HashMap<Hash, Arc<[f64]>>,
    /// Where new ones are written; a disk that refuses is no reason not to compute.
    file: Option<File>,
}

type Hash = [u8; 32];

impl PositionalEncodingCache {
    /// Those kept on disk, where a directory was named.
    pub fn new(table: RawEncoding) -> Self {
        Self::kept_in(table, DIRECTORY.get().map(PathBuf::as_path))
    }

    /// Those kept in this directory, or in memory alone.
    pub fn kept_in(table: RawEncoding, directory: Option<&Path>) -> Self {
        let store = directory.and_then(|directory| Store::open(directory, &table.file_name()));
        Self {
            table,
            store: Mutex::new(store.unwrap_or(Store { known: HashMap::new(), file: None })),
        }
    }

    /// What is computed.
    pub fn table(&self) -> RawEncoding {
        self.table
    }

    /// `[n, columns]` of one graph, row after row.
    pub fn of(&self, graph: &Graph) -> Arc<[f64]> {
        let hash = hash_of(graph);
        let mut store = self.store.lock().expect("no thread panics while it holds the tables");
        if let Some(values) = store.known.get(&hash)
            && values.len() == graph.nodes * self.table.columns()
        {
            return values.clone();
        }
        let values: Arc<[f64]> = self.table.compute(graph).into();
        store.keep(hash, values.clone());
        values
    }
}

fn hash_of(graph: &Graph) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update((graph.nodes as u64).to_le_bytes());
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
        let (known, read) = read_records(&bytes);
        let file = File::options().append(true).create(true).open(&path).ok()?;
        if read < bytes.len() {
            // What a killed process left behind would hide every record after it.
            file.set_len(read as u64).ok()?;
        }
        Some(Self { known, file: Some(file) })
    }

    fn keep(&mut self, hash: Hash, values: Arc<[f64]>) {
        let mut record = Vec::with_capacity(72 + 8 * values.len());
        record.extend(hash);
        record.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| record.extend(value.to_le_bytes()));
        let check: Hash = Sha256::digest(&record).into();
        record.extend(check);
        // One write to a file opened for appending: two processes do not mix their records.
        if let Some(Err(_)) = self.file.as_mut().map(|file| file.write_all(&record)) {
            self.file = None;
        }
        self.known.insert(hash, values);
    }
}

/// All sound records, and how many bytes they take.
fn read_records(bytes: &[u8]) -> (HashMap<Hash, Arc<[f64]>>, usize) {
    let mut known = HashMap::new();
    let mut place = 0;
    while let Some((head, rest)) = bytes[place..].split_at_checked(40) {
        let count = u64::from_le_bytes(head[32..].try_into().expect("eight bytes"));
        let Some(length) = usize::try_from(count).ok().and_then(|count| count.checked_mul(8))
        else {
            break;
        };
        let Some((values, rest)) = rest.split_at_checked(length) else { break };
        let Some(check) = rest.get(..32) else { break };
        if Sha256::digest(&bytes[place..place + 40 + length]).as_slice() != check {
            break;
        }
        let values = values
            .chunks_exact(8)
            .map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        known.insert(head[..32].try_into().expect("thirty-two bytes"), values.collect());
        place += 72 + length;
    }
    (known, place)
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::grid_histogram::GridHistogram;

    use super::*;

    fn grids() -> Vec<Graph> {
        let grids =
            GridHistogram { rows: 2, columns: vec![2, 3, 4], train: 9, ..GridHistogram::default() }
                .generate();
        grids.graphs.iter().take(9).map(std::borrow::Cow::into_owned).collect()
    }

    const TABLE: RawEncoding = RawEncoding::Eigenvectors { count: 3 };

    fn records(directory: &Path) -> usize {
        let bytes = fs::read(directory.join(TABLE.file_name())).expect("tables were kept");
        read_records(&bytes).0.len()
    }

    #[test]
    fn tables_are_computed_once_and_found_again_in_the_next_run() {
        let directory = tempfile::tempdir().expect("a place for files");
        let first = PositionalEncodingCache::kept_in(TABLE, Some(directory.path()));
        let computed: Vec<_> = grids().iter().map(|grid| first.of(grid)).collect();
        assert_eq!(records(directory.path()), 3, "nine grids have three shapes");
        let second = PositionalEncodingCache::kept_in(TABLE, Some(directory.path()));
        assert_eq!(second.store.lock().expect("free").known.len(), 3);
        for (grid, computed) in grids().iter().zip(computed) {
            assert_eq!(second.of(grid), computed);
        }
        assert_eq!(records(directory.path()), 3, "nothing was written twice");
    }

    #[test]
    fn a_file_cut_anywhere_or_damaged_is_mended() {
        let directory = tempfile::tempdir().expect("a place for files");
        let path = directory.path().join(TABLE.file_name());
        let tables = PositionalEncodingCache::kept_in(TABLE, Some(directory.path()));
        let expected: Vec<_> = grids().iter().map(|grid| tables.of(grid)).collect();
        let whole = fs::read(&path).expect("tables were kept");
        let mut damaged: Vec<Vec<u8>> =
            (0..whole.len()).step_by(37).map(|end| whole[..end].to_vec()).collect();
        damaged.extend((0..whole.len()).step_by(41).map(|place| {
            let mut bytes = whole.clone();
            bytes[place] ^= 0x55;
            bytes
        }));
        for bytes in damaged {
            fs::write(&path, &bytes).expect("writable");
            let tables = PositionalEncodingCache::kept_in(TABLE, Some(directory.path()));
            let found: Vec<_> = grids().iter().map(|grid| tables.of(grid)).collect();
            assert_eq!(found, expected);
            assert_eq!(records(directory.path()), 3);
        }
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_done_without() {
        let file = tempfile::NamedTempFile::new().expect("a place for files");
        let tables = PositionalEncodingCache::kept_in(TABLE, Some(&file.path().join("below")));
        assert_eq!(tables.of(&grids()[0]).len(), grids()[0].nodes * 9);
    }
}
