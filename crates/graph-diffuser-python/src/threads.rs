//! Threads of native work, safe for processes that fork and for callers with many threads.
//!
//! Kernels run on one pool that is replaced in a forked process, in which its threads do not exist.
//! Operations that the framework runs on rayon stay on the calling thread: every calling thread is
//! a rayon pool of its own, so that no work waits for a thread that a fork has lost.

use std::cell::Cell;
use std::mem;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use graph_diffuser_kernels::ThreadPool;
use pyo3::prelude::*;
use pyo3::types::PyAny;

/// Pool of the kernels and its number of threads, created on first use.
///
/// It is locked only by threads that hold the interpreter lock, and `fork` is called with that lock
/// held, so it is never locked in a forked process.
static POOL: Mutex<Option<(usize, Arc<ThreadPool>)>> = Mutex::new(None);

thread_local! {
    /// True if this thread is a rayon pool.
    static IS_REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Returns the number of threads that new pools have: `OMP_NUM_THREADS`, which joblib sets in its
/// workers, or the number of cores.
fn default_threads() -> usize {
    let variable = std::env::var("OMP_NUM_THREADS").ok();
    let count = variable.and_then(|count| count.trim().parse::<NonZeroUsize>().ok());
    count.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        NonZeroUsize::get,
    )
}

/// Returns the pool and its number of threads; called with the interpreter lock held.
fn pool(_py: Python<'_>) -> (usize, Arc<ThreadPool>) {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let create = || {
        let threads = default_threads();
        (threads, Arc::new(ThreadPool::new(threads)))
    };
    pool.get_or_insert_with(create).clone()
}

/// Sets the number of threads of native work.
#[pyfunction]
#[pyo3(signature = (count, /))]
pub(crate) fn set_num_threads(_py: Python<'_>, count: NonZeroUsize) {
    let count = count.get();
    let new = Some((count, Arc::new(ThreadPool::new(count))));
    *POOL.lock().unwrap_or_else(PoisonError::into_inner) = new;
}

/// Returns the number of threads of native work.
#[pyfunction]
pub(crate) fn num_threads(_py: Python<'_>) -> usize {
    let pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    pool.as_ref().map_or_else(default_threads, |(threads, _)| *threads)
}

/// Replaces the pool in a forked process.
#[pyfunction]
pub(crate) fn after_fork(_py: Python<'_>) {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((threads, old)) = pool.take() {
        mem::forget(old); // its threads cannot be joined
        *pool = Some((threads, Arc::new(ThreadPool::new(threads))));
    }
}

/// Runs `work` without the interpreter lock, with the number of threads as argument.
pub(crate) fn run<R: Send>(py: Python<'_>, work: impl FnOnce(usize) -> R + Send) -> R {
    let (threads, pool) = pool(py);
    py.detach(move || {
        register_thread();
        pool.install(|| work(threads))
    })
}

/// Makes the calling thread a rayon pool of one thread, which stays until the thread ends.
pub(crate) fn register_thread() {
    if !IS_REGISTERED.replace(true) {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
        // A thread that is already in a pool stays there.
        mem::forget(builder.build());
    }
}

/// Lets Python handle signals, such as Ctrl-C, and calls `callback` with `argument`.
pub(crate) fn report(callback: Option<&Py<PyAny>>, argument: impl Fn() -> String) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        callback.map_or(Ok(()), |callback| callback.call1(py, (argument(),)).map(drop))
    })
}
