//! Batch norm over the rows of `[rows, channels]`, fused with a residual sum and `ReLU`.
//!
//! `y = γ (x - mean) / √(variance + ε) + β` per channel. Statistics are computed in one pass over
//! chunks of rows, relative to the first row of each chunk, and merged in double precision: a
//! channel with mean -13 and standard deviation 1e-3 loses no precision. For the same reason the
//! mean is represented by two values, the nearest single and the residual, of which the latter is
//! folded into the constant of the channel.
//!
//! Sums over chunks are added in chunk order, independent of the threads that computed them.

mod statistics;
mod affine;
mod normalize;
mod dot;
mod gradients;

#[cfg(test)]
mod tests;

pub use dot::{evaluate_dot, forward_dot};
pub use gradients::{BatchNormGradients, backward, backward_dot};
pub use normalize::{Normalized, evaluate, forward};
pub use statistics::{BatchStatistics, Branch};

/// Term added to the variance before the square root.
const EPSILON: f64 = 1e-5;

/// Rows per chunk, summed in single precision: few enough for a relative error of about 1e-6,
/// enough to amortize the merge.
const CHUNK: usize = 64;

/// Returns the number of rows of `x`.
fn rows(x: &[f32], channels: usize) -> usize {
    assert!(channels > 0, "the number of channels must not be zero");
    assert!(
        x.len().is_multiple_of(channels),
        "{} values cannot be split into rows of {channels} channels",
        x.len()
    );
    x.len() / channels
}
