//! Tiles of pairs: a few channels of [`WIDTH`] neighbouring pairs, `[rows][WIDTH]`, close together in memory.
//!
//! Kernels over pairs copy a tile out of the long rows of `[c, p]`, do all they can with it while it is
//! in the first-level cache, and write the result back. What they do is little: a product with a small
//! matrix ([`product`]), sums of products over pairs ([`Sums`]), and pointwise work on the way in and
//! out. A tile that sticks out of the last pair is zero there, and every operation keeps it so:
//! constants enter as a row of ones ([`fill_ones`]) that is zero there too.

mod rows;
mod sums;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

pub use rows::PairTransform;
pub(crate) use rows::{Affine, Slopes, load, load_mapped, settle, store, store_sloped, weigh};
pub(crate) use sums::{RowSums, Sums, Tiles};

use crate::simd::{Isa, Kernel, Simd};

/// Pairs of a tile. Wider tiles need fewer calls, narrower ones stay in the first-level cache: forward and
/// backward of the edge-wise network (17 channels, 2 layers, 422 000 pairs, AVX-512, one thread) took
/// 22 + 51 ms with 64, 21 + 45 with 128 and 22 + 49 with 256.
pub(crate) const WIDTH: usize = 128;
/// Rows of a block of [`product`]: with 4 vectors of columns 24 of AVX-512's 32 registers accumulate,
/// with 2 vectors 12 of AVX2's 16.
const PRODUCT_ROWS: usize = 6;

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
        Layout::array::<f32>(len)
            .and_then(|layout| layout.align_to(Self::LINE))
            .expect("a buffer fits in memory")
    }

    /// `len` zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        if len == 0 {
            return Self { start: NonNull::dangling(), len, capacity: len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) }.cast();
        Self {
            start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)),
            len,
            capacity: len,
        }
    }

    /// `len` numbers of any value, in the memory of an earlier buffer where one is large enough: pages that
    /// are new cost as much as the work done on them.
    pub(crate) fn reused(len: usize) -> Self {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let large_enough = (0..spare.len()).filter(|&at| spare[at].capacity >= len);
        if let Some(at) = large_enough.min_by_key(|&at| spare[at].capacity) {
            let mut buffer = spare.swap_remove(at);
            buffer.len = len;
            return buffer;
        }
        // One that is too small goes: its successor will do for both.
        drop(spare.pop());
        drop(spare);
        Self::zeros(len)
    }

    /// Keeps the memory for later, unless enough is kept.
    pub(crate) fn give_back(self) {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MOST_SPARE {
            spare.push(self);
        }
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
use with_rows;

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
    pub(crate) fn add_rows(
        &mut self,
        rows: impl IntoIterator<Item = *const f32>,
        start: usize,
        pairs: usize,
    ) {
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
    /// Another tile.
    Tile(&'a [f32]),
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
    assert!(input.len() >= matrix.inner * WIDTH, "the input is smaller than the matrix");
    assert!(out.len() >= size, "the output is smaller than the matrix");
    match start {
        Start::Zero => {}
        Start::Tile(tile) => assert!(tile.len() >= size, "the start is smaller than the output"),
        Start::Scaled(tile, scales) => {
            assert!(
                tile.len() >= size && scales.len() >= matrix.rows,
                "the start is smaller than the output"
            );
        }
    }
    if let Finish::WherePositive(tile) = finish {
        assert!(tile.len() >= size, "the condition is smaller than the output");
    }
    isa.run(Product { ahead, matrix, input, start, finish, out });
}

struct Product<'a> {
    ahead: &'a mut Ahead,
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
            for rows in &self.matrix.blocks {
                with_rows!(rows.len(), [1, 2, 3, 4, 5, 6], |ROWS| {
                    self.block::<S, ROWS, VECTORS>(simd, rows.start, column);
                });
            }
        }
    }

    #[expect(
        clippy::needless_range_loop,
        reason = "plain indices are what keeps the sums in registers"
    )]
    #[inline(always)]
    fn block<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &mut self,
        simd: S,
        row: usize,
        column: usize,
    ) {
        let place = |r: usize| (row + r) * WIDTH + column;
        // SAFETY: `product` has checked that all tiles reach `rows` or `inner` rows; `column` and the vectors after
        // it are inside a row of `WIDTH`; the block's weights begin at `row * inner`.
        unsafe {
            let mut sums = [[simd.zero(); VECTORS]; ROWS];
            match self.start {
                Start::Zero => {}
                Start::Tile(tile) => {
                    for r in 0..ROWS {
                        for v in 0..VECTORS {
                            sums[r][v] = simd.load(tile.as_ptr().add(place(r) + v * S::LANES));
                        }
                    }
                }
                Start::Scaled(tile, scales) => {
                    for r in 0..ROWS {
                        let scale = simd.splat(*scales.get_unchecked(row + r));
                        for v in 0..VECTORS {
                            sums[r][v] = simd
                                .mul(simd.load(tile.as_ptr().add(place(r) + v * S::LANES)), scale);
                        }
                    }
                }
            }
            self.ahead.begin(self.matrix.inner);
            let mut weight = self.matrix.packed.as_ptr().add(row * self.matrix.inner);
            let mut input = self.input.as_ptr().add(column);
            for _ in 0..self.matrix.inner {
                self.ahead.ask();
                let values: [S::V; VECTORS] =
                    std::array::from_fn(|v| simd.load(input.add(v * S::LANES)));
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
                        Finish::WherePositive(mask) => {
                            let condition = simd.load(mask.as_ptr().add(place(r) + v * S::LANES));
                            simd.select_positive(condition, sums[r][v], simd.zero())
                        }
                    };
                    simd.store(self.out.as_mut_ptr().add(place(r) + v * S::LANES), value);
                }
            }
        }
    }
}
