//! Uninitialized output buffers, which avoid clearing memory that is about to be overwritten.

use std::mem::MaybeUninit;

/// Buffer of `f32` values that has been allocated but not initialized.
pub(crate) struct UninitBuffer {
    values: Vec<f32>,
    len: usize,
}

impl UninitBuffer {
    /// Allocates a buffer of `len` values.
    pub(crate) fn new(len: usize) -> Self {
        Self { values: Vec::with_capacity(len), len }
    }

    /// Returns the uninitialized values as a slice.
    pub(crate) fn as_uninit(&mut self) -> &mut [MaybeUninit<f32>] {
        &mut self.values.spare_capacity_mut()[..self.len]
    }

    /// Converts the buffer into a vector.
    ///
    /// # Safety
    /// All `len` values have been initialized.
    pub(crate) unsafe fn assume_init(mut self) -> Vec<f32> {
        // SAFETY: the capacity is at least `len`, and the caller guarantees that all values are
        // initialized.
        unsafe { self.values.set_len(self.len) };
        self.values
    }
}
