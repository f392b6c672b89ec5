//! Batch norm over the rows of `[rows, channels]`, with the `ReLU` and the residual that often surround it.
//!
//! `y = γ (x - mean) / √(variance + ε) + β` by channel. Statistics are taken in one pass over chunks of
//! rows, each as differences to its first row and put together in double precision: a channel with
//! mean -13 and deviation 1e-3 loses nothing. For the same reason a mean is used as two numbers, the
//! nearest single and what it misses, of which the second goes into the constant of the channel.
//!
//! Sums are those of the chunks in their order, whoever has computed them.

use std::mem::MaybeUninit;

use crate::fresh::Fresh;
use crate::parallel;
use crate::simd::{Dropout, Isa, Kernel, Simd};

/// Added to the variance before the root.
const EPSILON: f64 = 1e-5;

/// Rows that are summed in single precision: few enough for the sums to be good to some 1e-6, enough
/// for putting them together to cost little beside them.
const CHUNK: usize = 64;

/// Numbers below which one thread is done before it pays to share the work: some microseconds.
const PARALLEL: usize = 1 << 15;

/// What a batch looks like, channel by channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Average, in double precision: the backward needs what single precision would miss.
    pub mean: Vec<f64>,
    /// Average squared distance from the mean (biased: divided by the number of rows).
    pub variance: Vec<f64>,
}

/// What is added to the rows before they are normalised: a residual branch.
#[derive(Debug, Clone, Copy)]
pub struct Branch<'a> {
    /// `[rows, channels]`
    pub values: &'a [f32],
    /// What drops some of them first.
    pub dropout: Option<Dropout>,
}

/// What [`forward`] makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalised {
    /// `[rows, channels]`
    pub y: Vec<f32>,
    /// The rows with their branch, where there was one: these are then the `x` of [`backward`].
    pub sum: Option<Vec<f32>>,
    /// Those of the batch.
    pub statistics: Statistics,
}

/// Derivatives of all that [`forward`] took.
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

/// Normalises by the statistics of the batch, which are zeros if it has no rows.
///
/// # Shapes
/// - `x`: `[rows, channels]`
/// - `gamma`, `beta`: `[channels]`
pub fn forward(isa: Isa, x: &[f32], branch: Option<Branch<'_>>, gamma: &[f32], beta: &[f32], relu: bool) -> Normalised {
    let channels = gamma.len();
    let (sum, statistics) = match branch {
        None => (None, measure(isa, x, channels, None)),
        Some(branch) => {
            let mut sum = Fresh::new(x.len());
            let statistics = measure(isa, x, channels, Some((branch, sum.room())));
            // SAFETY: `measure` writes the sum of every row.
            (Some(unsafe { sum.written() }), statistics)
        }
    };
    let affine = Affine::new(&statistics, gamma, beta);
    let y = normalise(isa, sum.as_deref().unwrap_or(x), None, channels, &affine, relu);
    Normalised { y, sum, statistics }
}

/// Normalises by statistics of other batches; nothing is dropped.
///
/// # Shapes
/// - `x`, `branch`, the result: `[rows, channels]`
/// - `gamma`, `beta`: `[channels]`
pub fn evaluate(
    isa: Isa,
    x: &[f32],
    branch: Option<&[f32]>,
    statistics: &Statistics,
    gamma: &[f32],
    beta: &[f32],
    relu: bool,
) -> Vec<f32> {
    normalise(isa, x, branch, gamma.len(), &Affine::new(statistics, gamma, beta), relu)
}

/// Derivatives of all that [`forward`] took.
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
    let channels = gamma.len();
    let rows = rows(x, channels);
    assert_eq!(x.len(), d_y.len(), "a derivative comes for each number");
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
    let (mut d_gamma, mut d_beta) = (vec![0.0; channels], vec![0.0; channels]);
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
    let mut d_x = Fresh::new(x.len());
    let mut d_branch = dropout.map(|dropout| (dropout, Fresh::new(x.len())));
    let branches: Vec<_> = match &mut d_branch {
        None => x.chunks(chunk).map(|_| None).collect(),
        Some((dropout, room)) => room.room().chunks_mut(chunk).map(|part| Some((*dropout, part))).collect(),
    };
    let inputs = x.chunks(chunk).zip(d_y.chunks(chunk));
    let tasks = inputs.zip(d_x.room().chunks_mut(chunk)).zip(branches).enumerate().collect();
    let (slope, level) = (slope.as_slice(), level.as_slice());
    run_all(x.len(), tasks, |(at, (((x, d_y), d_x), d_branch))| {
        let first = (at * chunk) as u64;
        isa.run(Derivative { x, d_y, affine: &affine, slope, level, relu, d_x, d_branch, first });
    });
    // SAFETY: `Derivative` writes every row of what it is given.
    let (d_x, d_branch) = unsafe { (d_x.written(), d_branch.map(|(_, room)| room.written())) };
    Gradients { x: d_x, branch: d_branch, gamma: d_gamma, beta: d_beta }
}

fn rows(x: &[f32], channels: usize) -> usize {
    assert!(channels > 0, "rows without channels");
    assert!(x.len().is_multiple_of(channels), "{} numbers in rows of {channels}", x.len());
    x.len() / channels
}

/// In parallel where it pays: `numbers` is how many are read, more or less.
pub(crate) fn run_all<T: Send>(numbers: usize, tasks: Vec<T>, run: impl Fn(T) + Sync) {
    if numbers < PARALLEL {
        tasks.into_iter().for_each(run);
    } else {
        parallel::for_each(tasks, run);
    }
}

/// Statistics of `x`, or of the sum with a branch that is written on the way.
fn measure(isa: Isa, x: &[f32], channels: usize, branch: Option<(Branch<'_>, &mut [MaybeUninit<f32>])>) -> Statistics {
    let rows = rows(x, channels);
    let chunk = CHUNK * channels;
    let mut sums = vec![0.0; rows.div_ceil(CHUNK) * 2 * channels];
    let each_sums = sums.chunks_mut(2 * channels);
    let firsts: Vec<&[f32]> = if let Some((Branch { values, dropout }, sum)) = branch {
        assert_eq!(x.len(), values.len(), "one number of the branch for each");
        assert_eq!(x.len(), sum.len(), "one sum a number");
        let added = values.chunks(chunk).zip(sum.chunks_mut(chunk));
        let tasks = x.chunks(chunk).zip(added).zip(each_sums).enumerate().collect();
        run_all(x.len(), tasks, |(at, ((x, (values, sum)), sums))| {
            let added = Some(Added { values, dropout, first: (at * chunk) as u64, sum });
            isa.run(Moments { x, added, channels, sums });
        });
        // SAFETY: every row of it is written.
        sum.chunks(chunk).map(|sum| unsafe { sum[..channels].assume_init_ref() }).collect()
    } else {
        let tasks = x.chunks(chunk).zip(each_sums).collect();
        run_all(x.len(), tasks, |(x, sums)| isa.run(Moments { x, added: None, channels, sums }));
        x.chunks(chunk).map(|x| &x[..channels]).collect()
    };
    isa.run(Together { rows, firsts: &firsts, sums: &sums, channels })
}

fn normalise(isa: Isa, x: &[f32], branch: Option<&[f32]>, channels: usize, affine: &Affine, relu: bool) -> Vec<f32> {
    rows(x, channels);
    assert!(branch.is_none_or(|branch| branch.len() == x.len()), "one number of the branch for each");
    assert_eq!(affine.scale.len(), channels, "one scale a channel");
    let chunk = CHUNK * channels;
    let mut y = Fresh::new(x.len());
    let tasks = x.chunks(chunk).zip(y.room().chunks_mut(chunk)).enumerate().collect();
    run_all(x.len(), tasks, |(at, (x, y))| {
        let branch = branch.map(|branch| &branch[at * chunk..at * chunk + x.len()]);
        isa.run(Normalise { x, branch, affine, relu, y });
    });
    // SAFETY: `Normalise` writes every row.
    unsafe { y.written() }
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

/// Work on rows of channels that goes down all rows with a few vectors of channels at a time.
pub(crate) trait Blockwise {
    /// # Safety
    /// The block lies within the rows, and `W` is the number of vectors it needs.
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block);
}

/// Does the work for all channels: `channels` is the width of its rows.
#[inline(always)]
pub(crate) fn by_blocks<S: Simd>(simd: S, channels: usize, mut work: impl Blockwise) {
    // At most four vectors, which leave registers for what a channel needs, and blocks about equal.
    let vectors = channels.div_ceil(S::LANES);
    let width = vectors.div_ceil(vectors.div_ceil(4).max(1)).max(1) * S::LANES;
    for first in (0..channels).step_by(width) {
        let block = Block { first, channels, count: (channels - first).min(width) };
        // SAFETY: the block ends with the row, and has as many vectors as it needs.
        unsafe {
            match block.count.div_ceil(S::LANES) {
                1 => work.block::<S, 1>(simd, block),
                2 => work.block::<S, 2>(simd, block),
                3 => work.block::<S, 3>(simd, block),
                _ => work.block::<S, 4>(simd, block),
            }
        }
    }
}

/// `count` channels from `first`, which need `W` vectors.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    first: usize,
    channels: usize,
    count: usize,
}

impl Block {
    /// Vector `v` of the block's part of a row.
    ///
    /// # Safety
    /// `row` has all channels, and `v` is below `W`.
    #[inline(always)]
    pub(crate) unsafe fn load<S: Simd, const W: usize>(self, simd: S, row: *const f32, v: usize) -> S::V {
        // SAFETY: the vectors before the last are whole, the last ends with the block.
        unsafe {
            let from = row.add(self.first + v * S::LANES);
            if v + 1 < W { simd.load(from) } else { simd.load_up_to(from, self.count - (W - 1) * S::LANES) }
        }
    }

    /// All of the block's part of a row.
    ///
    /// # Safety
    /// `row` has all channels.
    #[inline(always)]
    pub(crate) unsafe fn load_all<S: Simd, const W: usize>(self, simd: S, row: *const f32) -> [S::V; W] {
        let mut values = [simd.zero(); W];
        for (v, value) in values.iter_mut().enumerate() {
            // SAFETY: the caller's.
            *value = unsafe { self.load::<S, W>(simd, row, v) };
        }
        values
    }

    /// Where vector `v` of the block is, in the row that starts at `row`.
    #[inline(always)]
    fn index<S: Simd>(self, row: usize, v: usize) -> u64 {
        (row + self.first + v * S::LANES) as u64
    }

    /// # Safety
    /// As for [`Self::load`].
    #[inline(always)]
    pub(crate) unsafe fn store<S: Simd, const W: usize>(self, simd: S, row: *mut f32, v: usize, value: S::V) {
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

/// Sums of the differences to the first row of a chunk, and of their squares.
struct Moments<'a> {
    x: &'a [f32],
    added: Option<Added<'a>>,
    channels: usize,
    /// `[2, channels]`
    sums: &'a mut [f32],
}

/// A branch, and where the sum with it goes.
struct Added<'a> {
    values: &'a [f32],
    dropout: Option<Dropout>,
    /// Where its first number is among all, which dropout counts by.
    first: u64,
    sum: &'a mut [MaybeUninit<f32>],
}

impl Added<'_> {
    /// Vector `v` of a row of the branch.
    ///
    /// # Safety
    /// There is a row of all channels at `at`, and `v` is below `W`.
    #[inline(always)]
    unsafe fn load<S: Simd, const W: usize>(&self, simd: S, block: Block, at: usize, v: usize) -> S::V {
        // SAFETY: the caller's.
        let value = unsafe { block.load::<S, W>(simd, self.values.as_ptr().add(at), v) };
        match self.dropout {
            Some(dropout) => simd.mul(value, simd.dropout_mask(dropout, self.first + block.index::<S>(at, v))),
            None => value,
        }
    }
}

impl Kernel for Moments<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.channels, self);
    }
}

impl Blockwise for Moments<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let channels = block.channels;
        let x = self.x.as_ptr();
        let (mut plain, mut squares) = ([simd.zero(); W], [simd.zero(); W]);
        // SAFETY: the slices are equally long, at least one whole row of the channels.
        unsafe {
            let mut first = block.load_all::<S, W>(simd, x);
            if let Some(added) = &mut self.added {
                for (v, first) in first.iter_mut().enumerate() {
                    *first = simd.add(*first, added.load::<S, W>(simd, block, 0, v));
                }
                for at in (0..self.x.len()).step_by(channels) {
                    for v in 0..W {
                        let branch = added.load::<S, W>(simd, block, at, v);
                        let value = simd.add(block.load::<S, W>(simd, x.add(at), v), branch);
                        block.store::<S, W>(simd, added.sum.as_mut_ptr().cast::<f32>().add(at), v, value);
                        let difference = simd.sub(value, first[v]);
                        plain[v] = simd.add(plain[v], difference);
                        squares[v] = simd.mul_add(difference, difference, squares[v]);
                    }
                }
            } else {
                for at in (0..self.x.len()).step_by(channels) {
                    for v in 0..W {
                        let difference = simd.sub(block.load::<S, W>(simd, x.add(at), v), first[v]);
                        plain[v] = simd.add(plain[v], difference);
                        squares[v] = simd.mul_add(difference, difference, squares[v]);
                    }
                }
            }
            let sums = self.sums.as_mut_ptr();
            for v in 0..W {
                block.store::<S, W>(simd, sums, v, plain[v]);
                block.store::<S, W>(simd, sums.add(channels), v, squares[v]);
            }
        }
    }
}

/// The statistics of all chunks.
struct Together<'a> {
    rows: usize,
    /// The first row of each chunk, which its sums are relative to.
    firsts: &'a [&'a [f32]],
    sums: &'a [f32],
    channels: usize,
}

impl Kernel for Together<'_> {
    type Output = Statistics;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Statistics {
        let channels = self.channels;
        let rows = self.rows.max(1) as f64;
        let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
        let chunks = || {
            let chunks = self.firsts.iter().zip(self.sums.chunks(2 * channels)).enumerate();
            chunks.map(|(chunk, (first, sums))| ((self.rows - chunk * CHUNK).min(CHUNK) as f64, *first, sums))
        };
        for (count, first, sums) in chunks() {
            for ((mean, first), sum) in mean.iter_mut().zip(first).zip(sums) {
                *mean += f64::from(*first) * count + f64::from(*sum);
            }
        }
        for mean in &mut mean {
            *mean /= rows;
        }
        for (count, first, sums) in chunks() {
            let each = 1.0 / count;
            let (plain, squares) = sums.split_at(channels);
            for ((((variance, mean), first), plain), squares) in
                variance.iter_mut().zip(&mean).zip(first).zip(plain).zip(squares)
            {
                let plain = f64::from(*plain);
                let distance = f64::from(*first) + plain * each - mean;
                *variance += f64::from(*squares) - plain * plain * each + distance * distance * count;
            }
        }
        // Rounding may leave less than nothing of a constant channel.
        for variance in &mut variance {
            *variance = (*variance / rows).max(0.0);
        }
        Statistics { mean, variance }
    }
}

struct Normalise<'a> {
    x: &'a [f32],
    branch: Option<&'a [f32]>,
    affine: &'a Affine,
    relu: bool,
    y: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Normalise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.affine.scale.len(), self);
    }
}

impl Blockwise for Normalise<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let floor = simd.splat(if self.relu { 0.0 } else { f32::NEG_INFINITY });
        // SAFETY: `x` and `y` are equally long, whole rows of the channels.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            for at in (0..self.x.len()).step_by(block.channels) {
                for v in 0..W {
                    let mut x = block.load::<S, W>(simd, self.x.as_ptr().add(at), v);
                    if let Some(branch) = self.branch {
                        x = simd.add(x, block.load::<S, W>(simd, branch.as_ptr().add(at), v));
                    }
                    let centred = affine.centre(simd, x, v);
                    // The value comes second: it is what `max` returns if it is not a number.
                    let value = simd.max(floor, affine.apply(simd, centred, v));
                    block.store::<S, W>(simd, self.y.as_mut_ptr().cast::<f32>().add(at), v, value);
                }
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
                centre: block.load_all(simd, affine.centre.as_ptr()),
                scale: block.load_all(simd, affine.scale.as_ptr()),
                constant: block.load_all(simd, affine.constant.as_ptr()),
            }
        }
    }

    #[inline(always)]
    fn centre(&self, simd: S, x: S::V, v: usize) -> S::V {
        simd.sub(x, self.centre[v])
    }

    #[inline(always)]
    fn apply(&self, simd: S, centred: S::V, v: usize) -> S::V {
        simd.mul_add(centred, self.scale[v], self.constant[v])
    }

    /// The derivative before the `ReLU`.
    #[inline(always)]
    fn before_relu(&self, simd: S, centred: S::V, d_y: S::V, relu: bool, v: usize) -> S::V {
        if relu { simd.select_positive(self.apply(simd, centred, v), d_y, simd.zero()) } else { d_y }
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
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.affine.scale.len(), self);
    }
}

impl Blockwise for DerivativeSums<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let (mut plain, mut products) = ([simd.zero(); W], [simd.zero(); W]);
        // SAFETY: `x` and `d_y` are equally long, whole rows of the channels.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            for at in (0..self.x.len()).step_by(block.channels) {
                for v in 0..W {
                    let centred = affine.centre(simd, block.load::<S, W>(simd, self.x.as_ptr().add(at), v), v);
                    let d_y = block.load::<S, W>(simd, self.d_y.as_ptr().add(at), v);
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

/// `d_x = scale · d_y + (x - centre) · slope + level`, with `d_y` before the `ReLU`.
struct Derivative<'a> {
    x: &'a [f32],
    d_y: &'a [f32],
    affine: &'a Affine,
    slope: &'a [f32],
    level: &'a [f32],
    relu: bool,
    d_x: &'a mut [MaybeUninit<f32>],
    /// What dropped some of a branch, and where its derivative goes.
    d_branch: Option<(Dropout, &'a mut [MaybeUninit<f32>])>,
    /// Where the first number is among all, which dropout counts by.
    first: u64,
}

impl Kernel for Derivative<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.affine.scale.len(), self);
    }
}

impl Blockwise for Derivative<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        // SAFETY: `x`, `d_y` and `d_x` are equally long, whole rows of the channels.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            let slope = block.load_all::<S, W>(simd, self.slope.as_ptr());
            let level = block.load_all::<S, W>(simd, self.level.as_ptr());
            for at in (0..self.x.len()).step_by(block.channels) {
                for v in 0..W {
                    let centred = affine.centre(simd, block.load::<S, W>(simd, self.x.as_ptr().add(at), v), v);
                    let d_y = block.load::<S, W>(simd, self.d_y.as_ptr().add(at), v);
                    let d_y = affine.before_relu(simd, centred, d_y, self.relu, v);
                    let d_x = simd.mul_add(affine.scale[v], d_y, simd.mul_add(centred, slope[v], level[v]));
                    block.store::<S, W>(simd, self.d_x.as_mut_ptr().cast::<f32>().add(at), v, d_x);
                    if let Some((dropout, d_branch)) = &mut self.d_branch {
                        let mask = simd.dropout_mask(*dropout, self.first + block.index::<S>(at, v));
                        let to = d_branch.as_mut_ptr().cast::<f32>().add(at);
                        block.store::<S, W>(simd, to, v, simd.mul(d_x, mask));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::scramble;

    use super::*;

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32).map(|at| scramble(scramble(at) ^ (seed << 20)) as f32 / u32::MAX as f32 - 0.5).collect()
    }

    /// As [`numbers`], each channel with a mean and a size of its own.
    fn rows_of(rows: usize, channels: usize) -> Vec<f32> {
        let mut x = numbers(rows * channels, 1);
        for row in x.chunks_mut(channels) {
            for (channel, value) in row.iter_mut().enumerate() {
                *value = *value * (channel % 5 + 1) as f32 + channel as f32 - 3.0;
            }
        }
        x
    }

    struct Exact {
        y: Vec<f64>,
        mean: Vec<f64>,
        variance: Vec<f64>,
        d_x: Vec<f64>,
        d_gamma: Vec<f64>,
        d_beta: Vec<f64>,
    }

    /// In double precision, channel after channel; the derivative goes through mean and variance one by one.
    fn exact(x: &[f32], channels: usize, gamma: &[f32], beta: &[f32], relu: bool, d_y: &[f32]) -> Exact {
        let rows = x.len() / channels;
        let empty = || vec![0.0; x.len()];
        let none = || vec![0.0; channels];
        let mut exact =
            Exact { y: empty(), mean: none(), variance: none(), d_x: empty(), d_gamma: none(), d_beta: none() };
        for channel in 0..channels {
            let (gamma, beta) = (f64::from(gamma[channel]), f64::from(beta[channel]));
            let at = |row: usize| row * channels + channel;
            let column: Vec<f64> = (0..rows).map(|row| f64::from(x[at(row)])).collect();
            let count = rows.max(1) as f64;
            let mean = column.iter().sum::<f64>() / count;
            let variance = column.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
            let root = (variance + EPSILON).sqrt();
            let (mut d_mean, mut d_variance) = (0.0, 0.0);
            for (row, value) in column.iter().enumerate() {
                let z = (value - mean) / root;
                let y = gamma * z + beta;
                exact.y[at(row)] = if relu { y.max(0.0) } else { y };
                let d_y = if relu && y <= 0.0 { 0.0 } else { f64::from(d_y[at(row)]) };
                exact.d_gamma[channel] += d_y * z;
                exact.d_beta[channel] += d_y;
                exact.d_x[at(row)] = d_y * gamma / root;
                d_mean -= d_y * gamma / root;
                d_variance -= d_y * gamma * (value - mean) / (2.0 * root.powi(3));
            }
            for (row, value) in column.iter().enumerate() {
                exact.d_x[at(row)] += d_mean / count + d_variance * 2.0 * (value - mean) / count;
            }
            exact.mean[channel] = mean;
            exact.variance[channel] = variance;
        }
        exact
    }

    /// `size` is that of the terms a number is made of, which may cancel.
    fn assert_close<T: Copy + Into<f64>>(
        ours: &[T],
        exact: &[f64],
        size: impl Fn(usize) -> f64,
        tolerance: f64,
        what: &str,
    ) {
        assert_eq!(ours.len(), exact.len());
        for (at, (ours, exact)) in ours.iter().zip(exact).enumerate() {
            let ours: f64 = (*ours).into();
            assert!((ours - exact).abs() <= tolerance * size(at), "{what} at {at}: {ours} is not {exact}");
        }
    }

    /// Forward and backward beside the exact ones.
    fn compare(isa: Isa, x: &[f32], channels: usize, relu: bool, tolerance: f64) {
        let (gamma, beta, d_y) = (numbers(channels, 3), numbers(channels, 4), numbers(x.len(), 2));
        let exact = exact(x, channels, &gamma, &beta, relu, &d_y);
        let what = format!("{isa:?} [{}, {channels}] {relu}", x.len() / channels);
        let Normalised { y, statistics, .. } = forward(isa, x, None, &gamma, &beta, relu);
        let mean_size = |at: usize| exact.mean[at].abs() + exact.variance[at].sqrt();
        assert_close(&statistics.mean, &exact.mean, mean_size, 1e-6, &format!("{what} mean"));
        let variance_size = |at: usize| exact.variance[at] + 1e-9;
        assert_close(&statistics.variance, &exact.variance, variance_size, tolerance, &format!("{what} variance"));
        assert_close(&y, &exact.y, |at| 1.0 + exact.y[at].abs(), tolerance, &format!("{what} y"));
        let made = backward(isa, x, None, &gamma, &beta, &statistics, relu, &d_y);
        // Where rounding decides whether a number passes the `ReLU`, its derivative is either.
        if (0..y.len()).any(|at| (y[at] > 0.0) != (exact.y[at] > 0.0)) && relu {
            return;
        }
        let scale =
            |at: usize| f64::from(gamma[at % channels].abs()) / (exact.variance[at % channels] + EPSILON).sqrt();
        assert_close(&made.x, &exact.d_x, scale, tolerance, &format!("{what} d_x"));
        let length = ((x.len() / channels) as f64).sqrt();
        assert_close(&made.gamma, &exact.d_gamma, |_| length, tolerance, &format!("{what} d_gamma"));
        assert_close(&made.beta, &exact.d_beta, |_| length, tolerance, &format!("{what} d_beta"));
    }

    #[test]
    fn four_rows_by_hand() {
        // Channel 0: mean 2, biased variance 1. Channel 1: constant.
        let x = [1.0, 5.0, 3.0, 5.0, 1.0, 5.0, 3.0, 5.0];
        let one = (1.0 / (1.0 + EPSILON).sqrt()) as f32;
        for isa in Isa::available() {
            let Normalised { y, statistics, .. } = forward(isa, &x, None, &[1.0, 1.0], &[0.0, 2.0], false);
            assert_eq!(statistics, Statistics { mean: vec![2.0, 5.0], variance: vec![1.0, 0.0] });
            assert_eq!(y, [-one, 2.0, one, 2.0, -one, 2.0, one, 2.0]);
            let y = forward(isa, &x, None, &[1.0, 1.0], &[0.0, -2.0], true).y;
            assert_eq!(y, [0.0, 0.0, one, 0.0, 0.0, 0.0, one, 0.0]);
        }
    }

    #[test]
    fn values_and_derivatives_are_those_of_double_precision() {
        for isa in Isa::available() {
            for channels in (1..=20).chain([31, 32, 33, 63, 64, 65, 100]) {
                for rows in [0, 1, 2, 15, 16, 17, 63, 64, 65, 130, 300] {
                    for relu in [false, true] {
                        compare(isa, &rows_of(rows, channels), channels, relu, 4e-6);
                    }
                }
            }
        }
    }

    #[test]
    fn large_batches_in_parallel_are_no_less_exact() {
        for isa in Isa::available() {
            compare(isa, &rows_of(5000, 60), 60, false, 4e-6);
        }
    }

    #[test]
    fn badly_scaled_channels_lose_nothing() {
        // Mean -13 and deviation 1e-3; the same with an outlier in front; a huge mean; a constant.
        let rows = 1000;
        let noise = numbers(rows * 4, 7);
        let x: Vec<f32> = (0..rows)
            .flat_map(|row| {
                let noise = &noise[row * 4..];
                let outlier = if row == 0 { 40.0 } else { -13.0 + 1e-3 * noise[1] };
                [-13.0 + 3e-3 * noise[0], outlier, 1e4 + noise[2], 5.3]
            })
            .collect();
        for isa in Isa::available() {
            compare(isa, &x, 4, false, 1e-5);
        }
    }

    const DROPOUT: Dropout = Dropout { key: [5, 6], threshold: 1 << 30, kept: 4.0 / 3.0 };

    #[test]
    fn a_branch_is_dropped_and_added_before() {
        for isa in Isa::available() {
            for (rows, channels) in [(1, 3), (70, 33), (130, 64), (5000, 60)] {
                for dropout in [None, Some(DROPOUT)] {
                    let (x, values) = (rows_of(rows, channels), numbers(rows * channels, 5));
                    let (gamma, beta, d_y) = (numbers(channels, 3), numbers(channels, 4), numbers(rows * channels, 2));
                    let factor = |at: usize| dropout.map_or(1.0, |dropout| dropout.factor(at as u64));
                    let sum: Vec<f32> = (0..x.len()).map(|at| x[at] + values[at] * factor(at)).collect();
                    let ours = forward(isa, &x, Some(Branch { values: &values, dropout }), &gamma, &beta, true);
                    let plain = forward(isa, &sum, None, &gamma, &beta, true);
                    assert_eq!(ours.sum.as_ref(), Some(&sum));
                    assert_eq!((ours.y, &ours.statistics), (plain.y, &plain.statistics));
                    let made = backward(isa, &sum, dropout, &gamma, &beta, &plain.statistics, true, &d_y);
                    let expected = backward(isa, &sum, None, &gamma, &beta, &plain.statistics, true, &d_y);
                    assert_eq!(expected.branch, None);
                    let branch: Vec<f32> = (0..x.len()).map(|at| expected.x[at] * factor(at)).collect();
                    assert_eq!(made, Gradients { branch: dropout.map(|_| branch), ..expected });
                }
            }
        }
    }

    #[test]
    fn evaluation_uses_the_statistics_it_is_given() {
        for isa in Isa::available() {
            let statistics = Statistics { mean: vec![1.0, -2.0], variance: vec![4.0, 1.0] };
            let (x, branch) = ([2.0, -2.0, 1.0, 0.5], [1.0, 0.0, 0.0, -0.5]);
            let y = evaluate(isa, &x, Some(&branch), &statistics, &[2.0, 1.0], &[0.5, -1.0], true);
            assert_eq!(y, evaluate(isa, &[3.0, -2.0, 1.0, 0.0], None, &statistics, &[2.0, 1.0], &[0.5, -1.0], true));
            assert_close(
                &y,
                &[2.0 / (1.0 + EPSILON / 4.0).sqrt() + 0.5, 0.0, 0.5, 2.0 / (1.0 + EPSILON).sqrt() - 1.0],
                |_| 1.0,
                1e-6,
                "y",
            );
        }
    }

    #[test]
    fn what_is_not_a_number_stays_visible() {
        for isa in Isa::available() {
            for relu in [false, true] {
                let y = forward(isa, &[f32::NAN, 1.0], None, &[1.0], &[0.0], relu).y;
                assert!(y.iter().all(|y| y.is_nan()), "{isa:?} {y:?}");
            }
        }
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        for (rows, channels) in [(200, 33), (5000, 60)] {
            let (x, residual, d_y) =
                (rows_of(rows, channels), numbers(rows * channels, 5), numbers(rows * channels, 2));
            let (gamma, beta) = (numbers(channels, 3), numbers(channels, 4));
            for isa in Isa::available() {
                let results = [1, 2, 5].map(|threads| {
                    let pool = crate::Threads::new(threads);
                    pool.install(|| {
                        let branch = Branch { values: &residual, dropout: Some(DROPOUT) };
                        let Normalised { y, sum, statistics } = forward(isa, &x, Some(branch), &gamma, &beta, true);
                        let sum = sum.expect("the sum with the branch");
                        let made = backward(isa, &sum, Some(DROPOUT), &gamma, &beta, &statistics, true, &d_y);
                        let d_branch = made.branch.expect("another one");
                        let bits = [y, made.x, d_branch, made.gamma, made.beta].concat().into_iter().map(f32::to_bits);
                        (statistics, bits.collect::<Vec<_>>())
                    })
                });
                assert!(results[0] == results[1] && results[0] == results[2], "{isa:?}");
            }
        }
    }
}
