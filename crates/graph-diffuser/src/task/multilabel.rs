//! Yes or no for every graph and label, where labels may be missing.
//!
//! Metrics are those of OGB's evaluator: taken label by label over the graphs whose label is known, where those have a
//! yes and a no, and averaged over such labels. With none there is no score: NaN, where OGB raises an error. A score
//! that is NaN makes the metric NaN.

use burn::tensor::{Tensor, activation::log_sigmoid};

use super::known_column;

/// Logistic loss, mean over the known labels of the batch.
///
/// # Shapes
/// - `output`, `labels`, `known`: `[rows, outputs]`
/// - returns `[1]`
pub(super) fn loss(output: Tensor<2>, labels: Tensor<2>, known: Tensor<2>) -> Tensor<1> {
    (logistic(output, labels) * known.clone()).sum() / known.sum().clamp_min(1.0)
}

/// Logistic loss of each entry.
pub(super) fn logistic(output: Tensor<2>, labels: Tensor<2>) -> Tensor<2> {
    // -y log σ(o) - (1 - y) log σ(-o), and log σ(-o) = log σ(o) - o.
    output.clone() * (labels.neg() + 1.0) - log_sigmoid(output)
}

/// Average precision: `Σ (R_n − R_{n−1}) P_n` over falling thresholds; equal scores are one threshold.
pub fn average_precision(scores: &[f32], labels: &[f32], columns: usize) -> f64 {
    mean_over_labels(scores, labels, columns, |thresholds, positives, _| {
        let (mut seen, mut found, mut area) = (0, 0, 0.0);
        for &(yes, no) in thresholds {
            seen += yes + no;
            found += yes;
            area += yes as f64 / positives as f64 * (found as f64 / seen as f64);
        }
        area
    })
}

/// The chance that a yes has a higher score than a no; equal scores count half.
pub fn roc_auc(scores: &[f32], labels: &[f32], columns: usize) -> f64 {
    mean_over_labels(scores, labels, columns, |thresholds, positives, negatives| {
        let (mut above, mut pairs) = (0, 0.0);
        for &(yes, no) in thresholds {
            pairs += no as f64 * (above as f64 + 0.5 * yes as f64);
            above += yes;
        }
        pairs / (positives as f64 * negatives as f64)
    })
}

/// `score` reads how many yes and no there are at each threshold, from the highest down, and how many in all.
fn mean_over_labels(
    scores: &[f32],
    labels: &[f32],
    columns: usize,
    score: impl Fn(&[(usize, usize)], usize, usize) -> f64,
) -> f64 {
    let mut scored = Vec::with_capacity(columns);
    for column in 0..columns {
        let mut ranked: Vec<(f32, bool)> = known_column(scores, labels, columns, column)
            .map(|(score, label)| (score, label == 1.0))
            .collect();
        if ranked.iter().any(|(score, _)| score.is_nan()) {
            return f64::NAN;
        }
        ranked.sort_by(|left, right| right.0.total_cmp(&left.0));
        let positives = ranked.iter().filter(|(_, yes)| *yes).count();
        let negatives = ranked.len() - positives;
        if positives == 0 || negatives == 0 {
            continue;
        }
        let thresholds: Vec<(usize, usize)> = ranked
            .chunk_by(|left, right| left.0 == right.0)
            .map(|tied| {
                let yes = tied.iter().filter(|(_, yes)| *yes).count();
                (yes, tied.len() - yes)
            })
            .collect();
        scored.push(score(&thresholds, positives, negatives));
    }
    scored.iter().sum::<f64>() / scored.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_graphs_by_hand() {
        // Falling scores: yes, no, yes, no. P at the yeses: 1 and 2/3, each half of the recall. Of the four pairs of
        // a yes and a no, three are in order.
        let (scores, labels) = ([0.9, 0.8, 0.7, 0.1], [1.0, 0.0, 1.0, 0.0]);
        assert!(
            (average_precision(&scores, &labels, 1) - f64::midpoint(1.0, 2.0 / 3.0)).abs() < 1e-12
        );
        assert_eq!(roc_auc(&scores, &labels, 1), 0.75);
    }

    #[test]
    fn ties_are_one_threshold_and_missing_labels_do_not_count() {
        // The three tied scores are found together: precision 2/3. The tied no is half beaten by each yes.
        let (scores, labels) = ([0.5, 0.5, 0.5, 0.9, 0.1], [1.0, 0.0, 1.0, f32::NAN, 0.0]);
        assert!((average_precision(&scores, &labels, 1) - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(roc_auc(&scores, &labels, 1), 0.75);
    }

    #[test]
    fn a_label_without_both_answers_is_left_out() {
        let scores = [1.0, 1.0, 0.0, 0.0];
        for metric in [average_precision, roc_auc] {
            assert_eq!(metric(&scores, &[1.0, 1.0, 0.0, 1.0], 2), 1.0);
            assert!(metric(&scores, &[1.0, 1.0, 1.0, f32::NAN], 2).is_nan());
            assert!(metric(&[1.0, f32::NAN], &[1.0, 0.0], 1).is_nan());
        }
    }
}
