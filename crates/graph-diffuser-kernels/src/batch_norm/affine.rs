//! Affine form of the normalization for given statistics: `(x - center) · scale + constant` per
//! channel.

use super::EPSILON;
use super::statistics::BatchStatistics;
use crate::channel_blocks::Block;
use crate::simd::Simd;

/// Coefficients of `(x - center) · scale + constant`, per channel.
pub(super) struct Affine {
    pub(super) center: Vec<f32>,
    pub(super) scale: Vec<f32>,
    pub(super) constant: Vec<f32>,
}

impl Affine {
    pub(super) fn new(statistics: &BatchStatistics, gamma: &[f32], beta: &[f32]) -> Self {
        let BatchStatistics { mean, variance, .. } = statistics;
        let channels = mean.len();
        assert_eq!(
            [variance.len(), gamma.len(), beta.len()],
            [channels; 3],
            "statistics, gamma and beta must have the same number of channels"
        );
        let center: Vec<f32> = mean.iter().map(|mean| *mean as f32).collect();
        let (scale, constant) = (0..channels)
            .map(|channel| {
                let scale = f64::from(gamma[channel]) / (variance[channel] + EPSILON).sqrt();
                let residual = mean[channel] - f64::from(center[channel]);
                (scale as f32, (f64::from(beta[channel]) - residual * scale) as f32)
            })
            .unzip();
        Self { center, scale, constant }
    }
}

/// Vectors of [`Affine`] for a block of channels.
pub(super) struct Channels<S: Simd, const W: usize> {
    center: [S::V; W],
    scale: [S::V; W],
    constant: [S::V; W],
}

impl<S: Simd, const W: usize> Channels<S, W> {
    /// Loads the coefficients of a block.
    ///
    /// # Safety
    /// `affine` has the channels of the block.
    #[inline(always)]
    pub(super) unsafe fn load(simd: S, affine: &Affine, block: Block) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            Self {
                center: block.load_all(simd, affine.center.as_ptr()),
                scale: block.load_all(simd, affine.scale.as_ptr()),
                constant: block.load_all(simd, affine.constant.as_ptr()),
            }
        }
    }

    #[inline(always)]
    pub(super) fn center(&self, simd: S, x: S::V, v: usize) -> S::V {
        simd.sub(x, self.center[v])
    }

    #[inline(always)]
    pub(super) fn apply(&self, simd: S, centered: S::V, v: usize) -> S::V {
        simd.mul_add(centered, self.scale[v], self.constant[v])
    }

    /// Returns the gradient before the `ReLU`, if there is one.
    #[inline(always)]
    pub(super) fn relu_backward(
        &self,
        simd: S,
        centered: S::V,
        d_y: S::V,
        relu: bool,
        v: usize,
    ) -> S::V {
        if relu {
            simd.select_positive(self.apply(simd, centered, v), d_y, simd.zero())
        } else {
            d_y
        }
    }
}
