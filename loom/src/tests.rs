//! Properties of the protocol.

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use crate::job_slot::JobSlot;
use crate::task_range::TaskRange;

/// Job with one task per thread, each of which writes one cell.
struct Job {
    ranges: Vec<TaskRange>,
    cells: Vec<UnsafeCell<usize>>,
}

// SAFETY: the model checker reports unordered accesses to the cells.
unsafe impl Sync for Job {}

impl Job {
    fn new(threads: usize) -> Self {
        Self {
            ranges: (0..threads).map(|thread| TaskRange::new(thread..thread + 1)).collect(),
            cells: (0..threads).map(|_| UnsafeCell::new(0)).collect(),
        }
    }

    /// Runs tasks until none is left, as a thread of the pool does. A thread without a task of its
    /// own was called to another job.
    fn work(&self, thread: usize) {
        let steal = |step: usize| self.ranges[(thread + step) % self.ranges.len()].take_last();
        let take = || self.ranges.get(thread).and_then(TaskRange::take_first);
        while let Some(task) = take().or_else(|| (1..=self.ranges.len()).find_map(steal)) {
            // SAFETY: the model checker reports an access without an order.
            self.cells[task].with_mut(|cell| unsafe { *cell += 1 });
        }
    }

    /// Checks, as the owner of the job, that every task was run once.
    fn finish(mut self) {
        for cell in &mut self.cells {
            // SAFETY: as above; this is the access after which the job is dropped.
            cell.with_mut(|cell| assert_eq!(unsafe { *cell }, 1));
        }
    }
}

/// Explores a pool of `threads` that runs jobs for these numbers of threads one after another, and
/// is shut down.
fn explore(threads: usize, jobs: &'static [usize], max_preemptions: usize) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(max_preemptions);
    builder.max_branches = 100_000;
    builder.check(move || {
        let slot = Arc::new(JobSlot::<Job>::new(threads - 1));
        let spawn = |thread| {
            let slot = slot.clone();
            thread::spawn(move || slot.serve(thread - 1, |job| job.work(thread)))
        };
        let workers: Vec<_> = (1..threads).map(spawn).collect();
        for &threads in jobs {
            let job = Job::new(threads);
            // SAFETY: the job lives until `finish`.
            unsafe { slot.offer(&raw const job, threads - 1, || job.work(0)) };
            job.finish();
        }
        slot.shut_down();
        for worker in workers {
            worker.join().expect("the worker returns");
        }
    });
}

#[test]
fn one_worker_runs_a_job_and_returns() {
    explore(2, &[2], 4);
}

#[test]
fn one_worker_runs_two_jobs_and_returns() {
    explore(2, &[2, 2], 3);
}

#[test]
fn two_workers_run_a_job_and_return() {
    explore(3, &[3], 2);
}

#[test]
fn worker_sleeps_through_jobs_for_fewer_threads() {
    explore(2, &[1, 2], 3);
}

#[test]
fn late_worker_joins_a_job_for_fewer_threads() {
    explore(3, &[3, 2], 2);
}

#[test]
fn sleeping_worker_is_woken_by_shutdown() {
    explore(2, &[], 6);
}
