//! Binary targets: binary cross-entropy, ROC-AUC and average precision.
//!
//! Metrics follow OGB's evaluator: they are computed per label over the graphs with an observed
//! label, and averaged over the labels that have both positives and negatives. They are NaN if
//! there is no such label, where OGB raises an error, or if a score is NaN.

use burn::tensor::{Tensor, activation::log_sigmoid};

use super::metric::Metric;
use super::sample_rows::observed_column;

/// Metrics of a binary target; the first is the default selection metric.
pub(super) const METRICS: [Metric; 2] = [Metric::RocAuc, Metric::AveragePrecision];

/// Computes the elementwise binary cross-entropy of logits.
pub(super) fn bce_with_logits(output: Tensor<2>, labels: Tensor<2>) -> Tensor<2> {
    // -y log σ(o) - (1 - y) log σ(-o), and log σ(-o) = log σ(o) - o.
    output.clone() * (labels.neg() + 1.0) - log_sigmoid(output)
}

/// Computes the average precision `Σ (R_n − R_{n−1}) P_n` over descending thresholds; equal scores
/// form one threshold.
pub fn average_precision(scores: &[f64], labels: &[f64], columns: usize) -> f64 {
    mean_over_labels(scores, labels, columns, |thresholds, positives, _| {
        let (mut seen, mut found, mut area) = (0, 0, 0.0);
        for &(positive, negative) in thresholds {
            seen += positive + negative;
            found += positive;
            area += positive as f64 / positives as f64 * (found as f64 / seen as f64);
        }
        area
    })
}

/// Computes the area under the ROC curve: the probability that a positive has a higher score than a
/// negative, with ties counted half.
pub fn roc_auc(scores: &[f64], labels: &[f64], columns: usize) -> f64 {
    mean_over_labels(scores, labels, columns, |thresholds, positives, negatives| {
        let (mut above, mut pairs) = (0, 0.0);
        for &(positive, negative) in thresholds {
            pairs += negative as f64 * (above as f64 + 0.5 * positive as f64);
            above += positive;
        }
        pairs / (positives as f64 * negatives as f64)
    })
}

/// Averages a metric over labels.
///
/// `metric` receives the numbers of positives and negatives at each threshold, in descending order,
/// and the total numbers of positives and negatives.
fn mean_over_labels(
    scores: &[f64],
    labels: &[f64],
    columns: usize,
    metric: impl Fn(&[(usize, usize)], usize, usize) -> f64,
) -> f64 {
    let mut values = Vec::with_capacity(columns);
    for column in 0..columns {
        let ranked = observed_column(scores, labels, columns, column)
            .map(|(score, label)| (score, label == 1.0));
        let Some(thresholds) = thresholds(ranked.collect()) else { return f64::NAN };
        let (positives, negatives) = totals(&thresholds);
        if positives > 0 && negatives > 0 {
            values.push(metric(&thresholds, positives, negatives));
        }
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the numbers of positives and negatives at each distinct score, in descending order;
/// `None` if a score is NaN.
pub(super) fn thresholds(mut scored: Vec<(f64, bool)>) -> Option<Vec<(usize, usize)>> {
    if scored.iter().any(|(score, _)| score.is_nan()) {
        return None;
    }
    scored.sort_by(|left, right| right.0.total_cmp(&left.0));
    let counts = scored.chunk_by(|left, right| left.0 == right.0).map(|tied| {
        let positive = tied.iter().filter(|(_, positive)| *positive).count();
        (positive, tied.len() - positive)
    });
    Some(counts.collect())
}

/// Returns the total numbers of positives and negatives.
pub(super) fn totals(thresholds: &[(usize, usize)]) -> (usize, usize) {
    thresholds.iter().fold((0, 0), |total, counts| (total.0 + counts.0, total.1 + counts.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_four_graphs_match_hand_computation() {
        // Labels in descending order of scores: 1, 0, 1, 0. Precision at the positives is 1 and
        // 2/3, each half of the recall. Three of the four positive-negative pairs are in order.
        let (scores, labels) = ([0.9, 0.8, 0.7, 0.1], [1.0, 0.0, 1.0, 0.0]);
        assert!(
            (average_precision(&scores, &labels, 1) - f64::midpoint(1.0, 2.0 / 3.0)).abs() < 1e-12
        );
        assert_eq!(roc_auc(&scores, &labels, 1), 0.75);
    }

    #[test]
    fn ties_form_one_threshold_and_missing_labels_are_ignored() {
        // The three tied scores are one threshold: precision 2/3. The tied negative counts half.
        let (scores, labels) = ([0.5, 0.5, 0.5, 0.9, 0.1], [1.0, 0.0, 1.0, f64::NAN, 0.0]);
        assert!((average_precision(&scores, &labels, 1) - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(roc_auc(&scores, &labels, 1), 0.75);
    }

    #[test]
    fn labels_with_a_single_class_are_ignored() {
        let scores = [1.0, 1.0, 0.0, 0.0];
        for metric in [average_precision, roc_auc] {
            assert_eq!(metric(&scores, &[1.0, 1.0, 0.0, 1.0], 2), 1.0);
            assert!(metric(&scores, &[1.0, 1.0, 1.0, f64::NAN], 2).is_nan());
            assert!(metric(&[1.0, f64::NAN], &[1.0, 0.0], 1).is_nan());
        }
    }
}
