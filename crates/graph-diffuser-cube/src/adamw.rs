//! AdamW step over all parameters in one buffer, and the squared norm of a gradient.

use cubecl::client::Client;
use cubecl::prelude::*;

use crate::buffer::{unit_per_element, units};
use crate::reduce::sum_over_units;
use crate::sums::sum_parts;
use crate::{Buffer, UNITS};

/// Largest number of parts of a gradient that are summed by separate cubes.
///
/// Estimated: enough cubes for the largest current GPUs. No benchmark has been run on a GPU.
const MAX_PARTS: usize = 1024;

/// Added to the norm of the gradient in the factor of clipping.
const CLIP_EPSILON: f32 = 1e-6;

/// Numbers of one step, computed in double precision on the host.
#[derive(Debug, Clone, Copy)]
pub struct AdamWScalars {
    /// Factor of the gradient, before clipping.
    pub gradient_scale: f32,
    /// Largest norm of the gradient, if it is clipped by a norm on the device; 0 disables clipping.
    pub max_norm: f32,
    /// Decay β₁ of the first moment.
    pub beta_1: f32,
    /// `1 - β₁`
    pub rest_1: f32,
    /// Decay β₂ of the second moment.
    pub beta_2: f32,
    /// `1 - β₂`
    pub rest_2: f32,
    /// Factor of the weights, `1 - lr · weight_decay`.
    pub decay: f32,
    /// Learning rate divided by the bias correction of the first moment.
    pub rate: f32,
    /// Reciprocal of the square root of the bias correction of the second moment.
    pub inverse_correction: f32,
    /// Term added to the denominator.
    pub eps: f32,
}

/// [`AdamWScalars`] as an argument of the kernel.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct StepScalars {
    gradient_scale: f32,
    max_norm: f32,
    beta_1: f32,
    rest_1: f32,
    beta_2: f32,
    rest_2: f32,
    decay: f32,
    rate: f32,
    inverse_correction: f32,
    eps: f32,
}

/// Computes the squared norm of a gradient, `[1]`, with two launches.
pub fn squared_norm(client: &Client, gradient: &Buffer) -> Buffer {
    let parts = gradient.len().div_ceil(UNITS).clamp(1, MAX_PARTS);
    let squares = Buffer::empty(client, parts);
    sums_of_squares::launch(
        client,
        CubeCount::new_1d(parts as u32),
        units(),
        gradient.arg(),
        squares.arg(),
        gradient.len() as u32,
    );
    let sum = Buffer::empty(client, 1);
    sum_parts(client, &squares, &sum, 0..1);
    sum
}

/// Returns the updated weights, first and second moments, with one launch.
///
/// Given the squared norm of the gradient, `[1]`, the gradient is clipped to
/// [`AdamWScalars::max_norm`].
///
/// # Panics
/// Panics if the lengths differ.
pub fn step(
    client: &Client,
    scalars: AdamWScalars,
    [weights, gradient, first, second]: [&Buffer; 4],
    squared_norm: Option<&Buffer>,
) -> [Buffer; 3] {
    let count = weights.len();
    assert!(
        [gradient, first, second].iter().all(|buffer| buffer.len() == count),
        "weights, gradient and moments have the same length"
    );
    let outputs = [(); 3].map(|()| Buffer::empty(client, count));
    adamw_step::launch(
        client,
        unit_per_element(count),
        units(),
        weights.arg(),
        gradient.arg(),
        first.arg(),
        second.arg(),
        squared_norm.unwrap_or(weights).arg(),
        outputs[0].arg(),
        outputs[1].arg(),
        outputs[2].arg(),
        count as u32,
        StepScalarsLaunch::new(
            scalars.gradient_scale,
            scalars.max_norm,
            scalars.beta_1,
            scalars.rest_1,
            scalars.beta_2,
            scalars.rest_2,
            scalars.decay,
            scalars.rate,
            scalars.inverse_correction,
            scalars.eps,
        ),
        squared_norm.is_some(),
    );
    outputs
}

/// Computes the sum of squares of every `CUBE_COUNT_X`-th block of a gradient.
#[cube(launch)]
fn sums_of_squares(gradient: &[f32], squares: &mut [f32], count: u32) {
    let step = CUBE_COUNT_X as usize * UNITS;
    let mut at = CUBE_POS_X as usize * UNITS + UNIT_POS as usize;
    let mut sum = 0.0f32;
    while at < count as usize {
        sum += gradient[at] * gradient[at];
        at += step;
    }
    let total = sum_over_units(sum, UNITS);
    if UNIT_POS == 0 {
        squares[CUBE_POS_X as usize] = total;
    }
}

#[cube(launch)]
fn adamw_step(
    weights: &[f32],
    gradient: &[f32],
    first: &[f32],
    second: &[f32],
    squared_norm: &[f32],
    new_weights: &mut [f32],
    new_first: &mut [f32],
    new_second: &mut [f32],
    count: u32,
    scalars: StepScalars,
    #[comptime] clips: bool,
) {
    let at = ABSOLUTE_POS;
    if at < count as usize {
        let mut g = gradient[at] * scalars.gradient_scale;
        if comptime!(clips) {
            let norm = squared_norm[0].sqrt() + CLIP_EPSILON;
            if scalars.max_norm > 0.0f32 && norm > scalars.max_norm {
                g *= scalars.max_norm / norm;
            }
        }
        let m = first[at] * scalars.beta_1 + g * scalars.rest_1;
        let v = second[at] * scalars.beta_2 + g * g * scalars.rest_2;
        let scale = v.sqrt() * scalars.inverse_correction + scalars.eps;
        new_first[at] = m;
        new_second[at] = v;
        new_weights[at] = weights[at] * scalars.decay - m / scale * scalars.rate;
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use super::*;
    use crate::testing::{assert_close, client, values};

    #[test]
    fn step_matches_the_reference() {
        let Some(client) = client() else { return };
        for count in [1, 1000, 4097] {
            let scalars = AdamWScalars {
                gradient_scale: 0.5,
                max_norm: 0.0,
                beta_1: 0.9,
                rest_1: 0.1,
                beta_2: 0.99,
                rest_2: 0.01,
                decay: 0.999,
                rate: 0.1,
                inverse_correction: 7.0,
                eps: 1e-8,
            };
            let [w, g, m] = [1, 2, 3].map(|seed| values(seed, count, 1.0));
            let v: Vec<f32> = values(4, count, 1.0).iter().map(|value| value.abs()).collect();
            let mut expected = [(); 3].map(|()| Vec::new());
            for i in 0..count {
                let [w, g, m, v] = [&w, &g, &m, &v].map(|values| f64::from(values[i]));
                let g = g * 0.5;
                let m = m * f64::from(scalars.beta_1) + g * f64::from(scalars.rest_1);
                let v = v * f64::from(scalars.beta_2) + g * g * f64::from(scalars.rest_2);
                let scale = v.sqrt() * 7.0 + 1e-8;
                let decay = f64::from(scalars.decay);
                expected[0].push(w * decay - m / scale * f64::from(scalars.rate));
                expected[1].push(m);
                expected[2].push(v);
            }
            let [w, g, m, v] = [w, g, m, v].map(|values| Buffer::from_slice(&client, &values));
            let ours = step(&client, scalars, [&w, &g, &m, &v], None);
            for (ours, expected) in ours.iter().zip(&expected) {
                assert_close(&ours.to_vec(&client), expected, 1e-6);
            }
        }
    }

    #[test]
    fn gradients_are_clipped_by_their_norm_on_the_device() {
        let Some(client) = client() else { return };
        for count in [1, 1000, 100_000] {
            let [w, g, m] = [1, 2, 3].map(|seed| values(seed, count, 1.0));
            let v: Vec<f32> = values(4, count, 1.0).iter().map(|value| value.abs()).collect();
            let norm = g.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
            let [w, g, m, v] = [w, g, m, v].map(|values| Buffer::from_slice(&client, &values));
            let squared = squared_norm(&client, &g);
            assert_close(&squared.to_vec(&client), &[norm], 1e-6);
            for (max_norm, scale) in
                [(0.0, 1.0), (2.0 * norm.sqrt(), 1.0), (0.5 * norm.sqrt(), 0.5)]
            {
                let scalars = AdamWScalars {
                    gradient_scale: 1.0,
                    max_norm: max_norm as f32,
                    beta_1: 0.9,
                    rest_1: 0.1,
                    beta_2: 0.99,
                    rest_2: 0.01,
                    decay: 0.999,
                    rate: 0.1,
                    inverse_correction: 7.0,
                    eps: 1e-8,
                };
                let ours = step(&client, scalars, [&w, &g, &m, &v], Some(&squared));
                let scaled = AdamWScalars { gradient_scale: scale, ..scalars };
                let expected = step(&client, scaled, [&w, &g, &m, &v], None);
                for (ours, expected) in ours.iter().zip(&expected) {
                    let expected: Vec<f32> = expected.to_vec(&client);
                    let expected: Vec<f64> = expected.into_iter().map(f64::from).collect();
                    assert_close(&ours.to_vec(&client), &expected, 1e-5);
                }
            }
        }
    }
}
