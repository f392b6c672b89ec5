//! Yes or no for every graph and label, where labels may be missing.

use burn::tensor::{Tensor, activation::log_sigmoid};

use super::Row;

/// Logistic loss, mean over the known labels of the batch.
pub(super) fn loss(output: Tensor<2>, labels: Tensor<2>, known: Tensor<2>) -> Tensor<1> {
    // -y log σ(o) - (1 - y) log σ(-o), and log σ(-o) = log σ(o) - o.
    let losses = (output.clone() * (labels.neg() + 1.0) - log_sigmoid(output)) * known.clone();
    losses.sum() / known.sum().clamp_min(1.0)
}

/// Average precision of each label that has a yes and a no, mean over those labels.
pub(super) fn average_precision(rows: &[Row]) -> f64 {
    let labels = rows.first().map_or(0, |row| row.target.len());
    let scored: Vec<f64> = (0..labels).filter_map(|label| label_precision(rows, label)).collect();
    scored.iter().sum::<f64>() / scored.len() as f64
}

/// `Σ (R_n − R_{n−1}) P_n` over falling thresholds; equal scores are one threshold.
fn label_precision(rows: &[Row], label: usize) -> Option<f64> {
    let known = rows.iter().filter(|row| !row.target[label].is_nan());
    let mut ranked: Vec<(f32, bool)> = known.map(|row| (row.predicted[label], row.target[label] == 1.0)).collect();
    ranked.sort_by(|left, right| right.0.total_cmp(&left.0));
    let positives = ranked.iter().filter(|(_, yes)| *yes).count();
    if positives == 0 || positives == ranked.len() {
        return None;
    }
    let (mut seen, mut found, mut area) = (0, 0, 0.0);
    for tied in ranked.chunk_by(|left, right| left.0 == right.0) {
        let hits = tied.iter().filter(|(_, yes)| *yes).count();
        seen += tied.len();
        found += hits;
        area += hits as f64 / positives as f64 * (found as f64 / seen as f64);
    }
    Some(area)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(scores: &[f32], labels: &[f32]) -> Vec<Row> {
        scores.iter().zip(labels).map(|(&score, &label)| Row { predicted: vec![score], target: vec![label] }).collect()
    }

    #[test]
    fn average_precision_by_hand() {
        // Falling scores: yes, no, yes, no. P at the yeses: 1 and 2/3, each half of the recall.
        let precision = average_precision(&rows(&[0.9, 0.8, 0.7, 0.1], &[1.0, 0.0, 1.0, 0.0]));
        assert!((precision - f64::midpoint(1.0, 2.0 / 3.0)).abs() < 1e-12);
    }

    #[test]
    fn ties_are_one_threshold_and_missing_labels_do_not_count() {
        // The three tied scores are found together: precision 2/3.
        let precision = average_precision(&rows(&[0.5, 0.5, 0.5, 0.9, 0.1], &[1.0, 0.0, 1.0, f32::NAN, 0.0]));
        assert!((precision - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_label_without_both_answers_is_left_out() {
        let both = Row { predicted: vec![1.0, 1.0], target: vec![1.0, 1.0] };
        let one = Row { predicted: vec![0.0, 0.0], target: vec![0.0, 1.0] };
        assert_eq!(average_precision(&[both, one]), 1.0);
    }
}
