//! Forward pass, with the statistics of the batch or with given ones.

use std::mem::MaybeUninit;

use super::affine::{Affine, Channels};
use super::statistics::{BatchStatistics, Branch, batch_statistics};
use super::{CHUNK, rows};
use crate::buffer::UninitBuffer;
use crate::channel_blocks::{Block, Blockwise, run_all};
use crate::shards::Exchange;
use crate::simd::{Isa, Simd};

/// Output of [`forward`].
#[derive(Debug, Clone, PartialEq)]
pub struct Normalized {
    /// `[rows, channels]`
    pub y: Vec<f32>,
    /// Sum of the rows and the branch, if there is one: the `x` of [`backward`](super::backward).
    pub sum: Option<Vec<f32>>,
    /// Statistics of the batch.
    pub statistics: BatchStatistics,
}

/// Normalizes by the statistics of the batch, which are zero for an empty batch.
///
/// With an `exchange`, the rows are one shard of the batch.
///
/// # Shapes
/// - `x`: `[rows, channels]`
/// - `gamma`, `beta`: `[channels]`
pub fn forward(
    isa: Isa,
    x: &[f32],
    branch: Option<Branch<'_>>,
    gamma: &[f32],
    beta: &[f32],
    relu: bool,
    exchange: Option<Exchange<'_>>,
) -> Normalized {
    let channels = gamma.len();
    let (sum, statistics) = match branch {
        None => (None, batch_statistics(isa, x, channels, None)),
        Some(branch) => {
            let mut sum = UninitBuffer::new(x.len());
            let statistics = batch_statistics(isa, x, channels, Some((branch, sum.as_uninit())));
            // SAFETY: `batch_statistics` writes the sum of every row.
            (Some(unsafe { sum.assume_init() }), statistics)
        }
    };
    let statistics = statistics.over_shards(exchange);
    let affine = Affine::new(&statistics, gamma, beta);
    let y = normalize(isa, sum.as_deref().unwrap_or(x), None, channels, &affine, relu);
    Normalized { y, sum, statistics }
}

/// Normalizes by the given statistics, without dropout.
///
/// # Shapes
/// - `x`, `branch`: `[rows, channels]`
/// - `gamma`, `beta`: `[channels]`
/// - returns `[rows, channels]`
pub fn evaluate(
    isa: Isa,
    x: &[f32],
    branch: Option<&[f32]>,
    statistics: &BatchStatistics,
    gamma: &[f32],
    beta: &[f32],
    relu: bool,
) -> Vec<f32> {
    normalize(isa, x, branch, gamma.len(), &Affine::new(statistics, gamma, beta), relu)
}

fn normalize(
    isa: Isa,
    x: &[f32],
    branch: Option<&[f32]>,
    channels: usize,
    affine: &Affine,
    relu: bool,
) -> Vec<f32> {
    rows(x, channels);
    assert!(
        branch.is_none_or(|branch| branch.len() == x.len()),
        "the branch must have the shape of x"
    );
    assert_eq!(affine.scale.len(), channels, "gamma must be [channels]");
    let chunk = CHUNK * channels;
    let mut y = UninitBuffer::new(x.len());
    let tasks = x.chunks(chunk).zip(y.as_uninit().chunks_mut(chunk)).enumerate().collect();
    run_all(x.len(), tasks, |(at, (x, y))| {
        let branch = branch.map(|branch| &branch[at * chunk..at * chunk + x.len()]);
        isa.run(Normalize { x, branch, affine, relu, y });
    });
    // SAFETY: `Normalize` writes every row.
    unsafe { y.assume_init() }
}

struct Normalize<'a> {
    x: &'a [f32],
    branch: Option<&'a [f32]>,
    affine: &'a Affine,
    relu: bool,
    y: &'a mut [MaybeUninit<f32>],
}

impl Blockwise for Normalize<'_> {
    #[inline(always)]
    fn channels(&self) -> usize {
        self.affine.scale.len()
    }

    /// # Safety
    /// As in [`Blockwise::block`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let floor = simd.splat(if self.relu { 0.0 } else { f32::NEG_INFINITY });
        // SAFETY: `x` and `y` have equal lengths, whole rows of the channels.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            for at in (0..self.x.len()).step_by(block.channels) {
                for v in 0..W {
                    let mut x = block.load::<S, W>(simd, self.x.as_ptr().add(at), v);
                    if let Some(branch) = self.branch {
                        x = simd.add(x, block.load::<S, W>(simd, branch.as_ptr().add(at), v));
                    }
                    let centered = affine.center(simd, x, v);
                    // The value is the second operand, which `max` returns for NaN.
                    let value = simd.max(floor, affine.apply(simd, centered, v));
                    block.store::<S, W>(simd, self.y.as_mut_ptr().cast::<f32>().add(at), v, value);
                }
            }
        }
    }
}
