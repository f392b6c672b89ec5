//! Hands a job of one thread to waiting workers.
//!
//! ```text
//! owner                                     worker
//! store the job                             wait until it is called: poll, then sleep
//! call some workers, wake the sleepers      increment `active`
//! do its part of the work                   load the job; unless it is null, do part of the work
//! store null                                decrement `active`
//! wait until `active` is zero
//! ```
//!
//! All accesses are sequentially consistent. A worker that sees the job has incremented `active`
//! before the owner stored null, so the owner waits for it, and the job outlives its use. The owner
//! sees everything that the workers wrote. A worker that is about to sleep sets its flag before it
//! looks for a call for the last time, under the lock of its condition variable, so it either sees
//! the call or is notified.
//!
//! A worker may be late, and find a job to which it was not called. It may work on that job, too.
//!
//! Values that different threads write are on different cache lines: workers that wait only read
//! the line with the last call, and those that are not called write nothing.
//!
//! This file and `task_range.rs` are checked by the model in `loom/`.

use std::fmt;
use std::ops::Deref;
use std::ptr;
use std::sync::PoisonError;

use super::sync::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Condvar, Mutex, SPIN_ROUNDS, SeqCst, pause,
    store_before_load,
};

/// Value that shares no cache line with others; processors fetch lines in pairs.
#[repr(align(128))]
pub(super) struct CacheAligned<T>(pub(super) T);

impl<T> Deref for CacheAligned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Call of the first workers to a job.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Call {
    /// Number of calls before this one.
    index: u64,
    /// Number of workers that are called.
    workers: u64,
}

impl Call {
    const WORKERS_BITS: u32 = 24;
    const ALL: u64 = (1 << Self::WORKERS_BITS) - 1;

    fn unpack(packed: u64) -> Self {
        Self { index: packed >> Self::WORKERS_BITS, workers: packed & Self::ALL }
    }

    fn pack(self) -> u64 {
        self.index << Self::WORKERS_BITS | self.workers
    }
}

/// State of a worker that sleeps.
struct Sleeper {
    /// True if the worker sleeps or is about to.
    asleep: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

/// Job that a thread offers to the workers, if any.
pub(super) struct JobSlot<J> {
    /// Current job, or null.
    job: CacheAligned<AtomicPtr<J>>,
    /// Last [`Call`].
    call: CacheAligned<AtomicU64>,
    /// Number of workers that may hold a reference to the job.
    active: CacheAligned<AtomicUsize>,
    sleepers: Vec<CacheAligned<Sleeper>>,
    shutdown: AtomicBool,
}

impl<J> fmt::Debug for JobSlot<J> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("JobSlot").finish_non_exhaustive()
    }
}

impl<J: Sync> JobSlot<J> {
    /// Creates an empty slot for this number of workers.
    pub(super) fn new(workers: usize) -> Self {
        let sleeper = || Sleeper {
            asleep: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        };
        Self {
            job: CacheAligned(AtomicPtr::new(ptr::null_mut())),
            call: CacheAligned(AtomicU64::new(0)),
            active: CacheAligned(AtomicUsize::new(0)),
            sleepers: (0..workers).map(|_| CacheAligned(sleeper())).collect(),
            shutdown: AtomicBool::new(false),
        }
    }

    /// Offers a job to the first `workers` workers while `work` runs, and waits until no worker
    /// uses it.
    ///
    /// # Safety
    /// The job is valid until this function returns, and no other thread calls it meanwhile.
    pub(super) unsafe fn offer(&self, job: *const J, workers: usize, work: impl FnOnce()) {
        let retract = RetractJob(self);
        self.job.store(job.cast_mut(), SeqCst);
        self.call(workers);
        work();
        drop(retract);
    }

    /// Runs the jobs to which the worker with this index is called, until the slot is shut down.
    pub(super) fn serve(&self, worker: usize, run: impl Fn(&J)) {
        let mut last = Call { index: 0, workers: 0 };
        loop {
            last = self.wait(worker, last);
            if self.shutdown.load(SeqCst) {
                return;
            }
            self.active.fetch_add(1, SeqCst);
            store_before_load();
            let job = self.job.load(SeqCst);
            if !job.is_null() {
                // SAFETY: the owner retracts the job, then waits until `active` is zero before it
                // drops the job. This thread has incremented `active` before it read the pointer,
                // so the job is alive.
                run(unsafe { &*job });
            }
            self.active.fetch_sub(1, SeqCst);
        }
    }

    /// Makes all workers return.
    pub(super) fn shut_down(&self) {
        self.shutdown.store(true, SeqCst);
        self.call(self.sleepers.len());
    }

    /// Calls the first `workers` workers, whether they spin or sleep.
    fn call(&self, workers: usize) {
        let last = Call::unpack(self.call.load(SeqCst));
        let call = Call { index: last.index + 1, workers: (workers as u64).min(Call::ALL) };
        self.call.store(call.pack(), SeqCst);
        store_before_load();
        for sleeper in &self.sleepers[..workers] {
            if sleeper.asleep.load(SeqCst) {
                // Later calls need not wake it again.
                sleeper.asleep.store(false, SeqCst);
                let _guard = sleeper.lock.lock().unwrap_or_else(PoisonError::into_inner);
                sleeper.wake.notify_one();
            }
        }
    }

    /// Waits until a call other than `last` is for the worker with this index, and returns it.
    fn wait(&self, worker: usize, last: Call) -> Call {
        let new_call = || {
            let call = Call::unpack(self.call.load(SeqCst));
            (call != last && (worker as u64) < call.workers).then_some(call)
        };
        for round in 0..SPIN_ROUNDS {
            if let Some(call) = new_call() {
                return call;
            }
            pause(round);
        }
        let sleeper = &self.sleepers[worker];
        let mut lock = sleeper.lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // Set before the check: a thread that calls after it sees a sleeper and notifies it.
            sleeper.asleep.store(true, SeqCst);
            store_before_load();
            if let Some(call) = new_call() {
                sleeper.asleep.store(false, SeqCst);
                return call;
            }
            lock = sleeper.wake.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Retracts a job on drop, also during unwinding, and waits until no worker uses it.
struct RetractJob<'a, J>(&'a JobSlot<J>);

impl<J> Drop for RetractJob<'_, J> {
    fn drop(&mut self) {
        self.0.job.store(ptr::null_mut(), SeqCst);
        store_before_load();
        let mut round = 0;
        while self.0.active.load(SeqCst) > 0 {
            pause(round);
            round += 1;
        }
    }
}
