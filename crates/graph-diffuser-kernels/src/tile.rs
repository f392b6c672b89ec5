//! Tiles of pairs: some channels of [`WIDTH`] consecutive pairs, `[rows][WIDTH]`, contiguous in
//! memory.
//!
//! Kernels over pairs copy a tile from the long rows of `[c, p]`, do all work on it while it is in
//! the first-level cache, and write the result back. The operations are products with a small
//! matrix ([`product`]), sums of products over pairs ([`Sums`]), and pointwise operations while
//! loading and storing. A tile that extends beyond the last pair is padded with zeros, which every
//! operation preserves: constants enter as a row of ones ([`fill_ones`]) that is zero in the
//! padding.

mod prefetch;
mod product;
mod rows;
mod sums;

use std::ops::Range;

pub(crate) use prefetch::Prefetch;
pub(crate) use product::{Epilogue, Initial, Matrix, product};
pub use rows::PairTransform;
pub(crate) use rows::{
    Affine, TransformBackward, fence, load, load_mapped, scale_pairs, store,
    store_transform_gradient,
};
pub(crate) use sums::{RowSums, Sums, Tiles};

use crate::buffer::Buffer;

/// Pairs per tile. Wider tiles need fewer calls, narrower ones stay in the first-level cache:
/// forward and backward pass of the edge-wise network (17 channels, 2 layers, 422,000 pairs,
/// AVX-512, one thread) took 22 + 51 ms with 64, 21 + 45 ms with 128 and 22 + 49 ms with 256.
pub(crate) const WIDTH: usize = 128;

/// Allocates a tile of `rows` rows.
pub(crate) fn zeros(rows: usize) -> Buffer {
    Buffer::zeros(rows * WIDTH)
}

/// Splits `rows` into blocks of at most `max_rows`, of nearly equal size.
fn blocks(rows: usize, max_rows: usize) -> Vec<Range<usize>> {
    let count = rows.div_ceil(max_rows);
    (0..count).map(|index| index * rows / count..(index + 1) * rows / count).collect()
}

/// Evaluates `$call` with the number of rows as a constant.
macro_rules! with_rows {
    ($rows:expr, [$($count:literal),*], |$constant:ident| $call:expr) => {
        match $rows {
            $($count => { const $constant: usize = $count; $call })*
            _ => unreachable!("`blocks` yields no larger blocks"),
        }
    };
}
use with_rows;

/// Writes the row of ones of a tile with `len` pairs.
pub(crate) fn fill_ones(row: &mut [f32], len: usize) {
    row[..len].fill(1.0);
    row[len..WIDTH].fill(0.0);
}
