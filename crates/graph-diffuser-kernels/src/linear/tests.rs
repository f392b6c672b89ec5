//! Linear maps against straight loops in double precision.

use super::*;

/// Numbers about zero that no pattern of the sizes can hide in.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    (0..count as u32)
        .map(|at| crate::hash32(at ^ seed << 20) as f32 / 2_f32.powi(31) - 1.0)
        .collect()
}

struct Case {
    rows: usize,
    inputs: usize,
    outputs: usize,
    bias: bool,
    then: LinearActivation,
}

/// By straight loops in double precision: `y`, `d_x`, `d_weight`, `d_bias`.
fn straight(
    case: &Case,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    d_y: &[f32],
) -> [Vec<f64>; 4] {
    let &Case { rows, inputs, outputs, then, .. } = case;
    let mut made =
        [rows * outputs, rows * inputs, outputs * inputs, outputs].map(|count| vec![0.0; count]);
    let [y, d_x, d_weight, d_bias] = &mut made;
    for (row, output) in (0..rows).flat_map(|row| (0..outputs).map(move |output| (row, output))) {
        let at = row * outputs + output;
        let mut z = bias.map_or(0.0, |bias| f64::from(bias[output]));
        for input in 0..inputs {
            z += f64::from(x[row * inputs + input]) * f64::from(weight[output * inputs + input]);
        }
        let slope = match then {
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
    made
}

fn check(case: &Case) {
    let &Case { rows, inputs, outputs, then, .. } = case;
    let (x, weight) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 2));
    let bias = case.bias.then(|| numbers(outputs, 3));
    let d_y = numbers(rows * outputs, 4);
    let expected = straight(case, &x, &weight, bias.as_deref(), &d_y);
    for isa in Isa::available() {
        let map = Linear { inputs, outputs, weight: &weight, bias: bias.as_deref(), then };
        let y = forward(isa, &map, &x);
        let made = backward(isa, &map, &x, &y, &d_y);
        for (ours, expected) in [&y, &made.x, &made.weight, &made.bias].into_iter().zip(&expected) {
            assert_eq!(ours.len(), expected.len());
            let largest = expected.iter().fold(1.0_f64, |largest, value| largest.max(value.abs()));
            for (ours, expected) in ours.iter().zip(expected) {
                let distance = (f64::from(*ours) - expected).abs();
                assert!(
                    distance < 2e-6 * largest,
                    "{isa:?} {rows}x{inputs}->{outputs}: {ours} is not {expected}"
                );
            }
        }
    }
}

const DROPOUT: Dropout = Dropout { key: [5, 6], threshold: 1 << 30, kept: 4.0 / 3.0 };

#[test]
fn it_equals_straight_loops_for_ragged_sizes() {
    for rows in [0, 1, 2, 5, 6, 7, 47, 48, 49, 127, 129, 300] {
        for (inputs, outputs) in [(1, 1), (3, 10), (15, 17), (16, 16), (32, 33), (64, 65)] {
            check(&Case { rows, inputs, outputs, bias: true, then: LinearActivation::None });
        }
    }
}

#[test]
fn it_equals_straight_loops_for_every_width_up_to_a_few_panels() {
    for outputs in 1..150 {
        check(&Case {
            rows: 13,
            inputs: 150 - outputs,
            outputs,
            bias: outputs % 2 == 0,
            then: LinearActivation::None,
        });
    }
}

#[test]
fn it_equals_straight_loops_with_what_follows() {
    for then in [LinearActivation::Relu(None), LinearActivation::Relu(Some(DROPOUT))] {
        for (rows, inputs, outputs) in
            [(1, 4, 3), (50, 7, 20), (100, 64, 128), (131, 33, 112), (50, 300, 130)]
        {
            check(&Case { rows, inputs, outputs, bias: true, then });
        }
    }
}

#[test]
fn what_is_not_a_number_stays_so() {
    let map = Linear {
        inputs: 1,
        outputs: 1,
        weight: &[1.0],
        bias: None,
        then: LinearActivation::Relu(None),
    };
    for isa in Isa::available() {
        assert!(forward(isa, &map, &[f32::NAN])[0].is_nan());
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    let (rows, inputs, outputs) = (500, 48, 96);
    let (x, weight, d_y) =
        (numbers(rows * inputs, 1), numbers(outputs * inputs, 2), numbers(rows * outputs, 3));
    let map = Linear {
        inputs,
        outputs,
        weight: &weight,
        bias: None,
        then: LinearActivation::Relu(Some(DROPOUT)),
    };
    assert!(rows * inputs * outputs > PARALLEL, "large enough to be shared out");
    for isa in Isa::available() {
        let with = |threads: usize| {
            let pool = crate::Threads::new(threads);
            pool.install(|| {
                let y = forward(isa, &map, &x);
                let made = backward(isa, &map, &x, &y, &d_y);
                (y, made)
            })
        };
        let one = with(1);
        assert_eq!(one, with(2));
        assert_eq!(one, with(5));
    }
}
