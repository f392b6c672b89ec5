//! Iteration over blocks of channels, each over all rows.

use crate::simd::Simd;

/// Computation that processes all rows for one block of channels at a time.
pub(crate) trait Blockwise {
    /// Processes one block.
    ///
    /// # Safety
    /// The block is within the rows, and `W` is the number of vectors it needs.
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block);
}

/// Runs `work` for all blocks of rows with `channels` channels.
#[inline(always)]
pub(crate) fn by_blocks<S: Simd>(simd: S, channels: usize, mut work: impl Blockwise) {
    // At most four vectors, which leave registers for the coefficients, and blocks of nearly equal
    // size.
    let vectors = channels.div_ceil(S::LANES);
    let width = vectors.div_ceil(vectors.div_ceil(4).max(1)).max(1) * S::LANES;
    for first in (0..channels).step_by(width) {
        let block = Block { first, channels, count: (channels - first).min(width) };
        // SAFETY: the block ends with the row, and `W` is the number of vectors it needs.
        unsafe {
            match block.count.div_ceil(S::LANES) {
                1 => work.block::<S, 1>(simd, block),
                2 => work.block::<S, 2>(simd, block),
                3 => work.block::<S, 3>(simd, block),
                _ => work.block::<S, 4>(simd, block),
            }
        }
    }
}

/// Block of `count` channels from `first`, which need `W` vectors.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    first: usize,
    pub(super) channels: usize,
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
    pub(super) fn index<S: Simd>(self, row: usize, v: usize) -> u64 {
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
