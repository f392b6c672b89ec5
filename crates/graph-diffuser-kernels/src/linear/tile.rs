//! Register tiles of matrix products, and the packing of the right factor.

use crate::simd::{Kernel, Simd};

/// Rows of a tile: with four vectors of columns they use 24 of 32 registers, with two 12 of 16.
pub(super) const TILE_ROWS: usize = 6;

/// Depth of a cache block: the part of the right factor that it covers, of the width of a tile,
/// stays in the first-level cache for all tiles.
pub(super) const DEPTH: usize = 128;

/// Right factor of a product: `columns` columns in panels of a few vectors, each in row-major
/// order.
pub(super) struct Panels {
    pub(super) depth: usize,
    pub(super) columns: usize,
    /// Values in a row of a panel; the last panel may be narrower.
    pub(super) width: usize,
    /// Values, padded with zeros to whole vectors.
    pub(super) values: Vec<f32>,
}

/// Returns the maximum number of vectors in a row of a tile.
#[inline(always)]
const fn max_tile_vectors<S: Simd>() -> usize {
    if S::REGISTERS == 32 { 4 } else { 2 }
}

/// Returns the number of values in a row of a tile, such that panels have nearly equal widths.
#[inline(always)]
pub(super) fn tile_width<S: Simd>(columns: usize) -> usize {
    let vectors = columns.div_ceil(S::LANES);
    vectors.div_ceil(vectors.div_ceil(max_tile_vectors::<S>())) * S::LANES
}

/// Packs `[depth, columns]`, or its transpose, into [`Panels`].
pub(super) struct Pack<'a> {
    pub(super) from: &'a [f32],
    pub(super) depth: usize,
    pub(super) columns: usize,
    pub(super) transposed: bool,
}

impl Kernel for Pack<'_> {
    type Output = Panels;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Panels {
        let Self { from, depth, columns, transposed } = self;
        let width = tile_width::<S>(columns);
        let mut values = vec![0.0; columns.next_multiple_of(S::LANES) * depth];
        for (panel, first) in values.chunks_mut(width * depth).zip((0..columns).step_by(width)) {
            let (row, count) = (panel.len() / depth, (columns - first).min(width));
            if transposed {
                let from = &from[first * depth..(first + count) * depth];
                for column in (0..count).step_by(S::LANES) {
                    for k in (0..depth).step_by(S::LANES) {
                        let block = [S::LANES.min(count - column), S::LANES.min(depth - k)];
                        // SAFETY: the block is within `from`, and a row of the panel consists of
                        // whole vectors.
                        unsafe {
                            let from = from.as_ptr().add(column * depth + k);
                            let to = panel.as_mut_ptr().add(k * row + column);
                            simd.transpose(from, depth, block, to, row, S::LANES);
                        }
                    }
                }
            } else {
                for (to, line) in panel.chunks_mut(row).zip(from.chunks(columns)) {
                    to[..count].copy_from_slice(&line[first..first + count]);
                }
            }
        }
        Panels { depth, columns, width, values }
    }
}

/// Left factor of a product, indexed by row `m` of the tile and step `k` of the sum.
#[derive(Clone, Copy)]
pub(super) enum LeftFactor {
    /// The entry `(m, k)` is `from[m · step + k]`.
    Rows { from: *const f32, step: usize },
    /// The entry `(m, k)` is `from[k · step + m]`.
    Columns { from: *const f32, step: usize },
}

/// Right factor: rows of vectors, of which the last has `last` values.
#[derive(Clone, Copy)]
pub(super) struct RightFactor {
    pub(super) from: *const f32,
    pub(super) step: usize,
    pub(super) last: usize,
}

/// Computes `start[m][v] + Σ_k left(m, k) · right(k, v)`. Rows of the tile beyond `rows` repeat the
/// last one.
///
/// # Safety
/// Both factors have `depth` steps, the left one at least one row and the right one `W` vectors.
#[inline(always)]
pub(super) unsafe fn products<S: Simd, const W: usize>(
    simd: S,
    left: LeftFactor,
    rows: usize,
    right: RightFactor,
    depth: usize,
    start: [[S::V; W]; TILE_ROWS],
) -> [[S::V; W]; TILE_ROWS] {
    let mut tile = start;
    let row = |m: usize| m.min(rows - 1);
    // SAFETY: guaranteed by the caller.
    unsafe {
        match left {
            LeftFactor::Rows { from, step } => {
                let from: [*const f32; TILE_ROWS] =
                    std::array::from_fn(|m| from.add(row(m) * step));
                for k in 0..depth {
                    let vectors = right.row::<S, W>(simd, k);
                    for m in 0..TILE_ROWS {
                        let factor = simd.splat(*from[m].add(k));
                        for v in 0..W {
                            tile[m][v] = simd.mul_add(factor, vectors[v], tile[m][v]);
                        }
                    }
                }
            }
            LeftFactor::Columns { from, step } => {
                let from: [*const f32; TILE_ROWS] = std::array::from_fn(|m| from.add(row(m)));
                for k in 0..depth {
                    let vectors = right.row::<S, W>(simd, k);
                    for m in 0..TILE_ROWS {
                        let factor = simd.splat(*from[m].add(k * step));
                        for v in 0..W {
                            tile[m][v] = simd.mul_add(factor, vectors[v], tile[m][v]);
                        }
                    }
                }
            }
        }
    }
    tile
}

impl RightFactor {
    /// Loads row `k`.
    ///
    /// # Safety
    /// There is a row `k` of `W` vectors.
    #[inline(always)]
    pub(super) unsafe fn row<S: Simd, const W: usize>(self, simd: S, k: usize) -> [S::V; W] {
        let mut vectors = [simd.zero(); W];
        for (v, vector) in vectors.iter_mut().enumerate() {
            let count = if v + 1 < W { S::LANES } else { self.last };
            // SAFETY: guaranteed by the caller; only the last vector may be partial.
            *vector =
                unsafe { simd.load_up_to(self.from.add(k * self.step + v * S::LANES), count) };
        }
        vectors
    }
}
