//! Curves and tables behind the metrics: ROC and precision-recall curves, calibration, confusion
//! matrices and histograms.
//!
//! The area under [`roc_curve`] is [`Metric::RocAuc`](super::Metric::RocAuc), and the area under
//! the steps of [`precision_recall_curve`] is
//! [`Metric::AveragePrecision`](super::Metric::AveragePrecision).

use serde::Serialize;

use super::binary::{thresholds, totals};

/// Computes the ROC curve: false-positive rate and true-positive rate at descending thresholds,
/// from `[0, 0]` to `[1, 1]`.
///
/// Returns `None` if a class is missing or a score is NaN.
///
/// # Examples
/// ```
/// use graph_diffuser::task::curves::roc_curve;
///
/// let curve = roc_curve(&[0.9, 0.8, 0.1], &[1.0, 0.0, 0.0]);
/// assert_eq!(curve.unwrap(), [[0.0, 0.0], [0.0, 1.0], [0.5, 1.0], [1.0, 1.0]]);
/// ```
pub fn roc_curve(scores: &[f64], labels: &[f64]) -> Option<Vec<[f64; 2]>> {
    let Ranked { counts, positives, negatives } = Ranked::new(scores, labels)?;
    let (mut found, mut wrong) = (0, 0);
    let mut curve = vec![[0.0, 0.0]];
    for (positive, negative) in counts {
        (found, wrong) = (found + positive, wrong + negative);
        curve.push([wrong as f64 / negatives as f64, found as f64 / positives as f64]);
    }
    Some(curve)
}

/// Computes the precision-recall curve: recall and precision at descending thresholds.
///
/// The precision of a point holds from the recall of the previous point, or 0, to its own recall,
/// so the curve is drawn in steps. Returns `None` if a class is missing or a score is NaN.
pub fn precision_recall_curve(scores: &[f64], labels: &[f64]) -> Option<Vec<[f64; 2]>> {
    let Ranked { counts, positives, .. } = Ranked::new(scores, labels)?;
    let (mut found, mut seen) = (0, 0);
    let curve = counts.into_iter().map(|(positive, negative)| {
        (found, seen) = (found + positive, seen + positive + negative);
        [found as f64 / positives as f64, found as f64 / seen as f64]
    });
    Some(curve.collect())
}

/// Samples of both classes at each threshold, in descending order of scores.
struct Ranked {
    /// Numbers of positives and negatives at each threshold.
    counts: Vec<(usize, usize)>,
    positives: usize,
    negatives: usize,
}

impl Ranked {
    /// Returns `None` if a class is missing or a score is NaN.
    fn new(scores: &[f64], labels: &[f64]) -> Option<Self> {
        let observed = scores.iter().zip(labels).filter(|(_, label)| !label.is_nan());
        let counts = thresholds(observed.map(|(&score, &label)| (score, label == 1.0)).collect())?;
        let (positives, negatives) = totals(&counts);
        (positives > 0 && negatives > 0).then_some(Self { counts, positives, negatives })
    }
}

/// Bin of a calibration curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CalibrationBin {
    /// Mean predicted probability of the samples of the bin.
    pub predicted: f64,
    /// Fraction of them that are positive.
    pub observed: f64,
    /// Number of samples.
    pub count: usize,
}

/// Computes the calibration curve of predicted probabilities over `bins` bins of equal width;
/// empty bins and NaN probabilities are left out.
pub fn calibration_curve(
    samples: impl IntoIterator<Item = (f64, bool)>,
    bins: usize,
) -> Vec<CalibrationBin> {
    let mut sums = vec![(0.0, 0_usize, 0_usize); bins];
    for (probability, positive) in samples {
        if probability.is_nan() {
            continue;
        }
        let bin = ((probability * bins as f64) as usize).min(bins - 1);
        let (sum, positives, count) = &mut sums[bin];
        *sum += probability;
        *positives += usize::from(positive);
        *count += 1;
    }
    let bins = sums.into_iter().filter(|(_, _, count)| *count > 0);
    bins.map(|(sum, positives, count)| CalibrationBin {
        predicted: sum / count as f64,
        observed: positives as f64 / count as f64,
        count,
    })
    .collect()
}

/// Computes the expected calibration error: the mean distance of predicted and observed frequency,
/// weighted by the number of samples.
pub fn expected_calibration_error(bins: &[CalibrationBin]) -> f64 {
    let total: usize = bins.iter().map(|bin| bin.count).sum();
    let distance = |bin: &CalibrationBin| bin.count as f64 * (bin.predicted - bin.observed).abs();
    bins.iter().map(distance).sum::<f64>() / total as f64
}

/// Numbers of samples by true and predicted class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfusionMatrix {
    /// `counts[target][predicted]`, square.
    pub counts: Vec<Vec<usize>>,
}

impl ConfusionMatrix {
    /// Counts pairs of true and predicted class; the matrix has at least `classes` rows.
    pub fn new(classes: usize, pairs: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let pairs: Vec<(usize, usize)> = pairs.into_iter().collect();
        let largest = pairs.iter().map(|&(target, predicted)| target.max(predicted) + 1).max();
        let classes = classes.max(largest.unwrap_or(0));
        let mut counts = vec![vec![0; classes]; classes];
        for (target, predicted) in pairs {
            counts[target][predicted] += 1;
        }
        Self { counts }
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.counts.len()
    }

    /// Returns the number of samples of a true class.
    pub fn support(&self, class: usize) -> usize {
        self.counts[class].iter().sum()
    }

    /// Returns the fraction of samples on the diagonal; NaN without samples.
    pub fn accuracy(&self) -> f64 {
        let correct: usize = (0..self.classes()).map(|class| self.counts[class][class]).sum();
        let total: usize = (0..self.classes()).map(|class| self.support(class)).sum();
        correct as f64 / total as f64
    }

    /// Keeps the `kept` most frequent true classes and merges the others into a last class.
    ///
    /// Returns the original index of each kept class, in ascending order, with the matrix.
    pub fn merge_rare(&self, kept: usize) -> (Vec<usize>, Self) {
        let mut classes: Vec<usize> = (0..self.classes()).collect();
        classes.sort_by_key(|&class| (std::cmp::Reverse(self.support(class)), class));
        classes.truncate(kept);
        classes.sort_unstable();
        let position = |class: usize| classes.binary_search(&class).unwrap_or(classes.len());
        let size = classes.len() + usize::from(classes.len() < self.classes());
        let mut counts = vec![vec![0; size]; size];
        for (target, row) in self.counts.iter().enumerate() {
            for (predicted, count) in row.iter().enumerate() {
                counts[position(target)][position(predicted)] += count;
            }
        }
        (classes.clone(), Self { counts })
    }
}

/// Histogram with bins of equal width.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Histogram {
    /// Lower end of the first bin.
    pub start: f64,
    /// Width of a bin.
    pub width: f64,
    /// Number of values in each bin.
    pub counts: Vec<usize>,
}

impl Histogram {
    /// Counts finite values in about `bins` bins whose edges are multiples of a round width, so
    /// that zero is an edge; `None` without finite values.
    pub fn new(values: &[f64], bins: usize) -> Option<Self> {
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let (low, high) = (finite().reduce(f64::min)?, finite().reduce(f64::max)?);
        let rough = ((high - low) / bins as f64).max(high.abs().max(low.abs()) * 1e-9).max(1e-12);
        let power = 10_f64.powf(rough.log10().floor());
        let factors = [1.0, 2.0, 5.0, 10.0];
        let factor = factors.into_iter().find(|factor| factor * power >= rough * (1.0 - 1e-9));
        let width = factor.unwrap_or(10.0) * power;
        let bin = |value: f64| (value / width).floor();
        let first = bin(low);
        let mut counts = vec![0; (bin(high) - first) as usize + 1];
        finite().for_each(|value| counts[(bin(value) - first) as usize] += 1);
        Some(Self { start: first * width, width, counts })
    }
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::SeedTree;

    use crate::task::binary::{average_precision, roc_auc};

    use super::*;

    #[test]
    fn curves_of_four_samples_match_hand_computation() {
        // Labels in descending order of scores: 1, 0, 1, 0; the sample without a label is ignored.
        let (scores, labels) = ([0.9, 0.8, 0.7, 0.1, 0.5], [1.0, 0.0, 1.0, 0.0, f64::NAN]);
        let roc = roc_curve(&scores, &labels).unwrap();
        assert_eq!(roc, [[0.0, 0.0], [0.0, 0.5], [0.5, 0.5], [0.5, 1.0], [1.0, 1.0]]);
        let curve = precision_recall_curve(&scores, &labels).unwrap();
        assert_eq!(curve, [[0.5, 1.0], [0.5, 0.5], [1.0, 2.0 / 3.0], [1.0, 0.5]]);
        assert_eq!(roc_curve(&[0.5, 0.1], &[1.0, 1.0]), None);
        assert_eq!(precision_recall_curve(&[f64::NAN, 0.1], &[1.0, 0.0]), None);
    }

    /// Random scores with ties, labels and missing labels.
    fn samples(seed: u64) -> (Vec<f64>, Vec<f64>) {
        let mut stream = SeedTree::new(seed).stream("samples");
        let scores: Vec<f64> = (0..60).map(|_| stream.below(12) as f64 / 11.0).collect();
        let labels = scores.iter().map(|score| match stream.below(10) {
            0 => f64::NAN,
            draw => f64::from(u8::from(draw as f64 / 9.0 < 0.2 + 0.6 * score)),
        });
        let labels = labels.collect();
        (scores, labels)
    }

    #[test]
    fn areas_under_the_curves_equal_the_metrics() {
        for seed in 0..20 {
            let (scores, labels) = samples(seed);
            let roc = roc_curve(&scores, &labels).expect("both classes occur");
            let area: f64 = roc
                .windows(2)
                .map(|pair| (pair[1][0] - pair[0][0]) * f64::midpoint(pair[0][1], pair[1][1]))
                .sum();
            assert!((area - roc_auc(&scores, &labels, 1)).abs() < 1e-12, "{area}");
            let curve = precision_recall_curve(&scores, &labels).expect("both classes occur");
            let mut recall = 0.0;
            let steps = curve.iter().map(|point| {
                let width = point[0] - recall;
                recall = point[0];
                width * point[1]
            });
            let area: f64 = steps.sum();
            assert!((area - average_precision(&scores, &labels, 1)).abs() < 1e-12, "{area}");
        }
    }

    #[test]
    fn calibration_bins_hold_mean_probability_and_observed_frequency() {
        let samples = [(0.125, false), (0.375, true), (0.75, true), (1.0, false), (f64::NAN, true)];
        let bins = calibration_curve(samples, 2);
        let expected = [
            CalibrationBin { predicted: 0.25, observed: 0.5, count: 2 },
            CalibrationBin { predicted: 0.875, observed: 0.5, count: 2 },
        ];
        assert_eq!(bins, expected);
        assert_eq!(expected_calibration_error(&bins), f64::midpoint(0.25, 0.375));
    }

    #[test]
    fn confusion_matrix_counts_pairs_and_merges_rare_classes() {
        let matrix = ConfusionMatrix::new(3, [(0, 0), (0, 2), (1, 1), (2, 2), (2, 2), (2, 0)]);
        assert_eq!(matrix.counts, [[1, 0, 1], [0, 1, 0], [1, 0, 2]]);
        assert_eq!((matrix.support(2), matrix.accuracy()), (3, 4.0 / 6.0));
        let (kept, merged) = matrix.merge_rare(1);
        assert_eq!(kept, [2], "the most frequent class");
        assert_eq!(merged.counts, [[2, 1], [1, 2]]);
        assert_eq!(matrix.merge_rare(3), (vec![0, 1, 2], matrix));
    }

    #[test]
    fn histogram_has_round_edges_and_counts_all_finite_values() {
        let histogram = Histogram::new(&[-0.9, -0.1, 0.0, 0.4, 1.0, f64::NAN], 4).unwrap();
        assert_eq!(histogram, Histogram { start: -1.0, width: 0.5, counts: vec![1, 1, 2, 0, 1] });
        assert_eq!(Histogram::new(&[f64::NAN], 4), None);
        assert_eq!(Histogram::new(&[3.0, 3.0], 4).unwrap().counts.iter().sum::<usize>(), 2);
    }
}
