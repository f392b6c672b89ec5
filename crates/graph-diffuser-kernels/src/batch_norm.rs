//! Batch norm over the rows of `[rows, channels]`, with the `ReLU` and the residual that often surround it.
//!
//! `y = γ (x - mean) / √(variance + ε) + β` by channel. Statistics are taken in one pass over chunks of
//! rows, each as differences to its first row and put together in double precision: a channel with
//! mean -13 and deviation 1e-3 loses nothing. For the same reason a mean is used as two numbers, the
//! nearest single and what it misses, of which the second goes into the constant of the channel.
//!
//! Sums are those of the chunks in their order, whoever has computed them.

mod affine;
mod blocks;
mod derivatives;
mod dot;
mod normalize;
mod statistics;

#[cfg(test)]
mod tests;

pub(crate) use blocks::{Block, Blockwise, by_blocks};
pub use derivatives::{Gradients, backward, backward_dot};
pub use dot::{evaluate_dot, forward_dot};
pub use normalize::{Branch, Normalized, evaluate, forward};
pub use statistics::Statistics;

use crate::parallel;

/// Added to the variance before the root.
const EPSILON: f64 = 1e-5;

/// Rows that are summed in single precision: few enough for the sums to be good to some 1e-6, enough
/// for putting them together to cost little beside them.
const CHUNK: usize = 64;

/// Numbers below which one thread is done before it pays to share the work: some microseconds.
const PARALLEL: usize = 1 << 15;

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
