//! Sums of products of rows over pairs.

use std::ops::Range;

use crate::buffer::Buffer;
use crate::simd::{Isa, Kernel, Simd};

use super::{Prefetch, WIDTH, blocks, with_rows};

/// Maximum number of lanes of any instruction set, which determines the size of scratch memory.
const MAX_LANES: usize = 16;
/// Number of tiles after which lane sums in single precision are moved to double precision: 256
/// additions per lane cost half a digit, and moving them costs a tenth of the products of a tile.
const TILES_PER_FOLD: usize = 32;

/// Rows and columns of a block of [`Sums`] with 32 registers, of which 24 accumulate.
const LARGE: (usize, usize) = (4, 6);
/// Rows and columns of a block of [`Sums`] with 16 registers, of which 12 accumulate.
const SMALL: (usize, usize) = (2, 6);
/// Rows of a diagonal block with 32 registers, of which 21 accumulate.
const LARGE_CORNER: usize = 6;
/// Rows of a diagonal block with 16 registers, of which 10 accumulate.
const SMALL_CORNER: usize = 4;

/// Block of sums that is kept in registers.
#[derive(Clone)]
enum Block {
    /// Rows and columns.
    Full(Range<usize>, Range<usize>),
    /// Upper triangle of a diagonal block.
    Corner(Range<usize>),
}

fn full_blocks(rows: Range<usize>, columns: Range<usize>, max_size: (usize, usize)) -> Vec<Block> {
    let shift = |part: Range<usize>, by: usize| part.start + by..part.end + by;
    let by_row = blocks(rows.len(), max_size.0).into_iter().flat_map(|part| {
        let rows = shift(part, rows.start);
        blocks(columns.len(), max_size.1).into_iter().map(move |part| (rows.clone(), part))
    });
    by_row.map(|(rows, part)| Block::Full(rows, shift(part, columns.start))).collect()
}

/// Contiguous tiles of `rows` rows each.
#[derive(Clone, Copy)]
pub(crate) struct Tiles<'a> {
    pub(crate) rows: usize,
    pub(crate) values: &'a [f32],
}

/// Sums `Σ a ⊗ b` over the pairs of many tiles, `[rows, columns]`.
///
/// Several tiles are added per call: the sums are larger than a tile, and loading them costs as
/// much as adding one.
pub(crate) struct Sums {
    rows: usize,
    columns: usize,
    /// All required blocks, split for [`LARGE`] and for [`SMALL`].
    blocks: [Vec<Block>; 2],
    /// `[rows][columns][LANES]`
    lanes: Buffer,
    tiles: usize,
    total: Vec<f64>,
}

impl Sums {
    /// Creates sums of `rows` by `columns` entries.
    pub(crate) fn new(rows: usize, columns: usize) -> Self {
        let blocks = [LARGE, SMALL].map(|max_size| full_blocks(0..rows, 0..columns, max_size));
        Self::with_blocks(rows, columns, blocks)
    }

    /// Creates symmetric sums; only entries on and above the diagonal are computed.
    pub(crate) fn symmetric(rows: usize) -> Self {
        let cut = [(LARGE_CORNER, LARGE), (SMALL_CORNER, SMALL)].map(|(corner, max_size)| {
            let cut_one = |corner: Range<usize>| {
                let beside = full_blocks(corner.clone(), corner.end..rows, max_size);
                std::iter::once(Block::Corner(corner)).chain(beside)
            };
            blocks(rows, corner).into_iter().flat_map(cut_one).collect()
        });
        Self::with_blocks(rows, rows, cut)
    }

    fn with_blocks(rows: usize, columns: usize, blocks: [Vec<Block>; 2]) -> Self {
        let lanes = Buffer::zeros(rows * columns * MAX_LANES);
        Self { rows, columns, blocks, lanes, tiles: 0, total: vec![0.0; rows * columns] }
    }

    /// Adds the products of the first rows of `count` tiles of `a` and `b`.
    pub(crate) fn add(
        &mut self,
        isa: Isa,
        prefetch: &mut Prefetch,
        count: usize,
        a: Tiles<'_>,
        b: Tiles<'_>,
    ) {
        let reaches = |tiles: Tiles<'_>, rows: usize| {
            tiles.rows >= rows
                && tiles.values.len() >= (count.saturating_sub(1) * tiles.rows + rows) * WIDTH
        };
        assert!(
            reaches(a, self.rows) && reaches(b, self.columns),
            "tiles have too few rows, or there are too few tiles"
        );
        isa.run(Outer { prefetch, sums: self, count, a, b });
        self.tiles += count;
        if self.tiles >= TILES_PER_FOLD {
            self.fold(isa);
        }
    }

    /// Moves the lane sums to the totals.
    fn fold(&mut self, isa: Isa) {
        isa.run(Fold { lanes: &mut self.lanes, total: &mut self.total });
        self.tiles = 0;
    }

    /// Returns the sums in row-major order and resets them.
    pub(crate) fn finish(&mut self, isa: Isa) -> Vec<f64> {
        self.fold(isa);
        std::mem::replace(&mut self.total, vec![0.0; self.rows * self.columns])
    }
}

struct Outer<'a> {
    prefetch: &'a mut Prefetch,
    sums: &'a mut Sums,
    count: usize,
    a: Tiles<'a>,
    b: Tiles<'a>,
}

impl Kernel for Outer<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { prefetch, sums: Sums { columns: stride, blocks, lanes, .. }, count, a, b } =
            self;
        let mut sums = OuterSums { count, stride: *stride, lanes, a, b, prefetch };
        for block in &blocks[usize::from(S::REGISTERS != 32)] {
            match block {
                Block::Full(rows, columns) if S::REGISTERS == 32 => {
                    with_rows!(rows.len(), [1, 2, 3, 4], |ROWS| {
                        with_rows!(columns.len(), [1, 2, 3, 4, 5, 6], |COLUMNS| {
                            sums.block::<S, ROWS, COLUMNS>(simd, rows.start, columns.start);
                        });
                    });
                }
                Block::Full(rows, columns) => {
                    with_rows!(rows.len(), [1, 2], |ROWS| {
                        with_rows!(columns.len(), [1, 2, 3, 4, 5, 6], |COLUMNS| {
                            sums.block::<S, ROWS, COLUMNS>(simd, rows.start, columns.start);
                        });
                    });
                }
                Block::Corner(rows) if S::REGISTERS == 32 => {
                    with_rows!(rows.len(), [1, 2, 3, 4, 5, 6], |ROWS| sums
                        .corner::<S, ROWS>(simd, rows.start));
                }
                Block::Corner(rows) => {
                    with_rows!(rows.len(), [1, 2, 3, 4], |ROWS| sums
                        .corner::<S, ROWS>(simd, rows.start));
                }
            }
        }
    }
}

struct OuterSums<'a> {
    count: usize,
    stride: usize,
    lanes: &'a mut [f32],
    a: Tiles<'a>,
    b: Tiles<'a>,
    prefetch: &'a mut Prefetch,
}

impl OuterSums<'_> {
    #[expect(clippy::needless_range_loop, reason = "plain indexing keeps the sums in registers")]
    #[inline(always)]
    fn block<S: Simd, const ROWS: usize, const COLUMNS: usize>(
        &mut self,
        simd: S,
        row: usize,
        column: usize,
    ) {
        let stride = self.stride;
        // SAFETY: `Sums::add` has checked the tiles, and `lanes` is allocated for the maximum
        // number of lanes.
        unsafe {
            let lanes = self.lanes.as_mut_ptr();
            let offset =
                |r: usize, c: usize| lanes.add(((row + r) * stride + column + c) * S::LANES);
            let mut sums: [[S::V; COLUMNS]; ROWS] =
                std::array::from_fn(|r| std::array::from_fn(|c| simd.load(offset(r, c))));
            let mut a = self.a.values.as_ptr().add(row * WIDTH);
            let mut b = self.b.values.as_ptr().add(column * WIDTH);
            for _ in 0..self.count {
                self.prefetch.issue(WIDTH / S::LANES);
                for pair in (0..WIDTH).step_by(S::LANES) {
                    let left: [S::V; ROWS] =
                        std::array::from_fn(|r| simd.load(a.add(r * WIDTH + pair)));
                    for c in 0..COLUMNS {
                        let right = simd.load(b.add(c * WIDTH + pair));
                        for r in 0..ROWS {
                            sums[r][c] = simd.mul_add(left[r], right, sums[r][c]);
                        }
                    }
                }
                a = a.wrapping_add(self.a.rows * WIDTH);
                b = b.wrapping_add(self.b.rows * WIDTH);
            }
            for r in 0..ROWS {
                for c in 0..COLUMNS {
                    simd.store(offset(r, c), sums[r][c]);
                }
            }
        }
    }

    /// Adds to a diagonal block; both operands are the same.
    #[expect(clippy::needless_range_loop, reason = "plain indexing keeps the sums in registers")]
    #[inline(always)]
    fn corner<S: Simd, const ROWS: usize>(&mut self, simd: S, row: usize) {
        let stride = self.stride;
        // SAFETY: as in `block`.
        unsafe {
            let lanes = self.lanes.as_mut_ptr();
            let offset = |r: usize, c: usize| lanes.add(((row + r) * stride + row + c) * S::LANES);
            let mut sums = [[simd.zero(); ROWS]; ROWS];
            for r in 0..ROWS {
                for c in r..ROWS {
                    sums[r][c] = simd.load(offset(r, c));
                }
            }
            let mut a = self.a.values.as_ptr().add(row * WIDTH);
            for _ in 0..self.count {
                self.prefetch.issue(WIDTH / S::LANES);
                for pair in (0..WIDTH).step_by(S::LANES) {
                    let values: [S::V; ROWS] =
                        std::array::from_fn(|r| simd.load(a.add(r * WIDTH + pair)));
                    for r in 0..ROWS {
                        for c in r..ROWS {
                            sums[r][c] = simd.mul_add(values[r], values[c], sums[r][c]);
                        }
                    }
                }
                a = a.wrapping_add(self.a.rows * WIDTH);
            }
            for r in 0..ROWS {
                for c in r..ROWS {
                    simd.store(offset(r, c), sums[r][c]);
                }
            }
        }
    }
}

/// Adds lane sums to totals and clears them.
struct Fold<'a> {
    lanes: &'a mut [f32],
    total: &'a mut [f64],
}

impl Kernel for Fold<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (lanes, total) in self.lanes.chunks_exact_mut(S::LANES).zip(self.total) {
            // SAFETY: a chunk has the length of a vector.
            unsafe {
                *total += f64::from(simd.reduce_sum(simd.load(lanes.as_ptr())));
                simd.store(lanes.as_mut_ptr(), simd.zero());
            }
        }
    }
}

/// Sums `Σ a ⊙ b` over the pairs of many tiles, one per row.
pub(crate) struct RowSums {
    lanes: Buffer,
    tiles: usize,
    total: Vec<f64>,
}

impl RowSums {
    /// Creates sums of `rows` rows.
    pub(crate) fn new(rows: usize) -> Self {
        Self { lanes: Buffer::zeros(rows * MAX_LANES), tiles: 0, total: vec![0.0; rows] }
    }

    /// Adds the products of one tile of `a` and `b`.
    pub(crate) fn add(&mut self, isa: Isa, a: &[f32], b: &[f32]) {
        let rows = self.total.len();
        assert!(a.len() >= rows * WIDTH && b.len() >= rows * WIDTH, "tiles have too few rows");
        isa.run(Dots { rows, lanes: &mut self.lanes, a, b });
        self.tiles += 1;
        if self.tiles == TILES_PER_FOLD {
            isa.run(Fold { lanes: &mut self.lanes, total: &mut self.total });
            self.tiles = 0;
        }
    }

    /// Returns the sums and resets them.
    pub(crate) fn finish(&mut self, isa: Isa) -> Vec<f64> {
        isa.run(Fold { lanes: &mut self.lanes, total: &mut self.total });
        self.tiles = 0;
        let rows = self.total.len();
        std::mem::replace(&mut self.total, vec![0.0; rows])
    }
}

struct Dots<'a> {
    rows: usize,
    lanes: &'a mut [f32],
    a: &'a [f32],
    b: &'a [f32],
}

impl Kernel for Dots<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for row in 0..self.rows {
            // SAFETY: `RowSums::add` has checked the tiles, and `lanes` is allocated for the
            // maximum number of lanes.
            unsafe {
                let lanes = self.lanes.as_mut_ptr().add(row * S::LANES);
                let mut sum = simd.load(lanes);
                for offset in (row * WIDTH..(row + 1) * WIDTH).step_by(S::LANES) {
                    sum = simd.mul_add(
                        simd.load(self.a.as_ptr().add(offset)),
                        simd.load(self.b.as_ptr().add(offset)),
                        sum,
                    );
                }
                simd.store(lanes, sum);
            }
        }
    }
}
