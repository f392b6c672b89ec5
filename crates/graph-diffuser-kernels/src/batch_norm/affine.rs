//! What normalising is once the statistics are known: `(x - centre) · scale + constant`, channel by channel.

use super::{Block, EPSILON, Statistics};
use crate::simd::Simd;

/// `(x - centre) · scale + constant`.
pub(super) struct Affine {
    pub(super) centre: Vec<f32>,
    pub(super) scale: Vec<f32>,
    pub(super) constant: Vec<f32>,
}

impl Affine {
    pub(super) fn new(statistics: &Statistics, gamma: &[f32], beta: &[f32]) -> Self {
        let Statistics { mean, variance } = statistics;
        let channels = mean.len();
        assert_eq!(
            [variance.len(), gamma.len(), beta.len()],
            [channels; 3],
            "one of each a channel"
        );
        let centre: Vec<f32> = mean.iter().map(|mean| *mean as f32).collect();
        let (scale, constant) = (0..channels)
            .map(|channel| {
                let scale = f64::from(gamma[channel]) / (variance[channel] + EPSILON).sqrt();
                let missed = mean[channel] - f64::from(centre[channel]);
                (scale as f32, (f64::from(beta[channel]) - missed * scale) as f32)
            })
            .unzip();
        Self { centre, scale, constant }
    }
}

/// [`Affine`] of a block of channels.
pub(super) struct Channels<S: Simd, const W: usize> {
    centre: [S::V; W],
    scale: [S::V; W],
    constant: [S::V; W],
}

impl<S: Simd, const W: usize> Channels<S, W> {
    /// # Safety
    /// `affine` has the channels of the block.
    #[inline(always)]
    pub(super) unsafe fn load(simd: S, affine: &Affine, block: Block) -> Self {
        // SAFETY: the caller's.
        unsafe {
            Self {
                centre: block.load_all(simd, affine.centre.as_ptr()),
                scale: block.load_all(simd, affine.scale.as_ptr()),
                constant: block.load_all(simd, affine.constant.as_ptr()),
            }
        }
    }

    #[inline(always)]
    pub(super) fn centre(&self, simd: S, x: S::V, v: usize) -> S::V {
        simd.sub(x, self.centre[v])
    }

    #[inline(always)]
    pub(super) fn apply(&self, simd: S, centred: S::V, v: usize) -> S::V {
        simd.mul_add(centred, self.scale[v], self.constant[v])
    }

    /// The derivative before the `ReLU`.
    #[inline(always)]
    pub(super) fn before_relu(
        &self,
        simd: S,
        centred: S::V,
        d_y: S::V,
        relu: bool,
        v: usize,
    ) -> S::V {
        if relu {
            simd.select_positive(self.apply(simd, centred, v), d_y, simd.zero())
        } else {
            d_y
        }
    }
}
