//! Backward pass: sums over the rows, then the gradient of each value.

use std::mem::MaybeUninit;

use super::affine::{Affine, Channels};
use super::statistics::BatchStatistics;
use super::{CHUNK, EPSILON, rows};
use crate::buffer::UninitBuffer;
use crate::channel_blocks::{Block, Blockwise, run_all};
use crate::shards::{Exchange, Reduction};
use crate::simd::{Dropout, Isa, Simd};

/// Gradients computed by [`backward`] and [`backward_dot`].
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormGradients {
    /// `[rows, channels]`
    pub x: Vec<f32>,
    /// Gradient of the branch, if dropout makes it differ from that of `x`.
    pub branch: Option<Vec<f32>>,
    /// `[channels]`
    pub gamma: Vec<f32>,
    /// `[channels]`
    pub beta: Vec<f32>,
}

/// Computes the gradients of [`forward`](super::forward).
///
/// With `g` the gradient before the `ReLU` and `z` the normalized `x`: `dβ = Σ g`, `dγ = Σ g z` and
/// `dx = γ / √(variance + ε) · (g - dβ / rows - z dγ / rows)`.
///
/// With an `exchange`, the rows are one shard of the batch: the sums in `dx` are those of all
/// shards, while the gradients of γ and β are the contribution of this shard.
///
/// # Shapes
/// - `x`, `d_y`: `[rows, channels]`; `x` includes the residual branch
/// - `gamma`, `beta`: `[channels]`
pub fn backward(
    isa: Isa,
    x: &[f32],
    dropout: Option<Dropout>,
    gamma: &[f32],
    beta: &[f32],
    statistics: &BatchStatistics,
    relu: bool,
    d_y: &[f32],
    exchange: Option<Exchange<'_>>,
) -> BatchNormGradients {
    assert_eq!(x.len(), d_y.len(), "d_y must have the shape of x");
    backward_impl::<false>(isa, x, dropout, gamma, beta, statistics, relu, d_y, &[], exchange).0
}

/// Computes the gradients of [`forward_dot`](super::forward_dot); the second result is the gradient
/// of `weight`.
///
/// The gradients of the normalized rows are `d ⊗ weight`, so both sums of [`backward`] are `weight`
/// times sums of `d`, which also determine the gradient of `weight`.
///
/// # Shapes
/// - `x`: `[rows, channels]`
/// - `gamma`, `beta`, `weight`: `[channels]`
/// - `d`: `[rows]`
pub fn backward_dot(
    isa: Isa,
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    weight: &[f32],
    statistics: &BatchStatistics,
    d: &[f32],
    exchange: Option<Exchange<'_>>,
) -> (BatchNormGradients, Vec<f32>) {
    assert_eq!(weight.len(), gamma.len(), "weight must be [channels]");
    assert_eq!(rows(x, gamma.len()), d.len(), "d must be [rows]");
    backward_impl::<true>(isa, x, None, gamma, beta, statistics, true, d, weight, exchange)
}

/// Computes the gradients; the gradient of a row is `d_y ⊗ weight` if `DOTTED`, otherwise `d_y`.
fn backward_impl<const DOTTED: bool>(
    isa: Isa,
    x: &[f32],
    dropout: Option<Dropout>,
    gamma: &[f32],
    beta: &[f32],
    statistics: &BatchStatistics,
    relu: bool,
    d_y: &[f32],
    weight: &[f32],
    exchange: Option<Exchange<'_>>,
) -> (BatchNormGradients, Vec<f32>) {
    let channels = gamma.len();
    let rows = rows(x, channels);
    let affine = Affine::new(statistics, gamma, beta);
    assert_eq!(affine.scale.len(), channels, "gamma must be [channels]");

    let chunk = CHUNK * channels;
    let d_chunk = if DOTTED { CHUNK } else { chunk };
    let mut sums = vec![0.0; rows.div_ceil(CHUNK) * 2 * channels];
    let tasks =
        x.chunks(chunk).zip(d_y.chunks(d_chunk)).zip(sums.chunks_mut(2 * channels)).collect();
    run_all(x.len(), tasks, |((x, d_y), sums)| {
        isa.run(GradientSums::<DOTTED> { x, d_y, affine: &affine, relu, sums });
    });

    let mut total = vec![0.0; 2 * channels];
    for sums in sums.chunks(2 * channels) {
        for (total, sum) in total.iter_mut().zip(sums) {
            *total += f64::from(*sum);
        }
    }
    let mut of_batch = total.clone();
    if let Some(exchange) = exchange {
        exchange(Reduction::Sum, &mut of_batch);
    }
    // dx = scale · g + (x - center) · slope + intercept
    let (mut slope, mut intercept) = (vec![0.0; channels], vec![0.0; channels]);
    let (mut d_gamma, mut d_beta) = (vec![0.0; channels], vec![0.0; channels]);
    let (mut scale, mut d_weight) =
        (affine.scale.clone(), vec![0.0; if DOTTED { channels } else { 0 }]);
    for channel in 0..channels {
        let (mean, inverse) =
            (statistics.mean[channel], 1.0 / (statistics.variance[channel] + EPSILON).sqrt());
        let residual = mean - f64::from(affine.center[channel]);
        let (mut plain, mut product) = (total[channel], total[channels + channel]);
        let (mut plain_of_batch, mut product_of_batch) =
            (of_batch[channel], of_batch[channels + channel]);
        if DOTTED {
            let [scale_of_rows, constant] =
                [affine.scale[channel], affine.constant[channel]].map(f64::from);
            d_weight[channel] = (scale_of_rows * product + constant * plain) as f32;
            scale[channel] *= weight[channel];
            for sum in [&mut plain, &mut product, &mut plain_of_batch, &mut product_of_batch] {
                *sum *= f64::from(weight[channel]);
            }
        }
        d_beta[channel] = plain as f32;
        d_gamma[channel] = ((product - residual * plain) * inverse) as f32;
        let (plain, product) = (plain_of_batch, product_of_batch);
        let centered = product - residual * plain;
        let gamma_inverse_mean =
            f64::from(gamma[channel]) * inverse / statistics.rows.max(1) as f64;
        let channel_slope = -gamma_inverse_mean * inverse * inverse * centered;
        slope[channel] = channel_slope as f32;
        intercept[channel] = (-gamma_inverse_mean * plain - channel_slope * residual) as f32;
    }
    let mut d_x = UninitBuffer::new(x.len());
    let mut d_branch = dropout.map(|dropout| (dropout, UninitBuffer::new(x.len())));
    let branches: Vec<_> = match &mut d_branch {
        None => x.chunks(chunk).map(|_| None).collect(),
        Some((dropout, buffer)) => {
            buffer.as_uninit().chunks_mut(chunk).map(|part| Some((*dropout, part))).collect()
        }
    };
    let inputs = x.chunks(chunk).zip(d_y.chunks(d_chunk));
    let tasks = inputs.zip(d_x.as_uninit().chunks_mut(chunk)).zip(branches).enumerate().collect();
    let coefficients = GradientCoefficients { scale: &scale, slope: &slope, intercept: &intercept };
    run_all(x.len(), tasks, |(at, (((x, d_y), d_x), d_branch))| {
        let first = (at * chunk) as u64;
        isa.run(InputGradient::<DOTTED> {
            x,
            d_y,
            affine: &affine,
            coefficients,
            relu,
            d_x,
            d_branch,
            first,
        });
    });
    // SAFETY: `InputGradient` writes every row of its chunk.
    let (d_x, d_branch) =
        unsafe { (d_x.assume_init(), d_branch.map(|(_, buffer)| buffer.assume_init())) };
    (BatchNormGradients { x: d_x, branch: d_branch, gamma: d_gamma, beta: d_beta }, d_weight)
}

/// Loads vector `v` of the gradient of row `row`, which starts at offset `at`.
///
/// # Safety
/// `d_y` has this row, and `v` is below `W`.
#[inline(always)]
unsafe fn load_d<S: Simd, const W: usize, const DOTTED: bool>(
    simd: S,
    block: Block,
    d_y: &[f32],
    (row, at): (usize, usize),
    v: usize,
) -> S::V {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if DOTTED {
            simd.splat(*d_y.get_unchecked(row))
        } else {
            block.load::<S, W>(simd, d_y.as_ptr().add(at), v)
        }
    }
}

/// Sums of the gradients before the `ReLU`, and of their products with `x - center`.
struct GradientSums<'a, const DOTTED: bool> {
    x: &'a [f32],
    d_y: &'a [f32],
    affine: &'a Affine,
    relu: bool,
    /// `[2, channels]`
    sums: &'a mut [f32],
}

impl<const DOTTED: bool> Blockwise for GradientSums<'_, DOTTED> {
    #[inline(always)]
    fn channels(&self) -> usize {
        self.affine.scale.len()
    }

    /// # Safety
    /// As in [`Blockwise::block`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let (mut plain, mut products) = ([simd.zero(); W], [simd.zero(); W]);
        // SAFETY: `x` and `d_y` have the same rows; those of `x` have all channels.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            for (row, at) in (0..self.x.len()).step_by(block.channels).enumerate() {
                for v in 0..W {
                    let centered = affine.center(
                        simd,
                        block.load::<S, W>(simd, self.x.as_ptr().add(at), v),
                        v,
                    );
                    let d_y = load_d::<S, W, DOTTED>(simd, block, self.d_y, (row, at), v);
                    let d_y = affine.relu_backward(simd, centered, d_y, self.relu, v);
                    plain[v] = simd.add(plain[v], d_y);
                    products[v] = simd.mul_add(d_y, centered, products[v]);
                }
            }
            let sums = self.sums.as_mut_ptr();
            for v in 0..W {
                block.store::<S, W>(simd, sums, v, plain[v]);
                block.store::<S, W>(simd, sums.add(block.channels), v, products[v]);
            }
        }
    }
}

/// Coefficients of [`InputGradient`], per channel.
#[derive(Clone, Copy)]
struct GradientCoefficients<'a> {
    scale: &'a [f32],
    slope: &'a [f32],
    intercept: &'a [f32],
}

/// Computes `d_x = scale · d_y + (x - center) · slope + intercept`, with `d_y` before the `ReLU`.
struct InputGradient<'a, const DOTTED: bool> {
    x: &'a [f32],
    d_y: &'a [f32],
    affine: &'a Affine,
    coefficients: GradientCoefficients<'a>,
    relu: bool,
    d_x: &'a mut [MaybeUninit<f32>],
    /// Dropout mask of the branch, and the output for its gradient.
    d_branch: Option<(Dropout, &'a mut [MaybeUninit<f32>])>,
    /// Index of the first value in the whole input, for dropout.
    first: u64,
}

impl<const DOTTED: bool> Blockwise for InputGradient<'_, DOTTED> {
    #[inline(always)]
    fn channels(&self) -> usize {
        self.affine.scale.len()
    }

    /// # Safety
    /// As in [`Blockwise::block`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        // SAFETY: `x`, `d_y` and `d_x` have the same rows; those of `x` and `d_x` have all
        // channels.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            let [scale, slope, intercept] =
                [self.coefficients.scale, self.coefficients.slope, self.coefficients.intercept]
                    .map(|values| block.load_all::<S, W>(simd, values.as_ptr()));
            for (row, at) in (0..self.x.len()).step_by(block.channels).enumerate() {
                for v in 0..W {
                    let centered = affine.center(
                        simd,
                        block.load::<S, W>(simd, self.x.as_ptr().add(at), v),
                        v,
                    );
                    let d_y = load_d::<S, W, DOTTED>(simd, block, self.d_y, (row, at), v);
                    let d_y = affine.relu_backward(simd, centered, d_y, self.relu, v);
                    let d_x =
                        simd.mul_add(scale[v], d_y, simd.mul_add(centered, slope[v], intercept[v]));
                    block.store::<S, W>(simd, self.d_x.as_mut_ptr().cast::<f32>().add(at), v, d_x);
                    if let Some((dropout, d_branch)) = &mut self.d_branch {
                        let mask =
                            simd.dropout_mask(*dropout, self.first + block.index::<S>(at, v));
                        let to = d_branch.as_mut_ptr().cast::<f32>().add(at);
                        block.store::<S, W>(simd, to, v, simd.mul(d_x, mask));
                    }
                }
            }
        }
    }
}
