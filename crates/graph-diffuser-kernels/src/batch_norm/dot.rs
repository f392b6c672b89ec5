//! Batch norm and `ReLU`, of whose result one number a row is wanted: `weight · ReLU(BN(x))`. The normalised rows
//! are never written.

use super::affine::{Affine, Channels};
use super::statistics::measure;
use super::{Block, Blockwise, CHUNK, Statistics, by_blocks, rows, run_all};
use crate::simd::{Isa, Kernel, Simd};

/// By the statistics of the batch, which are given too.
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
) -> (Vec<f32>, Statistics) {
    let statistics = measure(isa, x, gamma.len(), None);
    (evaluate_dot(isa, x, &statistics, gamma, beta, weight), statistics)
}

/// By statistics of other batches.
///
/// # Shapes
/// As for [`forward_dot`].
pub fn evaluate_dot(
    isa: Isa,
    x: &[f32],
    statistics: &Statistics,
    gamma: &[f32],
    beta: &[f32],
    weight: &[f32],
) -> Vec<f32> {
    let channels = gamma.len();
    assert_eq!(weight.len(), channels, "one weight a channel");
    let affine = Affine::new(statistics, gamma, beta);
    assert_eq!(affine.scale.len(), channels, "one scale a channel");
    let mut dots = vec![0.0; rows(x, channels)];
    let tasks = x.chunks(CHUNK * channels).zip(dots.chunks_mut(CHUNK)).collect();
    run_all(x.len(), tasks, |(x, to)| isa.run(Dots { x, affine: &affine, weight, to }));
    dots
}

struct Dots<'a> {
    x: &'a [f32],
    affine: &'a Affine,
    weight: &'a [f32],
    /// One number a row, to which each block of channels adds.
    to: &'a mut [f32],
}

impl Kernel for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.weight.len(), self);
    }
}

impl Blockwise for Dots<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        // SAFETY: `x` has whole rows of the channels, and there is one number for each in `to`.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            let weight = block.load_all::<S, W>(simd, self.weight.as_ptr());
            for (x, dot) in self.x.chunks_exact(block.channels).zip(self.to.iter_mut()) {
                let mut sum = simd.zero();
                for (v, weight) in weight.iter().enumerate() {
                    let centred = affine.centre(simd, block.load::<S, W>(simd, x.as_ptr(), v), v);
                    // The value comes second: it is what `max` returns if it is not a number.
                    let value = simd.max(simd.zero(), affine.apply(simd, centred, v));
                    sum = simd.mul_add(value, *weight, sum);
                }
                *dot += simd.sum(sum);
            }
        }
    }
}
