//! Gradients of the activation and of the parameters.

use std::mem::MaybeUninit;

use super::tile::{DEPTH, LeftFactor, RightFactor, TILE_ROWS, products, tile_width};
use crate::simd::{Kernel, Simd};

/// Computes the gradient before `ReLU` and dropout, which is zero for zero entries of `y`.
pub(super) struct ReluBackward<'a> {
    pub(super) y: &'a [f32],
    pub(super) d_y: &'a [f32],
    pub(super) scale: f32,
    pub(super) d_z: &'a mut [MaybeUninit<f32>],
}

impl Kernel for ReluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let len = self.d_z.len();
        assert!(
            self.y.len() == len && self.d_y.len() == len,
            "y, d_y and d_z must have the same length"
        );
        let (scale, to) = (simd.splat(self.scale), self.d_z.as_mut_ptr().cast::<f32>());
        for at in (0..len).step_by(S::LANES) {
            let count = (len - at).min(S::LANES);
            // SAFETY: `count` values remain in each slice.
            unsafe {
                let y = simd.load_up_to(self.y.as_ptr().add(at), count);
                let d_y = simd.mul(simd.load_up_to(self.d_y.as_ptr().add(at), count), scale);
                simd.store_up_to(to.add(at), simd.select_positive(y, d_y, simd.zero()), count);
            }
        }
    }
}

/// Computes `d_weight = d_zᵀ x` and `d_bias`, the sum of the rows of `d_z`, for some of the
/// outputs.
pub(super) struct WeightGradient<'a> {
    pub(super) x: &'a [f32],
    pub(super) inputs: usize,
    pub(super) d_z: &'a [f32],
    pub(super) outputs: usize,
    /// Index of the first of these outputs.
    pub(super) first: usize,
    pub(super) d_weight: &'a mut [MaybeUninit<f32>],
    pub(super) d_bias: &'a mut [f32],
}

impl Kernel for WeightGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let (inputs, width) = (self.inputs, tile_width::<S>(self.inputs));
        assert_eq!(
            self.d_weight.len(),
            self.d_bias.len() * inputs,
            "d_weight must be [outputs of the task, inputs]"
        );
        assert_eq!(
            self.x.len() / inputs * self.outputs,
            self.d_z.len(),
            "factors must have the same number of rows"
        );
        let rows = self.x.len() / inputs;
        // Runs at least once, so that the gradient is also written for an empty batch.
        for from in (0..rows.max(1)).step_by(DEPTH) {
            let depth = (rows - from).min(DEPTH);
            for row in self.d_z[from * self.outputs..].chunks(self.outputs).take(depth) {
                for (sum, d_z) in self.d_bias.iter_mut().zip(&row[self.first..]) {
                    *sum += d_z;
                }
            }
            for column in (0..inputs).step_by(width) {
                // SAFETY: `W` is the number of vectors of the remaining columns, and both factors
                // have these rows.
                unsafe {
                    match (inputs - column).min(width).div_ceil(S::LANES) {
                        1 => self.columns::<S, 1>(simd, from, depth, column),
                        2 => self.columns::<S, 2>(simd, from, depth, column),
                        3 => self.columns::<S, 3>(simd, from, depth, column),
                        _ => self.columns::<S, 4>(simd, from, depth, column),
                    }
                }
            }
        }
    }
}

impl WeightGradient<'_> {
    /// Adds `depth` rows from `from` to the columns from `column`.
    ///
    /// # Safety
    /// The columns need `W` vectors, and the rows exist.
    #[inline(always)]
    unsafe fn columns<S: Simd, const W: usize>(
        &mut self,
        simd: S,
        from: usize,
        depth: usize,
        column: usize,
    ) {
        let (inputs, count) = (self.inputs, self.d_bias.len());
        let last = (inputs - column - (W - 1) * S::LANES).min(S::LANES);
        // SAFETY: tiles end with the outputs of this task, vectors with the row.
        unsafe {
            for output in (0..count).step_by(TILE_ROWS) {
                let rows = (count - output).min(TILE_ROWS);
                let to = self.d_weight.as_mut_ptr().cast::<f32>().add(output * inputs + column);
                let mut start = [[simd.zero(); W]; TILE_ROWS];
                if from > 0 {
                    for (m, row) in start.iter_mut().enumerate().take(rows) {
                        *row = RightFactor { from: to, step: inputs, last }.row::<S, W>(simd, m);
                    }
                }
                let d_z = self.d_z.as_ptr().add(from * self.outputs + self.first + output);
                let left = LeftFactor::Columns { from: d_z, step: self.outputs };
                let right = RightFactor {
                    from: self.x.as_ptr().add(from * inputs + column),
                    step: inputs,
                    last,
                };
                let tile = products::<S, W>(simd, left, rows, right, depth, start);
                for (m, values) in tile.into_iter().enumerate().take(rows) {
                    for (v, value) in values.into_iter().enumerate() {
                        let count = if v + 1 < W { S::LANES } else { last };
                        simd.store_up_to(to.add(m * inputs + v * S::LANES), value, count);
                    }
                }
            }
        }
    }
}
