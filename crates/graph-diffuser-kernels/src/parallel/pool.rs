//! Threads of a pool, and the jobs that they run.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

use super::job_slot::JobSlot;
use super::task_range::TaskRange;
use crate::buffer::BufferCache;

/// Maximum number of spare buffers of a pool: those of two edge-wise networks of three layers.
const MAX_SPARE_BUFFERS: usize = 4;

/// Pool of threads for the kernels: the calling thread and its workers.
///
/// Kernels use the pool that is [installed](Self::install) on the calling thread, or else the
/// default pool of the process, which is created on first use and whose size [`set_num_threads`]
/// sets. A pool also owns the memory that kernels reuse, and frees it when it is dropped.
///
/// # Examples
///
/// ```
/// use graph_diffuser_kernels::adamw::sum_of_squares;
/// use graph_diffuser_kernels::{Isa, ThreadPool};
///
/// let pool = ThreadPool::new(2);
/// assert_eq!(pool.install(|| sum_of_squares(Isa::best(), &[3.0, 4.0])), 25.0);
/// ```
#[derive(Debug)]
pub struct ThreadPool {
    pool: Arc<Pool>,
    pub(super) workers: Vec<JoinHandle<()>>,
}

/// State shared by the calling thread and the workers.
#[derive(Debug)]
pub(super) struct Pool {
    /// Number of threads, including the calling one.
    threads: usize,
    /// Held while a job runs; a caller that finds it held runs its job alone.
    busy: Mutex<()>,
    /// Current job.
    slot: JobSlot<Job<'static>>,
    /// Spare buffers with the values of all pairs.
    pub(super) buffers: Arc<BufferCache>,
    /// Spare scratch buffers, one per thread.
    pub(super) scratch: Arc<BufferCache>,
}

/// Set of tasks, and the function that each participating thread runs.
pub(super) struct Job<'a> {
    pub(super) work: &'a (dyn Fn(&Job<'_>, usize) + Sync),
    /// Remaining tasks of each thread.
    pub(super) ranges: Vec<TaskRange>,
    /// First panic of a worker.
    pub(super) panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job<'_> {
    /// Takes the next task of `thread`, or steals one from another thread. A thread without tasks
    /// of its own may be a late one, called to a larger job before.
    pub(super) fn take(&self, thread: usize) -> Option<usize> {
        let count = self.ranges.len();
        let mut others = (1..=count).map(|step| &self.ranges[(thread + step) % count]);
        let own = self.ranges.get(thread).and_then(TaskRange::take_first);
        own.or_else(|| others.find_map(TaskRange::take_last))
    }
}

/// Pool of threads on which no pool is installed.
static DEFAULT_POOL: OnceLock<ThreadPool> = OnceLock::new();

thread_local! {
    /// Scope of [`ThreadPool::install`]; workers use the pool that they belong to.
    static INSTALLED_POOL: RefCell<Option<Arc<Pool>>> = const { RefCell::new(None) };
}

/// Sets the number of threads of the default pool; initially it is the number of cores.
///
/// Returns false if the default pool already exists, which then keeps its threads.
pub fn set_num_threads(count: usize) -> bool {
    DEFAULT_POOL.set(ThreadPool::new(count)).is_ok()
}

/// Returns the number of threads of the pool that is installed on this thread, or else of the
/// default pool.
pub fn num_threads() -> usize {
    with_pool(|pool| pool.threads)
}

impl ThreadPool {
    /// Starts `count - 1` workers; the calling thread is the remaining one.
    pub fn new(count: usize) -> Self {
        let pool = Arc::new(Pool {
            threads: count.max(1),
            busy: Mutex::new(()),
            slot: JobSlot::new(count.saturating_sub(1)),
            buffers: BufferCache::new(MAX_SPARE_BUFFERS),
            scratch: BufferCache::new(count.max(1)),
        });
        let spawn = |index: usize| {
            let pool = pool.clone();
            let work = move || {
                INSTALLED_POOL.set(Some(pool.clone()));
                pool.run_worker(index);
            };
            // If a thread cannot be spawned, the others take over its tasks.
            thread::Builder::new().name(format!("compute-{index}")).spawn(work).ok()
        };
        let workers = (1..count).filter_map(spawn).collect();
        Self { pool, workers }
    }

    /// Runs `work` on this thread, with this pool for all kernels that it calls.
    pub fn install<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = INSTALLED_POOL.replace(Some(self.pool.clone()));
        let result = catch_unwind(AssertUnwindSafe(work));
        INSTALLED_POOL.set(before);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.pool.slot.shut_down();
        for worker in self.workers.drain(..) {
            // Workers catch the panics of their tasks.
            let _ = worker.join();
        }
    }
}

impl Pool {
    /// Main loop of the worker with this index; the calling thread has index 0.
    fn run_worker(&self, index: usize) {
        self.slot.serve(index - 1, |job| {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (job.work)(job, index))) {
                job.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            }
        });
    }

    /// Runs a job of `count` tasks on at most as many threads until no task remains.
    pub(super) fn run(&self, count: usize, work: &(dyn Fn(&Job<'_>, usize) + Sync)) {
        let threads = self.threads.min(count);
        let range = |thread: usize| {
            TaskRange::new(count * thread / threads..count * (thread + 1) / threads)
        };
        let ranges = (0..threads).map(range).collect();
        let job = Job { work, ranges, panic: Mutex::new(None) };
        let _busy = match self.busy.try_lock() {
            Ok(busy) => busy,
            // A panicked job leaves no inconsistent state behind.
            Err(TryLockError::Poisoned(busy)) => busy.into_inner(),
            Err(TryLockError::WouldBlock) => return work(&job, 0), // nested or concurrent job
        };
        // SAFETY: the job lives until the end of this function.
        unsafe { self.slot.offer((&raw const job).cast(), threads - 1, || work(&job, 0)) };
        if let Some(panic) = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }
}

/// Calls `work` with the installed pool of this thread, or with the default one.
pub(super) fn with_pool<R>(work: impl FnOnce(&Pool) -> R) -> R {
    if let Some(pool) = INSTALLED_POOL.with_borrow(Clone::clone) {
        return work(&pool);
    }
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    work(&DEFAULT_POOL.get_or_init(|| ThreadPool::new(cores())).pool)
}
