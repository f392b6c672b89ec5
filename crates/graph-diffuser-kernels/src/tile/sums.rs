//! Sums over pairs of products of rows.

use std::ops::Range;

use crate::simd::{Isa, Kernel, Simd};

use super::{Ahead, Buffer, WIDTH, blocks, with_rows};

/// Most lanes of any instruction set, for which scratch is laid out.
const MOST_LANES: usize = 16;
/// Tiles after which lane sums in single precision are moved to double precision: 256 additions a
/// lane cost half a digit, and moving them costs as much as a tenth of the products of a tile.
const TILES_PER_FOLD: usize = 32;

/// Rows and columns of a block of [`Sums`] with 32 registers, of which 24 accumulate,
const LARGE: (usize, usize) = (4, 6);
/// and with 16, of which 12 do.
const SMALL: (usize, usize) = (2, 6);
/// Rows of a block on the diagonal with 32 registers, of which 21 accumulate,
const LARGE_CORNER: usize = 6;
/// and with 16, of which 10 do.
const SMALL_CORNER: usize = 4;

/// A part of the sums that stays in registers.
#[derive(Clone)]
enum Block {
    Full(Range<usize>, Range<usize>),
    /// What is on and above the diagonal.
    Corner(Range<usize>),
}

fn full_blocks(rows: Range<usize>, columns: Range<usize>, most: (usize, usize)) -> Vec<Block> {
    let shift = |part: Range<usize>, by: usize| part.start + by..part.end + by;
    let by_row = blocks(rows.len(), most.0).into_iter().flat_map(|part| {
        let rows = shift(part, rows.start);
        blocks(columns.len(), most.1).into_iter().map(move |part| (rows.clone(), part))
    });
    by_row.map(|(rows, part)| Block::Full(rows, shift(part, columns.start))).collect()
}

/// Tiles that follow one another, `rows` rows from one to the next.
#[derive(Clone, Copy)]
pub(crate) struct Tiles<'a> {
    pub(crate) rows: usize,
    pub(crate) values: &'a [f32],
}

/// `Σ a ⊗ b` over the pairs of many tiles, `[rows, columns]`.
///
/// It takes several tiles at a time: its sums are larger than a tile, and fetching them costs as much as
/// adding one.
pub(crate) struct Sums {
    rows: usize,
    columns: usize,
    /// Cut for [`LARGE`] and for [`SMALL`]: every block that is wanted.
    blocks: [Vec<Block>; 2],
    /// `[rows][columns][LANES]`
    lanes: Buffer,
    tiles: usize,
    total: Vec<f64>,
}

impl Sums {
    pub(crate) fn new(rows: usize, columns: usize) -> Self {
        let blocks = [LARGE, SMALL].map(|most| full_blocks(0..rows, 0..columns, most));
        Self::with_blocks(rows, columns, blocks)
    }

    /// Only the entries on and above the diagonal count.
    pub(crate) fn symmetric(rows: usize) -> Self {
        let cut = [(LARGE_CORNER, LARGE), (SMALL_CORNER, SMALL)].map(|(corner, most)| {
            let cut_one = |corner: Range<usize>| {
                let beside = full_blocks(corner.clone(), corner.end..rows, most);
                std::iter::once(Block::Corner(corner)).chain(beside)
            };
            blocks(rows, corner).into_iter().flat_map(cut_one).collect()
        });
        Self::with_blocks(rows, rows, cut)
    }

    fn with_blocks(rows: usize, columns: usize, blocks: [Vec<Block>; 2]) -> Self {
        let lanes = Buffer::zeros(rows * columns * MOST_LANES);
        Self { rows, columns, blocks, lanes, tiles: 0, total: vec![0.0; rows * columns] }
    }

    /// Adds the products of the first rows of some tiles of `a` and `b`.
    pub(crate) fn add(
        &mut self,
        isa: Isa,
        ahead: &mut Ahead,
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
            "tiles are smaller than the sums, or too few"
        );
        isa.run(Outer { ahead, sums: self, count, a, b });
        self.tiles += count;
        if self.tiles >= TILES_PER_FOLD {
            self.fold(isa);
        }
    }

    fn fold(&mut self, isa: Isa) {
        isa.run(Fold { lanes: &mut self.lanes, total: &mut self.total });
        self.tiles = 0;
    }

    /// The sums, row after row; it can then be used for others.
    pub(crate) fn finish(&mut self, isa: Isa) -> Vec<f64> {
        self.fold(isa);
        std::mem::replace(&mut self.total, vec![0.0; self.rows * self.columns])
    }
}

struct Outer<'a> {
    ahead: &'a mut Ahead,
    sums: &'a mut Sums,
    count: usize,
    a: Tiles<'a>,
    b: Tiles<'a>,
}

impl Kernel for Outer<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { ahead, sums: Sums { columns: stride, blocks, lanes, .. }, count, a, b } = self;
        let mut sums = OuterSums { count, stride: *stride, lanes, a, b, ahead };
        for block in &blocks[usize::from(S::LANES != 16)] {
            match block {
                Block::Full(rows, columns) if S::LANES == 16 => {
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
                Block::Corner(rows) if S::LANES == 16 => {
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
    ahead: &'a mut Ahead,
}

impl OuterSums<'_> {
    #[expect(
        clippy::needless_range_loop,
        reason = "plain indices are what keeps the sums in registers"
    )]
    #[inline(always)]
    fn block<S: Simd, const ROWS: usize, const COLUMNS: usize>(
        &mut self,
        simd: S,
        row: usize,
        column: usize,
    ) {
        let stride = self.stride;
        // SAFETY: `Sums::add` has checked the tiles, and `lanes` has room for the most lanes there are.
        unsafe {
            let lanes = self.lanes.as_mut_ptr();
            let place =
                |r: usize, c: usize| lanes.add(((row + r) * stride + column + c) * S::LANES);
            let mut sums: [[S::V; COLUMNS]; ROWS] =
                std::array::from_fn(|r| std::array::from_fn(|c| simd.load(place(r, c))));
            self.ahead.begin(self.count * (WIDTH / S::LANES));
            let mut a = self.a.values.as_ptr().add(row * WIDTH);
            let mut b = self.b.values.as_ptr().add(column * WIDTH);
            for _ in 0..self.count {
                for pair in (0..WIDTH).step_by(S::LANES) {
                    self.ahead.ask();
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
                    simd.store(place(r, c), sums[r][c]);
                }
            }
        }
    }

    /// A block on the diagonal; both operands are the same.
    #[expect(
        clippy::needless_range_loop,
        reason = "plain indices are what keeps the sums in registers"
    )]
    #[inline(always)]
    fn corner<S: Simd, const ROWS: usize>(&mut self, simd: S, row: usize) {
        let stride = self.stride;
        // SAFETY: as in `block`.
        unsafe {
            let lanes = self.lanes.as_mut_ptr();
            let place = |r: usize, c: usize| lanes.add(((row + r) * stride + row + c) * S::LANES);
            let mut sums = [[simd.zero(); ROWS]; ROWS];
            for r in 0..ROWS {
                for c in r..ROWS {
                    sums[r][c] = simd.load(place(r, c));
                }
            }
            self.ahead.begin(self.count * (WIDTH / S::LANES));
            let mut a = self.a.values.as_ptr().add(row * WIDTH);
            for _ in 0..self.count {
                for pair in (0..WIDTH).step_by(S::LANES) {
                    self.ahead.ask();
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
                    simd.store(place(r, c), sums[r][c]);
                }
            }
        }
    }
}

/// Adds lane sums to totals, and clears them.
struct Fold<'a> {
    lanes: &'a mut [f32],
    total: &'a mut [f64],
}

impl Kernel for Fold<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (lanes, total) in self.lanes.chunks_exact_mut(S::LANES).zip(self.total) {
            // SAFETY: a chunk is one vector.
            unsafe {
                *total += f64::from(simd.sum(simd.load(lanes.as_ptr())));
                simd.store(lanes.as_mut_ptr(), simd.zero());
            }
        }
    }
}

/// `Σ a ⊙ b` over the pairs of many tiles, one sum a row.
pub(crate) struct RowSums {
    lanes: Buffer,
    tiles: usize,
    total: Vec<f64>,
}

impl RowSums {
    pub(crate) fn new(rows: usize) -> Self {
        Self { lanes: Buffer::zeros(rows * MOST_LANES), tiles: 0, total: vec![0.0; rows] }
    }

    pub(crate) fn add(&mut self, isa: Isa, a: &[f32], b: &[f32]) {
        let rows = self.total.len();
        assert!(
            a.len() >= rows * WIDTH && b.len() >= rows * WIDTH,
            "tiles are smaller than the sums"
        );
        isa.run(Dots { rows, lanes: &mut self.lanes, a, b });
        self.tiles += 1;
        if self.tiles == TILES_PER_FOLD {
            isa.run(Fold { lanes: &mut self.lanes, total: &mut self.total });
            self.tiles = 0;
        }
    }

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
            // SAFETY: `RowSums::add` has checked the tiles, and there is room for the most lanes there are.
            unsafe {
                let lanes = self.lanes.as_mut_ptr().add(row * S::LANES);
                let mut sum = simd.load(lanes);
                for place in (row * WIDTH..(row + 1) * WIDTH).step_by(S::LANES) {
                    sum = simd.mul_add(
                        simd.load(self.a.as_ptr().add(place)),
                        simd.load(self.b.as_ptr().add(place)),
                        sum,
                    );
                }
                simd.store(lanes, sum);
            }
        }
    }
}
