//! Numbers for every graph, where values may be missing.
//!
//! Metrics take rows of `columns` numbers, one a target; a NaN among the targets is a missing value. Over several
//! targets, the absolute error is a mean over all known values; the other metrics are taken target by target and
//! then averaged, as OGB does with the squared error and scikit-learn with R².

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::known_column;

/// What training makes small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegressionLoss {
    /// Absolute error.
    #[default]
    L1,
    /// Squared error.
    Mse,
}

impl RegressionLoss {
    /// Mean over the known values of the batch.
    ///
    /// # Shapes
    /// - `output`, `values`, `known`: `[b, outputs]`
    /// - returns `[1]`
    pub(super) fn of(self, output: Tensor<2>, values: Tensor<2>, known: Tensor<2>) -> Tensor<1> {
        let differences = output - values;
        let errors = match self {
            Self::L1 => differences.abs(),
            Self::Mse => differences.clone() * differences,
        };
        (errors * known.clone()).sum() / known.sum().clamp_min(1.0)
    }
}

/// Absolute error, mean over all known values.
pub fn mean_absolute_error(predicted: &[f32], targets: &[f32]) -> f64 {
    let known = predicted.iter().zip(targets).filter(|(_, target)| !target.is_nan());
    let errors: Vec<f64> = known
        .map(|(predicted, target)| (f64::from(*predicted) - f64::from(*target)).abs())
        .collect();
    mean(&errors)
}

/// Root of the mean squared error of each target, mean over targets.
pub fn root_mean_square_error(predicted: &[f32], targets: &[f32], columns: usize) -> f64 {
    mean_over_targets(predicted, targets, columns, |predicted, targets| {
        squared_errors(predicted, targets).sqrt()
    })
}

/// `1 − Σ(y − ŷ)² / Σ(y − ȳ)²` of each target, mean over targets.
///
/// A target that never changes has 1 where it is met exactly and 0 elsewhere, and one with fewer than two known values
/// NaN, as scikit-learn has it.
pub fn r2(predicted: &[f32], targets: &[f32], columns: usize) -> f64 {
    mean_over_targets(predicted, targets, columns, |predicted, targets| {
        if targets.len() < 2 {
            return f64::NAN;
        }
        let unexplained = squared_errors(predicted, targets);
        let variance = squared_errors(targets, &vec![mean(targets); targets.len()]);
        match (unexplained == 0.0, variance == 0.0) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => 1.0 - unexplained / variance,
        }
    })
}

/// Correlation of ranks of each target, mean over targets; equal values share the mean of their ranks.
///
/// NaN where predictions or targets never change.
pub fn spearman(predicted: &[f32], targets: &[f32], columns: usize) -> f64 {
    mean_over_targets(predicted, targets, columns, |predicted, targets| {
        if predicted.iter().any(|value| value.is_nan()) {
            return f64::NAN;
        }
        let (ours, theirs) = (ranks(predicted), ranks(targets));
        let middle = f64::midpoint(1.0, ours.len() as f64);
        let product = |left: &[f64], right: &[f64]| -> f64 {
            left.iter().zip(right).map(|(left, right)| (left - middle) * (right - middle)).sum()
        };
        product(&ours, &theirs) / (product(&ours, &ours) * product(&theirs, &theirs)).sqrt()
    })
}

fn mean_over_targets(
    predicted: &[f32],
    targets: &[f32],
    columns: usize,
    score: impl Fn(&[f64], &[f64]) -> f64,
) -> f64 {
    let scores: Vec<f64> = (0..columns)
        .map(|column| {
            let known = known_column(predicted, targets, columns, column);
            let (predicted, targets): (Vec<f64>, Vec<f64>) =
                known.map(|(predicted, target)| (f64::from(predicted), f64::from(target))).unzip();
            score(&predicted, &targets)
        })
        .collect();
    mean(&scores)
}

fn squared_errors(predicted: &[f64], targets: &[f64]) -> f64 {
    let errors: Vec<f64> =
        predicted.iter().zip(targets).map(|(ours, theirs)| (ours - theirs).powi(2)).collect();
    mean(&errors)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Ranks from 1 up; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&left, &right| values[left].total_cmp(&values[right]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for equal in order.chunk_by(|&left, &right| values[left] == values[right]) {
        let rank = before as f64 + f64::midpoint(1.0, equal.len() as f64);
        for &place in equal {
            ranks[place] = rank;
        }
        before += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;

    #[test]
    fn losses_are_means_over_known_values() {
        let tensor =
            |rows: [[f64; 2]; 2]| Tensor::<2>::from_data(rows, (&Device::flex(), DType::F64));
        let value = |loss: RegressionLoss| {
            let (output, values) =
                (tensor([[1.0, 5.0], [0.0, 1.0]]), tensor([[3.0, 0.0], [0.5, 1.0]]));
            loss.of(output, values, tensor([[1.0, 0.0], [1.0, 1.0]])).into_scalar::<f64>()
        };
        assert!((value(RegressionLoss::L1) - 2.5 / 3.0).abs() < 1e-12);
        assert!((value(RegressionLoss::Mse) - 4.25 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn missing_values_do_not_count() {
        let (predicted, targets) = ([1.0, 5.0, 0.0, 1.0], [2.0, f32::NAN, 0.5, 1.0]);
        assert_eq!(mean_absolute_error(&predicted, &targets), 0.5);
        // The first target has squared errors 1 and 1/4, the second one error of nothing.
        let expected = f64::midpoint(0.625_f64.sqrt(), 0.0);
        assert!((root_mean_square_error(&predicted, &targets, 2) - expected).abs() < 1e-12);
        assert!(r2(&predicted, &targets, 2).is_nan(), "one value has no variance");
    }

    #[test]
    fn explained_variance_by_hand() {
        // Mean 2, squares 2; errors 0, 1, 0.
        assert_eq!(r2(&[1.0, 3.0, 3.0], &[1.0, 2.0, 3.0], 1), 0.5);
        assert_eq!(r2(&[1.0, 1.0], &[1.0, 1.0], 1), 1.0);
        assert_eq!(r2(&[1.0, 2.0], &[1.0, 1.0], 1), 0.0);
    }

    #[test]
    fn ranks_share_ties_and_constants_have_no_correlation() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 0.0]), [3.5, 2.0, 3.5, 1.0]);
        assert_eq!(spearman(&[1.0, 10.0, 100.0], &[-3.0, -2.0, 5.0], 1), 1.0);
        assert_eq!(spearman(&[3.0, 2.0, 1.0], &[1.0, 2.0, 4.0], 1), -1.0);
        assert!(spearman(&[1.0, 1.0], &[1.0, 2.0], 1).is_nan());
        assert!(spearman(&[f32::NAN, 1.0], &[1.0, 2.0], 1).is_nan());
    }
}
