//! Regression targets: L1 or MSE loss, MAE, RMSE, R² and Spearman correlation.
//!
//! Metrics take rows of `columns` values, one per target; NaN targets are missing. With several
//! targets, MAE is the mean over all observed values, and the other metrics are computed per target
//! and averaged, as in OGB (RMSE) and scikit-learn (R²).

use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metric::Metric;
use super::sample_rows::observed_column;

/// Metrics of a regression target; the first is the default selection metric.
pub(super) const METRICS: [Metric; 4] = [Metric::Mae, Metric::Rmse, Metric::R2, Metric::Spearman];

/// Metrics of several regression targets with different units, as [`METRICS`].
pub(super) const METRICS_OF_SEVERAL_UNITS: [Metric; 5] =
    [Metric::Loss, Metric::R2, Metric::Spearman, Metric::Mae, Metric::Rmse];

/// Loss function of a regression task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RegressionLoss {
    /// Mean absolute error.
    #[default]
    L1,
    /// Mean squared error.
    Mse,
}

impl RegressionLoss {
    /// Computes the loss of each value.
    ///
    /// # Shapes
    /// - `output`, `values`, returned tensor: `[b, targets]`
    pub(super) fn of(self, output: Tensor<2>, values: Tensor<2>) -> Tensor<2> {
        let differences = output - values;
        match self {
            Self::L1 => differences.abs(),
            Self::Mse => differences.clone() * differences,
        }
    }
}

/// Computes the mean absolute error over all observed values.
pub fn mean_absolute_error(predicted: &[f64], targets: &[f64]) -> f64 {
    let observed = predicted.iter().zip(targets).filter(|(_, target)| !target.is_nan());
    let errors: Vec<f64> = observed.map(|(predicted, target)| (predicted - target).abs()).collect();
    mean(&errors)
}

/// Computes the root mean squared error of each target, averaged over targets.
pub fn root_mean_square_error(predicted: &[f64], targets: &[f64], columns: usize) -> f64 {
    mean_over_targets(predicted, targets, columns, |predicted, targets| {
        mean_squared_error(predicted, targets).sqrt()
    })
}

/// Computes R², `1 − Σ(y − ŷ)² / Σ(y − ȳ)²`, of each target, averaged over targets.
///
/// As in scikit-learn, the score of a constant target is 1 if it is predicted exactly and 0
/// otherwise, and the score of a target with fewer than two observed values is NaN.
pub fn r2(predicted: &[f64], targets: &[f64], columns: usize) -> f64 {
    mean_over_targets(predicted, targets, columns, |predicted, targets| {
        if targets.len() < 2 {
            return f64::NAN;
        }
        let residual = mean_squared_error(predicted, targets);
        let variance = mean_squared_error(targets, &vec![mean(targets); targets.len()]);
        match (residual == 0.0, variance == 0.0) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => 1.0 - residual / variance,
        }
    })
}

/// Computes Spearman's rank correlation of each target, averaged over targets; ties share their
/// mean rank.
///
/// The result is NaN if predictions or targets are constant.
pub fn spearman(predicted: &[f64], targets: &[f64], columns: usize) -> f64 {
    mean_over_targets(predicted, targets, columns, |predicted, targets| {
        if predicted.iter().any(|value| value.is_nan()) {
            return f64::NAN;
        }
        let (predicted, targets) = (ranks(predicted), ranks(targets));
        let mean_rank = f64::midpoint(1.0, predicted.len() as f64);
        let product = |left: &[f64], right: &[f64]| -> f64 {
            left.iter()
                .zip(right)
                .map(|(left, right)| (left - mean_rank) * (right - mean_rank))
                .sum()
        };
        product(&predicted, &targets)
            / (product(&predicted, &predicted) * product(&targets, &targets)).sqrt()
    })
}

fn mean_over_targets(
    predicted: &[f64],
    targets: &[f64],
    columns: usize,
    score: impl Fn(&[f64], &[f64]) -> f64,
) -> f64 {
    let scores: Vec<f64> = (0..columns)
        .map(|column| {
            let observed = observed_column(predicted, targets, columns, column);
            let (predicted, targets): (Vec<f64>, Vec<f64>) = observed.unzip();
            score(&predicted, &targets)
        })
        .collect();
    mean(&scores)
}

fn mean_squared_error(predicted: &[f64], targets: &[f64]) -> f64 {
    let errors: Vec<f64> =
        predicted.iter().zip(targets).map(|(value, target)| (value - target).powi(2)).collect();
    mean(&errors)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns ranks from 1; ties share their mean rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&left, &right| values[left].total_cmp(&values[right]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for equal in order.chunk_by(|&left, &right| values[left] == values[right]) {
        let rank = before as f64 + f64::midpoint(1.0, equal.len() as f64);
        for &index in equal {
            ranks[index] = rank;
        }
        before += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_are_ignored() {
        let (predicted, targets) = ([1.0, 5.0, 0.0, 1.0], [2.0, f64::NAN, 0.5, 1.0]);
        assert_eq!(mean_absolute_error(&predicted, &targets), 0.5);
        // The first target has squared errors 1 and 1/4, the second a single error of 0.
        let expected = f64::midpoint(0.625_f64.sqrt(), 0.0);
        assert!((root_mean_square_error(&predicted, &targets, 2) - expected).abs() < 1e-12);
        assert!(r2(&predicted, &targets, 2).is_nan(), "one value has no variance");
    }

    #[test]
    fn r2_matches_hand_computation() {
        // Mean 2, sum of squares 2; errors 0, 1, 0.
        assert_eq!(r2(&[1.0, 3.0, 3.0], &[1.0, 2.0, 3.0], 1), 0.5);
        assert_eq!(r2(&[1.0, 1.0], &[1.0, 1.0], 1), 1.0);
        assert_eq!(r2(&[1.0, 2.0], &[1.0, 1.0], 1), 0.0);
    }

    #[test]
    fn ties_share_ranks_and_constants_have_no_correlation() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 0.0]), [3.5, 2.0, 3.5, 1.0]);
        assert_eq!(spearman(&[1.0, 10.0, 100.0], &[-3.0, -2.0, 5.0], 1), 1.0);
        assert_eq!(spearman(&[3.0, 2.0, 1.0], &[1.0, 2.0, 4.0], 1), -1.0);
        assert!(spearman(&[1.0, 1.0], &[1.0, 2.0], 1).is_nan());
        assert!(spearman(&[f64::NAN, 1.0], &[1.0, 2.0], 1).is_nan());
    }
}
