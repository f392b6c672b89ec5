//! Rows of channels in blocks of a few vectors, each taken down all rows.

use crate::simd::Simd;

/// Work on rows of channels that goes down all rows with a few vectors of channels at a time.
pub(crate) trait Blockwise {
    /// # Safety
    /// The block lies within the rows, and `W` is the number of vectors it needs.
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block);
}

/// Does the work for all channels: `channels` is the width of its rows.
#[inline(always)]
pub(crate) fn by_blocks<S: Simd>(simd: S, channels: usize, mut work: impl Blockwise) {
    // At most four vectors, which leave registers for what a channel needs, and blocks about equal.
    let vectors = channels.div_ceil(S::LANES);
    let width = vectors.div_ceil(vectors.div_ceil(4).max(1)).max(1) * S::LANES;
    for first in (0..channels).step_by(width) {
        let block = Block { first, channels, count: (channels - first).min(width) };
        // SAFETY: the block ends with the row, and has as many vectors as it needs.
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

/// `count` channels from `first`, which need `W` vectors.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    first: usize,
    pub(super) channels: usize,
    count: usize,
}

impl Block {
    /// Vector `v` of the block's part of a row.
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
        // SAFETY: the vectors before the last are whole, the last ends with the block.
        unsafe {
            let from = row.add(self.first + v * S::LANES);
            if v + 1 < W {
                simd.load(from)
            } else {
                simd.load_up_to(from, self.count - (W - 1) * S::LANES)
            }
        }
    }

    /// All of the block's part of a row.
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
            // SAFETY: the caller's.
            *value = unsafe { self.load::<S, W>(simd, row, v) };
        }
        values
    }

    /// Where vector `v` of the block is, in the row that starts at `row`.
    #[inline(always)]
    pub(super) fn index<S: Simd>(self, row: usize, v: usize) -> u64 {
        (row + self.first + v * S::LANES) as u64
    }

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
