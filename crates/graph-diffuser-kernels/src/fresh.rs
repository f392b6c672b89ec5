//! Results that are written once: memory that nobody clears first.

use std::mem::MaybeUninit;

/// Numbers on their way to becoming a `Vec`, not yet written.
pub(crate) struct Fresh {
    values: Vec<f32>,
    len: usize,
}

impl Fresh {
    /// Room for `len` numbers.
    pub(crate) fn new(len: usize) -> Self {
        Self { values: Vec::with_capacity(len), len }
    }

    /// Where they are to be written.
    pub(crate) fn room(&mut self) -> &mut [MaybeUninit<f32>] {
        &mut self.values.spare_capacity_mut()[..self.len]
    }

    /// # Safety
    /// Every number of the room has been written.
    pub(crate) unsafe fn written(mut self) -> Vec<f32> {
        // SAFETY: there is room for `len`, and the caller says that they are written.
        unsafe { self.values.set_len(self.len) };
        self.values
    }
}
