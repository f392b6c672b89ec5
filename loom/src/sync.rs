//! The types of `parallel/sync.rs`, from the model checker.

pub(super) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::SeqCst,
};
pub(super) use loom::sync::{Condvar, Mutex};

/// One poll, so that both polling and sleeping are explored.
pub(super) const SPIN_ROUNDS: usize = 1;

/// Lets another thread run, which the model checker requires in a loop that waits for one.
pub(super) fn pause(_round: usize) {
    loom::thread::yield_now();
}

/// The model checker treats sequentially consistent accesses as acquire and release, but models
/// this fence.
pub(super) fn store_before_load() {
    loom::sync::atomic::fence(SeqCst);
}
