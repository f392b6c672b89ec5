//! Ordered parallel map over an iterator, one chunk at a time.

use std::collections::VecDeque;

use rayon::iter::{IntoParallelIterator, ParallelIterator};

/// Number of items per chunk: enough to keep many threads busy, with little memory.
const CHUNK: usize = 2048;

/// Iterator returned by [`par_chunks`].
#[derive(Debug)]
pub(crate) struct ParChunks<Source: Iterator, Work, Output> {
    source: Source,
    work: Work,
    ready: VecDeque<Output>,
}

/// Maps an iterator in parallel and yields the results in the order of the items.
///
/// The iterator is read in chunks of 2048 items, and at most one chunk is in memory.
pub(crate) fn par_chunks<Source, Work, Output>(
    source: Source,
    work: Work,
) -> ParChunks<Source, Work, Output>
where
    Source: Iterator<Item: Send>,
    Work: Fn(Source::Item) -> Output + Sync,
    Output: Send,
{
    ParChunks { source, work, ready: VecDeque::new() }
}

impl<Source, Work, Output> Iterator for ParChunks<Source, Work, Output>
where
    Source: Iterator<Item: Send>,
    Work: Fn(Source::Item) -> Output + Sync,
    Output: Send,
{
    type Item = Output;

    fn next(&mut self) -> Option<Output> {
        if self.ready.is_empty() {
            let chunk: Vec<Source::Item> = self.source.by_ref().take(CHUNK).collect();
            let done: Vec<Output> = chunk.into_par_iter().map(&self.work).collect();
            self.ready = done.into();
        }
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_items() {
        let squares: Vec<usize> = par_chunks(0..5000_usize, |item| item * item).collect();
        assert_eq!(squares, (0..5000).map(|item| item * item).collect::<Vec<usize>>());
    }
}
