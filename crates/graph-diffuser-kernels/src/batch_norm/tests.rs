//! Tests of batch norm against hand-computed examples and a reference in double precision.

use super::*;
use crate::simd::{Dropout, Isa};
use crate::testing::random_values;

/// Returns random rows whose channels differ in mean and scale.
fn random_rows(rows: usize, channels: usize) -> Vec<f32> {
    let mut x = random_values(rows * channels, 1);
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

/// Reference in double precision; the gradient is propagated through mean and variance separately.
fn exact(
    x: &[f32],
    channels: usize,
    gamma: &[f32],
    beta: &[f32],
    relu: bool,
    d_y: &[f32],
) -> Exact {
    let rows = x.len() / channels;
    let empty = || vec![0.0; x.len()];
    let none = || vec![0.0; channels];
    let mut exact = Exact {
        y: empty(),
        mean: none(),
        variance: none(),
        d_x: empty(),
        d_gamma: none(),
        d_beta: none(),
    };
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

/// Compares arrays; `size` is the magnitude of the terms of a value, which may cancel.
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
        assert!(
            (ours - exact).abs() <= tolerance * size(at),
            "{what} at {at}: {ours} differs from {exact}"
        );
    }
}

/// Compares forward and backward pass with the reference.
fn compare(isa: Isa, x: &[f32], channels: usize, relu: bool, tolerance: f64) {
    let (gamma, beta, d_y) =
        (random_values(channels, 3), random_values(channels, 4), random_values(x.len(), 2));
    let exact = exact(x, channels, &gamma, &beta, relu, &d_y);
    let what = format!("{isa:?} [{}, {channels}] {relu}", x.len() / channels);
    let Normalized { y, statistics, .. } = forward(isa, x, None, &gamma, &beta, relu, None);
    let mean_size = |at: usize| exact.mean[at].abs() + exact.variance[at].sqrt();
    assert_close(&statistics.mean, &exact.mean, mean_size, 1e-6, &format!("{what} mean"));
    let variance_size = |at: usize| exact.variance[at] + 1e-9;
    assert_close(
        &statistics.variance,
        &exact.variance,
        variance_size,
        tolerance,
        &format!("{what} variance"),
    );
    assert_close(&y, &exact.y, |at| 1.0 + exact.y[at].abs(), tolerance, &format!("{what} y"));
    let gradients = backward(isa, x, None, &gamma, &beta, &statistics, relu, &d_y, None);
    // The gradient is ambiguous if rounding decides the sign before the `ReLU`.
    if (0..y.len()).any(|at| (y[at] > 0.0) != (exact.y[at] > 0.0)) && relu {
        return;
    }
    let scale = |at: usize| {
        f64::from(gamma[at % channels].abs()) / (exact.variance[at % channels] + EPSILON).sqrt()
    };
    assert_close(&gradients.x, &exact.d_x, scale, tolerance, &format!("{what} d_x"));
    let length = ((x.len() / channels) as f64).sqrt();
    assert_close(
        &gradients.gamma,
        &exact.d_gamma,
        |_| length,
        tolerance,
        &format!("{what} d_gamma"),
    );
    assert_close(&gradients.beta, &exact.d_beta, |_| length, tolerance, &format!("{what} d_beta"));
}

#[test]
fn four_row_example_matches_hand_computation() {
    // Channel 0: mean 2, biased variance 1. Channel 1: constant.
    let x = [1.0, 5.0, 3.0, 5.0, 1.0, 5.0, 3.0, 5.0];
    let one = (1.0 / (1.0 + EPSILON).sqrt()) as f32;
    for isa in Isa::available() {
        let Normalized { y, statistics, .. } =
            forward(isa, &x, None, &[1.0, 1.0], &[0.0, 2.0], false, None);
        assert_eq!(
            statistics,
            BatchStatistics { mean: vec![2.0, 5.0], variance: vec![1.0, 0.0], rows: 4 }
        );
        assert_eq!(y, [-one, 2.0, one, 2.0, -one, 2.0, one, 2.0]);
        let y = forward(isa, &x, None, &[1.0, 1.0], &[0.0, -2.0], true, None).y;
        assert_eq!(y, [0.0, 0.0, one, 0.0, 0.0, 0.0, one, 0.0]);
    }
}

#[test]
fn values_and_gradients_match_double_precision() {
    for isa in Isa::available() {
        for channels in (1..=20).chain([31, 32, 33, 63, 64, 65, 100]) {
            for rows in [0, 1, 2, 15, 16, 17, 63, 64, 65, 130, 300] {
                for relu in [false, true] {
                    compare(isa, &random_rows(rows, channels), channels, relu, 4e-6);
                }
            }
        }
    }
}

#[test]
fn large_parallel_batches_match_double_precision() {
    for isa in Isa::available() {
        compare(isa, &random_rows(5000, 60), 60, false, 4e-6);
    }
}

#[test]
fn badly_scaled_channels_keep_precision() {
    // Mean -13 and standard deviation 1e-3; the same with an outlier in the first row; a huge mean;
    // a constant.
    let rows = 1000;
    let noise = random_values(rows * 4, 7);
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

const DROPOUT: Dropout = Dropout { key: [5, 6], threshold: 1 << 30, scale: 4.0 / 3.0 };

#[test]
fn residual_branch_is_dropped_out_and_added_before_normalization() {
    for isa in Isa::available() {
        for (rows, channels) in [(1, 3), (70, 33), (130, 64), (5000, 60)] {
            for dropout in [None, Some(DROPOUT)] {
                let (x, values) = (random_rows(rows, channels), random_values(rows * channels, 5));
                let (gamma, beta, d_y) = (
                    random_values(channels, 3),
                    random_values(channels, 4),
                    random_values(rows * channels, 2),
                );
                let factor = |at: usize| dropout.map_or(1.0, |dropout| dropout.factor(at as u64));
                let sum: Vec<f32> =
                    (0..x.len()).map(|at| x[at] + values[at] * factor(at)).collect();
                let ours = forward(
                    isa,
                    &x,
                    Some(Branch { values: &values, dropout }),
                    &gamma,
                    &beta,
                    true,
                    None,
                );
                let plain = forward(isa, &sum, None, &gamma, &beta, true, None);
                assert_eq!(ours.sum.as_ref(), Some(&sum));
                assert_eq!((ours.y, &ours.statistics), (plain.y, &plain.statistics));
                let gradients = backward(
                    isa,
                    &sum,
                    dropout,
                    &gamma,
                    &beta,
                    &plain.statistics,
                    true,
                    &d_y,
                    None,
                );
                let expected =
                    backward(isa, &sum, None, &gamma, &beta, &plain.statistics, true, &d_y, None);
                assert_eq!(expected.branch, None);
                let branch: Vec<f32> = (0..x.len()).map(|at| expected.x[at] * factor(at)).collect();
                assert_eq!(
                    gradients,
                    BatchNormGradients { branch: dropout.map(|_| branch), ..expected }
                );
            }
        }
    }
}

#[test]
fn fused_dot_matches_dot_with_stored_rows() {
    for (rows, channels) in [(1, 3), (2, 1), (63, 17), (64, 64), (200, 224), (700, 33)] {
        let x = random_rows(rows, channels);
        let [gamma, beta] = [5, 6].map(|seed| {
            random_values(channels, seed).iter().map(|value| value + 0.6).collect::<Vec<_>>()
        });
        let (mut weight, d) = (random_values(channels, 7), random_values(rows, 8));
        weight[0] = 0.0;
        for isa in Isa::available() {
            let (dots, statistics) = forward_dot(isa, &x, &gamma, &beta, &weight, None);
            let written = forward(isa, &x, None, &gamma, &beta, true, None);
            assert_eq!(statistics, written.statistics);
            assert_eq!(dots, evaluate_dot(isa, &x, &statistics, &gamma, &beta, &weight));
            let dot = |row: &[f32]| {
                row.iter().zip(&weight).map(|(y, w)| f64::from(*y) * f64::from(*w)).sum::<f64>()
            };
            let expected: Vec<f64> = written.y.chunks(channels).map(dot).collect();
            assert_close(&dots, &expected, |_| channels as f64, 1e-6, "dots");

            let d_y: Vec<f32> =
                d.iter().flat_map(|d| weight.iter().map(move |weight| d * weight)).collect();
            let expected = exact(&x, channels, &gamma, &beta, true, &d_y);
            let (gradients, d_weight) =
                backward_dot(isa, &x, &gamma, &beta, &weight, &statistics, &d, None);
            let size = |at: usize| {
                f64::from(gamma[at % channels])
                    / (expected.variance[at % channels] + EPSILON).sqrt()
            };
            assert_close(&gradients.x, &expected.d_x, size, 1e-6, "x");
            let of_channels = |_| (rows as f64).sqrt();
            assert_close(&gradients.gamma, &expected.d_gamma, of_channels, 1e-5, "gamma");
            assert_close(&gradients.beta, &expected.d_beta, of_channels, 1e-5, "beta");
            let sum = |channel: usize| -> f64 {
                let column = written.y.iter().skip(channel).step_by(channels);
                column.zip(&d).map(|(y, d)| f64::from(*y) * f64::from(*d)).sum()
            };
            let expected: Vec<f64> = (0..channels).map(sum).collect();
            assert_close(&d_weight, &expected, |_| (rows as f64).sqrt() * 4.0, 1e-5, "weight");
        }
    }
}

#[test]
fn evaluation_uses_given_statistics() {
    for isa in Isa::available() {
        let statistics =
            BatchStatistics { mean: vec![1.0, -2.0], variance: vec![4.0, 1.0], rows: 0 };
        let (x, branch) = ([2.0, -2.0, 1.0, 0.5], [1.0, 0.0, 0.0, -0.5]);
        let y = evaluate(isa, &x, Some(&branch), &statistics, &[2.0, 1.0], &[0.5, -1.0], true);
        assert_eq!(
            y,
            evaluate(
                isa,
                &[3.0, -2.0, 1.0, 0.0],
                None,
                &statistics,
                &[2.0, 1.0],
                &[0.5, -1.0],
                true
            )
        );
        assert_close(
            &y,
            &[
                2.0 / (1.0 + EPSILON / 4.0).sqrt() + 0.5,
                0.0,
                0.5,
                2.0 / (1.0 + EPSILON).sqrt() - 1.0,
            ],
            |_| 1.0,
            1e-6,
            "y",
        );
    }
}

#[test]
fn nan_propagates() {
    for isa in Isa::available() {
        for relu in [false, true] {
            let y = forward(isa, &[f32::NAN, 1.0], None, &[1.0], &[0.0], relu, None).y;
            assert!(y.iter().all(|y| y.is_nan()), "{isa:?} {y:?}");
        }
    }
}

#[test]
fn results_are_independent_of_thread_count() {
    for (rows, channels) in [(200, 33), (5000, 60)] {
        let (x, residual, d_y) = (
            random_rows(rows, channels),
            random_values(rows * channels, 5),
            random_values(rows * channels, 2),
        );
        let (gamma, beta) = (random_values(channels, 3), random_values(channels, 4));
        for isa in Isa::available() {
            let results = [1, 2, 5].map(|threads| {
                let pool = crate::ThreadPool::new(threads);
                pool.install(|| {
                    let branch = Branch { values: &residual, dropout: Some(DROPOUT) };
                    let Normalized { y, sum, statistics } =
                        forward(isa, &x, Some(branch), &gamma, &beta, true, None);
                    let sum = sum.expect("forward returns the sum if there is a branch");
                    let gradients = backward(
                        isa,
                        &sum,
                        Some(DROPOUT),
                        &gamma,
                        &beta,
                        &statistics,
                        true,
                        &d_y,
                        None,
                    );
                    let d_branch =
                        gradients.branch.expect("dropout yields a separate branch gradient");
                    let bits = [y, gradients.x, d_branch, gradients.gamma, gradients.beta]
                        .concat()
                        .into_iter()
                        .map(f32::to_bits);
                    (statistics, bits.collect::<Vec<_>>())
                })
            });
            assert!(results[0] == results[1] && results[0] == results[2], "{isa:?}");
        }
    }
}
