//! Tiles of pairs: a few channels of [`WIDTH`] neighbouring pairs, `[rows][WIDTH]`, close together in memory.
//!
//! Kernels over pairs copy a tile out of the long rows of `[c, p]`, do all they can with it while it is
//! in the first-level cache, and write the result back. What they do is little: a product with a small
//! matrix ([`product`]), sums of products over pairs ([`Sums`]), and pointwise work on the way in and
//! out. A tile that sticks out of the last pair is zero there, and every operation keeps it so:
//! constants enter as a row of ones ([`fill_ones`]) that is zero there too.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crate::simd::{Isa, Kernel, Simd};

/// Pairs of a tile. Wider tiles load and store accumulators less often, narrower ones stay in the first-level
/// cache: forward and backward of the edge-wise network (17 channels, 2 layers, 422 000 pairs, AVX-512)
/// took 24 + 56 ms with 64, 22 + 50 with 128, 24 + 50 with 192 and 27 + 54 with 256.
pub(crate) const WIDTH: usize = 128;
/// Rows of a block of [`product`]: with 4 vectors of columns 24 of AVX-512's 32 registers accumulate,
/// with 2 vectors 12 of AVX2's 16.
const PRODUCT_ROWS: usize = 6;
/// Most lanes of any instruction set, for which scratch is laid out.
const MOST_LANES: usize = 16;
/// Tiles after which lane sums in single precision are moved to double precision: 256 additions a
/// lane cost half a digit, and moving them costs as much as a tenth of the products of a tile.
const TILES_PER_FOLD: usize = 32;

/// Buffers kept for reuse: those of two networks of three layers.
const MOST_SPARE: usize = 4;
static SPARE: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());

/// Single-precision numbers that start at a cache line, so that no vector of a tile crosses two.
pub(crate) struct Buffer {
    start: NonNull<f32>,
    len: usize,
    /// What was allocated, at least `len`.
    capacity: usize,
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
            return Self { start: NonNull::dangling(), len, capacity: len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) }.cast();
        Self { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), len, capacity: len }
    }

    /// `len` numbers of any value, in the memory of an earlier buffer if there is one: pages that are
    /// new cost as much as the work done on them.
    pub(crate) fn reused(len: usize) -> Self {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = spare.iter().position(|buffer| (len..=4 * len).contains(&buffer.capacity)) else {
            drop(spare);
            return Self::zeros(len);
        };
        let mut buffer = spare.swap_remove(at);
        buffer.len = len;
        buffer
    }

    /// Keeps the memory for later, unless enough is kept.
    pub(crate) fn give_back(self) {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() == MOST_SPARE {
            spare.remove(0);
        }
        spare.push(self);
    }

    /// A tile of `rows` rows.
    pub(crate) fn tile(rows: usize) -> Self {
        Self::zeros(rows * WIDTH)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: it was allocated by `zeros` with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), Self::layout(self.capacity)) };
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: at least `len` numbers were allocated and set to zero; without any the pointer may dangle.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and they are borrowed only once.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Cuts `rows` into blocks of at most `most`, as equal as can be.
fn blocks(rows: usize, most: usize) -> Vec<Range<usize>> {
    let count = rows.div_ceil(most);
    (0..count).map(|index| index * rows / count..(index + 1) * rows / count).collect()
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

/// Where the next group of tiles will come from and go to. Every step of a product or a sum may ask for a
/// line, so that memory works while it does. Few lines can be outstanding at a time, and what is only a
/// cache further away waits behind them: so they are spread evenly over the steps that a group takes.
/// They go to the second-level cache, because the first is too small for a group.
pub(crate) struct Ahead {
    /// Where a row of the next group begins, its length, and how far that row of the group after it is away.
    rows: Vec<(*const f32, usize, usize)>,
    /// Row that is asked for next.
    row: usize,
    /// What is left of the row at hand.
    line: *const f32,
    end: *const f32,
    /// Lines of a group.
    lines: usize,
    /// Steps since the last turn.
    steps: usize,
    /// Most lines a step,
    per_step: usize,
    /// the share of them that is new, and what has come together of it, in 1/256.
    pace: usize,
    due: usize,
}

impl Ahead {
    const UNIT: usize = 256;
    const LINE: usize = Buffer::LINE / size_of::<f32>();

    pub(crate) fn new() -> Self {
        let nowhere = std::ptr::null();
        Self {
            rows: vec![],
            row: 0,
            line: nowhere,
            end: nowhere,
            lines: 0,
            steps: 0,
            per_step: 1,
            pace: Self::UNIT,
            due: 0,
        }
    }

    /// Rows of which the chunk's first group begins at `start`; a group has `pairs`.
    pub(crate) fn add_rows(&mut self, rows: impl IntoIterator<Item = *const f32>, start: usize, pairs: usize) {
        let before = self.rows.len();
        self.rows.extend(rows.into_iter().map(|row| (row.wrapping_add(start), pairs, pairs)));
        self.lines += (self.rows.len() - before) * pairs.div_ceil(Self::LINE);
    }

    /// Groups of `size` numbers, the chunk's first one first.
    pub(crate) fn add_groups(&mut self, groups: &[f32], size: usize) {
        self.rows.push((groups.as_ptr(), size, size));
        self.lines += size.div_ceil(Self::LINE);
    }

    /// The next group becomes the one at hand. It will take as many steps as the last one did.
    pub(crate) fn turn(&mut self) {
        for (row, _, step) in &mut self.rows {
            *row = row.wrapping_add(*step);
        }
        (self.row, self.line, self.end) = (0, std::ptr::null(), std::ptr::null());
        self.next_row();
        if self.steps > 0 {
            self.per_step = self.lines.div_ceil(self.steps);
            self.pace = (self.lines * Self::UNIT).div_ceil(self.per_step.max(1) * self.steps);
        }
        (self.steps, self.due) = (0, 0);
    }

    /// Says that the next `count` steps are at hand.
    #[inline(always)]
    fn begin(&mut self, count: usize) {
        self.steps += count;
    }

    #[inline(always)]
    fn ask(&mut self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            for _ in 0..self.per_step {
                // Without a branch on what is due: to ask for a line again costs less than a wrong guess.
                // SAFETY: prefetching changes nothing and does not fault, wherever the pointer leads.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(self.line.cast()) };
                self.due += self.pace;
                self.line = self.line.wrapping_add(self.due / Self::UNIT * Self::LINE);
                self.due %= Self::UNIT;
                if self.line >= self.end {
                    self.next_row();
                }
            }
        }
    }

    #[cold]
    fn next_row(&mut self) {
        if let Some(&(start, len, _)) = self.rows.get(self.row) {
            (self.row, self.line, self.end) = (self.row + 1, start, start.wrapping_add(len));
        } else {
            // Nothing is left: the last line is asked for until the next turn.
            (self.line, self.pace, self.due) = (self.end.wrapping_sub(1), 0, 0);
        }
    }
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
    blocks: Vec<Range<usize>>,
    packed: Vec<f32>,
}

impl Matrix {
    /// Rounds the entries given by `entry(row, column)`.
    pub(crate) fn new(rows: usize, inner: usize, entry: impl Fn(usize, usize) -> f64) -> Self {
        let blocks = blocks(rows, PRODUCT_ROWS);
        let mut packed = Vec::with_capacity(rows * inner);
        for block in &blocks {
            for column in 0..inner {
                packed.extend(block.clone().map(|row| entry(row, column) as f32));
            }
        }
        Self { rows, inner, blocks, packed }
    }
}

/// What a product is added to.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a> {
    Zero,
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
    ahead: &mut Ahead,
    matrix: &Matrix,
    input: &[f32],
    start: Start<'_>,
    finish: Finish<'_>,
    out: &mut [f32],
) {
    let size = matrix.rows * WIDTH;
    assert!(out.len() >= size, "the output is smaller than the matrix");
    let start = match start {
        Start::Zero => Base::Zero,
        Start::Scaled(tile, scales) => {
            assert!(tile.len() >= size && scales.len() >= matrix.rows, "the start is smaller than the output");
            Base::Scaled(tile, scales)
        }
    };
    if let Finish::WherePositive(tile) = finish {
        assert!(tile.len() >= size, "the condition is smaller than the output");
    }
    run_product(isa, ahead, matrix, input, start, finish, To::Tile(out));
}

/// `out = rows + matrix · input`, where the tile of `rows` begins at `start` and has `len` pairs.
///
/// # Safety
/// The tile of `rows` has been written.
pub(crate) unsafe fn product_onto_rows(
    isa: Isa,
    ahead: &mut Ahead,
    matrix: &Matrix,
    input: &[f32],
    rows: &[&mut [MaybeUninit<f32>]],
    (start, len): (usize, usize),
    out: &mut [f32],
) {
    assert!(rows.len() == matrix.rows && out.len() >= matrix.rows * WIDTH, "the matrix has other rows");
    if len < WIDTH {
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(WIDTH)) {
            let from = &row[start..start + len];
            // SAFETY: the caller says that these are numbers.
            let from = unsafe { std::slice::from_raw_parts(from.as_ptr().cast::<f32>(), len) };
            out[..len].copy_from_slice(from);
            out[len..].fill(0.0);
        }
        return run_product(isa, ahead, matrix, input, Base::Output, Finish::Nothing, To::Tile(out));
    }
    assert!(rows.iter().all(|row| row.len() >= start + WIDTH), "the tile sticks out of its rows");
    run_product(isa, ahead, matrix, input, Base::Rows(rows, start), Finish::Nothing, To::Tile(out));
}

/// `rows = tile + matrix · input`
pub(crate) fn product_into_rows(
    isa: Isa,
    ahead: &mut Ahead,
    matrix: &Matrix,
    input: &[f32],
    tile: &[f32],
    rows: &mut [&mut [MaybeUninit<f32>]],
    (start, len): (usize, usize),
) {
    assert!(rows.len() == matrix.rows && tile.len() >= matrix.rows * WIDTH, "the matrix has other rows");
    if len < WIDTH {
        let mut whole = Buffer::tile(matrix.rows); // only the last tile of all
        run_product(isa, ahead, matrix, input, Base::Tile(tile), Finish::Nothing, To::Tile(&mut whole));
        return store(isa, &whole, rows, start, len);
    }
    assert!(rows.iter().all(|row| row.len() >= start + WIDTH), "the tile sticks out of its rows");
    run_product(isa, ahead, matrix, input, Base::Tile(tile), Finish::Nothing, To::Rows(rows, start));
}

/// As [`Start`], with what only products with rows start from.
#[derive(Clone, Copy)]
enum Base<'a, 'b> {
    Zero,
    Output,
    Tile(&'a [f32]),
    Scaled(&'a [f32], &'a [f32]),
    /// Rows, and where the tile begins in them; it has been written.
    Rows(&'a [&'b mut [MaybeUninit<f32>]], usize),
}

/// Where a product is written.
enum To<'a, 'b> {
    Tile(&'a mut [f32]),
    /// Rows, and where the tile begins in them; nothing is done to the sum then.
    Rows(&'a mut [&'b mut [MaybeUninit<f32>]], usize),
}

struct Product<'a, 'b> {
    ahead: &'a mut Ahead,
    matrix: &'a Matrix,
    input: &'a [f32],
    start: Base<'a, 'b>,
    finish: Finish<'a>,
    out: To<'a, 'b>,
}

fn run_product<'a, 'b>(
    isa: Isa,
    ahead: &'a mut Ahead,
    matrix: &'a Matrix,
    input: &'a [f32],
    start: Base<'a, 'b>,
    finish: Finish<'a>,
    out: To<'a, 'b>,
) {
    assert!(input.len() >= matrix.inner * WIDTH, "the input is smaller than the matrix");
    isa.run(Product { ahead, matrix, input, start, finish, out });
}

impl Kernel for Product<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if S::LANES == 16 { self.columns::<S, 4>(simd) } else { self.columns::<S, 2>(simd) }
    }
}

impl Product<'_, '_> {
    /// `VECTORS` vectors of columns at a time; `WIDTH` is a multiple of them.
    #[inline(always)]
    fn columns<S: Simd, const VECTORS: usize>(mut self, simd: S) {
        for column in (0..WIDTH).step_by(VECTORS * S::LANES) {
            for rows in &self.matrix.blocks {
                with_rows!(rows.len(), [1, 2, 3, 4, 5, 6], |ROWS| {
                    self.block::<S, ROWS, VECTORS>(simd, rows.start, column);
                });
            }
        }
    }

    #[expect(clippy::needless_range_loop, reason = "plain indices are what keeps the sums in registers")]
    #[inline(always)]
    fn block<S: Simd, const ROWS: usize, const VECTORS: usize>(&mut self, simd: S, row: usize, column: usize) {
        let place = |r: usize| (row + r) * WIDTH + column;
        // SAFETY: the callers of `run_product` and itself have checked that all tiles reach `rows` or `inner`
        // rows, and that rows reach the end of the tile; `column` and the vectors after it are inside a
        // row of `WIDTH`; the block's weights begin at `row * inner`.
        unsafe {
            let mut sums = [[simd.zero(); VECTORS]; ROWS];
            match self.start {
                Base::Zero => {}
                Base::Output => {
                    let To::Tile(tile) = &self.out else { unreachable!("rows start from a tile") };
                    for r in 0..ROWS {
                        for v in 0..VECTORS {
                            sums[r][v] = simd.load(tile.as_ptr().add(place(r) + v * S::LANES));
                        }
                    }
                }
                Base::Tile(tile) => {
                    for r in 0..ROWS {
                        for v in 0..VECTORS {
                            sums[r][v] = simd.load(tile.as_ptr().add(place(r) + v * S::LANES));
                        }
                    }
                }
                Base::Scaled(tile, scales) => {
                    for r in 0..ROWS {
                        let scale = simd.splat(*scales.get_unchecked(row + r));
                        for v in 0..VECTORS {
                            sums[r][v] = simd.mul(simd.load(tile.as_ptr().add(place(r) + v * S::LANES)), scale);
                        }
                    }
                }
                Base::Rows(rows, start) => {
                    for r in 0..ROWS {
                        let from = rows.get_unchecked(row + r).as_ptr().cast::<f32>().add(start + column);
                        for v in 0..VECTORS {
                            sums[r][v] = simd.load(from.add(v * S::LANES));
                        }
                    }
                }
            }
            self.ahead.begin(self.matrix.inner);
            let mut weight = self.matrix.packed.as_ptr().add(row * self.matrix.inner);
            let mut input = self.input.as_ptr().add(column);
            for _ in 0..self.matrix.inner {
                self.ahead.ask();
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
            match &mut self.out {
                To::Rows(rows, start) => {
                    for r in 0..ROWS {
                        let to = rows.get_unchecked_mut(row + r).as_mut_ptr().cast::<f32>().add(*start + column);
                        for v in 0..VECTORS {
                            simd.store(to.add(v * S::LANES), sums[r][v]);
                        }
                    }
                }
                To::Tile(tile) => {
                    for r in 0..ROWS {
                        for v in 0..VECTORS {
                            let value = match self.finish {
                                Finish::Nothing => sums[r][v],
                                Finish::Relu => simd.max(sums[r][v], simd.zero()),
                                Finish::WherePositive(mask) => {
                                    let condition = simd.load(mask.as_ptr().add(place(r) + v * S::LANES));
                                    simd.select_positive(condition, sums[r][v], simd.zero())
                                }
                            };
                            simd.store(tile.as_mut_ptr().add(place(r) + v * S::LANES), value);
                        }
                    }
                }
            }
        }
    }
}

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

/// Tiles that follow one another, each of `rows` rows.
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
    pub(crate) fn add(&mut self, isa: Isa, ahead: &mut Ahead, count: usize, a: Tiles<'_>, b: Tiles<'_>) {
        let reaches = |tiles: Tiles<'_>, rows: usize| tiles.rows >= rows && tiles.values.len() >= count * rows * WIDTH;
        assert!(reaches(a, self.rows) && reaches(b, self.columns), "tiles are smaller than the sums");
        assert!(a.values.len() >= count * a.rows * WIDTH && b.values.len() >= count * b.rows * WIDTH, "too few tiles");
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
                    with_rows!(rows.len(), [1, 2, 3, 4, 5, 6], |ROWS| sums.corner::<S, ROWS>(simd, rows.start));
                }
                Block::Corner(rows) => {
                    with_rows!(rows.len(), [1, 2, 3, 4], |ROWS| sums.corner::<S, ROWS>(simd, rows.start));
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
    #[expect(clippy::needless_range_loop, reason = "plain indices are what keeps the sums in registers")]
    #[inline(always)]
    fn block<S: Simd, const ROWS: usize, const COLUMNS: usize>(&mut self, simd: S, row: usize, column: usize) {
        let stride = self.stride;
        // SAFETY: `Sums::add` has checked the tiles, and `lanes` has room for the most lanes there are.
        unsafe {
            let lanes = self.lanes.as_mut_ptr();
            let place = |r: usize, c: usize| lanes.add(((row + r) * stride + column + c) * S::LANES);
            let mut sums: [[S::V; COLUMNS]; ROWS] =
                std::array::from_fn(|r| std::array::from_fn(|c| simd.load(place(r, c))));
            self.ahead.begin(self.count * (WIDTH / S::LANES));
            let mut a = self.a.values.as_ptr().add(row * WIDTH);
            let mut b = self.b.values.as_ptr().add(column * WIDTH);
            for _ in 0..self.count {
                for pair in (0..WIDTH).step_by(S::LANES) {
                    self.ahead.ask();
                    let left: [S::V; ROWS] = std::array::from_fn(|r| simd.load(a.add(r * WIDTH + pair)));
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
    #[expect(clippy::needless_range_loop, reason = "plain indices are what keeps the sums in registers")]
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
                    let values: [S::V; ROWS] = std::array::from_fn(|r| simd.load(a.add(r * WIDTH + pair)));
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
        assert!(a.len() >= rows * WIDTH && b.len() >= rows * WIDTH, "tiles are smaller than the sums");
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
                    sum =
                        simd.mul_add(simd.load(self.a.as_ptr().add(place)), simd.load(self.b.as_ptr().add(place)), sum);
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

    /// `gradient` times the slope at `value`.
    #[inline(always)]
    fn times_slope<S: Simd>(self, simd: S, gradient: S::V, value: S::V) -> S::V {
        match self {
            Self::None => gradient,
            Self::Log { epsilon } => simd.div(gradient, simd.add(value, simd.splat(epsilon))),
            Self::SignedSquareRoot => {
                let size = simd.max(value, simd.sub(simd.zero(), value));
                let half = simd.mul(gradient, simd.splat(0.5));
                simd.select_positive(size, simd.div(half, simd.sqrt(size)), simd.zero())
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
            // SAFETY: at most `len` numbers are read, and a row of the tile has `WIDTH`.
            unsafe {
                if self.len == WIDTH {
                    for place in (0..WIDTH).step_by(S::LANES) {
                        simd.store(out.as_mut_ptr().add(place), simd.load(from.add(place)));
                    }
                    continue;
                }
                for place in (0..WIDTH).step_by(S::LANES) {
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
                let count = self.len.saturating_sub(place).min(S::LANES);
                // SAFETY: at most `len` numbers are read, and a row of the tile has `WIDTH`.
                unsafe {
                    let value = self.transform.apply(simd, simd.load_up_to(from.wrapping_add(place), count));
                    let value = simd.mul_add(simd.sub(value, centre), scale, offset);
                    let value = if count < S::LANES { simd.keep_first(value, count, 0.0) } else { value };
                    simd.store(out.as_mut_ptr().add(place), value);
                }
            }
        }
    }
}

/// Multiplies every row of a tile by a factor a pair.
pub(crate) fn weigh(isa: Isa, tile: &mut [f32], factors: &[f32]) {
    let mut all = [0.0; WIDTH];
    all[..factors.len()].copy_from_slice(factors);
    isa.run(Weigh { tile, factors: &all });
}

struct Weigh<'a> {
    tile: &'a mut [f32],
    factors: &'a [f32; WIDTH],
}

impl Kernel for Weigh<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for row in self.tile.chunks_exact_mut(WIDTH) {
            for place in (0..WIDTH).step_by(S::LANES) {
                // SAFETY: both have `WIDTH` numbers.
                unsafe {
                    let to = row.as_mut_ptr().add(place);
                    simd.store(to, simd.mul(simd.load(to), simd.load(self.factors.as_ptr().add(place))));
                }
            }
        }
    }
}

/// Writes the first `len` pairs of a tile to every row from `start` on.
pub(crate) fn store(isa: Isa, tile: &[f32], rows: &mut [&mut [MaybeUninit<f32>]], start: usize, len: usize) {
    assert!(len <= WIDTH && tile.len() >= rows.len() * WIDTH, "the tile is smaller than the rows");
    isa.run(Store { tile, rows, start, len });
}

struct Store<'a, 'b> {
    tile: &'a [f32],
    rows: &'a mut [&'b mut [MaybeUninit<f32>]],
    start: usize,
    len: usize,
}

impl Kernel for Store<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (row, tile) in self.rows.iter_mut().zip(self.tile.chunks_exact(WIDTH)) {
            let to = &mut row[self.start..self.start + self.len];
            if self.len == WIDTH {
                for place in (0..WIDTH).step_by(S::LANES) {
                    // SAFETY: both have `WIDTH` numbers.
                    unsafe {
                        simd.store(to.as_mut_ptr().cast::<f32>().add(place), simd.load(tile.as_ptr().add(place)))
                    };
                }
                continue;
            }
            for (to, from) in to.chunks_mut(S::LANES).zip(tile.chunks_exact(S::LANES)) {
                // SAFETY: a chunk has the length that is given.
                unsafe { simd.store_up_to(to.as_mut_ptr().cast(), simd.load(from.as_ptr()), to.len()) };
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
    rows: &mut [&mut [MaybeUninit<f32>]],
    start: usize,
    len: usize,
) {
    assert!(len <= WIDTH && tile.len() >= rows.len() * WIDTH, "the tile is smaller than the rows");
    isa.run(StoreSloped { tile, slopes, rows, start, len });
}

struct StoreSloped<'a, 'b> {
    tile: &'a [f32],
    slopes: &'a Slopes<'a>,
    rows: &'a mut [&'b mut [MaybeUninit<f32>]],
    start: usize,
    len: usize,
}

impl Kernel for StoreSloped<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (index, (row, tile)) in self.rows.iter_mut().zip(self.tile.chunks_exact(WIDTH)).enumerate() {
            let to = row[self.start..self.start + self.len].as_mut_ptr().cast::<f32>();
            let values = self.slopes.values[index][self.slopes.start..self.slopes.start + self.len].as_ptr();
            let scale = simd.splat(self.slopes.scales[index]);
            if self.len == WIDTH && self.slopes.transform == Transform::None {
                for place in (0..WIDTH).step_by(S::LANES) {
                    // SAFETY: both have `WIDTH` numbers.
                    unsafe { simd.store(to.add(place), simd.mul(simd.load(tile.as_ptr().add(place)), scale)) };
                }
                continue;
            }
            for place in (0..self.len).step_by(S::LANES) {
                let count = (self.len - place).min(S::LANES);
                // SAFETY: from `place` on both rows have `count` numbers, and the tile a vector.
                unsafe {
                    let gradient = simd.mul(simd.load(tile.as_ptr().add(place)), scale);
                    let value = simd.load_up_to(values.add(place), count);
                    let gradient = self.slopes.transform.times_slope(simd, gradient, value);
                    simd.store_up_to(to.add(place), gradient, count);
                }
            }
        }
    }
}
