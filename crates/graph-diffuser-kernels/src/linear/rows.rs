//! Products of rows with packed panels, followed by the activation.

use std::mem::MaybeUninit;

use super::LinearActivation;
use super::tile::{DEPTH, LeftFactor, Panels, RightFactor, TILE_ROWS, products};
use crate::simd::{Kernel, Simd};

/// Multiplies rows of `x` by the panels and applies the activation.
pub(super) struct Rows<'a> {
    pub(super) x: &'a [f32],
    pub(super) panels: &'a Panels,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) activation: LinearActivation,
    /// Index of the first row in the whole input, for dropout.
    pub(super) first: usize,
    pub(super) y: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Panels { depth, columns, width, ref values } = *self.panels;
        assert_eq!(
            self.x.len() / depth * columns,
            self.y.len(),
            "factors must have the same number of rows"
        );
        for (panel, first) in values.chunks(width * depth).zip((0..columns).step_by(width)) {
            // SAFETY: a panel has `depth` rows of this number of vectors; `x` and `y` have the same
            // number of rows.
            unsafe {
                match panel.len() / depth / S::LANES {
                    1 => self.panel::<S, 1>(simd, panel, first),
                    2 => self.panel::<S, 2>(simd, panel, first),
                    3 => self.panel::<S, 3>(simd, panel, first),
                    _ => self.panel::<S, 4>(simd, panel, first),
                }
            }
        }
    }
}

impl Rows<'_> {
    /// Computes the columns of one panel, starting at column `first`.
    ///
    /// # Safety
    /// `panel` has `depth` rows of `W` vectors, and `y` as many rows as `x`.
    #[inline(always)]
    unsafe fn panel<S: Simd, const W: usize>(&mut self, simd: S, panel: &[f32], first: usize) {
        let Panels { depth, columns, .. } = *self.panels;
        let rows = self.x.len() / depth;
        let last = (columns - first - (W - 1) * S::LANES).min(S::LANES);
        // SAFETY: the tile is within both factors.
        unsafe {
            let mut bias = [simd.zero(); W];
            if let Some(values) = self.bias {
                for (v, bias) in bias.iter_mut().enumerate() {
                    let count = if v + 1 < W { S::LANES } else { last };
                    *bias = simd.load_up_to(values.as_ptr().add(first + v * S::LANES), count);
                }
            }
            for from in (0..depth).step_by(DEPTH) {
                let steps = (depth - from).min(DEPTH);
                let right = RightFactor {
                    from: panel.as_ptr().add(from * W * S::LANES),
                    step: W * S::LANES,
                    last: S::LANES,
                };
                for row in (0..rows).step_by(TILE_ROWS) {
                    let count = (rows - row).min(TILE_ROWS);
                    let to = self.y.as_mut_ptr().cast::<f32>().add(row * columns + first);
                    let mut start = [bias; TILE_ROWS];
                    if from > 0 {
                        for (m, row) in start.iter_mut().enumerate().take(count) {
                            *row =
                                RightFactor { from: to, step: columns, last }.row::<S, W>(simd, m);
                        }
                    }
                    let left = LeftFactor::Rows {
                        from: self.x.as_ptr().add(row * depth + from),
                        step: depth,
                    };
                    let tile = products::<S, W>(simd, left, count, right, steps, start);
                    for (m, values) in tile.into_iter().enumerate().take(count) {
                        let index = ((self.first + row + m) * columns + first) as u64;
                        for (v, value) in values.into_iter().enumerate() {
                            let count = if v + 1 < W { S::LANES } else { last };
                            let value = if from + steps == depth {
                                self.activate(simd, value, index + (v * S::LANES) as u64)
                            } else {
                                value
                            };
                            simd.store_up_to(to.add(m * columns + v * S::LANES), value, count);
                        }
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn activate<S: Simd>(&self, simd: S, value: S::V, index: u64) -> S::V {
        match self.activation {
            LinearActivation::None => value,
            // The value is the second operand, which `max` returns for NaN.
            LinearActivation::Relu(None) => simd.max(simd.zero(), value),
            LinearActivation::Relu(Some(dropout)) => {
                simd.mul(simd.max(simd.zero(), value), simd.dropout_mask(dropout, index))
            }
        }
    }
}
