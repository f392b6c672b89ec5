//! Model of the thread pool of `graph-diffuser-kernels`, checked by [loom](https://docs.rs/loom).
//!
//! The files of the protocol are included as they are; only the atomics, locks and threads are
//! those of the model checker. It explores all interleavings, and all values that loads may return,
//! up to a number of preemptions. Accesses to a cell by two threads without an order between them,
//! deadlocks and failed assertions are errors.

#![cfg(test)]
#![allow(dead_code)]

mod sync;

#[path = "../../crates/graph-diffuser-kernels/src/parallel/job_slot.rs"]
mod job_slot;
#[path = "../../crates/graph-diffuser-kernels/src/parallel/task_range.rs"]
mod task_range;

mod tests;
