//! Transfer between tiles and the long rows of `[c, p]`, with pointwise operations.

use std::mem::MaybeUninit;

use crate::simd::{Isa, Kernel, Simd};

use super::WIDTH;

/// Pointwise transform of the entries of the diffusion stack.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PairTransform {
    /// Identity, as in the paper.
    None,
    /// `ln(E + eps)`, for entries above `-eps`.
    Log {
        /// Offset that keeps the logarithm finite for unreachable pairs.
        eps: f32,
    },
    /// `sign(E) √|E|`, with derivative zero at zero.
    SignedSquareRoot,
}

impl PairTransform {
    /// Applies the transform to `value`.
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

    /// Returns `gradient` times the derivative of the transform at `value`.
    #[inline(always)]
    fn apply_backward<S: Simd>(self, simd: S, gradient: S::V, value: S::V) -> S::V {
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

/// Affine map per row: `(value - center) · scale + offset`. The center is subtracted first, and
/// exactly, so that a channel far from zero keeps small deviations.
pub(crate) struct Affine {
    pub(crate) center: Vec<f32>,
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
    assert!(
        len <= WIDTH && out.len() >= rows.len() * WIDTH,
        "the tile has too few rows or columns"
    );
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
            // SAFETY: at most `len` values are read, and a row of the tile has `WIDTH` values.
            unsafe {
                if self.len == WIDTH {
                    for column in (0..WIDTH).step_by(S::LANES) {
                        simd.store(out.as_mut_ptr().add(column), simd.load(from.add(column)));
                    }
                    continue;
                }
                for column in (0..WIDTH).step_by(S::LANES) {
                    let value =
                        simd.load_up_to(from.wrapping_add(column), self.len.saturating_sub(column));
                    simd.store(out.as_mut_ptr().add(column), value);
                }
            }
        }
    }
}

/// Copies `len` pairs of every row from `start` on into a tile, after applying the transform and
/// the affine map.
pub(crate) fn load_mapped(
    isa: Isa,
    rows: &[&[f32]],
    transform: PairTransform,
    affine: &Affine,
    start: usize,
    len: usize,
    out: &mut [f32],
) {
    assert!(
        len <= WIDTH && out.len() >= rows.len() * WIDTH,
        "the tile has too few rows or columns"
    );
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
            let center = simd.splat(self.affine.center[index]);
            let scale = simd.splat(self.affine.scale[index]);
            let offset = simd.splat(self.affine.offset[index]);
            for column in (0..WIDTH).step_by(S::LANES) {
                let count = self.len.saturating_sub(column).min(S::LANES);
                // SAFETY: at most `len` values are read, and a row of the tile has `WIDTH` values.
                unsafe {
                    let value = self
                        .transform
                        .apply(simd, simd.load_up_to(from.wrapping_add(column), count));
                    let value = simd.mul_add(simd.sub(value, center), scale, offset);
                    let value =
                        if count < S::LANES { simd.keep_first(value, count, 0.0) } else { value };
                    simd.store(out.as_mut_ptr().add(column), value);
                }
            }
        }
    }
}

/// Multiplies every row of a tile by `factors`, one per pair.
pub(crate) fn scale_pairs(isa: Isa, tile: &mut [f32], factors: &[f32]) {
    let mut all = [0.0; WIDTH];
    all[..factors.len()].copy_from_slice(factors);
    isa.run(ScalePairs { tile, factors: &all });
}

struct ScalePairs<'a> {
    tile: &'a mut [f32],
    factors: &'a [f32; WIDTH],
}

impl Kernel for ScalePairs<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for row in self.tile.chunks_exact_mut(WIDTH) {
            for column in (0..WIDTH).step_by(S::LANES) {
                // SAFETY: both rows have `WIDTH` values.
                unsafe {
                    let to = row.as_mut_ptr().add(column);
                    simd.store(
                        to,
                        simd.mul(simd.load(to), simd.load(self.factors.as_ptr().add(column))),
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
    assert!(
        len <= WIDTH && tile.len() >= rows.len() * WIDTH,
        "the tile has too few rows or columns"
    );
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
                for column in (0..WIDTH).step_by(S::LANES) {
                    // SAFETY: both rows have `WIDTH` values.
                    unsafe {
                        simd.store(
                            to.as_mut_ptr().add(column).cast(),
                            simd.load(tile.as_ptr().add(column)),
                        );
                    };
                }
                continue;
            }
            for (to, from) in to.chunks_mut(S::LANES).zip(tile.chunks_exact(S::LANES)) {
                // SAFETY: the store is limited to the length of the chunk.
                unsafe {
                    simd.store_up_to(to.as_mut_ptr().cast(), simd.load(from.as_ptr()), to.len());
                };
            }
        }
    }
}

/// Backward pass of the transform at the entries it was applied to.
pub(crate) struct TransformBackward<'a> {
    pub(crate) transform: PairTransform,
    /// Factor of each row.
    pub(crate) scales: &'a [f32],
    /// Inputs of the transform.
    pub(crate) values: &'a [&'a [f32]],
    /// First pair in `values`.
    pub(crate) start: usize,
    /// Enables non-temporal stores, for gradients that do not fit into the caches.
    pub(crate) nontemporal: bool,
}

/// Stores a tile like [`store`], multiplied by the factor of its row and the derivative of the
/// transform. Non-temporal stores must be followed by [`fence`].
pub(crate) fn store_transform_gradient(
    isa: Isa,
    tile: &[f32],
    backward: &TransformBackward<'_>,
    rows: &mut [&mut [MaybeUninit<f32>]],
    start: usize,
    len: usize,
) {
    assert!(
        len <= WIDTH && tile.len() >= rows.len() * WIDTH,
        "the tile has too few rows or columns"
    );
    isa.run(StoreTransformGradient { tile, backward, rows, start, len });
}

struct StoreTransformGradient<'a, 'b> {
    tile: &'a [f32],
    backward: &'a TransformBackward<'a>,
    rows: &'a mut [&'b mut [MaybeUninit<f32>]],
    start: usize,
    len: usize,
}

impl Kernel for StoreTransformGradient<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (index, (row, tile)) in
            self.rows.iter_mut().zip(self.tile.chunks_exact(WIDTH)).enumerate()
        {
            let to = row[self.start..self.start + self.len].as_mut_ptr().cast::<f32>();
            let values = self.backward.values[index]
                [self.backward.start..self.backward.start + self.len]
                .as_ptr();
            let scale = simd.splat(self.backward.scales[index]);
            // The first vector is shortened so that the following ones are aligned.
            let size = S::LANES * size_of::<f32>();
            let mut count = (size - to as usize % size) / size_of::<f32>();
            let mut column = 0;
            while column < self.len {
                count = count.min(self.len - column);
                // SAFETY: both rows and the tile have `count` values from `column` on; full vectors
                // are aligned.
                unsafe {
                    let gradient =
                        simd.mul(simd.load_up_to(tile.as_ptr().add(column), count), scale);
                    let value = simd.load_up_to(values.add(column), count);
                    let gradient = self.backward.transform.apply_backward(simd, gradient, value);
                    if count == S::LANES && self.backward.nontemporal {
                        simd.store_nontemporal(to.add(column), gradient);
                    } else {
                        simd.store_up_to(to.add(column), gradient, count);
                    }
                }
                column += count;
                count = S::LANES;
            }
        }
    }
}

/// Makes preceding non-temporal stores visible to other threads.
pub(crate) fn fence(isa: Isa) {
    isa.run(Fence);
}

struct Fence;

impl Kernel for Fence {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        simd.fence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nontemporal_stores_match_regular_stores_at_any_alignment() {
        let (rows, pairs) = (3, 400);
        let random_value = |at: usize| crate::hash32(at as u32) as f32 / u32::MAX as f32 + 0.1;
        let tile: Vec<f32> = (0..rows * WIDTH).map(random_value).collect();
        let values: Vec<f32> = (0..rows * pairs).map(|at| random_value(at + 7000)).collect();
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
                    let stored = [false, true].map(|nontemporal| {
                        let backward = TransformBackward {
                            transform,
                            scales: &[1.5, -2.0, 0.5],
                            values: &values,
                            start: 9,
                            nontemporal,
                        };
                        let mut out = vec![MaybeUninit::new(-7.0_f32); rows * pairs];
                        let mut cut: Vec<&mut [MaybeUninit<f32>]> = out.chunks_mut(pairs).collect();
                        store_transform_gradient(isa, &tile, &backward, &mut cut, shift, len);
                        fence(isa);
                        // SAFETY: all values were initialized.
                        out.into_iter()
                            .map(|value| unsafe { value.assume_init() })
                            .collect::<Vec<f32>>()
                    });
                    assert_eq!(stored[0], stored[1], "{isa:?} {transform:?} {shift} {len}");
                    let written = stored[1].iter().filter(|value| **value != -7.0).count();
                    assert_eq!(written, rows * len);
                    if transform == PairTransform::None {
                        assert_eq!(stored[1][pairs + shift], tile[WIDTH] * -2.0);
                    }
                }
            }
        }
    }
}
