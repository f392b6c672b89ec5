//! Mean and variance of each channel, in one pass that also adds a residual branch.

use std::mem::MaybeUninit;

use super::{Block, Blockwise, Branch, CHUNK, by_blocks, rows, run_all};
use crate::simd::{Dropout, Isa, Kernel, Simd};

/// What a batch looks like, channel by channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Average, in double precision: the backward needs what single precision would miss.
    pub mean: Vec<f64>,
    /// Average squared distance from the mean (biased: divided by the number of rows).
    pub variance: Vec<f64>,
}

/// Statistics of `x`, or of the sum with a branch that is written on the way.
pub(super) fn measure(
    isa: Isa,
    x: &[f32],
    channels: usize,
    branch: Option<(Branch<'_>, &mut [MaybeUninit<f32>])>,
) -> Statistics {
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
    unsafe fn load<S: Simd, const W: usize>(
        &self,
        simd: S,
        block: Block,
        at: usize,
        v: usize,
    ) -> S::V {
        // SAFETY: the caller's.
        let value = unsafe { block.load::<S, W>(simd, self.values.as_ptr().add(at), v) };
        match self.dropout {
            Some(dropout) => {
                simd.mul(value, simd.dropout_mask(dropout, self.first + block.index::<S>(at, v)))
            }
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
                        block.store::<S, W>(
                            simd,
                            added.sum.as_mut_ptr().cast::<f32>().add(at),
                            v,
                            value,
                        );
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
            chunks.map(|(chunk, (first, sums))| {
                ((self.rows - chunk * CHUNK).min(CHUNK) as f64, *first, sums)
            })
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
                *variance +=
                    f64::from(*squares) - plain * plain * each + distance * distance * count;
            }
        }
        // Rounding may leave less than nothing of a constant channel.
        for variance in &mut variance {
            *variance = (*variance / rows).max(0.0);
        }
        Statistics { mean, variance }
    }
}
