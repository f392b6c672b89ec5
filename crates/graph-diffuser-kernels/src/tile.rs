//! Tiles of pairs: some channels of [`WIDTH`] consecutive pairs, `[rows][WIDTH]`, contiguous in
//! memory.
//!
//! Kernels over pairs copy a tile from the long rows of `[c, p]`, do all work on it while it is in
//! the first-level cache, and write the result back. The operations are products with a small
//! matrix ([`product`]), sums of products over pairs ([`Sums`]), and pointwise operations while
//! loading and storing. A tile that extends beyond the last pair is padded with zeros, which every
//! operation preserves: constants enter as a row of ones ([`fill_ones`]) that is zero in the
//! padding.

mod rows;
mod sums;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

pub use rows::PairTransform;
pub(crate) use rows::{
    Affine, TransformBackward, fence, load, load_mapped, scale_pairs, store,
    store_transform_gradient,
};
pub(crate) use sums::{RowSums, Sums, Tiles};

use crate::simd::{Isa, Kernel, Simd};

/// Pairs per tile. Wider tiles need fewer calls, narrower ones stay in the first-level cache:
/// forward and backward pass of the edge-wise network (17 channels, 2 layers, 422,000 pairs,
/// AVX-512, one thread) took 22 + 51 ms with 64, 21 + 45 ms with 128 and 22 + 49 ms with 256.
pub(crate) const WIDTH: usize = 128;
/// Rows of a block of [`product`]: with 4 vectors of columns, 24 of the 32 registers of AVX-512
/// accumulate, with 2 vectors 12 of the 16 registers of AVX2.
const PRODUCT_ROWS: usize = 6;

/// Maximum number of buffers kept for reuse: those of two networks of three layers.
const MAX_SPARE: usize = 4;
static SPARE: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());

/// Buffer of `f32` values, aligned to a cache line so that no vector of a tile crosses two.
pub(crate) struct Buffer {
    ptr: NonNull<f32>,
    len: usize,
    /// Allocated number of values, at least `len`.
    capacity: usize,
}

// SAFETY: the buffer owns its values, as a `Vec` does.
unsafe impl Send for Buffer {}
// SAFETY: as above; values are mutated only through `&mut`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Size of a cache line in bytes.
    const CACHE_LINE: usize = 64;

    fn layout(len: usize) -> Layout {
        Layout::array::<f32>(len)
            .and_then(|layout| layout.align_to(Self::CACHE_LINE))
            .expect("the size of a buffer fits in isize")
    }

    /// Allocates `len` zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        if len == 0 {
            return Self { ptr: NonNull::dangling(), len, capacity: len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout is not empty.
        let ptr = unsafe { alloc_zeroed(layout) }.cast();
        Self {
            ptr: NonNull::new(ptr).unwrap_or_else(|| handle_alloc_error(layout)),
            len,
            capacity: len,
        }
    }

    /// Returns `len` unspecified values, in the memory of a recycled buffer if one is large enough:
    /// touching new pages costs as much as the computation on them.
    pub(crate) fn reused(len: usize) -> Self {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let large_enough = (0..spare.len()).filter(|&at| spare[at].capacity >= len);
        if let Some(at) = large_enough.min_by_key(|&at| spare[at].capacity) {
            let mut buffer = spare.swap_remove(at);
            buffer.len = len;
            return buffer;
        }
        // Free a buffer that is too small; the new one will serve both sizes.
        drop(spare.pop());
        drop(spare);
        Self::zeros(len)
    }

    /// Keeps the memory for reuse, unless enough buffers are kept.
    pub(crate) fn recycle(self) {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MAX_SPARE {
            spare.push(self);
        }
    }

    /// Allocates a tile of `rows` rows.
    pub(crate) fn tile(rows: usize) -> Self {
        Self::zeros(rows * WIDTH)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: the memory was allocated by `zeros` with this layout.
            unsafe { dealloc(self.ptr.as_ptr().cast(), Self::layout(self.capacity)) };
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: at least `len` values were allocated and initialized; the pointer dangles only if
        // `len` is zero.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
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

/// Software prefetcher for the next group of tiles. Each step of a product or sum may prefetch a
/// cache line, which overlaps memory access with computation. Only few lines can be outstanding,
/// and loads from nearby caches queue behind them, so prefetches are spread evenly over the steps
/// of a group. They target the second-level cache, because a group does not fit into the first.
pub(crate) struct Prefetch {
    /// Start of each row in the next group, its length, and its distance to the group after it.
    rows: Vec<(*const f32, usize, usize)>,
    /// Index of the row to prefetch after the current one.
    row: usize,
    /// Remaining part of the current row.
    line: *const f32,
    end: *const f32,
    /// Number of cache lines of a group.
    lines: usize,
    /// Number of steps since the last call of `advance`.
    steps: usize,
    /// Maximum number of lines per step.
    per_step: usize,
    /// Fraction of these that are new lines, and its accumulated remainder, in units of 1/256.
    pace: usize,
    due: usize,
}

impl Prefetch {
    const FIXED_POINT_ONE: usize = 256;
    /// Values per cache line.
    const LINE: usize = Buffer::CACHE_LINE / size_of::<f32>();

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
            pace: Self::FIXED_POINT_ONE,
            due: 0,
        }
    }

    /// Adds rows; the first group of the chunk starts at `start`, and a group has `pairs` pairs.
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

    /// Adds contiguous groups of `size` values, starting with the first group of the chunk.
    pub(crate) fn add_groups(&mut self, groups: &[f32], size: usize) {
        self.rows.push((groups.as_ptr(), size, size));
        self.lines += size.div_ceil(Self::LINE);
    }

    /// Moves on to the next group, which is expected to take as many steps as the previous one.
    pub(crate) fn advance(&mut self) {
        for (row, _, step) in &mut self.rows {
            *row = row.wrapping_add(*step);
        }
        (self.row, self.line, self.end) = (0, std::ptr::null(), std::ptr::null());
        self.next_row();
        if self.steps > 0 {
            self.per_step = self.lines.div_ceil(self.steps);
            self.pace =
                (self.lines * Self::FIXED_POINT_ONE).div_ceil(self.per_step.max(1) * self.steps);
        }
        (self.steps, self.due) = (0, 0);
    }

    /// Announces `count` steps.
    #[inline(always)]
    fn add_steps(&mut self, count: usize) {
        self.steps += count;
    }

    /// Prefetches the lines that are due.
    #[inline(always)]
    fn issue(&mut self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            for _ in 0..self.per_step {
                // Branch-free: prefetching a line twice costs less than a branch misprediction.
                // SAFETY: prefetching has no side effects and never faults, whatever the address.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(self.line.cast()) };
                self.due += self.pace;
                self.line = self.line.wrapping_add(self.due / Self::FIXED_POINT_ONE * Self::LINE);
                self.due %= Self::FIXED_POINT_ONE;
                if self.line >= self.end {
                    self.next_row();
                }
            }
        }
    }

    /// Continues with the next row.
    #[cold]
    fn next_row(&mut self) {
        if let Some(&(start, len, _)) = self.rows.get(self.row) {
            (self.row, self.line, self.end) = (self.row + 1, start, start.wrapping_add(len));
        } else {
            // No rows remain: repeat the last line until the next group.
            (self.line, self.pace, self.due) = (self.end.wrapping_sub(1), 0, 0);
        }
    }
}

/// Writes the row of ones of a tile with `len` pairs.
pub(crate) fn fill_ones(row: &mut [f32], len: usize) {
    row[..len].fill(1.0);
    row[len..WIDTH].fill(0.0);
}

/// Matrix `[rows, inner]`, packed in the order in which [`product`] reads it.
pub(crate) struct Matrix {
    rows: usize,
    inner: usize,
    blocks: Vec<Range<usize>>,
    packed: Vec<f32>,
}

impl Matrix {
    /// Packs the entries `entry(row, column)`, rounded to single precision.
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

/// Initial value of the sums of a product.
#[derive(Clone, Copy)]
pub(crate) enum Initial<'a> {
    Zero,
    /// Tile.
    Tile(&'a [f32]),
    /// Tile whose rows are multiplied by the given factors.
    Scaled(&'a [f32], &'a [f32]),
}

/// Operation applied to the sums of a product before they are stored.
#[derive(Clone, Copy)]
pub(crate) enum Epilogue<'a> {
    None,
    Relu,
    /// Keeps sums where this tile is positive, zero elsewhere.
    MaskPositive(&'a [f32]),
}

/// Computes `out = epilogue(initial + matrix · input)`, where `input` is a tile of `inner` rows and
/// `out` one of `rows` rows.
pub(crate) fn product(
    isa: Isa,
    prefetch: &mut Prefetch,
    matrix: &Matrix,
    input: &[f32],
    initial: Initial<'_>,
    epilogue: Epilogue<'_>,
    out: &mut [f32],
) {
    let size = matrix.rows * WIDTH;
    assert!(input.len() >= matrix.inner * WIDTH, "the input is smaller than the matrix");
    assert!(out.len() >= size, "the output is smaller than the matrix");
    match initial {
        Initial::Zero => {}
        Initial::Tile(tile) => {
            assert!(tile.len() >= size, "the initial tile is smaller than the output");
        }
        Initial::Scaled(tile, scales) => {
            assert!(
                tile.len() >= size && scales.len() >= matrix.rows,
                "the initial tile is smaller than the output"
            );
        }
    }
    if let Epilogue::MaskPositive(tile) = epilogue {
        assert!(tile.len() >= size, "the mask is smaller than the output");
    }
    isa.run(Product { prefetch, matrix, input, initial, epilogue, out });
}

struct Product<'a> {
    prefetch: &'a mut Prefetch,
    matrix: &'a Matrix,
    input: &'a [f32],
    initial: Initial<'a>,
    epilogue: Epilogue<'a>,
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
    /// Processes `VECTORS` vectors of columns at a time; `WIDTH` is a multiple of them.
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

    #[expect(clippy::needless_range_loop, reason = "plain indexing keeps the sums in registers")]
    #[inline(always)]
    fn block<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &mut self,
        simd: S,
        row: usize,
        column: usize,
    ) {
        let offset = |r: usize| (row + r) * WIDTH + column;
        // SAFETY: `product` has checked that all tiles have `rows` or `inner` rows; the vectors
        // from `column` are within a row of `WIDTH` values; the weights of the block start at
        // `row * inner`.
        unsafe {
            let mut sums = [[simd.zero(); VECTORS]; ROWS];
            match self.initial {
                Initial::Zero => {}
                Initial::Tile(tile) => {
                    for r in 0..ROWS {
                        for v in 0..VECTORS {
                            sums[r][v] = simd.load(tile.as_ptr().add(offset(r) + v * S::LANES));
                        }
                    }
                }
                Initial::Scaled(tile, scales) => {
                    for r in 0..ROWS {
                        let scale = simd.splat(*scales.get_unchecked(row + r));
                        for v in 0..VECTORS {
                            sums[r][v] = simd
                                .mul(simd.load(tile.as_ptr().add(offset(r) + v * S::LANES)), scale);
                        }
                    }
                }
            }
            self.prefetch.add_steps(self.matrix.inner);
            let mut weight = self.matrix.packed.as_ptr().add(row * self.matrix.inner);
            let mut input = self.input.as_ptr().add(column);
            for _ in 0..self.matrix.inner {
                self.prefetch.issue();
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
                    let value = match self.epilogue {
                        Epilogue::None => sums[r][v],
                        Epilogue::Relu => simd.max(sums[r][v], simd.zero()),
                        Epilogue::MaskPositive(mask) => {
                            let condition = simd.load(mask.as_ptr().add(offset(r) + v * S::LANES));
                            simd.select_positive(condition, sums[r][v], simd.zero())
                        }
                    };
                    simd.store(self.out.as_mut_ptr().add(offset(r) + v * S::LANES), value);
                }
            }
        }
    }
}
