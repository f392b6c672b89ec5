//! AdamW step over all parameters in one buffer.

use cubecl::client::Client;
use cubecl::prelude::*;

use crate::Buffer;
use crate::buffer::{unit_per_element, units};

/// Numbers of one step, computed in double precision on the host.
#[derive(Debug, Clone, Copy)]
pub struct AdamWScalars {
    /// Factor of the gradient, for clipping.
    pub gradient_scale: f32,
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
    beta_1: f32,
    rest_1: f32,
    beta_2: f32,
    rest_2: f32,
    decay: f32,
    rate: f32,
    inverse_correction: f32,
    eps: f32,
}

/// Returns the updated weights, first and second moments, with one launch.
///
/// # Panics
/// Panics if the lengths differ.
pub fn step(
    client: &Client,
    scalars: AdamWScalars,
    [weights, gradient, first, second]: [&Buffer; 4],
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
        outputs[0].arg(),
        outputs[1].arg(),
        outputs[2].arg(),
        count as u32,
        StepScalarsLaunch::new(
            scalars.gradient_scale,
            scalars.beta_1,
            scalars.rest_1,
            scalars.beta_2,
            scalars.rest_2,
            scalars.decay,
            scalars.rate,
            scalars.inverse_correction,
            scalars.eps,
        ),
    );
    outputs
}

#[cube(launch)]
fn adamw_step(
    weights: &[f32],
    gradient: &[f32],
    first: &[f32],
    second: &[f32],
    new_weights: &mut [f32],
    new_first: &mut [f32],
    new_second: &mut [f32],
    count: u32,
    scalars: StepScalars,
) {
    let at = ABSOLUTE_POS;
    if at < count as usize {
        let g = gradient[at] * scalars.gradient_scale;
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
            let ours = step(&client, scalars, [&w, &g, &m, &v]);
            for (ours, expected) in ours.iter().zip(&expected) {
                assert_close(&ours.to_vec(&client), expected, 1e-6);
            }
        }
    }
}
