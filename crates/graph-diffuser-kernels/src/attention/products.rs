//! Matrix products of row blocks, and the packing of their operands.

use crate::simd::Simd;

/// Query rows per block. With 32 registers, tiles of a product have all of them by up to two
/// vectors (AVX-512) or three (NEON). With the 16 registers of AVX2, they have half of them by
/// three vectors, which needs fewer loads per multiply-add than all of them by one vector.
pub(super) const ROWS: usize = 8;

/// Computes `product[row][column] = Σ_k left[row, k] · right[k, column]` for [`ROWS`] rows and
/// `columns` columns, a multiple of the lanes.
///
/// The entry `(row, k)` of `left` has offset `row · row_step + k · depth_step`; the other two
/// matrices are dense.
///
/// # Safety
/// All these entries are valid memory.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd>(
    simd: S,
    depth: usize,
    left: *const f32,
    row_step: usize,
    depth_step: usize,
    right: *const f32,
    columns: usize,
    product: *mut f32,
) {
    const HALF: usize = ROWS / 2;
    // SAFETY: all calls stay within the rows and columns.
    unsafe {
        let mut column = 0;
        while column < columns {
            let (right, product) = (right.add(column), product.add(column));
            let halves = [(left, product), {
                (left.wrapping_add(HALF * row_step), product.wrapping_add(HALF * columns))
            }];
            let vectors = match (columns - column) / S::LANES {
                1 => 1,
                2 | 4 => 2,
                _ => max_vectors::<S>(),
            };
            match (S::REGISTERS, vectors) {
                // With 32 registers, 16 accumulators hide the latency of a multiply-add: two
                // vectors per row, or two partial sums of one vector.
                (32, 1) => multiply_block::<S, ROWS, 1, 2>(
                    simd, depth, left, row_step, depth_step, right, columns, product,
                ),
                (32, 2) => multiply_block::<S, ROWS, 2, 1>(
                    simd, depth, left, row_step, depth_step, right, columns, product,
                ),
                (32, _) => multiply_block::<S, ROWS, 3, 1>(
                    simd, depth, left, row_step, depth_step, right, columns, product,
                ),
                (_, 1) => multiply_block::<S, ROWS, 1, 1>(
                    simd, depth, left, row_step, depth_step, right, columns, product,
                ),
                (_, 2) => {
                    for (left, product) in halves {
                        multiply_block::<S, HALF, 2, 1>(
                            simd, depth, left, row_step, depth_step, right, columns, product,
                        );
                    }
                }
                _ => {
                    for (left, product) in halves {
                        multiply_block::<S, HALF, 3, 1>(
                            simd, depth, left, row_step, depth_step, right, columns, product,
                        );
                    }
                }
            }
            column += vectors * S::LANES;
        }
    }
}

/// Returns the maximum number of vectors in a row of a tile.
#[inline(always)]
const fn max_vectors<S: Simd>() -> usize {
    if S::LANES == 16 { 2 } else { 3 }
}

/// Computes `R` rows of `VECTORS` vectors, each the total of `SUMS` partial sums.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn multiply_block<S: Simd, const R: usize, const VECTORS: usize, const SUMS: usize>(
    simd: S,
    depth: usize,
    left: *const f32,
    row_step: usize,
    depth_step: usize,
    right: *const f32,
    columns: usize,
    product: *mut f32,
) {
    let mut sums = [[[simd.zero(); VECTORS]; R]; SUMS];
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (mut left, mut right) = (left, right);
        let mut k = 0;
        while k + SUMS <= depth {
            for sums in &mut sums {
                add_products(simd, left, row_step, right, sums);
                left = left.wrapping_add(depth_step);
                right = right.wrapping_add(columns);
            }
            k += SUMS;
        }
        if k < depth {
            add_products(simd, left, row_step, right, &mut sums[0]);
        }
        for row in 0..R {
            for v in 0..VECTORS {
                let mut total = sums[0][row][v];
                for sums in &sums[1..] {
                    total = simd.add(total, sums[row][v]);
                }
                simd.store(product.add(row * columns + v * S::LANES), total);
            }
        }
    }
}

/// Adds the outer product of one column of `left` and one row of `right`.
///
/// # Safety
/// `left` has `R` values, `row_step` apart, and `right` has `VECTORS` vectors.
#[inline(always)]
unsafe fn add_products<S: Simd, const R: usize, const VECTORS: usize>(
    simd: S,
    left: *const f32,
    row_step: usize,
    right: *const f32,
    sums: &mut [[S::V; VECTORS]; R],
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut vectors = [simd.zero(); VECTORS];
        for (v, vector) in vectors.iter_mut().enumerate() {
            *vector = simd.load(right.add(v * S::LANES));
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            let factor = simd.splat(*left.add(row * row_step));
            for (sum, vector) in sums.iter_mut().zip(vectors) {
                *sum = simd.mul_add(factor, vector, *sum);
            }
        }
    }
}

/// Computes `product[row][c] = Σ_k left[row][k] · right[k][c]` for [`ROWS`] rows, with `right` as
/// packed by [`pack_rows`].
///
/// # Safety
/// `left` is `[ROWS, left_step]`, with zeros from `depth` to the next even number; `product` is
/// `[ROWS, d_padded]`.
#[inline(always)]
pub(super) unsafe fn gather<S: Simd>(
    simd: S,
    depth: usize,
    left: *const f32,
    left_step: usize,
    right: *const f32,
    d: usize,
    product: *mut f32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if packs_two_rows(simd, d) {
            let mut sums = [simd.zero(); ROWS];
            let mut k = 0;
            while k < depth {
                let rows = simd.load(right.add(k / 2 * S::LANES));
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.mul_add(simd.splat_pair(left.add(row * left_step + k)), rows, *sum);
                }
                k += 2;
            }
            for (row, sum) in sums.into_iter().enumerate() {
                simd.store(product.add(row * S::LANES), simd.add_pairs(sum));
            }
        } else {
            multiply(simd, depth, left, left_step, 1, right, d.next_multiple_of(S::LANES), product);
        }
    }
}

/// Returns whether a vector holds two rows of `d` values.
#[inline(always)]
fn packs_two_rows<S: Simd>(_: S, d: usize) -> bool {
    2 * d <= S::LANES
}

/// Computes `sums[d][j] += Σ_row left[d][row] · right[row][j]` for `d_head` by `columns` sums and
/// [`ROWS`] rows.
///
/// # Safety
/// All these entries are valid memory; `columns` is a multiple of the lanes.
#[inline(always)]
pub(super) unsafe fn accumulate<S: Simd>(
    simd: S,
    d_head: usize,
    left: *const f32,
    left_step: usize,
    right: *const f32,
    columns: usize,
    sums: *mut f32,
) {
    // SAFETY: all calls stay within the columns.
    unsafe {
        let mut column = 0;
        while column < columns {
            let (right, sums) = (right.add(column), sums.add(column));
            let vectors = (columns - column) / S::LANES;
            if vectors >= 3 && vectors != 4 && max_vectors::<S>() == 3 {
                accumulate_vectors::<S, 3>(simd, d_head, left, left_step, right, columns, sums);
                column += 3 * S::LANES;
            } else if vectors >= 2 {
                accumulate_vectors::<S, 2>(simd, d_head, left, left_step, right, columns, sums);
                column += 2 * S::LANES;
            } else {
                accumulate_vectors::<S, 1>(simd, d_head, left, left_step, right, columns, sums);
                column += S::LANES;
            }
        }
    }
}

/// Adds `VECTORS` vectors of columns to all sums, four of `d_head` at a time: the multiply-adds of
/// one sum wait for each other.
///
/// # Safety
/// As for [`accumulate`].
#[inline(always)]
unsafe fn accumulate_vectors<S: Simd, const VECTORS: usize>(
    simd: S,
    d_head: usize,
    left: *const f32,
    left_step: usize,
    right: *const f32,
    columns: usize,
    sums: *mut f32,
) {
    // SAFETY: guaranteed by the caller; blocks end with `d_head`.
    unsafe {
        let mut d = 0;
        while d + 4 <= d_head {
            let (left, sums) = (left.add(d * left_step), sums.add(d * columns));
            accumulate_block::<S, 4, VECTORS>(simd, left, left_step, right, columns, sums);
            d += 4;
        }
        while d < d_head {
            let (left, sums) = (left.add(d * left_step), sums.add(d * columns));
            accumulate_block::<S, 1, VECTORS>(simd, left, left_step, right, columns, sums);
            d += 1;
        }
    }
}

/// Adds `VECTORS` vectors of columns to the sums of `D` entries of a head.
///
/// # Safety
/// As for [`accumulate`].
#[inline(always)]
unsafe fn accumulate_block<S: Simd, const D: usize, const VECTORS: usize>(
    simd: S,
    left: *const f32,
    left_step: usize,
    right: *const f32,
    columns: usize,
    sums: *mut f32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut totals = [[simd.zero(); VECTORS]; D];
        for (d, totals) in totals.iter_mut().enumerate() {
            for (v, total) in totals.iter_mut().enumerate() {
                *total = simd.load(sums.add(d * columns + v * S::LANES));
            }
        }
        for row in 0..ROWS {
            add_products(simd, left.add(row), left_step, right.add(row * columns), &mut totals);
        }
        for (d, totals) in totals.into_iter().enumerate() {
            for (v, total) in totals.into_iter().enumerate() {
                simd.store(sums.add(d * columns + v * S::LANES), total);
            }
        }
    }
}

/// Returns the dot product of `a` and `b`.
///
/// # Safety
/// Both have `d` values.
#[inline(always)]
pub(super) unsafe fn dot<S: Simd>(simd: S, d: usize, a: *const f32, b: *const f32) -> f32 {
    let mut total = simd.zero();
    for start in (0..d).step_by(S::LANES) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let a = simd.load_up_to(a.add(start), d - start);
            total = simd.mul_add(a, simd.load_up_to(b.add(start), d - start), total);
        }
    }
    simd.reduce_sum(total)
}

/// Multiplies `count` values, a multiple of the lanes, by `factor`.
///
/// # Safety
/// `values` has `count` values.
#[inline(always)]
pub(super) unsafe fn scale<S: Simd>(simd: S, count: usize, factor: f32, values: *mut f32) {
    for start in (0..count).step_by(S::LANES) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            simd.store(
                values.add(start),
                simd.mul(simd.load(values.add(start)), simd.splat(factor)),
            );
        };
    }
}

/// Copies `d` values, multiplied by `scale`.
///
/// # Safety
/// `from` is readable up to a full vector, and `to` has `d` values.
#[inline(always)]
pub(super) unsafe fn copy_scaled<S: Simd>(
    simd: S,
    d: usize,
    from: *const f32,
    scale: f32,
    to: *mut f32,
) {
    for start in (0..d).step_by(S::LANES) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            simd.store_up_to(
                to.add(start),
                simd.mul(simd.load(from.add(start)), simd.splat(scale)),
                d - start,
            );
        };
    }
}

/// Copies `n` rows of `d` values, `step` apart, to rows of `d_padded` values, padded with zeros.
/// Narrow rows are packed in pairs, with their values interleaved.
///
/// # Safety
/// `from` has `n` rows, and `to` is `[n, d_padded]`.
#[inline(always)]
pub(super) unsafe fn pack_rows<S: Simd>(
    simd: S,
    n: usize,
    d: usize,
    from: *const f32,
    step: usize,
    to: *mut f32,
    d_padded: usize,
) {
    if packs_two_rows(simd, d) {
        for row in (0..n).step_by(2) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let first = simd.load_partial(from.add(row * step), d);
                let second = if row + 1 < n {
                    simd.load_partial(from.add((row + 1) * step), d)
                } else {
                    simd.zero()
                };
                simd.store(to.add(row / 2 * S::LANES), simd.interleave(first, second));
            }
        }
        return;
    }
    for row in 0..n {
        for start in (0..d).step_by(S::LANES) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let values = simd.load_up_to(from.add(row * step + start), d - start);
                simd.store(to.add(row * d_padded + start), values);
            }
        }
    }
}

/// Transposes `n` rows of `d` values, `step` apart, to `[d, n_padded]`, padded with zeros. Returns
/// the largest sum of squares of a row.
///
/// # Safety
/// `from` has `n` rows, and `to` is `[d, n_padded]`.
#[inline(always)]
pub(super) unsafe fn pack_transposed<S: Simd>(
    simd: S,
    n: usize,
    d: usize,
    from: *const f32,
    step: usize,
    to: *mut f32,
    n_padded: usize,
) -> f32 {
    let mut max_squares = simd.zero();
    for row in (0..n_padded).step_by(S::LANES) {
        let mut squares = simd.zero();
        for start in (0..d).step_by(S::LANES) {
            // Blocks of padding have no rows.
            let block = [S::LANES.min(n.saturating_sub(row)), S::LANES.min(d - start)];
            let from = from.wrapping_add(row * step + start);
            // SAFETY: guaranteed by the caller.
            unsafe {
                let to = to.add(start * n_padded + row);
                simd.transpose(from, step, block, to, n_padded, S::LANES);
                for column in 0..block[1] {
                    let column = simd.load(to.add(column * n_padded));
                    squares = simd.mul_add(column, column, squares);
                }
            }
        }
        max_squares = simd.max(max_squares, squares);
    }
    simd.reduce_max(max_squares)
}

/// Transposes the first `n` columns of `[d, n_padded]` to rows of `d` values, `step` apart.
///
/// # Safety
/// `from` is `[d, n_padded]`, and `to` has `n` rows.
#[inline(always)]
pub(super) unsafe fn unpack_transposed<S: Simd>(
    simd: S,
    n: usize,
    d: usize,
    from: *const f32,
    n_padded: usize,
    to: *mut f32,
    step: usize,
) {
    for row in (0..n).step_by(S::LANES) {
        for start in (0..d).step_by(S::LANES) {
            let block = [S::LANES.min(d - start), S::LANES.min(n - row)];
            // SAFETY: guaranteed by the caller.
            unsafe {
                let from = from.add(start * n_padded + row);
                simd.transpose(from, n_padded, block, to.add(row * step + start), step, block[0]);
            }
        }
    }
}
