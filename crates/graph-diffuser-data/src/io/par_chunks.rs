//! Ordered parallel map over an iterator, one chunk at a time.

use std::collections::VecDeque;
use std::error::Error as _;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::{ThreadBuilder, ThreadPoolBuilder};

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
            self.ready = if has_global_pool() {
                chunk.into_par_iter().map(&self.work).collect::<Vec<Output>>().into()
            } else {
                chunk.into_iter().map(&self.work).collect()
            };
        }
        self.ready.pop_front()
    }
}

/// Starts the global thread pool, unless it exists, and returns `false` if it has no threads.
///
/// By itself, the pool panics on its first use if one of its threads cannot be started.
fn has_global_pool() -> bool {
    static EXISTS: OnceLock<bool> = OnceLock::new();
    *EXISTS.get_or_init(|| {
        let started = AtomicUsize::new(0);
        let start = |worker: ThreadBuilder| match thread::Builder::new().spawn(|| worker.run()) {
            Ok(_) => {
                started.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            // The threads that were started do the work of the others.
            Err(_) if started.load(Ordering::Relaxed) > 0 => Ok(()),
            Err(error) => Err::<(), io::Error>(error),
        };
        let built = ThreadPoolBuilder::new().spawn_handler(start).build_global();
        // Without a source, the error is that the pool exists already.
        built.map_or_else(|error| error.source().is_none(), |()| true)
    })
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
