//! Batches for evaluation and inference.

use graph_diffuser_data::{Dataset, Graph};

use crate::batch::{Batcher, ChunkedEval, GraphBatch};

use super::BatchSize;
use super::batches::for_each_batch;

/// Groups graphs into batches for evaluation, and collates them.
///
/// Batches are sorted by graph size and contain no gradients. A graph with chunked evaluation forms
/// a batch of its own.
#[derive(Debug, Clone)]
pub struct EvalBatcher {
    batcher: Batcher,
    size: BatchSize,
}

impl EvalBatcher {
    /// Creates batches of at most `size`, with the default chunked evaluation of large graphs.
    pub fn new(batcher: Batcher, size: BatchSize) -> Self {
        let device = batcher.device.clone().inner();
        let chunked_eval = Some(ChunkedEval::default());
        Self { batcher: Batcher { device, chunked_eval, ..batcher }, size }
    }

    /// Sets the chunked evaluation of large graphs; `None` disables it.
    pub fn with_chunked_eval(self, chunked_eval: Option<ChunkedEval>) -> Self {
        Self { batcher: Batcher { chunked_eval, ..self.batcher }, ..self }
    }

    /// Returns the batcher that collates.
    pub fn batcher(&self) -> &Batcher {
        &self.batcher
    }

    /// Groups the graphs at `indices` into batches.
    pub fn batches(&self, dataset: &Dataset, indices: &[usize]) -> Vec<Vec<usize>> {
        let nodes = |index: usize| dataset.graphs.num_nodes(index);
        let is_chunked = |index: usize| {
            self.batcher.chunked_eval.is_some_and(|chunked| chunked.applies_to(nodes(index)))
        };
        let mut indices = indices.to_vec();
        indices.sort_by_key(|&index| nodes(index));
        let small = indices.partition_point(|&index| !is_chunked(index));
        let (small, large) = indices.split_at(small);
        let mut batches = self.size.group(dataset, small);
        batches.extend(large.iter().map(|&index| vec![index]));
        batches
    }

    /// Calls `each` for every batch of the graphs at `indices`.
    pub fn for_each(&self, dataset: &Dataset, indices: &[usize], mut each: impl FnMut(GraphBatch)) {
        for_each_batch(&self.batcher, dataset, &self.batches(dataset, indices), |batch| {
            each(batch);
            None::<()>
        });
    }

    /// Calls `each` for every batch of the graphs at `indices`, until `is_interrupted` returns true
    /// after a batch; returns whether all batches were completed.
    ///
    /// `is_interrupted` receives the number of completed batches and of all batches.
    pub fn for_each_until(
        &self,
        dataset: &Dataset,
        indices: &[usize],
        is_interrupted: &mut dyn FnMut((usize, usize)) -> bool,
        mut each: impl FnMut(GraphBatch),
    ) -> bool {
        let batches = self.batches(dataset, indices);
        let mut completed = 0;
        let interrupted = for_each_batch(&self.batcher, dataset, &batches, |batch| {
            each(batch);
            completed += 1;
            is_interrupted((completed, batches.len())).then_some(())
        });
        interrupted.is_none()
    }

    /// Collates the graphs at `indices` into one batch.
    pub fn collate(&self, dataset: &Dataset, indices: &[usize]) -> GraphBatch {
        self.batcher.collate(dataset, indices)
    }

    /// Collates `graphs` in the given order; `indices` are their indices in the dataset, or empty.
    pub fn collate_graphs(&self, graphs: &[&Graph], indices: Vec<usize>) -> GraphBatch {
        self.batcher.collate_graphs(graphs, indices)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};
    use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;

    use super::*;

    fn dataset() -> Dataset {
        let (rows, columns) = (2, vec![2, 3, 4]);
        let grid = GridHistogram { rows, columns, train: 20, ..GridHistogram::default() };
        GridHistogram { valid: 5, test: 5, ..grid }.generate()
    }

    fn batches(
        dataset: &Dataset,
        size: BatchSize,
        chunked: Option<ChunkedEval>,
    ) -> Vec<Vec<usize>> {
        let batcher = Batcher::new(&Device::flex(), DType::F32);
        let batcher = EvalBatcher::new(batcher, size).with_chunked_eval(chunked);
        batcher.batches(dataset, &dataset.splits.train)
    }

    #[test]
    fn batches_respect_max_pairs_unless_a_single_graph_exceeds_it() {
        let dataset = dataset();
        let pairs = |batch: &[usize]| {
            batch.iter().map(|&index| dataset.graphs.get(index).pairs()).sum::<usize>()
        };
        let grouped = batches(&dataset, BatchSize::pairs(130), None);
        assert!(grouped.iter().all(|batch| pairs(batch) <= 130));
        assert!(grouped.iter().any(|batch| batch.len() > 1));
        let alone = batches(&dataset, BatchSize::pairs(1), None);
        assert!(alone.iter().all(|batch| batch.len() == 1));
    }

    #[test]
    fn graphs_with_chunked_evaluation_form_their_own_batches() {
        let dataset = dataset();
        let chunked = Some(ChunkedEval { min_pairs: 36, ..ChunkedEval::default() });
        let batches = batches(&dataset, BatchSize::graphs(50), chunked);
        let nodes = |index: usize| dataset.graphs.num_nodes(index);
        let large = dataset.splits.train.iter().filter(|&&index| nodes(index) == 8).count();
        assert_eq!(batches.len(), 1 + large);
        assert!(batches[0].iter().all(|&index| nodes(index) <= 6));
        assert_eq!(batches.concat().len(), dataset.splits.train.len());
    }
}
