//! Batch norm over the rows of `[rows, channels]`, with the `ReLU` and the residual that often surround it.
//!
//! `y = γ (x - mean) / √(variance + ε) + β` by channel. Statistics are taken in one pass over chunks of
//! rows, each as differences to its first row and put together in double precision: a channel with
//! mean -13 and deviation 1e-3 loses nothing. For the same reason a mean is used as two numbers, the
//! nearest single and what it misses, of which the second goes into the constant of the channel.
//!
//! Sums are those of the chunks in their order, whoever has computed them.

use rayon::prelude::*;

use crate::simd::{Isa, Kernel, Simd};

/// Added to the variance before the root.
const EPSILON: f64 = 1e-5;

/// Rows that are summed in single precision: few enough for the sums to be good to some 1e-6, enough
/// for putting them together to cost little beside them.
const CHUNK: usize = 64;

/// Numbers below which one thread is done before a second has started: some 50 µs of work.
const PARALLEL: usize = 1 << 18;

/// What a batch looks like, channel by channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Average, in double precision: the backward needs what single precision would miss.
    pub mean: Vec<f64>,
    /// Average squared distance from the mean (biased: divided by the number of rows).
    pub variance: Vec<f64>,
}

/// Normalises by the statistics of the batch, which are zeros if it has no rows.
///
/// # Shapes
/// - `x`, `y`: `[rows, channels]`
/// - `gamma`, `beta`: `[channels]`
pub fn forward(
    isa: Isa,
    x: &[f32],
    channels: usize,
    gamma: &[f32],
    beta: &[f32],
    relu: bool,
    y: &mut [f32],
) -> Statistics {
    let statistics = measure(isa, x, channels, None);
    normalise(isa, x, channels, &Affine::new(&statistics, gamma, beta), relu, y);
    statistics
}

/// Normalises `x + residual` and writes that sum, which is the `x` of [`backward`]; the derivative
/// there is that of either summand.
///
/// # Shapes
/// - `x`, `residual`, `sum`, `y`: `[rows, channels]`
/// - `gamma`, `beta`: `[channels]`
pub fn forward_add(
    isa: Isa,
    x: &[f32],
    residual: &[f32],
    channels: usize,
    gamma: &[f32],
    beta: &[f32],
    relu: bool,
    sum: &mut [f32],
    y: &mut [f32],
) -> Statistics {
    let statistics = measure(isa, x, channels, Some((residual, sum)));
    normalise(isa, sum, channels, &Affine::new(&statistics, gamma, beta), relu, y);
    statistics
}

/// Normalises by statistics of other batches.
///
/// # Shapes
/// - `x`, `y`: `[rows, channels]`
/// - `mean`, `variance`, `gamma`, `beta`: `[channels]`
pub fn evaluate(
    isa: Isa,
    x: &[f32],
    channels: usize,
    mean: &[f32],
    variance: &[f32],
    gamma: &[f32],
    beta: &[f32],
    relu: bool,
    y: &mut [f32],
) {
    let wide = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect();
    let statistics = Statistics { mean: wide(mean), variance: wide(variance) };
    normalise(isa, x, channels, &Affine::new(&statistics, gamma, beta), relu, y);
}

/// Writes the derivatives of all that [`forward`] took.
///
/// With `g` the derivative before the `ReLU` and `z` the normalised `x`: `dβ = Σ g`, `dγ = Σ g z` and
/// `dx = γ / √(variance + ε) · (g - dβ / rows - z dγ / rows)`.
///
/// # Shapes
/// - `x`, `d_y`, `d_x`: `[rows, channels]`
/// - `gamma`, `beta`, `d_gamma`, `d_beta`: `[channels]`
pub fn backward(
    isa: Isa,
    x: &[f32],
    channels: usize,
    gamma: &[f32],
    beta: &[f32],
    statistics: &Statistics,
    relu: bool,
    d_y: &[f32],
    d_x: &mut [f32],
    d_gamma: &mut [f32],
    d_beta: &mut [f32],
) {
    let rows = rows(x, channels);
    assert_eq!(x.len(), d_y.len(), "a derivative comes for each number");
    assert_eq!(x.len(), d_x.len(), "a derivative goes to each number");
    assert_eq!([d_gamma.len(), d_beta.len()], [channels; 2], "one derivative a channel");
    let affine = Affine::new(statistics, gamma, beta);
    assert_eq!(affine.scale.len(), channels, "one scale a channel");

    let chunk = CHUNK * channels;
    let mut sums = vec![0.0; rows.div_ceil(CHUNK) * 2 * channels];
    let tasks = x.chunks(chunk).zip(d_y.chunks(chunk)).zip(sums.chunks_mut(2 * channels)).collect();
    run_all(x.len(), tasks, |((x, d_y), sums)| isa.run(DerivativeSums { x, d_y, affine: &affine, relu, sums }));

    let mut total = vec![0.0; 2 * channels];
    for sums in sums.chunks(2 * channels) {
        for (total, sum) in total.iter_mut().zip(sums) {
            *total += f64::from(*sum);
        }
    }
    // dx = scale · g + (x - centre) · slope + level
    let (mut slope, mut level) = (vec![0.0; channels], vec![0.0; channels]);
    for channel in 0..channels {
        let (mean, inverse) = (statistics.mean[channel], 1.0 / (statistics.variance[channel] + EPSILON).sqrt());
        let missed = mean - f64::from(affine.centre[channel]);
        let plain = total[channel];
        let centred = total[channels + channel] - missed * plain;
        d_beta[channel] = plain as f32;
        d_gamma[channel] = (centred * inverse) as f32;
        let share = f64::from(gamma[channel]) * inverse / rows.max(1) as f64;
        let rise = -share * inverse * inverse * centred;
        slope[channel] = rise as f32;
        level[channel] = (-share * plain - rise * missed) as f32;
    }
    let tasks = x.chunks(chunk).zip(d_y.chunks(chunk)).zip(d_x.chunks_mut(chunk)).collect();
    run_all(x.len(), tasks, |((x, d_y), d_x)| {
        isa.run(Derivative { x, d_y, affine: &affine, slope: &slope, level: &level, relu, d_x });
    });
}

fn rows(x: &[f32], channels: usize) -> usize {
    assert!(channels > 0, "rows without channels");
    assert!(x.len().is_multiple_of(channels), "{} numbers in rows of {channels}", x.len());
    x.len() / channels
}

/// In parallel where it pays.
fn run_all<T: Send>(numbers: usize, tasks: Vec<T>, run: impl Fn(T) + Sync) {
    if numbers < PARALLEL {
        tasks.into_iter().for_each(run);
    } else {
        tasks.into_par_iter().for_each(&run);
    }
}

/// Statistics of `x`, or of the sum with a residual that is written on the way.
fn measure(isa: Isa, x: &[f32], channels: usize, residual: Option<(&[f32], &mut [f32])>) -> Statistics {
    let rows = rows(x, channels);
    let chunk = CHUNK * channels;
    let mut sums = vec![0.0; rows.div_ceil(CHUNK) * 2 * channels];
    let each_sums = sums.chunks_mut(2 * channels);
    let firsts = if let Some((residual, sum)) = residual {
        assert_eq!(x.len(), residual.len(), "one residual a number");
        assert_eq!(x.len(), sum.len(), "one sum a number");
        let added = residual.chunks(chunk).zip(sum.chunks_mut(chunk));
        let tasks = x.chunks(chunk).zip(added).zip(each_sums).collect();
        run_all(x.len(), tasks, |((x, added), sums)| isa.run(Moments { x, added: Some(added), channels, sums }));
        &*sum
    } else {
        let tasks = x.chunks(chunk).zip(each_sums).collect();
        run_all(x.len(), tasks, |(x, sums)| isa.run(Moments { x, added: None, channels, sums }));
        x
    };
    isa.run(Together { firsts, sums: &sums, channels })
}

fn normalise(isa: Isa, x: &[f32], channels: usize, affine: &Affine, relu: bool, y: &mut [f32]) {
    rows(x, channels);
    assert_eq!(x.len(), y.len(), "one result a number");
    assert_eq!(affine.scale.len(), channels, "one scale a channel");
    let chunk = CHUNK * channels;
    let tasks = x.chunks(chunk).zip(y.chunks_mut(chunk)).collect();
    run_all(x.len(), tasks, |(x, y)| isa.run(Normalise { x, affine, relu, y }));
}

/// `(x - centre) · scale + constant`.
struct Affine {
    centre: Vec<f32>,
    scale: Vec<f32>,
    constant: Vec<f32>,
}

impl Affine {
    fn new(statistics: &Statistics, gamma: &[f32], beta: &[f32]) -> Self {
        let Statistics { mean, variance } = statistics;
        let channels = mean.len();
        assert_eq!([variance.len(), gamma.len(), beta.len()], [channels; 3], "one of each a channel");
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

/// Calls `$self.block` for all channels, some vectors of them at a time.
macro_rules! by_blocks {
    ($self:ident, $simd:ident, $channels:expr) => {
        for first in (0..$channels).step_by(4 * S::LANES) {
            let block = Block { first, channels: $channels, count: ($channels - first).min(4 * S::LANES) };
            // SAFETY: the channels of the block are within a row, and all slices are whole rows.
            unsafe {
                match block.count.div_ceil(S::LANES) {
                    1 => $self.block::<S, 1>($simd, block),
                    2 => $self.block::<S, 2>($simd, block),
                    3 => $self.block::<S, 3>($simd, block),
                    _ => $self.block::<S, 4>($simd, block),
                }
            }
        }
    };
}

/// `count` channels from `first`, which need `W` vectors.
#[derive(Clone, Copy)]
struct Block {
    first: usize,
    channels: usize,
    count: usize,
}

impl Block {
    /// The block's part of a row.
    ///
    /// # Safety
    /// `row` has all channels.
    #[inline(always)]
    unsafe fn load<S: Simd, const W: usize>(self, simd: S, row: *const f32) -> [S::V; W] {
        // SAFETY: the vectors before the last are whole, the last ends with the block.
        std::array::from_fn(|v| unsafe {
            let from = row.add(self.first + v * S::LANES);
            if v + 1 < W { simd.load(from) } else { simd.load_up_to(from, self.count - (W - 1) * S::LANES) }
        })
    }

    /// # Safety
    /// `row` has all channels.
    #[inline(always)]
    unsafe fn store<S: Simd, const W: usize>(self, simd: S, row: *mut f32, values: [S::V; W]) {
        for (v, value) in values.into_iter().enumerate() {
            // SAFETY: as in `load`.
            unsafe {
                let to = row.add(self.first + v * S::LANES);
                if v + 1 < W {
                    simd.store(to, value);
                } else {
                    simd.store_up_to(to, value, self.count - (W - 1) * S::LANES);
                }
            }
        }
    }
}

/// Sums of the differences to the first row of a chunk, and of their squares.
struct Moments<'a> {
    x: &'a [f32],
    /// The residual, and where the sum with it goes.
    added: Option<(&'a [f32], &'a mut [f32])>,
    channels: usize,
    /// `[2, channels]`
    sums: &'a mut [f32],
}

impl Kernel for Moments<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        by_blocks!(self, simd, self.channels);
    }
}

impl Moments<'_> {
    /// # Safety
    /// All slices are whole rows of the block's channels.
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let channels = block.channels;
        let (mut plain, mut squares) = ([simd.zero(); W], [simd.zero(); W]);
        let mut first = None;
        let mut add_row = |row: [S::V; W]| {
            let first = *first.get_or_insert(row);
            for v in 0..W {
                let difference = simd.sub(row[v], first[v]);
                plain[v] = simd.add(plain[v], difference);
                squares[v] = simd.mul_add(difference, difference, squares[v]);
            }
        };
        // SAFETY: the caller's; the slices are equally long.
        unsafe {
            if let Some((residual, sum)) = &mut self.added {
                for at in (0..self.x.len()).step_by(channels) {
                    let x = block.load::<S, W>(simd, self.x.as_ptr().add(at));
                    let residual = block.load::<S, W>(simd, residual.as_ptr().add(at));
                    let row = std::array::from_fn(|v| simd.add(x[v], residual[v]));
                    block.store(simd, sum.as_mut_ptr().add(at), row);
                    add_row(row);
                }
            } else {
                for at in (0..self.x.len()).step_by(channels) {
                    add_row(block.load(simd, self.x.as_ptr().add(at)));
                }
            }
            block.store(simd, self.sums.as_mut_ptr(), plain);
            block.store(simd, self.sums.as_mut_ptr().add(channels), squares);
        }
    }
}

/// The statistics of all chunks.
struct Together<'a> {
    /// All rows, of which the first of each chunk is what its sums are relative to.
    firsts: &'a [f32],
    sums: &'a [f32],
    channels: usize,
}

impl Kernel for Together<'_> {
    type Output = Statistics;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Statistics {
        let channels = self.channels;
        let rows = (self.firsts.len() / channels).max(1) as f64;
        let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
        let chunks = || self.firsts.chunks(CHUNK * channels).zip(self.sums.chunks(2 * channels));
        for (x, sums) in chunks() {
            let count = (x.len() / channels) as f64;
            for ((mean, first), sum) in mean.iter_mut().zip(x).zip(sums) {
                *mean += f64::from(*first) * count + f64::from(*sum);
            }
        }
        mean.iter_mut().for_each(|mean| *mean /= rows);
        for (x, sums) in chunks() {
            let count = (x.len() / channels) as f64;
            let each = 1.0 / count;
            let (plain, squares) = sums.split_at(channels);
            for ((((variance, mean), first), plain), squares) in
                variance.iter_mut().zip(&mean).zip(x).zip(plain).zip(squares)
            {
                let plain = f64::from(*plain);
                let distance = f64::from(*first) + plain * each - mean;
                *variance += f64::from(*squares) - plain * plain * each + distance * distance * count;
            }
        }
        // Rounding may leave less than nothing of a constant channel.
        variance.iter_mut().for_each(|variance| *variance = (*variance / rows).max(0.0));
        Statistics { mean, variance }
    }
}

struct Normalise<'a> {
    x: &'a [f32],
    affine: &'a Affine,
    relu: bool,
    y: &'a mut [f32],
}

impl Kernel for Normalise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        by_blocks!(self, simd, self.affine.scale.len());
    }
}

impl Normalise<'_> {
    /// # Safety
    /// All slices are whole rows of the block's channels.
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let floor = simd.splat(if self.relu { 0.0 } else { f32::NEG_INFINITY });
        // SAFETY: the caller's; `x` and `y` are equally long.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            for at in (0..self.x.len()).step_by(block.channels) {
                let x = block.load(simd, self.x.as_ptr().add(at));
                // The value comes second: it is what `max` returns if it is not a number.
                let (_, value) = affine.apply(simd, x);
                let value = value.map(|value| simd.max(floor, value));
                block.store(simd, self.y.as_mut_ptr().add(at), value);
            }
        }
    }
}

/// [`Affine`] of a block of channels.
struct Channels<S: Simd, const W: usize> {
    centre: [S::V; W],
    scale: [S::V; W],
    constant: [S::V; W],
}

impl<S: Simd, const W: usize> Channels<S, W> {
    /// # Safety
    /// `affine` has the channels of the block.
    #[inline(always)]
    unsafe fn load(simd: S, affine: &Affine, block: Block) -> Self {
        // SAFETY: the caller's.
        unsafe {
            Self {
                centre: block.load(simd, affine.centre.as_ptr()),
                scale: block.load(simd, affine.scale.as_ptr()),
                constant: block.load(simd, affine.constant.as_ptr()),
            }
        }
    }

    /// `x - centre`, and what becomes of it.
    #[inline(always)]
    fn apply(&self, simd: S, x: [S::V; W]) -> ([S::V; W], [S::V; W]) {
        let centred: [S::V; W] = std::array::from_fn(|v| simd.sub(x[v], self.centre[v]));
        (centred, std::array::from_fn(|v| simd.mul_add(centred[v], self.scale[v], self.constant[v])))
    }

    /// `x - centre`, and the derivative before the `ReLU`.
    #[inline(always)]
    fn undo_relu(&self, simd: S, x: [S::V; W], d_y: [S::V; W], relu: bool) -> ([S::V; W], [S::V; W]) {
        let (centred, y) = self.apply(simd, x);
        if relu {
            (centred, std::array::from_fn(|v| simd.select_positive(y[v], d_y[v], simd.zero())))
        } else {
            (centred, d_y)
        }
    }
}

/// Sums of the derivatives before the `ReLU`, and of their products with `x - centre`.
struct DerivativeSums<'a> {
    x: &'a [f32],
    d_y: &'a [f32],
    affine: &'a Affine,
    relu: bool,
    /// `[2, channels]`
    sums: &'a mut [f32],
}

impl Kernel for DerivativeSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        by_blocks!(self, simd, self.affine.scale.len());
    }
}

impl DerivativeSums<'_> {
    /// # Safety
    /// All slices are whole rows of the block's channels.
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let (mut plain, mut products) = ([simd.zero(); W], [simd.zero(); W]);
        // SAFETY: the caller's; `x` and `d_y` are equally long.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            for at in (0..self.x.len()).step_by(block.channels) {
                let x = block.load(simd, self.x.as_ptr().add(at));
                let d_y = block.load(simd, self.d_y.as_ptr().add(at));
                let (centred, d_y) = affine.undo_relu(simd, x, d_y, self.relu);
                for v in 0..W {
                    plain[v] = simd.add(plain[v], d_y[v]);
                    products[v] = simd.mul_add(d_y[v], centred[v], products[v]);
                }
            }
            block.store(simd, self.sums.as_mut_ptr(), plain);
            block.store(simd, self.sums.as_mut_ptr().add(block.channels), products);
        }
    }
}

/// `d_x = scale · d_y + (x - centre) · slope + level`, with `d_y` before the `ReLU`.
struct Derivative<'a> {
    x: &'a [f32],
    d_y: &'a [f32],
    affine: &'a Affine,
    slope: &'a [f32],
    level: &'a [f32],
    relu: bool,
    d_x: &'a mut [f32],
}

impl Kernel for Derivative<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        by_blocks!(self, simd, self.affine.scale.len());
    }
}

impl Derivative<'_> {
    /// # Safety
    /// All slices are whole rows of the block's channels.
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        // SAFETY: the caller's; `x`, `d_y` and `d_x` are equally long.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            let slope = block.load::<S, W>(simd, self.slope.as_ptr());
            let level = block.load::<S, W>(simd, self.level.as_ptr());
            for at in (0..self.x.len()).step_by(block.channels) {
                let x = block.load(simd, self.x.as_ptr().add(at));
                let d_y = block.load(simd, self.d_y.as_ptr().add(at));
                let (centred, d_y) = affine.undo_relu(simd, x, d_y, self.relu);
                let d_x: [S::V; W] = std::array::from_fn(|v| {
                    simd.mul_add(affine.scale[v], d_y[v], simd.mul_add(centred[v], slope[v], level[v]))
                });
                block.store(simd, self.d_x.as_mut_ptr().add(at), d_x);
            }
        }
    }
}
