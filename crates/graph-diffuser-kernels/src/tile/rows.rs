//! Between tiles and the long rows of `[c, p]`, with pointwise work on the way.

use std::mem::MaybeUninit;

use crate::simd::{Isa, Kernel, Simd};

use super::WIDTH;

/// What is done to every entry on its way in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PairTransform {
    /// Nothing: the paper.
    None,
    /// `ln(E + eps)`, for entries above `-eps`.
    Log {
        /// Keeps the logarithm finite where no walk arrives.
        eps: f32,
    },
    /// `sign(E) √|E|`, with slope zero at zero.
    SignedSquareRoot,
}

impl PairTransform {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, value: S::V) -> S::V {
        match self {
            Self::None => value,
            Self::Log { eps } => simd.ln(simd.add(value, simd.splat(eps))),
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
            Self::Log { eps } => simd.div(gradient, simd.add(value, simd.splat(eps))),
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
pub(crate) fn load<R: AsRef<[f32]>>(
    isa: Isa,
    rows: &[R],
    start: usize,
    len: usize,
    out: &mut [f32],
) {
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
                    let value =
                        simd.load_up_to(from.wrapping_add(place), self.len.saturating_sub(place));
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
    transform: PairTransform,
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
    transform: PairTransform,
    affine: &'a Affine,
    start: usize,
    len: usize,
    out: &'a mut [f32],
}

impl Kernel for LoadMapped<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (index, (row, out)) in
            self.rows.iter().zip(self.out.chunks_exact_mut(WIDTH)).enumerate()
        {
            let from = row[self.start..self.start + self.len].as_ptr();
            let centre = simd.splat(self.affine.centre[index]);
            let scale = simd.splat(self.affine.scale[index]);
            let offset = simd.splat(self.affine.offset[index]);
            for place in (0..WIDTH).step_by(S::LANES) {
                let count = self.len.saturating_sub(place).min(S::LANES);
                // SAFETY: at most `len` numbers are read, and a row of the tile has `WIDTH`.
                unsafe {
                    let value = self
                        .transform
                        .apply(simd, simd.load_up_to(from.wrapping_add(place), count));
                    let value = simd.mul_add(simd.sub(value, centre), scale, offset);
                    let value =
                        if count < S::LANES { simd.keep_first(value, count, 0.0) } else { value };
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
                    simd.store(
                        to,
                        simd.mul(simd.load(to), simd.load(self.factors.as_ptr().add(place))),
                    );
                }
            }
        }
    }
}

/// Writes the first `len` pairs of a tile to every row from `start` on.
pub(crate) fn store(
    isa: Isa,
    tile: &[f32],
    rows: &mut [&mut [MaybeUninit<f32>]],
    start: usize,
    len: usize,
) {
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
                        simd.store(
                            to.as_mut_ptr().add(place).cast(),
                            simd.load(tile.as_ptr().add(place)),
                        )
                    };
                }
                continue;
            }
            for (to, from) in to.chunks_mut(S::LANES).zip(tile.chunks_exact(S::LANES)) {
                // SAFETY: a chunk has the length that is given.
                unsafe {
                    simd.store_up_to(to.as_mut_ptr().cast(), simd.load(from.as_ptr()), to.len())
                };
            }
        }
    }
}

/// Where a gradient is written, and the entries that it is the gradient of.
pub(crate) struct Slopes<'a> {
    pub(crate) transform: PairTransform,
    /// A factor a row.
    pub(crate) scales: &'a [f32],
    /// The rows that were transformed.
    pub(crate) values: &'a [&'a [f32]],
    /// First pair in those rows.
    pub(crate) start: usize,
    /// Whether the gradient is too large to stay in a cache until it is read.
    pub(crate) past_caches: bool,
}

/// [`store`] of a tile that is multiplied by the factor of its row and the slope of the transform; past the caches
/// it must be followed by [`settle`].
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
        for (index, (row, tile)) in
            self.rows.iter_mut().zip(self.tile.chunks_exact(WIDTH)).enumerate()
        {
            let to = row[self.start..self.start + self.len].as_mut_ptr().cast::<f32>();
            let values =
                self.slopes.values[index][self.slopes.start..self.slopes.start + self.len].as_ptr();
            let scale = simd.splat(self.slopes.scales[index]);
            // The first vector is cut so that those after it begin where a stream of them may.
            let size = S::LANES * size_of::<f32>();
            let mut count = (size - to as usize % size) / size_of::<f32>();
            let mut place = 0;
            while place < self.len {
                count = count.min(self.len - place);
                // SAFETY: from `place` on both rows and the tile have `count` numbers; a vector that is not cut
                // begins where a stream of them may.
                unsafe {
                    let gradient =
                        simd.mul(simd.load_up_to(tile.as_ptr().add(place), count), scale);
                    let value = simd.load_up_to(values.add(place), count);
                    let gradient = self.slopes.transform.times_slope(simd, gradient, value);
                    if count == S::LANES && self.slopes.past_caches {
                        simd.stream(to.add(place), gradient);
                    } else {
                        simd.store_up_to(to.add(place), gradient, count);
                    }
                }
                place += count;
                count = S::LANES;
            }
        }
    }
}

/// What was stored past the caches may then be read by other threads.
pub(crate) fn settle(isa: Isa) {
    isa.run(Settle);
}

struct Settle;

impl Kernel for Settle {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        simd.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_past_the_caches_is_the_same_wherever_its_rows_begin() {
        let (rows, pairs) = (3, 400);
        let number = |at: usize| crate::hash32(at as u32) as f32 / u32::MAX as f32 + 0.1;
        let tile: Vec<f32> = (0..rows * WIDTH).map(number).collect();
        let values: Vec<f32> = (0..rows * pairs).map(|at| number(at + 7000)).collect();
        let values: Vec<&[f32]> = values.chunks(pairs).collect();
        for isa in Isa::available() {
            for transform in [
                PairTransform::None,
                PairTransform::Log { eps: 1e-3 },
                PairTransform::SignedSquareRoot,
            ] {
                for (shift, len) in
                    (0..17).flat_map(|shift| [1, 15, 16, 33, 127, WIDTH].map(|len| (shift, len)))
                {
                    let made = [false, true].map(|past_caches| {
                        let slopes = Slopes {
                            transform,
                            scales: &[1.5, -2.0, 0.5],
                            values: &values,
                            start: 9,
                            past_caches,
                        };
                        let mut out = vec![MaybeUninit::new(-7.0_f32); rows * pairs];
                        let mut cut: Vec<&mut [MaybeUninit<f32>]> = out.chunks_mut(pairs).collect();
                        store_sloped(isa, &tile, &slopes, &mut cut, shift, len);
                        settle(isa);
                        // SAFETY: all were numbers from the start.
                        out.into_iter()
                            .map(|value| unsafe { value.assume_init() })
                            .collect::<Vec<f32>>()
                    });
                    assert_eq!(made[0], made[1], "{isa:?} {transform:?} {shift} {len}");
                    let written = made[1].iter().filter(|value| **value != -7.0).count();
                    assert_eq!(written, rows * len);
                    if transform == PairTransform::None {
                        assert_eq!(made[1][pairs + shift], tile[WIDTH] * -2.0);
                    }
                }
            }
        }
    }
}
