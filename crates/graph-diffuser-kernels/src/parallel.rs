//! Thread pool with spinning workers, static partitioning and work stealing.
//!
//! A training step consists of hundreds of short parallel jobs. Waking a sleeping thread takes
//! longer than most of them, especially on virtual machines. Workers therefore spin for about a
//! millisecond before they sleep, and a job starts within a microsecond.
//!
//! Each thread starts with a contiguous range of the tasks, the same fraction of every job, so that
//! it finds the data of the previous job in its cache; a thread that has finished its range steals
//! tasks from the end of the other ranges. A job with fewer tasks than threads calls only as many
//! threads; the others keep waiting. Results do not depend on the schedule: tasks are cut by size,
//! write to disjoint memory, and their return values are collected in task order.
//!
//! A waiting thread offers its core to others now and then, so that several pools can share the
//! cores of a machine.
//!
//! A pool owns the memory that kernels reuse: the spare buffers of the edge-wise network and the
//! scratch buffers of attention. Process-wide state consists of the default pool alone.

mod sync;

mod job_slot;

mod task_range;

mod pool;

#[cfg(test)]
mod tests;

use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::Arc;

pub use pool::{ThreadPool, num_threads, set_num_threads};

use crate::buffer::BufferCache;
use pool::{Job, with_pool};

/// Returns the cache of buffers with the values of all pairs.
pub(crate) fn buffer_cache() -> Arc<BufferCache> {
    with_pool(|pool| pool.buffers.clone())
}

/// Returns the cache of scratch buffers, of which a job takes one per thread.
pub(crate) fn scratch_cache() -> Arc<BufferCache> {
    with_pool(|pool| pool.scratch.clone())
}

/// Returns the results of `run` for every task, in task order, computed on the threads of the pool.
///
/// ```
/// let squares = graph_diffuser_kernels::parallel_map(vec![1, 2, 3], |value| value * value);
/// assert_eq!(squares, [1, 4, 9]);
/// ```
pub fn parallel_map<T: Send, R: Send>(tasks: Vec<T>, run: impl Fn(T) -> R + Sync) -> Vec<R> {
    map_init(tasks, || (), |(), _, task| run(task))
}

/// Calls `run` for every task, on this thread alone unless the job is `large`.
pub(crate) fn for_each_if<T: Send>(large: bool, tasks: Vec<T>, run: impl Fn(T) + Sync) {
    if large { for_each(tasks, run) } else { tasks.into_iter().for_each(run) }
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
        (SharedPtr::new(&mut tasks), SharedPtr::from_uninit(results.spare_capacity_mut()));
    let work = |job: &Job<'_>, thread: usize| {
        let mut state = None;
        while let Some(index) = job.take(thread) {
            // SAFETY: every index below `count` is taken exactly once, so no other thread accesses
            // these elements.
            unsafe {
                let task = from.pointer().add(index).read();
                let result = run(state.get_or_insert_with(&init), index, task);
                to.pointer().add(index).write(result);
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

/// Pointer to a slice whose elements tasks access disjointly.
pub(crate) struct SharedPtr<T>(*mut T);

impl<T> Clone for SharedPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedPtr<T> {}

// SAFETY: each access through the pointer documents why no other thread accesses that element.
unsafe impl<T: Send> Send for SharedPtr<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedPtr<T> {}

impl<T> SharedPtr<T> {
    /// Returns a pointer to an initialized slice.
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Self(slice.as_mut_ptr())
    }

    /// Returns a pointer to an uninitialized slice.
    pub(crate) fn from_uninit(slice: &mut [MaybeUninit<T>]) -> Self {
        Self(slice.as_mut_ptr().cast())
    }

    #[inline(always)]
    pub(crate) fn pointer(self) -> *mut T {
        self.0
    }
}
