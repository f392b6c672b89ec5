//! Products of a small matrix with a tile.

use std::ops::Range;

use crate::simd::{Isa, Kernel, Simd};

use super::{Prefetch, WIDTH, blocks, with_rows};

/// Rows of a block of [`product`]: with 4 vectors of columns, 24 of 32 registers accumulate, with 2
/// vectors 12 of 16.
const PRODUCT_ROWS: usize = 6;

/// Steps of a product after which lines that are due are prefetched. A step of AVX-512 takes twice
/// as long, so there they are spread over a block; with AVX2 the test would take a fiftieth of the
/// time of a product.
const fn prefetch_steps<S: Simd>() -> usize {
    if S::LANES == 16 { 8 } else { usize::MAX }
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
        if S::REGISTERS == 32 { self.columns::<S, 4>(simd) } else { self.columns::<S, 2>(simd) }
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
            let mut weight = self.matrix.packed.as_ptr().add(row * self.matrix.inner);
            let mut input = self.input.as_ptr().add(column);
            for k in 0..self.matrix.inner {
                if k % prefetch_steps::<S>() == 0 {
                    self.prefetch.issue((self.matrix.inner - k).min(prefetch_steps::<S>()));
                }
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
