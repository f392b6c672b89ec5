//! Batch norm and `ReLU` followed by a dot product per row, `weight · ReLU(BN(x))`, without storing
//! the normalized rows.

use super::affine::{Affine, Channels};
use super::statistics::{BatchStatistics, batch_statistics};
use super::{CHUNK, rows};
use crate::channel_blocks::{Block, Blockwise, run_all};
use crate::shards::Exchange;
use crate::simd::{Isa, Simd};

/// Normalizes by the statistics of the batch and returns the dot products and the statistics.
///
/// With an `exchange`, the rows are one shard of the batch.
///
/// # Shapes
/// - `x`: `[rows, channels]`
/// - `gamma`, `beta`, `weight`: `[channels]`
/// - returns `[rows]`
pub fn forward_dot(
    isa: Isa,
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    weight: &[f32],
    exchange: Option<Exchange<'_>>,
) -> (Vec<f32>, BatchStatistics) {
    let statistics = batch_statistics(isa, x, gamma.len(), None).over_shards(exchange);
    (evaluate_dot(isa, x, &statistics, gamma, beta, weight), statistics)
}

/// Normalizes by the given statistics and returns the dot products.
///
/// # Shapes
/// As for [`forward_dot`].
pub fn evaluate_dot(
    isa: Isa,
    x: &[f32],
    statistics: &BatchStatistics,
    gamma: &[f32],
    beta: &[f32],
    weight: &[f32],
) -> Vec<f32> {
    let channels = gamma.len();
    assert_eq!(weight.len(), channels, "weight must be [channels]");
    let affine = Affine::new(statistics, gamma, beta);
    assert_eq!(affine.scale.len(), channels, "gamma must be [channels]");
    let mut dots = vec![0.0; rows(x, channels)];
    let tasks = x.chunks(CHUNK * channels).zip(dots.chunks_mut(CHUNK)).collect();
    run_all(x.len(), tasks, |(x, to)| isa.run(Dots { x, affine: &affine, weight, to }));
    dots
}

struct Dots<'a> {
    x: &'a [f32],
    affine: &'a Affine,
    weight: &'a [f32],
    /// `[rows]` dot products, accumulated over blocks of channels.
    to: &'a mut [f32],
}

impl Blockwise for Dots<'_> {
    #[inline(always)]
    fn channels(&self) -> usize {
        self.weight.len()
    }

    /// # Safety
    /// As in [`Blockwise::block`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        // SAFETY: `x` has whole rows of `channels` values, and `to` has one value per row.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            let weight = block.load_all::<S, W>(simd, self.weight.as_ptr());
            for (x, dot) in self.x.chunks_exact(block.channels).zip(self.to.iter_mut()) {
                let mut sum = simd.zero();
                for (v, weight) in weight.iter().enumerate() {
                    let centered = affine.center(simd, block.load::<S, W>(simd, x.as_ptr(), v), v);
                    // The value is the second operand, which `max` returns for NaN.
                    let value = simd.max(simd.zero(), affine.apply(simd, centered, v));
                    sum = simd.mul_add(value, *weight, sum);
                }
                *dot += simd.reduce_sum(sum);
            }
        }
    }
}
