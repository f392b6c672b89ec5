//! Atomics, locks and threads of the protocol, which the model in `loom/` replaces by those of the
//! model checker.

use std::hint::spin_loop;
pub(super) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::SeqCst,
};
pub(super) use std::sync::{Condvar, Mutex};
use std::thread::yield_now;

/// Number of polls for a job before a thread sleeps: about a millisecond.
pub(super) const SPIN_ROUNDS: usize = 1 << 14;

/// Number of polls after which a thread offers its core to others: about 60 µs, longer than most
/// pauses between jobs. With more threads than cores, the one that it waits for may need the core.
const YIELD_ROUNDS: usize = 1 << 10;

/// Waits for a moment between two polls, of which this is number `round`.
#[inline(always)]
pub(super) fn pause(round: usize) {
    if (round + 1).is_multiple_of(YIELD_ROUNDS) { yield_now() } else { spin_loop() }
}

/// Marks that a store before is ordered before a load after, which holds because both are
/// sequentially consistent. The model checker treats them as acquire and release, so it needs a
/// fence.
#[inline(always)]
pub(super) fn store_before_load() {}
