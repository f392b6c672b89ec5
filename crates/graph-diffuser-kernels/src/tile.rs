//! Tiles of pairs: a few channels of [`WIDTH`] neighbouring pairs, `[rows][WIDTH]`, close together in memory.
//!
//! Kernels over pairs copy a tile out of the long rows of `[c, p]`, do all they can with it while it is
//! in the first-level cache, and write the result back. What they do is little: a product with a small
//! matrix ([`product`]), sums of products over pairs ([`Sums`]), and pointwise work on the way in and
//! out. A tile that sticks out of the last pair is zero there, and every operation keeps it so:
//! constants enter as a row of ones ([`fill_ones`]) that is zero there too.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use crate::simd::{Isa, Kernel, Simd};

/// Pairs of a tile. Ten tiles of 18 rows and their sums fit the second-level cache, and accumulators
/// are loaded and stored once a tile; 64, 128 and 256 were tried on the edge-wise network.
pub(crate) const WIDTH: usize = 128;
/// Rows of a block of [`product`]: with 4 vectors of columns 24 of AVX-512's 32 registers accumulate,
/// with 2 vectors 12 of AVX2's 16.
const PRODUCT_ROWS: usize = 6;
/// Most lanes of any instruction set, for which scratch is laid out.
const MOST_LANES: usize = 16;
/// Tiles after which lane sums in single precision are moved to double precision: 256 additions a
/// lane cost half a digit, and moving them costs as much as a tenth of the products of a tile.
const TILES_PER_FOLD: usize = 32;

/// Single-precision numbers that start at a cache line, so that no vector of a tile crosses two.
pub(crate) struct Buffer {
    start: NonNull<f32>,
    len: usize,
}

// SAFETY: it owns its numbers, as a `Vec` does.
unsafe impl Send for Buffer {}
// SAFETY: as above; they change only through `&mut`.
unsafe impl Sync for Buffer {}

impl Buffer {
    const LINE: usize = 64;

    fn layout(len: usize) -> Layout {
        Layout::array::<f32>(len).and_then(|layout| layout.align_to(Self::LINE)).expect("a buffer fits in memory")
    }

    /// `len` zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        if len == 0 {
            return Self { start: NonNull::dangling(), len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) }.cast();
        Self { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), len }
    }

    /// A tile of `rows` rows.
    pub(crate) fn tile(rows: usize) -> Self {
        Self::zeros(rows * WIDTH)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: it was allocated by `zeros` with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), Self::layout(self.len)) };
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: `len` numbers were allocated and set to zero; without any the pointer may dangle.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and they are borrowed only once.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Cuts `rows` into blocks of at most `most`, as equal as can be; returns block `index`.
#[inline(always)]
fn block(rows: usize, most: usize, index: usize) -> Range<usize> {
    let blocks = rows.div_ceil(most);
    let (size, larger) = (rows / blocks, rows % blocks);
    let start = index * size + index.min(larger);
    start..start + size + usize::from(index < larger)
}

/// Calls `$function::<S, .., rows, ..>` with the number of rows as a constant.
macro_rules! with_rows {
    ($rows:expr, [$($count:literal),*], |$constant:ident| $call:expr) => {
        match $rows {
            $($count => { const $constant: usize = $count; $call })*
            _ => unreachable!("blocks are not larger"),
        }
    };
}

/// Asks for the cache line of `from`, which is needed a tile later.
#[inline(always)]
fn prefetch(from: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching has no effect on memory and does not fault, wherever the pointer leads.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(from.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

/// Writes the row of ones of a tile that has `len` pairs.
pub(crate) fn fill_ones(row: &mut [f32], len: usize) {
    row[..len].fill(1.0);
    row[len..WIDTH].fill(0.0);
}

/// A matrix `[rows, inner]`, laid out in the order in which [`product`] reads it.
pub(crate) struct Matrix {
    rows: usize,
    inner: usize,
    packed: Vec<f32>,
}

impl Matrix {
    /// Rounds the entries given by `entry(row, column)`.
    pub(crate) fn new(rows: usize, inner: usize, entry: impl Fn(usize, usize) -> f64) -> Self {
        let mut packed = Vec::with_capacity(rows * inner);
        for index in 0..rows.div_ceil(PRODUCT_ROWS) {
            for column in 0..inner {
                packed.extend(block(rows, PRODUCT_ROWS, index).map(|row| entry(row, column) as f32));
            }
        }
        Self { rows, inner, packed }
    }
}

/// What a product is added to.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a> {
    Zero,
    /// What is in the output already.
    Output,
    /// Another tile whose rows are scaled.
    Scaled(&'a [f32], &'a [f32]),
}

/// What is done to a sum before it is written.
#[derive(Clone, Copy)]
pub(crate) enum Finish<'a> {
    Nothing,
    Relu,
    /// It is kept where this tile is positive, else zero.
    WherePositive(&'a [f32]),
}

/// `out = finish(start + matrix · input)`, tiles of `inner` and `rows` rows.
pub(crate) fn product(
    isa: Isa,
    matrix: &Matrix,
    input: &[f32],
    start: Start<'_>,
    finish: Finish<'_>,
    out: &mut [f32],
) {
    let size = matrix.rows * WIDTH;
    assert!(input.len() >= matrix.inner * WIDTH && out.len() >= size, "tiles are smaller than the matrix");
    if let Start::Scaled(tile, scales) = start {
        assert!(tile.len() >= size && scales.len() >= matrix.rows, "the start is smaller than the output");
    }
    if let Finish::WherePositive(tile) = finish {
        assert!(tile.len() >= size, "the condition is smaller than the output");
    }
    isa.run(Product { matrix, input, start, finish, out });
}

struct Product<'a> {
    matrix: &'a Matrix,
    input: &'a [f32],
    start: Start<'a>,
    finish: Finish<'a>,
    out: &'a mut [f32],
}

impl Kernel for Product<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if S::LANES == 16 { self.columns::<S, 4>(simd) } else { self.columns::<S, 2>(simd) }
    }
}

impl Product<'_> {
    /// `VECTORS` vectors of columns at a time; `WIDTH` is a multiple of them.
    #[inline(always)]
    fn columns<S: Simd, const VECTORS: usize>(mut self, simd: S) {
        for column in (0..WIDTH).step_by(VECTORS * S::LANES) {
            for index in 0..self.matrix.rows.div_ceil(PRODUCT_ROWS) {
                let rows = block(self.matrix.rows, PRODUCT_ROWS, index);
                with_rows!(rows.len(), [1, 2, 3, 4, 5, 6], |ROWS| {
                    self.block::<S, ROWS, VECTORS>(simd, rows.start, column);
                });
            }
        }
    }

    #[inline(always)]
    fn block<S: Simd, const ROWS: usize, const VECTORS: usize>(&mut self, simd: S, row: usize, column: usize) {
        let place = |r: usize, v: usize| (row + r) * WIDTH + column + v * S::LANES;
        let mut sums = [[simd.zero(); VECTORS]; ROWS];
        // SAFETY: `product` has checked that all tiles reach `rows` or `inner` rows; `column` and the
        // vectors after it are inside a row of `WIDTH`; the block's weights begin at `row * inner`.
        unsafe {
            match self.start {
                Start::Zero => {}
                Start::Output => {
                    for r in 0..ROWS {
                        for v in 0..VECTORS {
                            sums[r][v] = simd.load(self.out.as_ptr().add(place(r, v)));
                        }
                    }
                }
                Start::Scaled(tile, scales) => {
                    for r in 0..ROWS {
                        let scale = simd.splat(*scales.get_unchecked(row + r));
                        for v in 0..VECTORS {
                            sums[r][v] = simd.mul(simd.load(tile.as_ptr().add(place(r, v))), scale);
                        }
                    }
                }
            }
            let mut weight = self.matrix.packed.as_ptr().add(row * self.matrix.inner);
            let mut input = self.input.as_ptr().add(column);
            for _ in 0..self.matrix.inner {
                let values: [S::V; VECTORS] = std::array::from_fn(|v| simd.load(input.add(v * S::LANES)));
                for (r, sums) in sums.iter_mut().enumerate() {
                    let weight = simd.splat(*weight.add(r));
                    for v in 0..VECTORS {
                        sums[v] = simd.mul_add(weight, values[v], sums[v]);
                    }
                }
                weight = weight.add(ROWS);
                input = input.wrapping_add(WIDTH);
            }
            for r in 0..ROWS {
                for v in 0..VECTORS {
                    let value = match self.finish {
                        Finish::Nothing => sums[r][v],
                        Finish::Relu => simd.max(sums[r][v], simd.zero()),
                        Finish::WherePositive(tile) => {
                            simd.select_positive(simd.load(tile.as_ptr().add(place(r, v))), sums[r][v], simd.zero())
                        }
                    };
                    simd.store(self.out.as_mut_ptr().add(place(r, v)), value);
                }
            }
        }
    }
}

/// `Σ a ⊗ b` over the pairs of many tiles, `[rows, columns]`.
pub(crate) struct Sums {
    rows: usize,
    columns: usize,
    /// Entries below the diagonal are not wanted.
    symmetric: bool,
    /// `[rows][columns][LANES]`
    lanes: Buffer,
    tiles: usize,
    total: Vec<f64>,
}

impl Sums {
    pub(crate) fn new(rows: usize, columns: usize) -> Self {
        let lanes = Buffer::zeros(rows * columns * MOST_LANES);
        Self { rows, columns, symmetric: false, lanes, tiles: 0, total: vec![0.0; rows * columns] }
    }

    /// Only the entries on and above the diagonal count.
    pub(crate) fn symmetric(rows: usize) -> Self {
        Self { symmetric: true, ..Self::new(rows, rows) }
    }

    /// Adds the products of the rows of two tiles.
    pub(crate) fn add(&mut self, isa: Isa, a: &[f32], b: &[f32]) {
        assert!(a.len() >= self.rows * WIDTH && b.len() >= self.columns * WIDTH, "tiles are smaller than the sums");
        isa.run(Outer { sums: self, a, b });
        self.tiles += 1;
        if self.tiles == TILES_PER_FOLD {
            self.fold(isa);
        }
    }

    fn fold(&mut self, isa: Isa) {
        isa.run(Fold { lanes: &mut self.lanes, total: &mut self.total });
        self.tiles = 0;
    }

    /// The sums, row after row.
    pub(crate) fn finish(mut self, isa: Isa) -> Vec<f64> {
        self.fold(isa);
        self.total
    }
}

struct Outer<'a> {
    sums: &'a mut Sums,
    a: &'a [f32],
    b: &'a [f32],
}

impl Kernel for Outer<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        // 24 of 32 registers accumulate, or 12 of 16.
        let (most_rows, most_columns) = if S::LANES == 16 { (4, 6) } else { (2, 6) };
        let (rows, columns) = (self.sums.rows, self.sums.columns);
        for index in 0..rows.div_ceil(most_rows) {
            let rows = block(rows, most_rows, index);
            for index in 0..columns.div_ceil(most_columns) {
                let columns = block(columns, most_columns, index);
                if self.sums.symmetric && columns.end <= rows.start {
                    continue;
                }
                let (row, column) = (rows.start, columns.start);
                if S::LANES == 16 {
                    with_rows!(rows.len(), [1, 2, 3, 4], |ROWS| {
                        with_rows!(columns.len(), [1, 2, 3, 4, 5, 6], |COLUMNS| {
                            self.block::<S, ROWS, COLUMNS>(simd, row, column);
                        });
                    });
                } else {
                    with_rows!(rows.len(), [1, 2], |ROWS| {
                        with_rows!(columns.len(), [1, 2, 3, 4, 5, 6], |COLUMNS| {
                            self.block::<S, ROWS, COLUMNS>(simd, row, column);
                        });
                    });
                }
            }
        }
    }
}

impl Outer<'_> {
    #[inline(always)]
    fn block<S: Simd, const ROWS: usize, const COLUMNS: usize>(&mut self, simd: S, row: usize, column: usize) {
        let stride = self.sums.columns;
        // SAFETY: `Sums::add` has checked the tiles, and `lanes` has room for the most lanes there are.
        unsafe {
            let lanes = self.sums.lanes.as_mut_ptr();
            let place = |r: usize, c: usize| lanes.add(((row + r) * stride + column + c) * S::LANES);
            let mut sums: [[S::V; COLUMNS]; ROWS] =
                std::array::from_fn(|r| std::array::from_fn(|c| simd.load(place(r, c))));
            let (a, b) = (self.a.as_ptr().add(row * WIDTH), self.b.as_ptr().add(column * WIDTH));
            for pair in (0..WIDTH).step_by(S::LANES) {
                let left: [S::V; ROWS] = std::array::from_fn(|r| simd.load(a.add(r * WIDTH + pair)));
                for c in 0..COLUMNS {
                    let right = simd.load(b.add(c * WIDTH + pair));
                    for r in 0..ROWS {
                        sums[r][c] = simd.mul_add(left[r], right, sums[r][c]);
                    }
                }
            }
            for r in 0..ROWS {
                for c in 0..COLUMNS {
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
        assert!(a.len() >= rows * WIDTH && b.len() >= rows * WIDTH, "tiles are smaller than the sums");
        isa.run(Dots { rows, lanes: &mut self.lanes, a, b });
        self.tiles += 1;
        if self.tiles == TILES_PER_FOLD {
            isa.run(Fold { lanes: &mut self.lanes, total: &mut self.total });
            self.tiles = 0;
        }
    }

    pub(crate) fn finish(mut self, isa: Isa) -> Vec<f64> {
        isa.run(Fold { lanes: &mut self.lanes, total: &mut self.total });
        self.total
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
                    sum = simd.mul_add(simd.load(self.a.as_ptr().add(place)), simd.load(self.b.as_ptr().add(place)), sum);
                }
                simd.store(lanes, sum);
            }
        }
    }
}

/// What is done to every entry on its way in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Transform {
    /// Nothing: the paper.
    None,
    /// `ln(E + epsilon)`, for entries above `-epsilon`.
    Log {
        /// Keeps the logarithm finite where no walk arrives.
        epsilon: f32,
    },
    /// `sign(E) √|E|`, with slope zero at zero.
    SignedSquareRoot,
}

impl Transform {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, value: S::V) -> S::V {
        match self {
            Self::None => value,
            Self::Log { epsilon } => simd.ln(simd.add(value, simd.splat(epsilon))),
            Self::SignedSquareRoot => {
                let negative = simd.sub(simd.zero(), value);
                let root = simd.sqrt(simd.max(value, negative));
                simd.select_positive(negative, simd.sub(simd.zero(), root), root)
            }
        }
    }

    #[inline(always)]
    fn slope<S: Simd>(self, simd: S, value: S::V) -> S::V {
        match self {
            Self::None => simd.splat(1.0),
            Self::Log { epsilon } => simd.div(simd.splat(1.0), simd.add(value, simd.splat(epsilon))),
            Self::SignedSquareRoot => {
                let size = simd.max(value, simd.sub(simd.zero(), value));
                simd.select_positive(size, simd.div(simd.splat(0.5), simd.sqrt(size)), simd.zero())
            }
        }
    }
}

/// One affine map a row: `(value - centre) · scale + offset`. The centre is taken off first, and
/// exactly, or a channel far from zero would lose its small deviations.
pub(crate) struct Affine {
    pub(crate) centre: Vec<f32>,
    pub(crate) scale: Vec<f32>,
    pub(crate) offset: Vec<f32>,
}

/// Copies `len` pairs of every row from `start` on into a tile.
pub(crate) fn load<R: AsRef<[f32]>>(isa: Isa, rows: &[R], start: usize, len: usize, out: &mut [f32]) {
    assert!(len <= WIDTH && out.len() >= rows.len() * WIDTH, "the tile is smaller than the rows");
    isa.run(Load { rows, start, len, out });
}

struct Load<'a, R> {
    rows: &'a [R],
    start: usize,
    len: usize,
    out: &'a mut [f32],
}

impl<R: AsRef<[f32]>> Kernel for Load<'_, R> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (row, out) in self.rows.iter().zip(self.out.chunks_exact_mut(WIDTH)) {
            let from = row.as_ref()[self.start..self.start + self.len].as_ptr();
            for place in (0..WIDTH).step_by(S::LANES) {
                prefetch(from.wrapping_add(WIDTH + place));
                // SAFETY: at most `len` numbers are read, and a row of the tile has `WIDTH`.
                unsafe {
                    let value = simd.load_up_to(from.wrapping_add(place), self.len.saturating_sub(place));
                    simd.store(out.as_mut_ptr().add(place), value);
                }
            }
        }
    }
}

/// Copies `len` pairs of every row from `start` on into a tile, transformed and then mapped.
pub(crate) fn load_mapped(
    isa: Isa,
    rows: &[&[f32]],
    transform: Transform,
    affine: &Affine,
    start: usize,
    len: usize,
    out: &mut [f32],
) {
    assert!(len <= WIDTH && out.len() >= rows.len() * WIDTH, "the tile is smaller than the rows");
    isa.run(LoadMapped { rows, transform, affine, start, len, out });
}

struct LoadMapped<'a> {
    rows: &'a [&'a [f32]],
    transform: Transform,
    affine: &'a Affine,
    start: usize,
    len: usize,
    out: &'a mut [f32],
}

impl Kernel for LoadMapped<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (index, (row, out)) in self.rows.iter().zip(self.out.chunks_exact_mut(WIDTH)).enumerate() {
            let from = row[self.start..self.start + self.len].as_ptr();
            let centre = simd.splat(self.affine.centre[index]);
            let scale = simd.splat(self.affine.scale[index]);
            let offset = simd.splat(self.affine.offset[index]);
            for place in (0..WIDTH).step_by(S::LANES) {
                prefetch(from.wrapping_add(WIDTH + place));
                let count = self.len.saturating_sub(place);
                // SAFETY: at most `len` numbers are read, and a row of the tile has `WIDTH`.
                unsafe {
                    let value = self.transform.apply(simd, simd.load_up_to(from.wrapping_add(place), count));
                    let mut value = simd.mul_add(simd.sub(value, centre), scale, offset);
                    if count < S::LANES {
                        value = simd.keep_first(value, count, 0.0);
                    }
                    simd.store(out.as_mut_ptr().add(place), value);
                }
            }
        }
    }
}

/// Takes a number off every row of a tile whose last row is the row of ones; that one stays.
pub(crate) fn centre(isa: Isa, tile: &[f32], centres: &[f32], out: &mut [f32]) {
    let rows = centres.len() + 1;
    assert!(tile.len() >= rows * WIDTH && out.len() >= rows * WIDTH, "tiles are smaller than the centres");
    isa.run(Centre { tile, centres, out });
}

struct Centre<'a> {
    tile: &'a [f32],
    centres: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Centre<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let last = self.centres.len() * WIDTH;
        for place in (0..WIDTH).step_by(S::LANES) {
            // SAFETY: `centre` has checked both tiles.
            unsafe {
                let ones = simd.load(self.tile.as_ptr().add(last + place));
                simd.store(self.out.as_mut_ptr().add(last + place), ones);
                for (row, &centre) in self.centres.iter().enumerate() {
                    let value = simd.load(self.tile.as_ptr().add(row * WIDTH + place));
                    let value = simd.sub(value, simd.mul(simd.splat(centre), ones));
                    simd.store(self.out.as_mut_ptr().add(row * WIDTH + place), value);
                }
            }
        }
    }
}

/// Writes the first `len` pairs of a tile to every row from `start` on.
pub(crate) fn store(isa: Isa, tile: &[f32], rows: &mut [&mut [f32]], start: usize, len: usize) {
    assert!(len <= WIDTH && tile.len() >= rows.len() * WIDTH, "the tile is smaller than the rows");
    isa.run(Store { tile, rows, start, len });
}

struct Store<'a, 'b> {
    tile: &'a [f32],
    rows: &'a mut [&'b mut [f32]],
    start: usize,
    len: usize,
}

impl Kernel for Store<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (row, tile) in self.rows.iter_mut().zip(self.tile.chunks_exact(WIDTH)) {
            let to = &mut row[self.start..self.start + self.len];
            for (to, from) in to.chunks_mut(S::LANES).zip(tile.chunks_exact(S::LANES)) {
                // SAFETY: a chunk has the length that is given.
                unsafe { simd.store_up_to(to.as_mut_ptr(), simd.load(from.as_ptr()), to.len()) };
            }
        }
    }
}

/// Where a gradient is written, and the entries that it is the gradient of.
pub(crate) struct Slopes<'a> {
    pub(crate) transform: Transform,
    /// A factor a row.
    pub(crate) scales: &'a [f32],
    /// The rows that were transformed.
    pub(crate) values: &'a [&'a [f32]],
    /// First pair in those rows.
    pub(crate) start: usize,
}

/// [`store`] of a tile that is multiplied by the factor of its row and the slope of the transform.
pub(crate) fn store_sloped(
    isa: Isa,
    tile: &[f32],
    slopes: &Slopes<'_>,
    rows: &mut [&mut [f32]],
    start: usize,
    len: usize,
) {
    assert!(len <= WIDTH && tile.len() >= rows.len() * WIDTH, "the tile is smaller than the rows");
    isa.run(StoreSloped { tile, slopes, rows, start, len });
}

struct StoreSloped<'a, 'b> {
    tile: &'a [f32],
    slopes: &'a Slopes<'a>,
    rows: &'a mut [&'b mut [f32]],
    start: usize,
    len: usize,
}

impl Kernel for StoreSloped<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (index, (row, tile)) in self.rows.iter_mut().zip(self.tile.chunks_exact(WIDTH)).enumerate() {
            let to = &mut row[self.start..self.start + self.len];
            let values = &self.slopes.values[index][self.slopes.start..self.slopes.start + self.len];
            let scale = simd.splat(self.slopes.scales[index]);
            let parts = to.chunks_mut(S::LANES).zip(values.chunks(S::LANES)).zip(tile.chunks_exact(S::LANES));
            for ((to, value), from) in parts {
                // SAFETY: both chunks have the length that is given.
                unsafe {
                    let slope = self.slopes.transform.slope(simd, simd.load_up_to(value.as_ptr(), value.len()));
                    let gradient = simd.mul(simd.mul(simd.load(from.as_ptr()), scale), slope);
                    simd.store_up_to(to.as_mut_ptr(), gradient, to.len());
                }
            }
        }
    }
}
