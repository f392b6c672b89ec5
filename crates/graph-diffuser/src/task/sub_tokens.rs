//! The words of a graph's name, one classifier a position.
//!
//! The loss is the mean of the positions' cross-entropies, each a mean over graphs: one mean over all of them. The
//! prediction is the most likely word of each position up to the first end, and is judged as a set against the uncut
//! name, as OGB's evaluator does. The unknown word stays a word, which no name has.

use std::collections::BTreeSet;

use super::multiclass::argmax;

/// How well the words of one graph were found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenSetMetrics {
    /// Share of the predicted words that are right; 0 where none is predicted.
    pub precision: f64,
    /// Share of the right words that are predicted; 0 where there are none.
    pub recall: f64,
    /// `2PR / (P + R)`; 0 where both are.
    pub f1: f64,
}

impl TokenSetMetrics {
    /// Order and repetition do not matter.
    pub fn of(predicted: &[u32], reference: &[u32]) -> Self {
        let (predicted, reference): (BTreeSet<u32>, BTreeSet<u32>) =
            (predicted.iter().copied().collect(), reference.iter().copied().collect());
        let both = predicted.intersection(&reference).count() as f64;
        let precision = both / predicted.len().max(1) as f64;
        let recall = both / reference.len().max(1) as f64;
        let f1 = if both > 0.0 { 2.0 * precision * recall / (precision + recall) } else { 0.0 };
        Self { precision, recall, f1 }
    }

    /// Its metrics in the order of [`TaskKind::metrics`](super::TaskKind::metrics).
    pub(super) fn row(self) -> [f64; 3] {
        [self.f1, self.precision, self.recall]
    }
}

/// The words predicted for each graph: rows of `vocabulary` outputs, so many positions a graph.
///
/// A position with a NaN ends the name.
pub(crate) fn predicted_words(
    outputs: &[f32],
    vocabulary: usize,
    positions: usize,
) -> Vec<Vec<u32>> {
    let end = vocabulary as u32 - 1;
    let words = argmax(outputs, vocabulary);
    let until_end = |words: &[Option<u32>]| {
        words.iter().map_while(|word| word.filter(|&word| word != end)).collect()
    };
    words.chunks(positions).map(until_end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_by_hand() {
        let scores = |precision, recall, f1| TokenSetMetrics { precision, recall, f1 };
        assert_eq!(TokenSetMetrics::of(&[3, 1, 3], &[1, 2]), scores(0.5, 0.5, 0.5));
        assert_eq!(TokenSetMetrics::of(&[1], &[1, 2, 2, 4]), scores(1.0, 1.0 / 3.0, 0.5));
        assert_eq!(TokenSetMetrics::of(&[], &[1]), scores(0.0, 0.0, 0.0));
        assert_eq!(TokenSetMetrics::of(&[1], &[]), scores(0.0, 0.0, 0.0));
    }

    #[test]
    fn a_name_ends_at_the_first_end() {
        // A vocabulary of the word 0, the unknown word 1 and the end 2, at three positions of two graphs.
        let row = |word: usize| [0, 1, 2].map(|number| if number == word { 1.0 } else { 0.0 });
        let outputs = [row(1), row(0), row(2), row(0), row(2), row(0)].concat();
        assert_eq!(predicted_words(&outputs, 3, 3), [vec![1, 0], vec![0]]);
        let broken = [row(0), [f32::NAN; 3], row(0)].concat();
        assert_eq!(predicted_words(&broken, 3, 3), [vec![0]]);
    }
}
