//! Sub-token prediction: one classifier per position of a graph's name.
//!
//! The loss is the cross-entropy, averaged over positions and graphs. The prediction is the most
//! probable token of each position up to the first end token; it is compared as a set with the
//! complete reference name, as in OGB's evaluator. A predicted unknown token counts as a token that
//! no reference contains.

use std::collections::BTreeSet;

use super::multiclass::argmax;

/// Precision, recall and F1 score of the predicted tokens of one graph.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenSetMetrics {
    /// Fraction of predicted tokens in the reference; 0 if nothing is predicted.
    pub precision: f64,
    /// Fraction of reference tokens that are predicted; 0 if the reference is empty.
    pub recall: f64,
    /// `2PR / (P + R)`; 0 if both are 0.
    pub f1: f64,
}

impl TokenSetMetrics {
    /// Computes the metrics of two sets of tokens; order and repetition are ignored.
    pub fn of(predicted: &[u32], reference: &[u32]) -> Self {
        let (predicted, reference): (BTreeSet<u32>, BTreeSet<u32>) =
            (predicted.iter().copied().collect(), reference.iter().copied().collect());
        let both = predicted.intersection(&reference).count() as f64;
        let precision = both / predicted.len().max(1) as f64;
        let recall = both / reference.len().max(1) as f64;
        let f1 = if both > 0.0 { 2.0 * precision * recall / (precision + recall) } else { 0.0 };
        Self { precision, recall, f1 }
    }

    /// Returns the metrics in the order of [`TaskKind::metrics`](super::TaskKind::metrics).
    pub(super) fn row(self) -> [f64; 3] {
        [self.f1, self.precision, self.recall]
    }
}

/// Decodes the predicted tokens of each graph from rows of `vocabulary` outputs, `positions` rows
/// per graph.
///
/// Decoding stops at the end token or at a row with a NaN.
pub(crate) fn decode_tokens(outputs: &[f32], vocabulary: usize, positions: usize) -> Vec<Vec<u32>> {
    let end = vocabulary as u32 - 1;
    let tokens = argmax(outputs, vocabulary);
    let until_end = |tokens: &[Option<u32>]| {
        tokens.iter().map_while(|token| token.filter(|&token| token != end)).collect()
    };
    tokens.chunks(positions).map(until_end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_metrics_match_hand_computation() {
        let scores = |precision, recall, f1| TokenSetMetrics { precision, recall, f1 };
        assert_eq!(TokenSetMetrics::of(&[3, 1, 3], &[1, 2]), scores(0.5, 0.5, 0.5));
        assert_eq!(TokenSetMetrics::of(&[1], &[1, 2, 2, 4]), scores(1.0, 1.0 / 3.0, 0.5));
        assert_eq!(TokenSetMetrics::of(&[], &[1]), scores(0.0, 0.0, 0.0));
        assert_eq!(TokenSetMetrics::of(&[1], &[]), scores(0.0, 0.0, 0.0));
    }

    #[test]
    fn decoding_stops_at_the_end_token_or_nan() {
        // Token 0, unknown token 1 and end token 2, at three positions of two graphs.
        let row = |token: usize| [0, 1, 2].map(|index| if index == token { 1.0 } else { 0.0 });
        let outputs = [row(1), row(0), row(2), row(0), row(2), row(0)].concat();
        assert_eq!(decode_tokens(&outputs, 3, 3), [vec![1, 0], vec![0]]);
        let with_nan = [row(0), [f32::NAN; 3], row(0)].concat();
        assert_eq!(decode_tokens(&with_nan, 3, 3), [vec![0]]);
    }
}
