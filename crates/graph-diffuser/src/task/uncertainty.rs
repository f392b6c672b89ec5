//! Calibration of the uncertainty of an ensemble: the standard deviation over its members,
//! compared with the errors of its mean prediction.
//!
//! Samples are sorted by standard deviation and divided into bins of equal size. In each bin, the
//! root mean variance is the error that the ensemble expects and the root mean squared error is
//! the one observed (Levi et al., "Evaluating and Calibrating Uncertainty Prediction in Regression
//! Tasks", 2022). Members of an ensemble usually agree more than they should: expected errors are
//! too small, while their order is still informative.

use graph_diffuser_data::{Schema, TargetKind};
use serde::{Deserialize, Serialize};

use crate::statistics::MeanStd;

use super::metric::null_as_nan;
use super::predictions::Predictions;
use super::regression;

/// Maximum number of bins.
const MAX_BINS: usize = 10;
/// Minimum number of samples per bin.
const MIN_BIN_SAMPLES: usize = 5;

/// Standard deviations over the members of an ensemble and errors of one regression target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UncertaintyCalibration {
    /// Name of the target.
    pub name: String,
    /// Number of graphs with a value of the target.
    pub samples: usize,
    /// Spearman correlation of standard deviation and absolute error; NaN if it is undefined.
    #[serde(deserialize_with = "null_as_nan")]
    pub spearman: f64,
    /// Expected normalized calibration error: mean over the bins of
    /// `|expected - observed| / expected`; NaN if members agree exactly.
    #[serde(deserialize_with = "null_as_nan")]
    pub ence: f64,
    /// Bins of equal size in ascending order of standard deviation.
    pub bins: Vec<UncertaintyBin>,
}

/// Graphs with similar standard deviations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UncertaintyBin {
    /// Number of graphs.
    pub samples: usize,
    /// Root mean variance over the members.
    pub expected_rmse: f64,
    /// Root mean squared error of the mean prediction.
    pub observed_rmse: f64,
    /// Mean absolute error of the mean prediction.
    pub observed_mae: f64,
}

impl UncertaintyCalibration {
    /// Computes the calibration of every regression target from the predictions of the ensemble
    /// and of its members for the same graphs.
    pub fn compute(average: &Predictions, members: &[Predictions], schema: &Schema) -> Vec<Self> {
        let kinds = schema.targets.graph_targets();
        let regression =
            kinds.iter().enumerate().filter(|(_, kind)| matches!(kind, TargetKind::Regression(_)));
        let calibration = |(target, _): (usize, &TargetKind)| {
            let average = average.target(target);
            let members: Vec<Predictions> =
                members.iter().map(|member| member.target(target)).collect();
            let errors: Vec<f64> = average
                .outputs
                .values
                .iter()
                .zip(&average.targets.values)
                .map(|(predicted, target)| (predicted - target).abs())
                .collect();
            let std = |sample: usize| {
                let values: Vec<f64> =
                    members.iter().map(|member| member.outputs.values[sample]).collect();
                MeanStd::new(&values).and_then(|stats| stats.std).unwrap_or(0.0)
            };
            let stds: Vec<f64> = (0..errors.len()).map(std).collect();
            Self::new(schema.names.target(target, kinds.len()), &stds, &errors)
        };
        regression.map(calibration).collect()
    }

    /// Computes the calibration of standard deviations and absolute errors of the same samples.
    pub fn new(name: String, stds: &[f64], errors: &[f64]) -> Self {
        let mut samples: Vec<(f64, f64)> =
            stds.iter().copied().zip(errors.iter().copied()).collect();
        samples.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.total_cmp(&right.1)));
        let count = (samples.len() / MIN_BIN_SAMPLES).clamp(1, MAX_BINS);
        let start = |bin: usize| bin * samples.len() / count;
        let bins: Vec<UncertaintyBin> = (0..count)
            .map(|bin| &samples[start(bin)..start(bin + 1)])
            .filter(|bin| !bin.is_empty())
            .map(UncertaintyBin::new)
            .collect();
        let deviations: f64 = bins
            .iter()
            .map(|bin| (bin.expected_rmse - bin.observed_rmse).abs() / bin.expected_rmse)
            .sum();
        let ence = deviations / bins.len() as f64;
        Self {
            name,
            samples: samples.len(),
            spearman: regression::spearman(stds, errors, 1),
            ence: if ence.is_finite() { ence } else { f64::NAN },
            bins,
        }
    }
}

impl UncertaintyBin {
    /// Creates a bin from pairs of standard deviation and absolute error.
    fn new(samples: &[(f64, f64)]) -> Self {
        let mean = |value: fn(&(f64, f64)) -> f64| {
            samples.iter().map(value).sum::<f64>() / samples.len() as f64
        };
        Self {
            samples: samples.len(),
            expected_rmse: mean(|(std, _)| std * std).sqrt(),
            observed_rmse: mean(|(_, error)| error * error).sqrt(),
            observed_mae: mean(|(_, error)| *error),
        }
    }
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::{FeatureSchema, Names, Standardization, TargetSchema};

    use crate::task::metric::Metric;
    use crate::task::sample_rows::SampleRows;

    use super::*;

    #[test]
    fn bins_compare_expected_and_observed_errors_in_order_of_std() {
        // Errors are twice the standard deviation, except that the order of samples is reversed.
        let stds: Vec<f64> = (0..20).rev().map(|sample| 1.0 + f64::from(sample)).collect();
        let errors: Vec<f64> = stds.iter().map(|std| 2.0 * std).collect();
        let calibration = UncertaintyCalibration::new("y".into(), &stds, &errors);
        assert_eq!((calibration.samples, calibration.bins.len()), (20, 4));
        assert!((calibration.spearman - 1.0).abs() < 1e-12);
        assert!((calibration.ence - 1.0).abs() < 1e-12, "{}", calibration.ence);
        let first = calibration.bins[0];
        assert_eq!((first.samples, first.observed_mae), (5, 6.0));
        assert!((first.expected_rmse - 11.0_f64.sqrt()).abs() < 1e-12);
        assert!((first.observed_rmse - 2.0 * 11.0_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn std_is_computed_over_members_of_each_observed_sample() {
        let kind = TargetKind::Regression(Standardization::IDENTITY);
        let predictions = |outputs: &[f64]| Predictions {
            metrics: vec![Metric::Mae],
            kinds: vec![kind],
            graphs: (0..outputs.len() as u32).collect(),
            samples: vec![1; outputs.len()],
            outputs: SampleRows { columns: 1, values: outputs.to_vec() },
            targets: SampleRows { columns: 1, values: vec![1.0, f64::NAN, 5.0] },
        };
        let schema = Schema {
            node_features: FeatureSchema::None,
            edge_features: FeatureSchema::None,
            targets: TargetSchema::Graph(vec![kind]),
            names: Names::default(),
        };
        let members = [predictions(&[1.0, 0.0, 2.0]), predictions(&[3.0, 9.0, 6.0])];
        let found =
            UncertaintyCalibration::compute(&predictions(&[2.0, 4.5, 4.0]), &members, &schema);
        let [calibration] = &found[..] else { panic!("one target") };
        assert_eq!((calibration.samples, calibration.bins.len()), (2, 1));
        // Sample variances 2 and 8, errors 1 and 1.
        assert!((calibration.bins[0].expected_rmse - 5.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(calibration.bins[0].observed_rmse, 1.0);
        assert!(calibration.spearman.is_nan(), "both errors are equal");
        let json = serde_json::to_string(calibration).expect("plain data");
        let read: UncertaintyCalibration = serde_json::from_str(&json).expect("serialized");
        assert!(read.spearman.is_nan());
    }

    #[test]
    fn agreeing_members_have_no_calibration_error() {
        let calibration = UncertaintyCalibration::new("y".into(), &[0.0; 6], &[1.0; 6]);
        assert!(calibration.ence.is_nan() && calibration.spearman.is_nan());
        assert!(UncertaintyCalibration::new("y".into(), &[], &[]).bins.is_empty());
    }
}
