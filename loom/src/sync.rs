//! The types of `parallel/sync.rs`, from the model checker.

pub(super) use loom::hint::spin_loop;
pub(super) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::SeqCst,
};
pub(super) use loom::sync::{Condvar, Mutex};
pub(super) use loom::thread::yield_now;

/// One poll, so that both polling and sleeping are explored.
pub(super) const SPIN_ROUNDS: usize = 1;

/// The model checker treats sequentially consistent accesses as acquire and release, but models
/// this fence.
pub(super) fn store_before_load() {
    loom::sync::atomic::fence(SeqCst);
}
