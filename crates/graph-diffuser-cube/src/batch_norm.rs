//! Batch norm over rows, with a preceding residual branch and a following ReLU: forward and
//! backward.
//!
//! A unit computes one channel of a block of rows; cubes sum over a limited number of blocks, and a
//! second launch adds them. The forward pass has three launches: moments of the rows, their merge,
//! and the normalized rows; the backward pass too: sums, their addition, and the gradients.

use cubecl::client::Client;
use cubecl::prelude::*;

use crate::buffer::{ALIGNMENT, unit_per_element, units};
use crate::dropout::dropout_factor;
use crate::moments::{MOMENTS, NormChannels, NormStatistics, PartMoments, merged};
use crate::sums::sum_parts;
use crate::{Buffer, CubeDropout, UNITS};

/// Rows of a block, whose moments are computed at once.
const BLOCK: usize = 32;

/// Largest number of parts of the rows that are summed by separate cubes.
///
/// Estimated: enough cubes for the largest current GPUs. No benchmark has been run on a GPU.
const MAX_PARTS: usize = 1024;

/// Shape and options of a batch norm.
#[derive(Debug, Clone, Copy)]
pub struct CubeBatchNorm {
    /// Number of channels.
    pub channels: usize,
    /// If true, a ReLU follows.
    pub relu: bool,
    /// Dropout mask of the residual branch; the entry of an element has its index in the rows.
    pub dropout: Option<CubeDropout>,
}

/// Output of [`forward`].
#[derive(Debug, Clone)]
pub struct CubeBatchNormOutput {
    /// `[rows, channels]` normalized rows.
    pub out: Buffer,
    /// `[rows, channels]` sum of the rows and the residual branch, if there is one.
    pub sum: Option<Buffer>,
    /// Statistics of the rows.
    pub statistics: NormStatistics,
}

/// Gradients computed by [`backward`].
#[derive(Debug, Clone)]
pub struct CubeBatchNormGradients {
    /// `[rows, channels]` gradient of the rows.
    pub x: Buffer,
    /// Gradient of the residual branch, if it differs from that of the rows.
    pub branch: Option<Buffer>,
    /// Gradient of the scale.
    pub gamma: Buffer,
    /// Gradient of the shift.
    pub beta: Buffer,
}

/// Numbers that the kernels depend on.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct RowScalars {
    rows: u32,
    rows_per_part: u32,
    key_low: u32,
    key_high: u32,
    threshold: u32,
    keep: f32,
}

impl CubeBatchNorm {
    /// Returns whether the kernels support a number of rows: there are any, and indices fit into 32
    /// bits.
    pub fn supports(&self, rows: usize) -> bool {
        self.channels > 0 && rows > 0 && rows.saturating_mul(self.channels) < u32::MAX as usize
    }

    fn rows(&self, x: &Buffer) -> usize {
        let rows = x.len() / self.channels;
        assert!(self.supports(rows), "unsupported batch norm: {self:?} of {rows} rows");
        assert_eq!(x.len(), rows * self.channels, "x must be [rows, channels]");
        rows
    }

    fn rows_per_part(rows: usize) -> usize {
        rows.div_ceil(MAX_PARTS).next_multiple_of(BLOCK)
    }

    fn parts(rows: usize) -> usize {
        rows.div_ceil(Self::rows_per_part(rows))
    }

    /// Returns the cubes of a pass over all parts: one for each part and block of channels.
    fn cubes(&self, rows: usize) -> CubeCount {
        CubeCount::new_2d(Self::parts(rows) as u32, self.channels.div_ceil(UNITS) as u32)
    }

    fn scalars(&self, rows: usize) -> RowScalarsLaunch {
        let (key, threshold, keep) =
            self.dropout.map_or(([0; 2], 0, 1.0), |mask| (mask.key, mask.threshold, mask.scale));
        let rows_per_part = Self::rows_per_part(rows) as u32;
        RowScalarsLaunch::new(rows as u32, rows_per_part, key[0], key[1], threshold, keep)
    }
}

/// Normalizes the rows, plus the residual branch after dropout, by their own statistics.
///
/// # Shapes
/// - `x`, `branch`: `[rows, channels]`
///
/// # Panics
/// Panics if the number of rows is not [supported](CubeBatchNorm::supports) or a shape is wrong.
pub fn forward(
    client: &Client,
    norm: &CubeBatchNorm,
    x: &Buffer,
    branch: Option<&Buffer>,
    [gamma, beta]: [&Buffer; 2],
) -> CubeBatchNormOutput {
    let (rows, channels) = (norm.rows(x), norm.channels);
    assert!(branch.is_none_or(|branch| branch.len() == x.len()), "branch has the shape of x");
    assert!(gamma.len() == channels && beta.len() == channels, "one scale and shift per channel");
    let sum = branch.map(|_| Buffer::empty(client, x.len()));
    let absent = Buffer::empty(client, 1);
    let moments = Buffer::empty(client, CubeBatchNorm::parts(rows) * channels * MOMENTS);
    row_moments::launch(
        client,
        norm.cubes(rows),
        units(),
        x.arg(),
        branch.unwrap_or(x).arg(),
        sum.as_ref().unwrap_or(&absent).arg(),
        moments.arg(),
        norm.scalars(rows),
        channels,
        branch.is_some(),
        norm.dropout.is_some(),
    );
    let statistics = NormStatistics::empty(client, channels);
    let all = NormChannels { start: 0, count: channels };
    statistics.merge(client, &moments, all, Some(x)); // the first row has the shifts
    let out = Buffer::empty(client, x.len());
    normalize::launch(
        client,
        unit_per_element(x.len()),
        units(),
        sum.as_ref().unwrap_or(x).arg(),
        statistics.values.arg(),
        gamma.arg(),
        beta.arg(),
        out.arg(),
        x.len() as u32,
        channels,
        norm.relu,
    );
    CubeBatchNormOutput { out, sum, statistics }
}

/// Computes the gradients of [`forward`] from the rows, or their sum with the residual branch.
///
/// # Shapes
/// - `x`, `d_out`: `[rows, channels]`
///
/// # Panics
/// Panics if the number of rows is not [supported](CubeBatchNorm::supports) or a shape is wrong.
pub fn backward(
    client: &Client,
    norm: &CubeBatchNorm,
    x: &Buffer,
    [gamma, beta]: [&Buffer; 2],
    statistics: &NormStatistics,
    d_out: &Buffer,
) -> CubeBatchNormGradients {
    let (rows, channels) = (norm.rows(x), norm.channels);
    assert!(gamma.len() == channels && beta.len() == channels, "one scale and shift per channel");
    assert_eq!(statistics.channels(), channels, "statistics of this batch norm");
    assert_eq!(d_out.len(), x.len(), "d_out must have the shape of x");
    // Sums for ∂γ, then for ∂β.
    let offset = channels.next_multiple_of(ALIGNMENT);
    let entries = offset + channels;
    let parts = Buffer::empty(client, CubeBatchNorm::parts(rows) * entries);
    row_sums::launch(
        client,
        norm.cubes(rows),
        units(),
        x.arg(),
        statistics.values.arg(),
        gamma.arg(),
        beta.arg(),
        d_out.arg(),
        parts.arg(),
        norm.scalars(rows),
        offset as u32,
        channels,
        norm.relu,
    );
    let sums = Buffer::empty(client, entries);
    sum_parts(client, &parts, &sums, 0..entries);
    let d_x = Buffer::empty(client, x.len());
    let d_branch = norm.dropout.map(|_| Buffer::empty(client, x.len()));
    let absent = Buffer::empty(client, 1);
    row_gradients::launch(
        client,
        unit_per_element(x.len()),
        units(),
        x.arg(),
        statistics.values.arg(),
        gamma.arg(),
        beta.arg(),
        d_out.arg(),
        sums.arg(),
        d_x.arg(),
        d_branch.as_ref().unwrap_or(&absent).arg(),
        norm.scalars(rows),
        offset as u32,
        channels,
        norm.relu,
        norm.dropout.is_some(),
    );
    CubeBatchNormGradients {
        x: d_x,
        branch: d_branch,
        gamma: sums.part(0, channels),
        beta: sums.part(offset, channels),
    }
}

/// Computes the moments of a part of the rows, and adds the residual branch.
#[cube(launch)]
fn row_moments(
    x: &[f32],
    branch: &[f32],
    sums: &mut [f32],
    moments: &mut [f32],
    scalars: RowScalars,
    #[comptime] channels: usize,
    #[comptime] has_branch: bool,
    #[comptime] has_dropout: bool,
) {
    let channel = CUBE_POS_Y as usize * UNITS + UNIT_POS as usize;
    let mut start = CUBE_POS_X as usize * scalars.rows_per_part as usize;
    let end = min(start + scalars.rows_per_part as usize, scalars.rows as usize);
    if channel < channels {
        let mut all_rows = 0.0f32;
        let mut all_mean = 0.0f32;
        let mut all_deviations = 0.0f32;
        let mut values = Array::<f32>::new(BLOCK);
        while start < end {
            let count = min(BLOCK, end - start);
            let mut sum = 0.0f32;
            for t in 0..count {
                let at = (start + t) * channels + channel;
                let mut value = x[at];
                if comptime!(has_branch) {
                    let mut added = branch[at];
                    if comptime!(has_dropout) {
                        added *= dropout_factor(
                            at as u32,
                            scalars.key_low,
                            scalars.key_high,
                            scalars.threshold,
                            scalars.keep,
                        );
                    }
                    value += added;
                    sums[at] = value;
                }
                // The shift of a channel is its value in the first row.
                let shifted = value - x[channel];
                values[t] = shifted;
                sum += shifted;
            }
            let weight = f32::cast_from(count);
            let mean = sum / weight;
            let mut deviations = 0.0f32;
            for t in 0..count {
                let step = values[t] - mean;
                deviations += step * step;
            }
            let before =
                PartMoments { weight: all_rows, mean: all_mean, deviations: all_deviations };
            let block = PartMoments { weight, mean, deviations };
            let both = merged(&before, &block);
            all_rows = both.weight;
            all_mean = both.mean;
            all_deviations = both.deviations;
            start += BLOCK;
        }
        let at = (CUBE_POS_X as usize * channels + channel) * MOMENTS;
        moments[at] = all_rows;
        moments[at + 1] = all_mean;
        moments[at + 2] = all_deviations;
    }
}

/// Returns a value after the norm, without scale and shift.
#[cube]
fn normalized(
    x: &[f32],
    statistics: &[f32],
    at: usize,
    channel: usize,
    #[comptime] channels: usize,
) -> f32 {
    let centered = x[at] - statistics[channel] - statistics[3 * channels + channel];
    centered * statistics[2 * channels + channel]
}

#[cube(launch)]
fn normalize(
    x: &[f32],
    statistics: &[f32],
    gamma: &[f32],
    beta: &[f32],
    out: &mut [f32],
    count: u32,
    #[comptime] channels: usize,
    #[comptime] relu: bool,
) {
    let at = ABSOLUTE_POS;
    if at < count as usize {
        let channel = at % channels;
        let hat = normalized(x, statistics, at, channel, channels);
        let value = hat * gamma[channel] + beta[channel];
        out[at] = if comptime!(relu) { max(value, 0.0f32) } else { value };
    }
}

/// Returns the gradient of the norm's output before the ReLU.
#[cube]
fn relu_gradient(d_out: f32, hat: f32, gamma: f32, beta: f32, #[comptime] relu: bool) -> f32 {
    if comptime!(relu) { select(hat * gamma + beta > 0.0f32, d_out, 0.0f32) } else { d_out }
}

/// Computes `Σ g ĥ` and `Σ g` over a part of the rows, where `g` is the gradient of the norm.
#[cube(launch)]
fn row_sums(
    x: &[f32],
    statistics: &[f32],
    gamma: &[f32],
    beta: &[f32],
    d_out: &[f32],
    parts: &mut [f32],
    scalars: RowScalars,
    offset: u32,
    #[comptime] channels: usize,
    #[comptime] relu: bool,
) {
    let channel = CUBE_POS_Y as usize * UNITS + UNIT_POS as usize;
    let mut start = CUBE_POS_X as usize * scalars.rows_per_part as usize;
    let end = min(start + scalars.rows_per_part as usize, scalars.rows as usize);
    if channel < channels {
        let mut d_gamma = 0.0f32;
        let mut d_beta = 0.0f32;
        while start < end {
            let count = min(BLOCK, end - start);
            let mut products = 0.0f32;
            let mut sum = 0.0f32;
            for t in 0..count {
                let at = (start + t) * channels + channel;
                let hat = normalized(x, statistics, at, channel, channels);
                let g = relu_gradient(d_out[at], hat, gamma[channel], beta[channel], relu);
                products += g * hat;
                sum += g;
            }
            d_gamma += products;
            d_beta += sum;
            start += BLOCK;
        }
        let first = CUBE_POS_X as usize * (offset as usize + channels);
        parts[first + channel] = d_gamma;
        parts[first + offset as usize + channel] = d_beta;
    }
}

/// Computes `γ/deviation (g - m₁ - m₂ ĥ)` with the means `m₁` of `g` and `m₂` of `g ĥ`.
#[cube(launch)]
fn row_gradients(
    x: &[f32],
    statistics: &[f32],
    gamma: &[f32],
    beta: &[f32],
    d_out: &[f32],
    sums: &[f32],
    d_x: &mut [f32],
    d_branch: &mut [f32],
    scalars: RowScalars,
    offset: u32,
    #[comptime] channels: usize,
    #[comptime] relu: bool,
    #[comptime] has_dropout: bool,
) {
    let at = ABSOLUTE_POS;
    if at < scalars.rows as usize * channels {
        let channel = at % channels;
        let hat = normalized(x, statistics, at, channel, channels);
        let g = relu_gradient(d_out[at], hat, gamma[channel], beta[channel], relu);
        let mean = sums[offset as usize + channel] + sums[channel] * hat;
        let centered = g - mean / f32::cast_from(scalars.rows);
        let gradient = gamma[channel] * statistics[2 * channels + channel] * centered;
        d_x[at] = gradient;
        if comptime!(has_dropout) {
            d_branch[at] = gradient
                * dropout_factor(
                    at as u32,
                    scalars.key_low,
                    scalars.key_high,
                    scalars.threshold,
                    scalars.keep,
                );
        }
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use super::*;
    use crate::testing::{assert_close, client, dropout_factor_reference, upload, values};

    struct Expected {
        out: Vec<f64>,
        mean: Vec<f64>,
        variance: Vec<f64>,
        d_x: Vec<f64>,
        d_branch: Vec<f64>,
        d_gamma: Vec<f64>,
        d_beta: Vec<f64>,
        /// Distance of the nearest input of the ReLU from zero.
        nearest_kink: f64,
    }

    /// Computes values and gradients in double precision.
    fn reference(
        norm: &CubeBatchNorm,
        x: &[f32],
        branch: Option<&[f32]>,
        gamma: &[f32],
        beta: &[f32],
        d_out: &[f32],
    ) -> Expected {
        let (c, rows) = (norm.channels, x.len() / norm.channels);
        let factor =
            |at: usize| norm.dropout.map_or(1.0, |mask| dropout_factor_reference(mask, at as u32));
        let value = |at: usize| {
            f64::from(x[at]) + branch.map_or(0.0, |branch| f64::from(branch[at]) * factor(at))
        };
        let mut expected = Expected {
            out: vec![0.0; x.len()],
            mean: vec![0.0; c],
            variance: vec![0.0; c],
            d_x: vec![0.0; x.len()],
            d_branch: vec![0.0; x.len()],
            d_gamma: vec![0.0; c],
            d_beta: vec![0.0; c],
            nearest_kink: f64::INFINITY,
        };
        for channel in 0..c {
            let column: Vec<usize> = (0..rows).map(|row| row * c + channel).collect();
            let mean = column.iter().map(|&at| value(at)).sum::<f64>() / rows as f64;
            let squares = column.iter().map(|&at| (value(at) - mean).powi(2)).sum::<f64>();
            let inverse = 1.0 / (squares / rows as f64 + 1e-5).sqrt();
            let [gamma, beta] = [gamma, beta].map(|values| f64::from(values[channel]));
            let hat = |at: usize| (value(at) - mean) * inverse;
            let g = |at: usize| {
                if norm.relu && hat(at) * gamma + beta <= 0.0 { 0.0 } else { f64::from(d_out[at]) }
            };
            let d_beta: f64 = column.iter().map(|&at| g(at)).sum();
            let d_gamma: f64 = column.iter().map(|&at| g(at) * hat(at)).sum();
            for &at in &column {
                let out = hat(at) * gamma + beta;
                expected.nearest_kink = expected.nearest_kink.min(out.abs());
                expected.out[at] = if norm.relu { out.max(0.0) } else { out };
                let mean = (d_beta + d_gamma * hat(at)) / rows as f64;
                expected.d_x[at] = gamma * inverse * (g(at) - mean);
                expected.d_branch[at] = expected.d_x[at] * factor(at);
            }
            expected.mean[channel] = mean;
            expected.variance[channel] = squares / rows as f64;
            expected.d_gamma[channel] = d_gamma;
            expected.d_beta[channel] = d_beta;
        }
        expected
    }

    #[test]
    fn values_and_gradients_match_the_reference() {
        let Some(client) = client() else { return };
        let dropout = Some(CubeDropout { key: [3, 5], threshold: 1 << 30, scale: 4.0 / 3.0 });
        for (rows, channels) in [(1, 3), (2, 65), (100, 64), (33, 7), (3000, 5), (40_000, 2)] {
            for (relu, has_branch, dropout) in [
                (false, false, None),
                (true, false, None),
                (false, true, None),
                (false, true, dropout),
            ] {
                let norm = CubeBatchNorm { channels, relu, dropout };
                let branch = values(2, rows * channels, 1.0);
                let branch = has_branch.then_some(&branch[..]);
                let [gamma, beta] = [3, 4].map(|seed| values(seed, channels, 1.0));
                let d_out = values(5, rows * channels, 1.0);
                // An input near the kink of the ReLU may be on either side of it.
                let data = |seed| values(seed, rows * channels, 1.0);
                let reference = |x: &[f32]| reference(&norm, x, branch, &gamma, &beta, &d_out);
                let x = (10..50)
                    .map(data)
                    .find(|x| !relu || reference(x).nearest_kink > 5e-6)
                    .expect("there are rows away from the kink");
                let expected = reference(&x);
                let [x, gamma, beta, d_out] =
                    [&x, &gamma, &beta, &d_out].map(|values| upload(&client, values));
                let branch = branch.map(|branch| upload(&client, branch));
                let output = forward(&client, &norm, &x, branch.as_ref(), [&gamma, &beta]);
                let statistics: Vec<f32> = output.statistics.values().to_vec(&client);
                assert_close(&output.out.to_vec(&client), &expected.out, 1e-5);
                for (channel, expected_mean) in expected.mean.iter().enumerate() {
                    // A mean near zero has the rounding errors of larger values.
                    let scale = expected_mean.abs() + expected.variance[channel].sqrt();
                    let error = (f64::from(statistics[channel]) - expected_mean).abs();
                    assert!(error <= 1e-6 * scale, "mean {channel} of {rows} rows");
                }
                assert_close(&statistics[channels..2 * channels], &expected.variance, 1e-5);
                let x = output.sum.as_ref().unwrap_or(&x);
                let gradients =
                    backward(&client, &norm, x, [&gamma, &beta], &output.statistics, &d_out);
                // The gradients of one or two rows are small differences of larger values, and an
                // inverse standard deviation of up to 316 amplifies their rounding errors.
                let tolerance = match rows {
                    1 => 1e-3,
                    2 => 1e-4,
                    _ => 1e-5,
                };
                assert_close(&gradients.x.to_vec(&client), &expected.d_x, tolerance);
                assert_eq!(gradients.branch.is_some(), dropout.is_some());
                if let Some(d_branch) = gradients.branch {
                    assert_close(&d_branch.to_vec(&client), &expected.d_branch, tolerance);
                }
                assert_close(&gradients.gamma.to_vec(&client), &expected.d_gamma, 1e-5);
                assert_close(&gradients.beta.to_vec(&client), &expected.d_beta, 1e-5);
            }
        }
    }

    #[test]
    fn a_small_variance_beside_a_large_mean_is_accurate() {
        let Some(client) = client() else { return };
        let norm = CubeBatchNorm { channels: 1, relu: false, dropout: None };
        let x: Vec<f32> = (0..5000).map(|row| -13.0 + 1e-3 * (row % 2) as f32).collect();
        let expected = reference(&norm, &x, None, &[1.0], &[0.0], &x);
        let [x, one, zero] = [&x[..], &[1.0], &[0.0]].map(|values| upload(&client, values));
        let output = forward(&client, &norm, &x, None, [&one, &zero]);
        assert_close(&output.out.to_vec(&client), &expected.out, 1e-3);
    }
}
