//! Tests of linear layers against naive loops in double precision.

use super::*;

/// Returns pseudo-random values in `[-1, 1)`.
fn random_values(count: usize, seed: u32) -> Vec<f32> {
    (0..count as u32)
        .map(|at| crate::hash32(at ^ seed << 20) as f32 / 2_f32.powi(31) - 1.0)
        .collect()
}

struct Case {
    rows: usize,
    inputs: usize,
    outputs: usize,
    bias: bool,
    activation: LinearActivation,
}

/// Computes output and gradients in double precision: `y`, `d_x`, `d_weight`, `d_bias`.
fn reference(
    case: &Case,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    d_y: &[f32],
) -> [Vec<f64>; 4] {
    let &Case { rows, inputs, outputs, activation, .. } = case;
    let mut gradients =
        [rows * outputs, rows * inputs, outputs * inputs, outputs].map(|count| vec![0.0; count]);
    let [y, d_x, d_weight, d_bias] = &mut gradients;
    for (row, output) in (0..rows).flat_map(|row| (0..outputs).map(move |output| (row, output))) {
        let at = row * outputs + output;
        let mut z = bias.map_or(0.0, |bias| f64::from(bias[output]));
        for input in 0..inputs {
            z += f64::from(x[row * inputs + input]) * f64::from(weight[output * inputs + input]);
        }
        let slope = match activation {
            LinearActivation::None => 1.0,
            LinearActivation::Relu(_) if z <= 0.0 => 0.0,
            LinearActivation::Relu(dropout) => {
                dropout.map_or(1.0, |dropout| f64::from(dropout.factor(at as u64)))
            }
        };
        y[at] = z * slope;
        let d_z = f64::from(d_y[at]) * slope;
        d_bias[output] += d_z;
        for input in 0..inputs {
            d_x[row * inputs + input] += d_z * f64::from(weight[output * inputs + input]);
            d_weight[output * inputs + input] += d_z * f64::from(x[row * inputs + input]);
        }
    }
    gradients
}

fn check(case: &Case) {
    let &Case { rows, inputs, outputs, activation, .. } = case;
    let (x, weight) = (random_values(rows * inputs, 1), random_values(outputs * inputs, 2));
    let bias = case.bias.then(|| random_values(outputs, 3));
    let d_y = random_values(rows * outputs, 4);
    let expected = reference(case, &x, &weight, bias.as_deref(), &d_y);
    for isa in Isa::available() {
        let params =
            LinearParams { inputs, outputs, weight: &weight, bias: bias.as_deref(), activation };
        let y = forward(isa, &params, &x);
        let gradients = backward(isa, &params, &x, &y, &d_y);
        for (ours, expected) in
            [&y, &gradients.x, &gradients.weight, &gradients.bias].into_iter().zip(&expected)
        {
            assert_eq!(ours.len(), expected.len());
            let largest = expected.iter().fold(1.0_f64, |largest, value| largest.max(value.abs()));
            for (ours, expected) in ours.iter().zip(expected) {
                let distance = (f64::from(*ours) - expected).abs();
                assert!(
                    distance < 2e-6 * largest,
                    "{isa:?} {rows}x{inputs}->{outputs}: {ours} differs from {expected}"
                );
            }
        }
    }
}

const DROPOUT: Dropout = Dropout { key: [5, 6], threshold: 1 << 30, scale: 4.0 / 3.0 };

#[test]
fn ragged_sizes_match_reference() {
    for rows in [0, 1, 2, 5, 6, 7, 47, 48, 49, 127, 129, 300] {
        for (inputs, outputs) in [(1, 1), (3, 10), (15, 17), (16, 16), (32, 33), (64, 65)] {
            check(&Case { rows, inputs, outputs, bias: true, activation: LinearActivation::None });
        }
    }
}

#[test]
fn every_width_up_to_a_few_panels_matches_reference() {
    for outputs in 1..150 {
        check(&Case {
            rows: 13,
            inputs: 150 - outputs,
            outputs,
            bias: outputs % 2 == 0,
            activation: LinearActivation::None,
        });
    }
}

#[test]
fn activations_and_dropout_match_reference() {
    for activation in [LinearActivation::Relu(None), LinearActivation::Relu(Some(DROPOUT))] {
        for (rows, inputs, outputs) in
            [(1, 4, 3), (50, 7, 20), (100, 64, 128), (131, 33, 112), (50, 300, 130), (20, 9, 400)]
        {
            check(&Case { rows, inputs, outputs, bias: true, activation });
        }
    }
}

#[test]
fn gradients_of_many_rows_are_sums_over_parts() {
    let (inputs, outputs) = (3, 50);
    let weight = random_values(inputs * outputs, 3);
    let activation = LinearActivation::None;
    let params = LinearParams { inputs, outputs, weight: &weight, bias: None, activation };
    for rows in [2 * PART_ROWS, 5 * PART_ROWS + 131] {
        let (x, d_y) = (random_values(rows * inputs, 1), random_values(rows * outputs, 2));
        let part_rows = rows_per_part(rows);
        assert!((PART_ROWS..2 * PART_ROWS).contains(&part_rows));
        for isa in Isa::available() {
            let gradients = backward(isa, &params, &x, &d_y, &d_y);
            let (mut weight, mut bias) = (vec![0.0; inputs * outputs], vec![0.0; outputs]);
            for (x, d_y) in x.chunks(part_rows * inputs).zip(d_y.chunks(part_rows * outputs)) {
                let part = backward(isa, &params, x, d_y, d_y);
                for (sums, part) in [(&mut weight, part.weight), (&mut bias, part.bias)] {
                    sums.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
                }
            }
            assert_eq!((gradients.weight, gradients.bias), (weight, bias), "{isa:?} {rows}");
        }
    }
}

#[test]
fn gradients_of_fewer_rows_than_two_parts_are_sums_in_row_order() {
    let (rows, inputs, outputs) = (2 * PART_ROWS - 1, 1, 1);
    let (x, d_y) = (random_values(rows, 1), random_values(rows, 2));
    let activation = LinearActivation::None;
    let params = LinearParams { inputs, outputs, weight: &[1.0], bias: None, activation };
    for isa in Isa::available() {
        let gradients = backward(isa, &params, &x, &x, &d_y);
        assert_eq!(gradients.bias, [d_y.iter().sum::<f32>()], "{isa:?}");
    }
}

#[test]
fn nan_propagates_through_relu() {
    let params = LinearParams {
        inputs: 1,
        outputs: 1,
        weight: &[1.0],
        bias: None,
        activation: LinearActivation::Relu(None),
    };
    for isa in Isa::available() {
        assert!(forward(isa, &params, &[f32::NAN])[0].is_nan());
    }
}

#[test]
fn results_are_independent_of_thread_count() {
    // The second case has several parts of rows.
    for (rows, inputs, outputs) in [(500, 48, 96), (3 * PART_ROWS + 77, 5, 7)] {
        let (x, weight, d_y) = (
            random_values(rows * inputs, 1),
            random_values(outputs * inputs, 2),
            random_values(rows * outputs, 3),
        );
        let params = LinearParams {
            inputs,
            outputs,
            weight: &weight,
            bias: None,
            activation: LinearActivation::Relu(Some(DROPOUT)),
        };
        assert!(
            rows * inputs * outputs > PARALLEL,
            "the case must be large enough to run in parallel"
        );
        for isa in Isa::available() {
            let run = |threads: usize| {
                let pool = crate::ThreadPool::new(threads);
                pool.install(|| {
                    let y = forward(isa, &params, &x);
                    let gradients = backward(isa, &params, &x, &y, &d_y);
                    (y, gradients)
                })
            };
            let one = run(1);
            for threads in [2, 3, 4, 8] {
                assert_eq!(one, run(threads), "{isa:?}, {threads} threads");
            }
        }
    }
}
