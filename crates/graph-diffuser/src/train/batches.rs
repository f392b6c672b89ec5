//! Which graphs stand in which batch, and batches prepared ahead of their use.

use std::sync::mpsc;
use std::thread;

use graph_diffuser_data::{Dataset, SeedTree};

use crate::batch::{Batcher, ChunkedEval, GraphBatch};

/// Size of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSize {
    /// Maximum number of graphs.
    pub graphs: usize,
    /// Maximum number of node pairs of all graphs together; a larger graph forms a batch of its own.
    pub max_pairs: Option<usize>,
}

impl BatchSize {
    /// This many graphs.
    pub const fn graphs(graphs: usize) -> Self {
        Self { graphs, max_pairs: None }
    }

    /// As many graphs as have at most `max_pairs` node pairs together.
    pub const fn pairs(max_pairs: usize) -> Self {
        Self { graphs: usize::MAX, max_pairs: Some(max_pairs) }
    }

    /// Half as large, while that is possible: the limit on pairs where there is one, otherwise that on graphs.
    pub(super) fn halved(self) -> Option<Self> {
        let size = match self.max_pairs {
            Some(max_pairs) => Self { max_pairs: Some(max_pairs / 2), ..self },
            None => Self { graphs: self.graphs / 2, ..self },
        };
        (size.graphs > 0 && size.max_pairs != Some(0)).then_some(size)
    }

    fn group(self, dataset: &Dataset, numbers: &[usize]) -> Vec<Vec<usize>> {
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut filled = 0_usize;
        for &number in numbers {
            let nodes = dataset.graphs.nodes(number);
            let pairs = nodes.saturating_mul(nodes);
            let fits = self.max_pairs.is_none_or(|most| filled.saturating_add(pairs) <= most);
            match batches.last_mut() {
                Some(batch) if fits && batch.len() < self.graphs => {
                    batch.push(number);
                    filled = filled.saturating_add(pairs);
                }
                _ => {
                    batches.push(vec![number]);
                    filled = pairs;
                }
            }
        }
        batches
    }
}

/// The batches of one epoch, shuffled by the stream of that epoch.
pub fn training_batches(
    dataset: &Dataset,
    size: BatchSize,
    seeds: SeedTree,
    epoch: usize,
) -> Vec<Vec<usize>> {
    let mut numbers = dataset.splits.train.clone();
    seeds.stream_at("shuffle", epoch as u64).shuffle(&mut numbers);
    size.group(dataset, &numbers)
}

/// The first `count` batches of a fixed shuffle of the training graphs, for batch-norm statistics.
pub fn recalibration_batches(
    dataset: &Dataset,
    size: BatchSize,
    seeds: SeedTree,
    count: usize,
) -> Vec<Vec<usize>> {
    let mut numbers = dataset.splits.train.clone();
    seeds.stream("recalibration").shuffle(&mut numbers);
    let mut batches = size.group(dataset, &numbers);
    batches.truncate(count);
    batches
}

/// All of `numbers`, sorted by size so that graphs of one size meet; a graph that goes by rows is alone.
pub fn evaluation_batches(
    dataset: &Dataset,
    size: BatchSize,
    rows: Option<ChunkedEval>,
    numbers: &[usize],
) -> Vec<Vec<usize>> {
    let mut numbers = numbers.to_vec();
    let nodes = |number: usize| dataset.graphs.nodes(number);
    numbers.sort_by_key(|&number| nodes(number));
    let small =
        numbers.partition_point(|&number| !rows.is_some_and(|rows| rows.applies_to(nodes(number))));
    let (small, large) = numbers.split_at(small);
    let mut batches = size.group(dataset, small);
    batches.extend(large.iter().map(|&number| vec![number]));
    batches
}

/// Gives `each` the batches one after another; the next is packed while one is used.
///
/// Stops early when `each` answers with something.
pub(crate) fn for_each_batch<T>(
    batcher: &Batcher,
    dataset: &Dataset,
    batches: &[Vec<usize>],
    mut each: impl FnMut(GraphBatch) -> Option<T>,
) -> Option<T> {
    thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel(1);
        scope.spawn(move || {
            for numbers in batches {
                if send.send(batcher.collate(dataset, numbers)).is_err() {
                    return; // the user of the batches has stopped
                }
            }
        });
        receive.into_iter().find_map(&mut each)
    })
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::grid_histogram::GridHistogram;

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
    fn every_training_graph_comes_once_an_epoch_in_another_order() {
        let dataset = dataset();
        for size in [BatchSize::graphs(6), BatchSize::pairs(100)] {
            let epoch = |epoch| training_batches(&dataset, size, SeedTree::new(1), epoch);
            assert_eq!(epoch(0), epoch(0));
            assert_ne!(epoch(0), epoch(1));
            let mut numbers = epoch(0).concat();
            numbers.sort_unstable();
            assert_eq!(numbers, dataset.splits.train);
        }
    }

    #[test]
    fn a_budget_of_pairs_is_kept_unless_one_graph_exceeds_it() {
        let dataset = dataset();
        let pairs = |batch: &[usize]| {
            batch.iter().map(|&number| dataset.graphs.get(number).pairs()).sum::<usize>()
        };
        let batches =
            evaluation_batches(&dataset, BatchSize::pairs(130), None, &dataset.splits.train);
        assert!(batches.iter().all(|batch| pairs(batch) <= 130));
        assert!(batches.iter().any(|batch| batch.len() > 1));
        let alone = evaluation_batches(&dataset, BatchSize::pairs(1), None, &dataset.splits.train);
        assert!(alone.iter().all(|batch| batch.len() == 1));
    }

    #[test]
    fn a_graph_that_goes_by_rows_is_alone_and_the_others_are_not() {
        let dataset = dataset();
        let rows = Some(ChunkedEval { min_pairs: 36, ..ChunkedEval::default() });
        let batches =
            evaluation_batches(&dataset, BatchSize::graphs(50), rows, &dataset.splits.train);
        let nodes = |number: usize| dataset.graphs.nodes(number);
        let large = dataset.splits.train.iter().filter(|&&number| nodes(number) == 8).count();
        assert_eq!(batches.len(), 1 + large);
        assert!(batches[0].iter().all(|&number| nodes(number) <= 6));
        assert_eq!(batches.concat().len(), dataset.splits.train.len());
    }
}
