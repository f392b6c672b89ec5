//! Mean and variance per channel, computed in the pass that adds the residual branch.

use std::mem::MaybeUninit;

use super::{CHUNK, rows};
use crate::channel_blocks::{Block, Blockwise, run_all};
use crate::shards::{Exchange, Reduction};
use crate::simd::{Dropout, Isa, Kernel, Simd};

/// Mean and variance of a batch, per channel.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchStatistics {
    /// Mean, in double precision: the backward pass needs the part that single precision would
    /// lose.
    pub mean: Vec<f64>,
    /// Biased variance.
    pub variance: Vec<f64>,
    /// Number of rows of the batch; 0 for running statistics.
    pub rows: usize,
}

impl BatchStatistics {
    /// Returns the statistics of all shards of the batch, of which these are one.
    pub(super) fn over_shards(self, exchange: Option<Exchange<'_>>) -> Self {
        let Some(exchange) = exchange else { return self };
        let Self { mean, variance, rows } = self;
        let mut values = [&[rows as f64][..], &mean, &variance].concat();
        exchange(Reduction::Variance, &mut values);
        let (mean, variance) = values[1..].split_at(mean.len());
        Self { mean: mean.to_vec(), variance: variance.to_vec(), rows: values[0] as usize }
    }
}

/// Residual branch that is added to the rows before they are normalized.
#[derive(Debug, Clone, Copy)]
pub struct Branch<'a> {
    /// `[rows, channels]`
    pub values: &'a [f32],
    /// Dropout mask of the branch.
    pub dropout: Option<Dropout>,
}

/// Computes the statistics of `x`, or of its sum with a branch, which is written in the same pass.
pub(super) fn batch_statistics(
    isa: Isa,
    x: &[f32],
    channels: usize,
    branch: Option<(Branch<'_>, &mut [MaybeUninit<f32>])>,
) -> BatchStatistics {
    let rows = rows(x, channels);
    let chunk = CHUNK * channels;
    let mut sums = vec![0.0; rows.div_ceil(CHUNK) * 2 * channels];
    let chunk_sums = sums.chunks_mut(2 * channels);
    let first_rows: Vec<&[f32]> = if let Some((Branch { values, dropout }, sum)) = branch {
        assert_eq!(x.len(), values.len(), "the branch must have the shape of x");
        assert_eq!(x.len(), sum.len(), "the sum must have the shape of x");
        let added = values.chunks(chunk).zip(sum.chunks_mut(chunk));
        let tasks = x.chunks(chunk).zip(added).zip(chunk_sums).enumerate().collect();
        run_all(x.len(), tasks, |(at, ((x, (values, sum)), sums))| {
            let added = Some(BranchChunk { values, dropout, first: (at * chunk) as u64, sum });
            isa.run(ChunkSums { x, added, channels, sums });
        });
        // SAFETY: every row has been written.
        sum.chunks(chunk).map(|sum| unsafe { sum[..channels].assume_init_ref() }).collect()
    } else {
        let tasks = x.chunks(chunk).zip(chunk_sums).collect();
        run_all(x.len(), tasks, |(x, sums)| isa.run(ChunkSums { x, added: None, channels, sums }));
        x.chunks(chunk).map(|x| &x[..channels]).collect()
    };
    isa.run(MergeChunks { rows, first_rows: &first_rows, sums: &sums, channels })
}

/// Sums of the differences to the first row of a chunk, and of their squares.
struct ChunkSums<'a> {
    x: &'a [f32],
    added: Option<BranchChunk<'a>>,
    channels: usize,
    /// `[2, channels]`
    sums: &'a mut [f32],
}

/// Chunk of a residual branch, and the output for the sum with it.
struct BranchChunk<'a> {
    values: &'a [f32],
    dropout: Option<Dropout>,
    /// Index of its first value in the whole branch, for dropout.
    first: u64,
    sum: &'a mut [MaybeUninit<f32>],
}

impl BranchChunk<'_> {
    /// Loads vector `v` of the row at offset `at`, after dropout.
    ///
    /// # Safety
    /// `at` is the offset of a whole row, and `v` is below `W`.
    #[inline(always)]
    unsafe fn load<S: Simd, const W: usize>(
        &self,
        simd: S,
        block: Block,
        at: usize,
        v: usize,
    ) -> S::V {
        // SAFETY: guaranteed by the caller.
        let value = unsafe { block.load::<S, W>(simd, self.values.as_ptr().add(at), v) };
        match self.dropout {
            Some(dropout) => {
                simd.mul(value, simd.dropout_mask(dropout, self.first + block.index::<S>(at, v)))
            }
            None => value,
        }
    }
}

impl Blockwise for ChunkSums<'_> {
    #[inline(always)]
    fn channels(&self) -> usize {
        self.channels
    }

    /// # Safety
    /// As in [`Blockwise::block`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let channels = block.channels;
        let x = self.x.as_ptr();
        let (mut plain, mut squares) = ([simd.zero(); W], [simd.zero(); W]);
        // SAFETY: the slices have equal lengths, at least one whole row.
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

/// Merges the sums of all chunks into statistics.
struct MergeChunks<'a> {
    rows: usize,
    /// First row of each chunk, which its sums are relative to.
    first_rows: &'a [&'a [f32]],
    sums: &'a [f32],
    channels: usize,
}

impl Kernel for MergeChunks<'_> {
    type Output = BatchStatistics;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> BatchStatistics {
        let channels = self.channels;
        let rows = self.rows.max(1) as f64;
        let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
        let chunks = || {
            let chunks = self.first_rows.iter().zip(self.sums.chunks(2 * channels)).enumerate();
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
            let inverse_count = 1.0 / count;
            let (plain, squares) = sums.split_at(channels);
            for ((((variance, mean), first), plain), squares) in
                variance.iter_mut().zip(&mean).zip(first).zip(plain).zip(squares)
            {
                let plain = f64::from(*plain);
                let distance = f64::from(*first) + plain * inverse_count - mean;
                *variance += f64::from(*squares) - plain * plain * inverse_count
                    + distance * distance * count;
            }
        }
        // Rounding may make the variance of a constant channel negative.
        for variance in &mut variance {
            *variance = (*variance / rows).max(0.0);
        }
        BatchStatistics { mean, variance, rows: self.rows }
    }
}
