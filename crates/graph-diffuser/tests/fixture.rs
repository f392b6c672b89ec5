//! By another hand: a separate version of the equations in another framework recorded seven models
//! (`fixtures/record.py`). Same weights in; outputs, gradients, statistics and ten losses out.
//!
//! In f64 the two agree to rounding. In f32, which is what runs are trained in, they agree to 1e-5.

mod recorded;

use burn::tensor::DType;
use recorded::{Recorded, worst_difference};

const CASES: [&str; 7] = ["paper", "authors", "molecule", "cls", "code", "stacked", "content"];

/// Relative to the largest recorded number of the same array.
fn check(dtype: DType, one_step: f64, ten_losses: f64) {
    for case in CASES {
        let recorded = Recorded::open(case);
        let seen = recorded.run(dtype);
        for (name, ours) in &seen.one_step {
            let difference = worst_difference(ours, &recorded.array(name));
            assert!(difference < one_step, "{case} {dtype:?}: {name} differs by {difference:.2e}");
        }
        let recorded_parameters = recorded.names("grad.").len();
        let compared = seen.one_step.iter().filter(|(name, _)| name.starts_with("grad.")).count();
        assert_eq!(compared, recorded_parameters, "{case}: not every gradient was compared");
        let difference = worst_difference(&seen.losses, &recorded.array("losses"));
        assert!(difference < ten_losses, "{case} {dtype:?}: losses differ by {difference:.2e}");
    }
}

#[test]
fn double_precision_equals_the_record_to_rounding() {
    check(DType::F64, 1e-10, 1e-10);
}

#[test]
fn single_precision_equals_the_record_to_five_figures() {
    check(DType::F32, 1e-5, 1e-5);
}
