//! Memory that is written once: clearing it first costs as much as many a kernel.

use std::mem::MaybeUninit;

/// So many numbers, which `fill` writes.
///
/// # Safety
/// `fill` writes every one of them.
pub(crate) unsafe fn fresh<R>(count: usize, fill: impl FnOnce(&mut [MaybeUninit<f32>]) -> R) -> (Vec<f32>, R) {
    let mut numbers = Vec::with_capacity(count);
    let result = fill(&mut numbers.spare_capacity_mut()[..count]);
    // SAFETY: there is room for them, and the caller says that all are written.
    unsafe { numbers.set_len(count) };
    (numbers, result)
}
