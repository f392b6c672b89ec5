//! Kernels over the rows of `[rows, channels]`, for one block of channels at a time.

use crate::parallel;
use crate::simd::{Kernel, Simd};

/// Number of values below which the work stays on one thread: a few microseconds.
const PARALLEL: usize = 1 << 15;

/// Runs the tasks, in parallel if the approximate number of values read, `num_values`, is large
/// enough.
pub(crate) fn run_all<T: Send>(num_values: usize, tasks: Vec<T>, run: impl Fn(T) + Sync) {
    parallel::for_each_if(num_values >= PARALLEL, tasks, run);
}

/// Kernel that processes all rows for one block of channels at a time.
pub(crate) trait Blockwise {
    /// Returns the number of channels of a row.
    fn channels(&self) -> usize;

    /// Processes one block. Implementations must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The block is within the rows, and `W` is the number of vectors it needs.
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block);
}

impl<B: Blockwise> Kernel for B {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        // At most four vectors, which leave registers for the coefficients, and blocks of nearly
        // equal size.
        let channels = self.channels();
        let vectors = channels.div_ceil(S::LANES);
        let width = vectors.div_ceil(vectors.div_ceil(4).max(1)).max(1) * S::LANES;
        for first in (0..channels).step_by(width) {
            let block = Block { first, channels, count: (channels - first).min(width) };
            // SAFETY: the block ends with the row, and `W` is the number of vectors it needs.
            unsafe {
                match block.count.div_ceil(S::LANES) {
                    1 => self.block::<S, 1>(simd, block),
                    2 => self.block::<S, 2>(simd, block),
                    3 => self.block::<S, 3>(simd, block),
                    _ => self.block::<S, 4>(simd, block),
                }
            }
        }
    }
}

/// Block of `count` channels from `first`, which need `W` vectors.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    first: usize,
    pub(crate) channels: usize,
    count: usize,
}

impl Block {
    /// Loads vector `v` of the block from a row.
    ///
    /// # Safety
    /// `row` has all channels, and `v` is below `W`.
    #[inline(always)]
    pub(crate) unsafe fn load<S: Simd, const W: usize>(
        self,
        simd: S,
        row: *const f32,
        v: usize,
    ) -> S::V {
        // SAFETY: all vectors but the last are whole, and the last ends with the block.
        unsafe {
            let from = row.add(self.first + v * S::LANES);
            if v + 1 < W {
                simd.load(from)
            } else {
                simd.load_up_to(from, self.count - (W - 1) * S::LANES)
            }
        }
    }

    /// Loads all vectors of the block from a row.
    ///
    /// # Safety
    /// `row` has all channels.
    #[inline(always)]
    pub(crate) unsafe fn load_all<S: Simd, const W: usize>(
        self,
        simd: S,
        row: *const f32,
    ) -> [S::V; W] {
        let mut values = [simd.zero(); W];
        for (v, value) in values.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            *value = unsafe { self.load::<S, W>(simd, row, v) };
        }
        values
    }

    /// Returns the index of vector `v` of the block in the row that starts at index `row`.
    #[inline(always)]
    pub(crate) fn index<S: Simd>(self, row: usize, v: usize) -> u64 {
        (row + self.first + v * S::LANES) as u64
    }

    /// Stores vector `v` of the block to a row.
    ///
    /// # Safety
    /// As for [`Self::load`].
    #[inline(always)]
    pub(crate) unsafe fn store<S: Simd, const W: usize>(
        self,
        simd: S,
        row: *mut f32,
        v: usize,
        value: S::V,
    ) {
        // SAFETY: as in `load`.
        unsafe {
            let to = row.add(self.first + v * S::LANES);
            if v + 1 < W {
                simd.store(to, value);
            } else {
                simd.store_up_to(to, value, self.count - (W - 1) * S::LANES);
            }
        }
    }
}
