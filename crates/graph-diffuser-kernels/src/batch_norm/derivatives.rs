//! The backward: sums over the rows, then the derivative of each number.

use std::mem::MaybeUninit;

use super::affine::{Affine, Channels};
use super::{Block, Blockwise, CHUNK, EPSILON, Statistics, by_blocks, rows, run_all};
use crate::fresh::Fresh;
use crate::simd::{Dropout, Isa, Kernel, Simd};

/// Derivatives of all that [`forward`](super::forward) took.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients {
    /// `[rows, channels]`
    pub x: Vec<f32>,
    /// That of the branch, where dropout made it another one.
    pub branch: Option<Vec<f32>>,
    /// `[channels]`
    pub gamma: Vec<f32>,
    /// `[channels]`
    pub beta: Vec<f32>,
}

/// Derivatives of all that [`forward`](super::forward) took.
///
/// With `g` the derivative before the `ReLU` and `z` the normalised `x`: `dβ = Σ g`, `dγ = Σ g z` and
/// `dx = γ / √(variance + ε) · (g - dβ / rows - z dγ / rows)`.
///
/// # Shapes
/// - `x`, `d_y`: `[rows, channels]`
/// - `gamma`, `beta`: `[channels]`
pub fn backward(
    isa: Isa,
    x: &[f32],
    dropout: Option<Dropout>,
    gamma: &[f32],
    beta: &[f32],
    statistics: &Statistics,
    relu: bool,
    d_y: &[f32],
) -> Gradients {
    assert_eq!(x.len(), d_y.len(), "a derivative comes for each number");
    derive::<false>(isa, x, dropout, gamma, beta, statistics, relu, d_y, &[]).0
}

/// Derivatives of all that [`forward_dot`](super::forward_dot) took; the second are those of the weights.
///
/// Those of the normalised rows are `d ⊗ weight`, so both sums above are `weight` times sums of `d`, and from
/// those the derivatives of the weights follow too.
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
    statistics: &Statistics,
    d: &[f32],
) -> (Gradients, Vec<f32>) {
    assert_eq!(weight.len(), gamma.len(), "one weight a channel");
    assert_eq!(rows(x, gamma.len()), d.len(), "a derivative comes for each row");
    derive::<true>(isa, x, None, gamma, beta, statistics, true, d, weight)
}

/// Of `DOTTED` rows the derivatives are `d_y ⊗ weight`, otherwise they are `d_y`.
fn derive<const DOTTED: bool>(
    isa: Isa,
    x: &[f32],
    dropout: Option<Dropout>,
    gamma: &[f32],
    beta: &[f32],
    statistics: &Statistics,
    relu: bool,
    d_y: &[f32],
    weight: &[f32],
) -> (Gradients, Vec<f32>) {
    let channels = gamma.len();
    let rows = rows(x, channels);
    let affine = Affine::new(statistics, gamma, beta);
    assert_eq!(affine.scale.len(), channels, "one scale a channel");

    let chunk = CHUNK * channels;
    let d_chunk = if DOTTED { CHUNK } else { chunk };
    let mut sums = vec![0.0; rows.div_ceil(CHUNK) * 2 * channels];
    let tasks =
        x.chunks(chunk).zip(d_y.chunks(d_chunk)).zip(sums.chunks_mut(2 * channels)).collect();
    run_all(x.len(), tasks, |((x, d_y), sums)| {
        isa.run(DerivativeSums::<DOTTED> { x, d_y, affine: &affine, relu, sums });
    });

    let mut total = vec![0.0; 2 * channels];
    for sums in sums.chunks(2 * channels) {
        for (total, sum) in total.iter_mut().zip(sums) {
            *total += f64::from(*sum);
        }
    }
    // dx = scale · g + (x - centre) · slope + level
    let (mut slope, mut level) = (vec![0.0; channels], vec![0.0; channels]);
    let (mut d_gamma, mut d_beta) = (vec![0.0; channels], vec![0.0; channels]);
    let (mut scale, mut d_weight) =
        (affine.scale.clone(), vec![0.0; if DOTTED { channels } else { 0 }]);
    for channel in 0..channels {
        let (mean, inverse) =
            (statistics.mean[channel], 1.0 / (statistics.variance[channel] + EPSILON).sqrt());
        let missed = mean - f64::from(affine.centre[channel]);
        let (mut plain, mut product) = (total[channel], total[channels + channel]);
        if DOTTED {
            let [scale_of_rows, constant] =
                [affine.scale[channel], affine.constant[channel]].map(f64::from);
            d_weight[channel] = (scale_of_rows * product + constant * plain) as f32;
            scale[channel] *= weight[channel];
            plain *= f64::from(weight[channel]);
            product *= f64::from(weight[channel]);
        }
        let centred = product - missed * plain;
        d_beta[channel] = plain as f32;
        d_gamma[channel] = (centred * inverse) as f32;
        let share = f64::from(gamma[channel]) * inverse / rows.max(1) as f64;
        let rise = -share * inverse * inverse * centred;
        slope[channel] = rise as f32;
        level[channel] = (-share * plain - rise * missed) as f32;
    }
    let mut d_x = Fresh::new(x.len());
    let mut d_branch = dropout.map(|dropout| (dropout, Fresh::new(x.len())));
    let branches: Vec<_> = match &mut d_branch {
        None => x.chunks(chunk).map(|_| None).collect(),
        Some((dropout, room)) => {
            room.room().chunks_mut(chunk).map(|part| Some((*dropout, part))).collect()
        }
    };
    let inputs = x.chunks(chunk).zip(d_y.chunks(d_chunk));
    let tasks = inputs.zip(d_x.room().chunks_mut(chunk)).zip(branches).enumerate().collect();
    let line = Line { scale: &scale, slope: &slope, level: &level };
    run_all(x.len(), tasks, |(at, (((x, d_y), d_x), d_branch))| {
        let first = (at * chunk) as u64;
        isa.run(Derivative::<DOTTED> { x, d_y, affine: &affine, line, relu, d_x, d_branch, first });
    });
    // SAFETY: `Derivative` writes every row of what it is given.
    let (d_x, d_branch) = unsafe { (d_x.written(), d_branch.map(|(_, room)| room.written())) };
    (Gradients { x: d_x, branch: d_branch, gamma: d_gamma, beta: d_beta }, d_weight)
}

/// Vector `v` of the derivatives of row `row`, which begins at `at`.
///
/// # Safety
/// There are those of that row; `v` is below `W`.
#[inline(always)]
unsafe fn load_d<S: Simd, const W: usize, const DOTTED: bool>(
    simd: S,
    block: Block,
    d_y: &[f32],
    (row, at): (usize, usize),
    v: usize,
) -> S::V {
    // SAFETY: the caller's.
    unsafe {
        if DOTTED {
            simd.splat(*d_y.get_unchecked(row))
        } else {
            block.load::<S, W>(simd, d_y.as_ptr().add(at), v)
        }
    }
}

/// Sums of the derivatives before the `ReLU`, and of their products with `x - centre`.
struct DerivativeSums<'a, const DOTTED: bool> {
    x: &'a [f32],
    d_y: &'a [f32],
    affine: &'a Affine,
    relu: bool,
    /// `[2, channels]`
    sums: &'a mut [f32],
}

impl<const DOTTED: bool> Kernel for DerivativeSums<'_, DOTTED> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.affine.scale.len(), self);
    }
}

impl<const DOTTED: bool> Blockwise for DerivativeSums<'_, DOTTED> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let (mut plain, mut products) = ([simd.zero(); W], [simd.zero(); W]);
        // SAFETY: `x` and `d_y` are of the same rows, those of `x` of all channels.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            for (row, at) in (0..self.x.len()).step_by(block.channels).enumerate() {
                for v in 0..W {
                    let centred = affine.centre(
                        simd,
                        block.load::<S, W>(simd, self.x.as_ptr().add(at), v),
                        v,
                    );
                    let d_y = load_d::<S, W, DOTTED>(simd, block, self.d_y, (row, at), v);
                    let d_y = affine.before_relu(simd, centred, d_y, self.relu, v);
                    plain[v] = simd.add(plain[v], d_y);
                    products[v] = simd.mul_add(d_y, centred, products[v]);
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

/// How the derivative of a number follows from its own and that behind it, channel by channel.
#[derive(Clone, Copy)]
struct Line<'a> {
    scale: &'a [f32],
    slope: &'a [f32],
    level: &'a [f32],
}

/// `d_x = scale · d_y + (x - centre) · slope + level`, with `d_y` before the `ReLU`.
struct Derivative<'a, const DOTTED: bool> {
    x: &'a [f32],
    d_y: &'a [f32],
    affine: &'a Affine,
    line: Line<'a>,
    relu: bool,
    d_x: &'a mut [MaybeUninit<f32>],
    /// What dropped some of a branch, and where its derivative goes.
    d_branch: Option<(Dropout, &'a mut [MaybeUninit<f32>])>,
    /// Where the first number is among all, which dropout counts by.
    first: u64,
}

impl<const DOTTED: bool> Kernel for Derivative<'_, DOTTED> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.affine.scale.len(), self);
    }
}

impl<const DOTTED: bool> Blockwise for Derivative<'_, DOTTED> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        // SAFETY: `x`, `d_y` and `d_x` are of the same rows, those of `x` and `d_x` of all channels.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            let [scale, slope, level] = [self.line.scale, self.line.slope, self.line.level]
                .map(|numbers| block.load_all::<S, W>(simd, numbers.as_ptr()));
            for (row, at) in (0..self.x.len()).step_by(block.channels).enumerate() {
                for v in 0..W {
                    let centred = affine.centre(
                        simd,
                        block.load::<S, W>(simd, self.x.as_ptr().add(at), v),
                        v,
                    );
                    let d_y = load_d::<S, W, DOTTED>(simd, block, self.d_y, (row, at), v);
                    let d_y = affine.before_relu(simd, centred, d_y, self.relu, v);
                    let d_x =
                        simd.mul_add(scale[v], d_y, simd.mul_add(centred, slope[v], level[v]));
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
