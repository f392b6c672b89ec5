//! Thread pool with spinning workers, static partitioning and work stealing.
//!
//! A training step consists of hundreds of short parallel jobs. Waking a sleeping thread takes
//! longer than most of them, especially on virtual machines. Workers therefore spin for about a
//! millisecond before they sleep, and a job starts within a microsecond.
//!
//! Each thread starts with a contiguous range of the tasks, the same fraction of every job, so that
//! it finds the data of the previous job in its cache; a thread that has finished its range steals
//! tasks from the end of the other ranges. Results do not depend on the schedule: tasks are cut by
//! size, write to disjoint memory, and their return values are collected in task order.

use std::cell::RefCell;
use std::fmt::Debug;
use std::hint::spin_loop;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

/// Number of polls for a job before a thread sleeps: about a millisecond.
const SPIN_ROUNDS: usize = 1 << 14;

/// Pool of threads for the kernels: the calling thread and its workers.
///
/// Threads without an installed pool use the global one, whose size [`set_num_threads`] sets.
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
    workers: Vec<JoinHandle<()>>,
}

/// State shared by the calling thread and the workers.
#[derive(Debug)]
struct Pool {
    /// Number of threads, including the calling one.
    threads: usize,
    /// Held while a job runs; a caller that finds it held runs its job alone.
    busy: Mutex<()>,
    /// Current job, or null.
    job: AtomicPtr<Job<'static>>,
    /// Number of jobs published so far.
    published: AtomicUsize,
    /// Number of workers that may hold a reference to the job.
    active: AtomicUsize,
    /// Number of workers that sleep or are about to.
    sleeping: AtomicUsize,
    sleep_lock: Mutex<()>,
    wake: Condvar,
    shutdown: AtomicBool,
}

/// Set of tasks, and the function that each participating thread runs.
struct Job<'a> {
    work: &'a (dyn Fn(&Job<'_>, usize) + Sync),
    /// Remaining tasks of each thread.
    ranges: Vec<TaskRange>,
    panicked: AtomicBool,
}

impl Job<'_> {
    /// Takes the next task of `thread`, or steals one from another thread.
    fn take(&self, thread: usize) -> Option<usize> {
        let others =
            (1..self.ranges.len()).map(|step| &self.ranges[(thread + step) % self.ranges.len()]);
        self.ranges[thread]
            .take_first()
            .or_else(|| others.into_iter().find_map(TaskRange::take_last))
    }
}

/// Remaining contiguous tasks of one thread, packed into 64 bits: the start in the upper half, the
/// end in the lower. Aligned so that no two ranges share a cache line.
#[repr(align(128))]
struct TaskRange(AtomicU64);

impl TaskRange {
    fn new(tasks: Range<usize>) -> Self {
        assert!(u32::try_from(tasks.end).is_ok(), "too many tasks: {}", tasks.end);
        Self(AtomicU64::new((tasks.start as u64) << 32 | tasks.end as u64))
    }

    fn take_first(&self) -> Option<usize> {
        let previous = self.0.fetch_update(SeqCst, SeqCst, |remaining| {
            (!is_empty(remaining)).then(|| remaining + (1 << 32))
        });
        previous.ok().map(|remaining| (remaining >> 32) as usize)
    }

    fn take_last(&self) -> Option<usize> {
        let previous = self.0.fetch_update(SeqCst, SeqCst, |remaining| {
            (!is_empty(remaining)).then(|| remaining - 1)
        });
        previous.ok().map(|remaining| (remaining as u32 - 1) as usize)
    }
}

fn is_empty(remaining: u64) -> bool {
    remaining >> 32 >= u64::from(remaining as u32)
}

static GLOBAL_POOL: OnceLock<ThreadPool> = OnceLock::new();

thread_local! {
    static CURRENT_POOL: RefCell<Option<Arc<Pool>>> = const { RefCell::new(None) };
}

/// Sets the number of threads of the global pool; the default is the number of cores.
///
/// Returns false if the global pool already exists, which then keeps its threads.
pub fn set_num_threads(count: usize) -> bool {
    GLOBAL_POOL.set(ThreadPool::new(count)).is_ok()
}

impl ThreadPool {
    /// Starts `count - 1` workers; the calling thread is the remaining one.
    pub fn new(count: usize) -> Self {
        let pool = Arc::new(Pool {
            threads: count.max(1),
            busy: Mutex::new(()),
            job: AtomicPtr::new(std::ptr::null_mut()),
            published: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            sleeping: AtomicUsize::new(0),
            sleep_lock: Mutex::new(()),
            wake: Condvar::new(),
            shutdown: AtomicBool::new(false),
        });
        let spawn = |index: usize| {
            let pool = pool.clone();
            let name = format!("compute-{index}");
            // If a thread cannot be spawned, the others take over its tasks.
            thread::Builder::new().name(name).spawn(move || pool.run_worker(index)).ok()
        };
        let workers = (1..count).filter_map(spawn).collect();
        Self { pool, workers }
    }

    /// Runs `work` on this thread, with this pool instead of the global one for the kernels it
    /// calls.
    pub fn install<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = CURRENT_POOL.replace(Some(self.pool.clone()));
        let result = catch_unwind(AssertUnwindSafe(work));
        CURRENT_POOL.set(before);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.pool.shutdown.store(true, SeqCst);
        self.pool.publish();
        for worker in self.workers.drain(..) {
            // Workers catch the panics of their tasks.
            let _ = worker.join();
        }
    }
}

impl Pool {
    /// Announces a new job to spinning and sleeping workers.
    fn publish(&self) {
        self.published.fetch_add(1, SeqCst);
        if self.sleeping.load(SeqCst) > 0 {
            let _guard = self.sleep_lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.wake.notify_all();
        }
    }

    /// Main loop of the worker with this index; the calling thread has index 0.
    fn run_worker(&self, index: usize) {
        let mut seen = 0;
        loop {
            seen = self.wait(seen);
            if self.shutdown.load(SeqCst) {
                return;
            }
            self.active.fetch_add(1, SeqCst);
            let job = self.job.load(SeqCst);
            if !job.is_null() {
                // SAFETY: the owner retracts the job, then waits until `active` is zero before it
                // drops the job. This thread has incremented `active` before it read the pointer,
                // so the job is alive.
                let job = unsafe { &*job };
                if catch_unwind(AssertUnwindSafe(|| (job.work)(job, index))).is_err() {
                    job.panicked.store(true, SeqCst);
                }
            }
            self.active.fetch_sub(1, SeqCst);
        }
    }

    /// Waits until the number of published jobs differs from `seen` and returns it.
    fn wait(&self, seen: usize) -> usize {
        for _ in 0..SPIN_ROUNDS {
            let published = self.published.load(SeqCst);
            if published != seen {
                return published;
            }
            spin_loop();
        }
        let mut sleep_lock = self.sleep_lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Incremented before the final check: a publisher that comes after it sees a sleeping
        // worker and notifies it.
        self.sleeping.fetch_add(1, SeqCst);
        while self.published.load(SeqCst) == seen {
            sleep_lock = self.wake.wait(sleep_lock).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleeping.fetch_sub(1, SeqCst);
        self.published.load(SeqCst)
    }

    /// Runs a job of `count` tasks on all available threads until no task remains.
    fn run(&self, count: usize, work: &(dyn Fn(&Job<'_>, usize) + Sync)) {
        let range = |thread: usize| {
            TaskRange::new(count * thread / self.threads..count * (thread + 1) / self.threads)
        };
        let ranges = (0..self.threads).map(range).collect();
        let job = Job { work, ranges, panicked: AtomicBool::new(false) };
        let _busy = match self.busy.try_lock() {
            Ok(busy) => busy,
            // A panicked job leaves no inconsistent state behind.
            Err(TryLockError::Poisoned(busy)) => busy.into_inner(),
            Err(TryLockError::WouldBlock) => return work(&job, 0), // nested or concurrent job
        };
        let retract = RetractJob(self);
        self.job.store((&raw const job).cast_mut().cast(), SeqCst);
        self.publish();
        work(&job, 0);
        drop(retract);
        assert!(!job.panicked.load(SeqCst), "a worker thread panicked");
    }
}

/// Retracts a job on drop, also during unwinding, and waits until no worker uses it.
struct RetractJob<'a>(&'a Pool);

impl Drop for RetractJob<'_> {
    fn drop(&mut self) {
        self.0.job.store(std::ptr::null_mut(), SeqCst);
        let mut rounds = 0;
        while self.0.active.load(SeqCst) > 0 {
            rounds += 1;
            if rounds < SPIN_ROUNDS { spin_loop() } else { thread::yield_now() }
        }
    }
}

/// Calls `work` with the installed pool of this thread, or with the global one.
fn with_pool<R>(work: impl FnOnce(&Pool) -> R) -> R {
    if let Some(pool) = CURRENT_POOL.with_borrow(Clone::clone) {
        return work(&pool);
    }
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    work(&GLOBAL_POOL.get_or_init(|| ThreadPool::new(cores())).pool)
}

/// Calls `run` for every task.
pub(crate) fn for_each<T: Send>(tasks: Vec<T>, run: impl Fn(T) + Sync) {
    for_each_init(tasks, || (), |(), task| run(task));
}

/// Calls `run` for every task with a state that `init` creates once per thread.
pub(crate) fn for_each_init<S, T: Send>(
    tasks: Vec<T>,
    init: impl Fn() -> S + Sync,
    run: impl Fn(&mut S, T) + Sync,
) {
    map_init(tasks, init, |state, _, task| run(state, task));
}

/// Returns the results of `run` for every task and its index, in task order. `init` creates the
/// state of each thread.
pub(crate) fn map_init<S, T: Send, R: Send>(
    tasks: Vec<T>,
    init: impl Fn() -> S + Sync,
    run: impl Fn(&mut S, usize, T) -> R + Sync,
) -> Vec<R> {
    let count = tasks.len();
    if count < 2 {
        let mut state = init();
        return tasks
            .into_iter()
            .enumerate()
            .map(|(index, task)| run(&mut state, index, task))
            .collect();
    }
    // Tasks are moved out one by one; the vector only keeps ownership of the memory.
    let mut tasks = ManuallyDrop::new(tasks);
    let mut results: Vec<R> = Vec::with_capacity(count);
    let (from, to) =
        (SyncPtr(tasks.as_mut_ptr()), SyncPtr(results.spare_capacity_mut().as_mut_ptr()));
    let work = |job: &Job<'_>, thread: usize| {
        let (from, to) = (from, to);
        let mut state = None;
        while let Some(index) = job.take(thread) {
            // SAFETY: every index below `count` is taken exactly once, so no other thread accesses
            // these elements.
            unsafe {
                let task = from.get(index).read();
                let result = run(state.get_or_insert_with(&init), index, task);
                to.get(index).write(MaybeUninit::new(result));
            }
        }
    };
    with_pool(|pool| pool.run(count, &work));
    // SAFETY: all indices were taken and `run` has returned for each; otherwise a panic would have
    // unwound.
    unsafe {
        results.set_len(count);
        tasks.set_len(0);
    }
    drop(ManuallyDrop::into_inner(tasks));
    results
}

/// Pointer to elements that threads access disjointly.
struct SyncPtr<T>(*mut T);

impl<T> Clone for SyncPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SyncPtr<T> {}

// SAFETY: each element is accessed only by the thread that takes its index.
unsafe impl<T: Send> Send for SyncPtr<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SyncPtr<T> {}

impl<T> SyncPtr<T> {
    /// Returns a pointer to the element at `index`.
    ///
    /// # Safety
    /// `index` is within the allocation.
    unsafe fn get(self, index: usize) -> *mut T {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.add(index) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_task_runs_once_and_results_keep_task_order() {
        for threads in [1, 2, 5] {
            let threads = ThreadPool::new(threads);
            threads.install(|| {
                for count in (0..40).chain([1000]) {
                    let tasks: Vec<String> = (0..count).map(|index| index.to_string()).collect();
                    let results = map_init(tasks.clone(), || (), |(), index, task| (index, task));
                    assert_eq!(results, tasks.into_iter().enumerate().collect::<Vec<_>>());
                }
            });
        }
    }

    #[test]
    fn threads_take_own_tasks_from_front_and_steal_from_back() {
        let ranges = [0..2, 2..5, 5..5].map(TaskRange::new).into();
        let job = Job { work: &|_, _| {}, ranges, panicked: AtomicBool::new(false) };
        let taken: Vec<usize> =
            [1, 0, 0, 0, 2].into_iter().filter_map(|thread| job.take(thread)).collect();
        assert_eq!(taken, [2, 0, 1, 4, 3]);
        assert_eq!([0, 1, 2].map(|thread| job.take(thread)), [None; 3]);
    }

    #[test]
    fn nested_and_concurrent_jobs_complete() {
        let threads = ThreadPool::new(3);
        let sum = AtomicUsize::new(0);
        let nested = || {
            for_each((0..20).collect(), |task: usize| {
                for_each((0..10).collect(), |inner: usize| {
                    sum.fetch_add(task * inner, SeqCst);
                });
            });
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| threads.install(nested));
            }
        });
        assert_eq!(sum.into_inner(), 4 * 190 * 45);
    }

    #[test]
    fn sleeping_workers_wake_for_new_jobs() {
        let threads = ThreadPool::new(4);
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(20));
            let done = AtomicUsize::new(0);
            threads.install(|| {
                for_each(vec![(); 64], |()| {
                    thread::sleep(Duration::from_micros(100));
                    done.fetch_add(1, SeqCst);
                });
            });
            assert_eq!(done.into_inner(), 64);
        }
    }

    #[test]
    fn panic_propagates_to_caller_and_workers_survive() {
        for threads in [1, 3] {
            let threads = ThreadPool::new(threads);
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                threads.install(|| {
                    for_each((0..100).collect(), |task: usize| assert!(task != 50, "task 50"));
                });
            }));
            assert!(panicked.is_err());
            // All threads participate in the next job: each task waits until every thread has one.
            let count = threads.workers.len() + 1;
            let barrier = Barrier::new(count);
            threads.install(|| {
                for_each(vec![(); count], |()| {
                    barrier.wait();
                });
            });
        }
    }

    #[test]
    fn state_is_initialized_at_most_once_per_thread() {
        let initialized = AtomicUsize::new(0);
        ThreadPool::new(3).install(|| {
            for_each_init(vec![(); 1000], || initialized.fetch_add(1, SeqCst), |_, ()| {});
        });
        assert!((1..=3).contains(&initialized.into_inner()));
    }
}
