//! Tests of the thread pool.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use super::task_range::TaskRange;
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
    let job = Job { work: &|_, _| {}, ranges, panic: Mutex::new(None) };
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
fn jobs_run_on_at_most_as_many_threads_as_they_have_tasks() {
    let pool = ThreadPool::new(6);
    // Ascending: a late worker may join the next job, to which it was then called as well.
    for count in [2, 3, 6] {
        // All workers sleep, or are about to.
        thread::sleep(Duration::from_millis(20));
        let names = pool.install(|| {
            map_init(
                vec![(); count],
                || (),
                |(), _, ()| {
                    thread::sleep(Duration::from_millis(2));
                    thread::current().name().unwrap_or_default().to_owned()
                },
            )
        });
        let called: Vec<String> = (1..count).map(|index| format!("compute-{index}")).collect();
        let workers = names.iter().filter(|name| name.starts_with("compute-"));
        for name in workers {
            assert!(called.contains(name), "{name} ran one of {count} tasks");
        }
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
        // The panic of a worker reaches the caller with its message.
        let panic = panicked.expect_err("task 50 panics");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"task 50"));
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

#[test]
fn workers_use_the_memory_of_their_own_pool() {
    let pool = ThreadPool::new(3);
    pool.install(|| {
        let cache = Arc::as_ptr(&scratch_cache()) as usize;
        for_each(vec![(); 100], |()| {
            assert_eq!(Arc::as_ptr(&scratch_cache()) as usize, cache);
            thread::sleep(Duration::from_micros(100));
        });
        assert_ne!(Arc::as_ptr(&buffer_cache()) as usize, cache);
    });
}
