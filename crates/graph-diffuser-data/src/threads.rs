//! Threads that may be refused by the operating system, for example by a limit on processes.

use std::io;
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
    fn calling_thread_does_the_work_of_threads_that_cannot_be_started() {
        let caller = thread::current().id();
        let work = |part: usize| (part, thread::current().id() == caller);
        assert_eq!(map_on_threads(0..2, work), [(0, false), (1, false)]);
        // No system has this much address space.
        let refused = |builder: thread::Builder| builder.stack_size(1 << 60);
        assert_eq!(map_with(0..2, work, refused), [(0, true), (1, true)]);
    }
}
