//! Scratch memory of one thread.

use std::sync::Arc;

use super::inputs::Inputs;
use super::products::ROWS;
use crate::buffer::{Buffer, BufferCache, CachedBuffer};

/// Sizes of one head of one graph, of which those with suffix `padded` are multiples of the lanes.
/// `n_padded` is also a multiple of [`ROWS`], so that the last block of rows ends with the padding.
#[derive(Clone, Copy)]
pub(super) struct HeadSizes {
    pub(super) n: usize,
    pub(super) n_padded: usize,
    pub(super) d_head: usize,
    pub(super) d_padded: usize,
}

impl HeadSizes {
    pub(super) fn new(n: usize, d_head: usize, lanes: usize) -> Self {
        Self {
            n,
            n_padded: n.next_multiple_of(lanes.max(ROWS)),
            d_head,
            d_padded: d_head.next_multiple_of(lanes),
        }
    }

    /// Returns the length of `[d_head, n_padded]`.
    pub(super) fn transposed(self) -> usize {
        self.d_head * self.n_padded
    }

    /// Returns the length of `[n, d_padded]`.
    pub(super) fn rows(self) -> usize {
        self.n * self.d_padded
    }

    /// Returns the length of `[ROWS, n_padded]`.
    pub(super) fn block(self) -> usize {
        ROWS * self.n_padded
    }

    /// Returns the length of `[ROWS, d_padded]`.
    pub(super) fn block_output(self) -> usize {
        ROWS * self.d_padded
    }
}

/// Scratch memory of one thread, reused by all of its work items; its contents are unspecified.
pub(super) struct Scratch(CachedBuffer);

impl Scratch {
    /// Takes memory for the areas of the largest graph from the cache.
    pub(super) fn new<const N: usize>(
        cache: &Arc<BufferCache>,
        inputs: &Inputs<'_>,
        areas: impl Fn(HeadSizes) -> [usize; N],
    ) -> Self {
        let n = inputs.graphs.sizes.iter().copied().max().unwrap_or(0);
        let d_head = inputs.options.width / inputs.options.heads;
        // The widest vector needs the most padding.
        let lines = areas(HeadSizes::new(n, d_head, Buffer::LINE)).map(lines);
        Self(cache.take(lines.iter().sum::<usize>() * Buffer::LINE))
    }

    /// Returns areas of these lengths, each aligned to a cache line.
    #[inline(always)]
    pub(super) fn areas<const N: usize>(&mut self, lengths: [usize; N]) -> [*mut f32; N] {
        let lines = lengths.map(lines);
        assert!(
            lines.iter().sum::<usize>() * Buffer::LINE <= self.0.len(),
            "the areas do not fit into the scratch memory"
        );
        let start = self.0.as_mut_ptr();
        let mut next = 0;
        lines.map(|lines| {
            let area = start.wrapping_add(next * Buffer::LINE);
            next += lines;
            area
        })
    }
}

/// Returns the number of cache lines of `len` values.
fn lines(len: usize) -> usize {
    len.div_ceil(Buffer::LINE)
}
