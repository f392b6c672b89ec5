//! Work on the items of an iterator in parallel, a chunk at a time, results in order.

use std::collections::VecDeque;

use rayon::iter::{IntoParallelIterator, ParallelIterator};

/// Items in memory at once: enough to keep many threads busy, few enough to cost nothing.
const CHUNK: usize = 2048;

/// An iterator whose items went through `work`; made by [`par_chunks`].
#[derive(Debug)]
pub struct ParChunks<Source: Iterator, Work, Output> {
    source: Source,
    work: Work,
    ready: VecDeque<Output>,
}

/// Maps an iterator in parallel: a chunk is read, its items are worked on by all threads, and the results come out in
/// the order of the items. Never more than a chunk is held.
pub fn par_chunks<Source, Work, Output>(
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
        let squares: Vec<usize> = par_chunks(0..5000_usize, |number| number * number).collect();
        assert_eq!(squares, (0..5000).map(|number| number * number).collect::<Vec<usize>>());
    }
}
