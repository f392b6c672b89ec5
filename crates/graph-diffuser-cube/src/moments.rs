//! Mean and variance from the moments of parts of the rows, merged as a tree.
//!
//! The moments of a part are its total weight, its mean and its sum of squared deviations from that
//! mean, so that a small variance beside a large mean does not cancel. Values may be shifted by a
//! constant of their channel; the rounding error of the mean is then kept as well.

use cubecl::client::Client;
use cubecl::prelude::*;

use crate::buffer::units;
use crate::{Buffer, UNITS};

/// Number of values that describe the moments of a part.
pub(crate) const MOMENTS: usize = 3;

/// Added to the variance before the square root.
const EPSILON: f32 = 1e-5;

/// Location of the moments of some channels within [`NormStatistics`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct NormChannels {
    /// First channel.
    pub(crate) start: usize,
    /// Number of channels.
    pub(crate) count: usize,
}

/// Statistics of batch norms on the device.
#[derive(Debug, Clone)]
pub struct NormStatistics {
    /// `[4, channels]` mean, biased variance, inverse standard deviation, and what rounding has
    /// removed from the mean.
    pub(crate) values: Buffer,
}

impl NormStatistics {
    /// Allocates the statistics of all batch norms of an operation.
    pub(crate) fn empty(client: &Client, channels: usize) -> Self {
        Self { values: Buffer::empty(client, 4 * channels) }
    }

    /// Computes the inverse standard deviations of given means and variances, with one launch.
    ///
    /// # Panics
    /// Panics if the lengths differ.
    pub fn new(client: &Client, mean: &Buffer, variance: &Buffer) -> Self {
        assert_eq!(mean.len(), variance.len(), "every mean has a variance");
        let statistics = Self::empty(client, mean.len());
        inverse_deviations::launch(
            client,
            CubeCount::new_1d(mean.len().div_ceil(UNITS).max(1) as u32),
            units(),
            mean.arg(),
            variance.arg(),
            statistics.values.arg(),
            mean.len() as u32,
        );
        statistics
    }

    /// Returns the number of channels of all batch norms.
    pub fn channels(&self) -> usize {
        self.values.len() / 4
    }

    /// Returns the means, the biased variances, the inverse standard deviations, and what rounding
    /// has removed from the means, `[4, channels]`.
    pub fn values(&self) -> &Buffer {
        &self.values
    }

    /// Merges the moments `[parts, count, MOMENTS]` of some channels, with one launch; their means
    /// are those of values from which `shifts`, `[count]`, have been subtracted.
    pub(crate) fn merge(
        &self,
        client: &Client,
        moments: &Buffer,
        NormChannels { start, count }: NormChannels,
        shifts: Option<&Buffer>,
    ) {
        merge_moments::launch(
            client,
            CubeCount::new_1d(count as u32),
            units(),
            moments.arg(),
            shifts.unwrap_or(moments).arg(),
            self.values.arg(),
            (moments.len() / (MOMENTS * count)) as u32,
            start as u32,
            self.channels() as u32,
            shifts.is_some(),
        );
    }
}

/// Moments of a part of the rows.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct PartMoments {
    pub(crate) weight: f32,
    pub(crate) mean: f32,
    /// Weighted sum of the squared deviations from the mean.
    pub(crate) deviations: f32,
}

/// Merges the moments of two parts.
#[cube]
pub(crate) fn merged(a: &PartMoments, b: &PartMoments) -> PartMoments {
    let weight = a.weight + b.weight;
    // Parts without rows have weight zero.
    let fraction = select(weight > 0.0f32, b.weight / max(weight, 1.0e-30f32), 0.0f32);
    let step = b.mean - a.mean;
    PartMoments {
        weight,
        mean: a.mean + step * fraction,
        deviations: a.deviations + b.deviations + step * step * a.weight * fraction,
    }
}

/// Merges the moments of all parts of one channel.
#[cube(launch)]
fn merge_moments(
    moments: &[f32],
    shifts: &[f32],
    statistics: &mut [f32],
    parts: u32,
    start: u32,
    channels: u32,
    #[comptime] shifted: bool,
) {
    let (unit, channel) = (UNIT_POS as usize, CUBE_POS_X as usize);
    let count = CUBE_COUNT_X as usize;
    let mut shared = Shared::<[f32]>::new_slice(comptime!(MOMENTS * UNITS));
    shared[unit] = 0.0f32;
    shared[UNITS + unit] = 0.0f32;
    shared[2 * UNITS + unit] = 0.0f32;
    let mut part = UNIT_POS as usize;
    while part < parts as usize {
        let at = (part * count + channel) * MOMENTS;
        let own = PartMoments {
            weight: shared[unit],
            mean: shared[UNITS + unit],
            deviations: shared[2 * UNITS + unit],
        };
        let next =
            PartMoments { weight: moments[at], mean: moments[at + 1], deviations: moments[at + 2] };
        let both = merged(&own, &next);
        shared[unit] = both.weight;
        shared[UNITS + unit] = both.mean;
        shared[2 * UNITS + unit] = both.deviations;
        part += UNITS;
    }
    sync_cube();
    let mut half = comptime!(UNITS / 2).runtime();
    while half > 0usize {
        if unit < half {
            let first = PartMoments {
                weight: shared[unit],
                mean: shared[UNITS + unit],
                deviations: shared[2 * UNITS + unit],
            };
            let second = PartMoments {
                weight: shared[unit + half],
                mean: shared[UNITS + unit + half],
                deviations: shared[2 * UNITS + unit + half],
            };
            let both = merged(&first, &second);
            shared[unit] = both.weight;
            shared[UNITS + unit] = both.mean;
            shared[2 * UNITS + unit] = both.deviations;
        }
        sync_cube();
        half /= 2usize;
    }
    if unit == 0usize {
        let at = start as usize + channel;
        let variance = shared[2 * UNITS] / max(shared[0], 1.0e-30f32);
        let mut mean = shared[UNITS];
        let mut residual = 0.0f32;
        if comptime!(shifted) {
            let (shift, small) = (shifts[channel], shared[UNITS]);
            mean = shift + small;
            let rounded = mean - shift;
            residual = (shift - (mean - rounded)) + (small - rounded);
        }
        statistics[at] = mean;
        statistics[3 * channels as usize + at] = residual;
        statistics[channels as usize + at] = variance;
        statistics[2 * channels as usize + at] = 1.0f32 / (variance + EPSILON).sqrt();
    }
}

#[cube(launch)]
fn inverse_deviations(mean: &[f32], variance: &[f32], statistics: &mut [f32], channels: u32) {
    let (at, count) = (ABSOLUTE_POS, channels as usize);
    if at < count {
        statistics[at] = mean[at];
        statistics[count + at] = variance[at];
        statistics[2 * count + at] = 1.0f32 / (variance[at] + EPSILON).sqrt();
        statistics[3 * count + at] = 0.0f32;
    }
}
