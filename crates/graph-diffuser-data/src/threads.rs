//! Threads, whose number a program can limit, and which the operating system may refuse, for
//! example by a limit on processes.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::error::Diagnostic;

/// A thread cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a thread")]
pub struct ThreadError(#[from] pub io::Error);

impl Diagnostic for ThreadError {
    fn hint(&self) -> Option<String> {
        Some("raise the limit on processes (`ulimit -u`), or stop other processes".into())
    }
}

/// Maximum number of threads of [`map_ranges`], or 0 for all cores.
static MAX_THREADS: AtomicUsize = AtomicUsize::new(0);

/// Sets the maximum number of threads of [`map_ranges`] in this process, which is the number of
/// cores by default; it does not affect results.
///
/// # Panics
/// Panics if `count` is 0.
pub fn set_max_threads(count: usize) {
    assert!(count > 0, "the number of threads must be positive");
    MAX_THREADS.store(count, Ordering::Relaxed);
}

/// Returns the maximum number of threads of [`map_ranges`].
pub fn max_threads() -> usize {
    match MAX_THREADS.load(Ordering::Relaxed) {
        0 => thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}

/// Divides `0..count` into ranges of at least `min_length`, except for the last, and applies `work`
/// to them on at most [`max_threads`] threads; returns the results in order.
///
/// # Panics
/// Panics if `work` panics.
///
/// # Examples
/// ```
/// let parts = graph_diffuser_data::map_ranges(5, 1, |range| range.sum::<usize>());
/// assert_eq!(parts.into_iter().sum::<usize>(), 10);
/// ```
pub fn map_ranges<Output: Send>(
    count: usize,
    min_length: usize,
    work: impl Fn(Range<usize>) -> Output + Sync,
) -> Vec<Output> {
    map_ranges_with(max_threads(), count, min_length, work)
}

fn map_ranges_with<Output: Send>(
    threads: usize,
    count: usize,
    min_length: usize,
    work: impl Fn(Range<usize>) -> Output + Sync,
) -> Vec<Output> {
    let length = count.div_ceil(threads).max(min_length).max(1);
    if count <= length {
        return vec![work(0..count)];
    }
    let ranges = (0..count).step_by(length).map(|start| start..(start + length).min(count));
    map_on_threads(ranges, work)
}

/// Applies `work` to every part on a thread of its own, and returns the results in the order of the
/// parts.
///
/// The calling thread does the work of threads that cannot be started.
///
/// # Panics
/// Panics if `work` panics.
///
/// # Examples
/// ```
/// let squares = graph_diffuser_data::map_on_threads(0..3, |part| part * part);
/// assert_eq!(squares, [0, 1, 4]);
/// ```
pub fn map_on_threads<Part: Send, Output: Send>(
    parts: impl IntoIterator<Item = Part>,
    work: impl Fn(Part) -> Output + Sync,
) -> Vec<Output> {
    map_with(parts, work, |builder| builder)
}

fn map_with<Part: Send, Output: Send>(
    parts: impl IntoIterator<Item = Part>,
    work: impl Fn(Part) -> Output + Sync,
    configure: impl Fn(thread::Builder) -> thread::Builder,
) -> Vec<Output> {
    // A closure that cannot be started is lost, so it must not own its part.
    let parts: Vec<Mutex<Option<Part>>> =
        parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
    let run = |part: &Mutex<Option<Part>>| {
        let part = part.lock().unwrap_or_else(PoisonError::into_inner).take();
        work(part.expect("every part is processed once"))
    };
    let run = &run;
    thread::scope(|scope| {
        let started: Vec<_> = parts
            .iter()
            .map(|part| configure(thread::Builder::new()).spawn_scoped(scope, move || run(part)))
            .collect();
        let results = started.into_iter().zip(&parts).map(|(started, part)| match started {
            Ok(worker) => worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => run(part),
        });
        results.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_all_indices_in_order_for_any_number_of_threads() {
        for threads in [1, 2, 3, 16] {
            let ranges = map_ranges_with(threads, 10, 2, |range| range);
            assert!(ranges.len() <= threads && ranges.iter().rev().skip(1).all(|r| r.len() >= 2));
            let all: Vec<usize> = ranges.into_iter().flatten().collect();
            assert_eq!(all, (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn one_thread_is_the_calling_thread() {
        let own = thread::current().id();
        let used = map_ranges_with(1, 1_000, 1, |_| thread::current().id());
        assert_eq!(used, [own]);
        assert_eq!(map_ranges_with(8, 100, 256, |_| thread::current().id()), [own]);
    }

    #[test]
    fn calling_thread_does_the_work_of_threads_that_cannot_be_started() {
        let caller = thread::current().id();
        let work = |part: usize| (part, thread::current().id() == caller);
        assert_eq!(map_on_threads(0..2, work), [(0, false), (1, false)]);
        // No system has this much address space.
        let refused = |builder: thread::Builder| builder.stack_size(1 << 60);
        assert_eq!(map_with(0..2, work, refused), [(0, true), (1, true)]);
    }
}
