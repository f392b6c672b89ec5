//! Hands a job of one thread to waiting workers.
//!
//! ```text
//! owner                                     worker
//! store the job                             wait until `published` changes: poll, then sleep
//! increment `published`, wake sleepers      increment `active`
//! do its part of the work                   load the job; unless it is null, do part of the work
//! store null                                decrement `active`
//! wait until `active` is zero
//! ```
//!
//! All accesses are sequentially consistent. A worker that sees the job has incremented `active`
//! before the owner stored null, so the owner waits for it, and the job outlives its use. The owner
//! sees everything that the workers wrote. A worker that is about to sleep increments `sleeping`
//! before it looks at `published` for the last time, under the lock of the condition variable, so
//! it either sees the new job or is notified.
//!
//! This file and `task_range.rs` are checked by the model in `loom/`.

use std::fmt;
use std::ptr;
use std::sync::PoisonError;

use super::sync::{
    AtomicBool, AtomicPtr, AtomicUsize, Condvar, Mutex, SPIN_ROUNDS, SeqCst, spin_loop,
    store_before_load, yield_now,
};

/// Job that a thread offers to the workers, if any.
pub(super) struct JobSlot<J> {
    /// Current job, or null.
    job: AtomicPtr<J>,
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

impl<J> fmt::Debug for JobSlot<J> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("JobSlot").finish_non_exhaustive()
    }
}

impl<J: Sync> JobSlot<J> {
    /// Creates an empty slot.
    pub(super) fn new() -> Self {
        Self {
            job: AtomicPtr::new(ptr::null_mut()),
            published: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            sleeping: AtomicUsize::new(0),
            sleep_lock: Mutex::new(()),
            wake: Condvar::new(),
            shutdown: AtomicBool::new(false),
        }
    }

    /// Offers a job to the workers while `work` runs, and waits until no worker uses it.
    ///
    /// # Safety
    /// The job is valid until this function returns, and no other thread calls it meanwhile.
    pub(super) unsafe fn offer(&self, job: *const J, work: impl FnOnce()) {
        let retract = RetractJob(self);
        self.job.store(job.cast_mut(), SeqCst);
        self.publish();
        work();
        drop(retract);
    }

    /// Runs the jobs of the slot until it is shut down.
    pub(super) fn serve(&self, run: impl Fn(&J)) {
        let mut seen = 0;
        loop {
            seen = self.wait(seen);
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
        self.publish();
    }

    /// Announces a new job to spinning and sleeping workers.
    fn publish(&self) {
        self.published.fetch_add(1, SeqCst);
        store_before_load();
        if self.sleeping.load(SeqCst) > 0 {
            let _guard = self.sleep_lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.wake.notify_all();
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
        store_before_load();
        while self.published.load(SeqCst) == seen {
            sleep_lock = self.wake.wait(sleep_lock).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleeping.fetch_sub(1, SeqCst);
        self.published.load(SeqCst)
    }
}

/// Retracts a job on drop, also during unwinding, and waits until no worker uses it.
struct RetractJob<'a, J>(&'a JobSlot<J>);

impl<J> Drop for RetractJob<'_, J> {
    fn drop(&mut self) {
        self.0.job.store(ptr::null_mut(), SeqCst);
        store_before_load();
        let mut rounds = 0;
        while self.0.active.load(SeqCst) > 0 {
            rounds += 1;
            if rounds < SPIN_ROUNDS { spin_loop() } else { yield_now() }
        }
    }
}
