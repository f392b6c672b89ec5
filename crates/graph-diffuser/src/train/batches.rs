//! Composition of batches, and collation of the next batch in the background.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use graph_diffuser_data::{Dataset, SeedTree};

use crate::batch::{Batcher, GraphBatch};
use crate::raw_encoding::PositionalEncodingCache;
use crate::recipe::TrainConfig;

/// Size of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSize {
    /// Maximum number of graphs.
    pub graphs: usize,
    /// Maximum number of node pairs of all graphs together; a larger graph forms a batch of its
    /// own.
    pub max_pairs: Option<usize>,
}

impl TrainConfig {
    /// Returns the limits of a batch.
    pub fn batch(&self) -> BatchSize {
        BatchSize { graphs: self.batch_size, max_pairs: self.max_pairs }
    }
}

impl BatchSize {
    /// Limits the number of graphs only.
    pub const fn graphs(graphs: usize) -> Self {
        Self { graphs, max_pairs: None }
    }

    /// Limits the total number of node pairs only.
    pub const fn pairs(max_pairs: usize) -> Self {
        Self { graphs: usize::MAX, max_pairs: Some(max_pairs) }
    }

    /// Halves the limit on node pairs if there is one, otherwise that on graphs; `None` if it would
    /// become 0.
    pub(super) fn halved(self) -> Option<Self> {
        let size = match self.max_pairs {
            Some(max_pairs) => Self { max_pairs: Some(max_pairs / 2), ..self },
            None => Self { graphs: self.graphs / 2, ..self },
        };
        (size.graphs > 0 && size.max_pairs != Some(0)).then_some(size)
    }

    /// Groups consecutive graphs into batches.
    pub(super) fn group(self, dataset: &Dataset, indices: &[usize]) -> Vec<Vec<usize>> {
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut filled = 0_usize;
        for &index in indices {
            let nodes = dataset.graphs.num_nodes(index);
            let pairs = nodes.saturating_mul(nodes);
            let fits = self.max_pairs.is_none_or(|max| filled.saturating_add(pairs) <= max);
            match batches.last_mut() {
                Some(batch) if fits && batch.len() < self.graphs => {
                    batch.push(index);
                    filled = filled.saturating_add(pairs);
                }
                _ => {
                    batches.push(vec![index]);
                    filled = pairs;
                }
            }
        }
        batches
    }
}

/// Number of blocks of consecutive graphs that form a window of the shuffle.
const BLOCKS_PER_WINDOW: usize = 8;

/// Returns the batches of one epoch, in the random order of that epoch; `window` is
/// [`TrainConfig::shuffle_window`].
pub fn training_batches(
    dataset: &Dataset,
    size: BatchSize,
    window: Option<usize>,
    seeds: SeedTree,
    epoch: usize,
) -> Vec<Vec<usize>> {
    let mut indices = dataset.splits.train.clone();
    let mut stream = seeds.stream_at("shuffle", epoch as u64);
    match window {
        None => stream.shuffle(&mut indices),
        Some(window) => {
            // Windows of blocks from random places, so that graphs that are adjacent in the file
            // are in one batch no more often than others, and each block is read at once.
            indices.sort_unstable();
            let mut blocks: Vec<&[usize]> =
                indices.chunks(window.div_ceil(BLOCKS_PER_WINDOW)).collect();
            stream.shuffle(&mut blocks);
            let windows = blocks.chunks(BLOCKS_PER_WINDOW).map(<[_]>::concat);
            indices = windows
                .flat_map(|mut window| {
                    stream.shuffle(&mut window);
                    window
                })
                .collect();
        }
    }
    size.group(dataset, &indices)
}

/// Returns the first `count` batches of a fixed random order of the training graphs, for batch-norm
/// recalibration.
pub fn recalibration_batches(
    dataset: &Dataset,
    size: BatchSize,
    seeds: SeedTree,
    count: usize,
) -> Vec<Vec<usize>> {
    let mut indices = dataset.splits.train.clone();
    seeds.stream("recalibration").shuffle(&mut indices);
    let mut batches = size.group(dataset, &indices);
    batches.truncate(count);
    batches
}

/// Returns a batcher that caches raw positional encodings in `directory`, or in memory.
pub(crate) fn with_encoding_cache(batcher: Batcher, directory: Option<&Path>) -> Batcher {
    let open = |cache: Arc<PositionalEncodingCache>| {
        Arc::new(PositionalEncodingCache::with_directory(cache.encoding(), directory))
    };
    Batcher { encoding_cache: batcher.encoding_cache.map(open), ..batcher }
}

/// Calls `each` for every batch in order, collating the next batch in a background thread if one
/// can be started.
///
/// Stops at the first batch for which `each` returns a value, and returns it.
pub(crate) fn for_each_batch<T>(
    batcher: &Batcher,
    dataset: &Dataset,
    batches: &[Vec<usize>],
    each: impl FnMut(GraphBatch) -> Option<T>,
) -> Option<T> {
    for_each_collated(batches, |indices| batcher.collate(dataset, indices), each)
}

/// Calls `each` for every batch in order as [`for_each_batch`] does, with the result of `collate`.
pub(super) fn for_each_collated<B: Send, T>(
    batches: &[Vec<usize>],
    collate: impl Fn(&[usize]) -> B + Sync,
    mut each: impl FnMut(B) -> Option<T>,
) -> Option<T> {
    let collate = &collate;
    thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel(1);
        let collate_all = move || {
            for indices in batches {
                if send.send(collate(indices)).is_err() {
                    return; // the receiver stopped early
                }
            }
        };
        match thread::Builder::new().spawn_scoped(scope, collate_all) {
            Ok(worker) => {
                let found = receive.into_iter().find_map(&mut each);
                // A panic keeps its payload.
                worker.join().unwrap_or_else(|panic| resume_unwind(panic));
                found
            }
            // Without a second thread, batches are collated on this one.
            Err(_) => batches.iter().find_map(|indices| each(collate(indices))),
        }
    })
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;

    use super::*;

    fn dataset() -> Dataset {
        GridHistogram {
            rows: 2,
            columns: vec![2, 3, 4],
            train: 20,
            valid: 5,
            test: 5,
            ..GridHistogram::default()
        }
        .generate()
    }

    #[test]
    fn epochs_contain_every_training_graph_once_in_different_orders() {
        let dataset = dataset();
        for size in [BatchSize::graphs(6), BatchSize::pairs(100)] {
            let epoch = |epoch| training_batches(&dataset, size, None, SeedTree::new(1), epoch);
            assert_eq!(epoch(0), epoch(0));
            assert_ne!(epoch(0), epoch(1));
            let mut indices = epoch(0).concat();
            indices.sort_unstable();
            assert_eq!(indices, dataset.splits.train);
        }
    }

    #[test]
    fn windows_consist_of_few_blocks_in_random_order() {
        let grid = GridHistogram { rows: 2, columns: vec![2], train: 1000, ..Default::default() };
        let dataset = GridHistogram { valid: 1, test: 1, ..grid }.generate();
        let epoch = |epoch| {
            let (size, window) = (BatchSize::graphs(1), Some(80));
            training_batches(&dataset, size, window, SeedTree::new(1), epoch).concat()
        };
        let order = epoch(0);
        assert_ne!(order, epoch(1));
        for window in order.chunks(80).take(12) {
            let blocks: std::collections::BTreeSet<usize> =
                window.iter().map(|index| index / 10).collect();
            assert_eq!(blocks.len(), 8, "eight whole blocks of ten graphs");
            assert!(
                blocks.iter().next_back() > blocks.iter().next().map(|first| first + 8).as_ref()
            );
            assert!(!window.is_sorted());
        }
        let mut sorted = order;
        sorted.sort_unstable();
        assert_eq!(sorted, dataset.splits.train);
    }
}
