//! Which graphs stand in which batch, and batches prepared ahead of their use.

use std::sync::mpsc;
use std::thread;

use graph_diffuser_data::{Dataset, Seeds};
use serde::{Deserialize, Serialize};

use crate::batch::{Batcher, GraphBatch, RowBlocks};

/// How graphs are grouped into batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchSize {
    /// So many graphs.
    Graphs(usize),
    /// As many graphs as have so many pairs of nodes together, at least one: bounds memory.
    Pairs(usize),
}

impl BatchSize {
    /// Half as large, while that is possible.
    pub(super) fn halved(self) -> Option<Self> {
        Some(match self {
            Self::Graphs(count) => Self::Graphs(count / 2),
            Self::Pairs(most) => Self::Pairs(most / 2),
        })
        .filter(|size| !matches!(size, Self::Graphs(0) | Self::Pairs(0)))
    }

    fn group(self, dataset: &Dataset, numbers: &[usize]) -> Vec<Vec<usize>> {
        match self {
            Self::Graphs(count) => numbers.chunks(count).map(<[usize]>::to_vec).collect(),
            Self::Pairs(most) => {
                let mut batches: Vec<Vec<usize>> = Vec::new();
                let mut filled = usize::MAX;
                for &number in numbers {
                    let nodes = dataset.graphs.nodes(number);
                    let pairs = nodes.saturating_mul(nodes);
                    match batches.last_mut() {
                        Some(batch) if filled.saturating_add(pairs) <= most => {
                            batch.push(number);
                            filled += pairs;
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
    }
}

/// The batches of one epoch, shuffled by the stream of that epoch.
pub fn training_batches(dataset: &Dataset, size: BatchSize, seeds: Seeds, epoch: usize) -> Vec<Vec<usize>> {
    let mut numbers = dataset.splits.train.clone();
    seeds.stream_at("shuffle", epoch as u64).shuffle(&mut numbers);
    size.group(dataset, &numbers)
}

/// The first `count` batches of a fixed shuffle of the training graphs, for batch-norm statistics.
pub fn recalibration_batches(dataset: &Dataset, size: BatchSize, seeds: Seeds, count: usize) -> Vec<Vec<usize>> {
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
    rows: Option<RowBlocks>,
    numbers: &[usize],
) -> Vec<Vec<usize>> {
    let mut numbers = numbers.to_vec();
    let nodes = |number: usize| dataset.graphs.nodes(number);
    numbers.sort_by_key(|&number| nodes(number));
    let small = numbers.partition_point(|&number| !rows.is_some_and(|rows| rows.take(nodes(number))));
    let (small, large) = numbers.split_at(small);
    let mut batches = size.group(dataset, small);
    batches.extend(large.iter().map(|&number| vec![number]));
    batches
}

/// Gives `each` the batches one after another; the next is packed while one is used.
///
/// Stops early when `each` answers with something.
pub(crate) fn for_each_packed<T>(
    batcher: &Batcher,
    dataset: &Dataset,
    batches: &[Vec<usize>],
    mut each: impl FnMut(GraphBatch) -> Option<T>,
) -> Option<T> {
    thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel(1);
        scope.spawn(move || {
            for numbers in batches {
                if send.send(batcher.pack(dataset, numbers)).is_err() {
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
        GridHistogram { rows: 2, columns: vec![2, 3, 4], train: 20, valid: 5, test: 5, ..GridHistogram::default() }
            .generate()
    }

    #[test]
    fn every_training_graph_comes_once_an_epoch_in_another_order() {
        let dataset = dataset();
        for size in [BatchSize::Graphs(6), BatchSize::Pairs(100)] {
            let epoch = |epoch| training_batches(&dataset, size, Seeds::new(1), epoch);
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
        let pairs = |batch: &[usize]| batch.iter().map(|&number| dataset.graphs.get(number).pairs()).sum::<usize>();
        let batches = evaluation_batches(&dataset, BatchSize::Pairs(130), None, &dataset.splits.train);
        assert!(batches.iter().all(|batch| pairs(batch) <= 130));
        assert!(batches.iter().any(|batch| batch.len() > 1));
        let alone = evaluation_batches(&dataset, BatchSize::Pairs(1), None, &dataset.splits.train);
        assert!(alone.iter().all(|batch| batch.len() == 1));
    }

    #[test]
    fn a_graph_that_goes_by_rows_is_alone_and_the_others_are_not() {
        let dataset = dataset();
        let rows = Some(RowBlocks { above_pairs: 36, ..RowBlocks::default() });
        let batches = evaluation_batches(&dataset, BatchSize::Graphs(50), rows, &dataset.splits.train);
        let nodes = |number: usize| dataset.graphs.nodes(number);
        let large = dataset.splits.train.iter().filter(|&&number| nodes(number) == 8).count();
        assert_eq!(batches.len(), 1 + large);
        assert!(batches[0].iter().all(|&number| nodes(number) <= 6));
        assert_eq!(batches.concat().len(), dataset.splits.train.len());
    }
}
