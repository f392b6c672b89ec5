//! Sub-token prediction: one classifier per position of a graph's name.
//!
//! The loss is the cross-entropy, averaged over positions and graphs. The prediction is the most
//! probable token of each position up to the first end token; it is compared as a set with the
//! complete reference name, as in OGB's evaluator. A predicted unknown token counts as a token that
//! no reference contains.

use std::collections::BTreeSet;

use burn::module::Module;
use burn::tensor::Tensor;
use graph_diffuser_data::Targets;

use crate::batch::{TargetInput, TargetTensor};
use crate::nn::{Linear, ParamInit};

use super::kind::{OutputRows, TaskKind, wrong_targets};
use super::metric::Metric;
use super::multiclass::{argmax, cross_entropy};
use super::pooling::Pooling;
use super::prediction::Prediction;
use super::predictions::Predictions;

/// Sub-token prediction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubTokens {
    /// Size of the vocabulary; its last two entries are the unknown token and the end token.
    pub vocabulary: usize,
    /// Number of predicted tokens.
    pub max_tokens: usize,
}

impl TaskKind for SubTokens {
    fn name(&self) -> &'static str {
        "sub-token prediction"
    }

    fn metrics(&self) -> &'static [Metric] {
        &[Metric::F1, Metric::Precision, Metric::Recall]
    }

    fn output_rows(&self, _nodes: usize) -> usize {
        self.max_tokens
    }

    fn loss_name(&self) -> String {
        "cross-entropy".to_owned()
    }

    fn collate(&self, input: &TargetInput<'_>) -> TargetTensor {
        let classes = input.graphs.iter().flat_map(|graph| match &graph.targets {
            Targets::SubTokens(tokens) => pad_or_truncate(tokens, self.vocabulary, self.max_tokens),
            _ => wrong_targets("sub-tokens"),
        });
        TargetTensor::Classes(input.integers(classes.collect()))
    }

    fn loss(&self, output: Tensor<2>, targets: &TargetTensor) -> Tensor<1> {
        let TargetTensor::Classes(classes) = targets else { wrong_targets("classes") };
        cross_entropy(output, classes.clone(), None)
    }

    fn add_samples(
        &self,
        output: OutputRows<'_>,
        targets: &Targets,
        predictions: &mut Predictions,
    ) -> usize {
        let Targets::SubTokens(reference) = targets else { wrong_targets("sub-tokens") };
        let predicted = decode_tokens(output.values, self.vocabulary);
        let row = TokenSetMetrics::of(&predicted, reference).row();
        predictions.outputs.extend(row.len(), &row);
        1
    }

    fn decode(&self, output: OutputRows<'_>) -> Prediction {
        Prediction::SubTokens(decode_tokens(output.values, self.vocabulary))
    }
}

/// Sub-token head: one classifier over the vocabulary per token position.
#[derive(Module, Debug)]
pub struct SubTokenHead {
    positions: Vec<Linear>,
    #[module(skip)]
    pooling: Pooling,
}

impl SubTokenHead {
    /// Initializes the head.
    pub fn new(
        hidden_dim: usize,
        vocabulary: usize,
        pooling: Pooling,
        max_tokens: usize,
        init: &mut ParamInit,
    ) -> Self {
        let positions =
            (0..max_tokens).map(|_| Linear::new(hidden_dim, vocabulary, init)).collect();
        Self { positions, pooling }
    }

    /// Returns the pooling of the head.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Computes the logits of every token position.
    ///
    /// # Shapes
    /// - `pooled`: `[b, d]`
    /// - returns `[b · max_tokens, vocabulary]`, with the positions of a graph in consecutive rows
    pub fn forward(&self, pooled: Tensor<2>) -> Tensor<2> {
        let logits: Vec<Tensor<2>> =
            self.positions.iter().map(|linear| linear.forward(pooled.clone())).collect();
        let [b, vocabulary] = logits[0].dims();
        Tensor::stack::<3>(logits, 1).reshape([b * self.positions.len(), vocabulary])
    }
}

/// Returns exactly `max_tokens` tokens of a sequence.
///
/// Out-of-vocabulary tokens map to the unknown token (`vocabulary - 2`); short sequences are padded
/// with the end token (`vocabulary - 1`).
fn pad_or_truncate(
    tokens: &[u32],
    vocabulary: usize,
    max_tokens: usize,
) -> impl Iterator<Item = usize> {
    assert!(vocabulary >= 2, "a vocabulary contains an unknown token and an end token");
    let class = move |&token: &u32| {
        if (token as usize) < vocabulary { token as usize } else { vocabulary - 2 }
    };
    tokens.iter().map(class).chain(std::iter::repeat(vocabulary - 1)).take(max_tokens)
}

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

    /// Returns the metrics in the order of [`TaskKind::metrics`].
    pub(super) fn row(self) -> [f64; 3] {
        [self.f1, self.precision, self.recall]
    }
}

/// Decodes the predicted tokens of a graph from one row of `vocabulary` outputs per position.
///
/// Decoding stops at the end token or at a row with a NaN.
pub fn decode_tokens(outputs: &[f32], vocabulary: usize) -> Vec<u32> {
    let end = vocabulary as u32 - 1;
    let tokens = argmax(outputs, vocabulary).into_iter();
    tokens.map_while(|token| token.filter(|&token| token != end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_sequences_are_padded_truncated_and_mapped_to_the_vocabulary() {
        // Tokens 0 to 2, the unknown token 3 and the end token 4.
        let tokens = |tokens: &[u32]| pad_or_truncate(tokens, 5, 3).collect::<Vec<_>>();
        assert_eq!(tokens(&[2]), [2, 4, 4]);
        assert_eq!(tokens(&[0, 7, 1, 2]), [0, 3, 1]);
        assert_eq!(tokens(&[]), [4, 4, 4]);
    }

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
        // Token 0, unknown token 1 and end token 2, at three positions.
        let row = |token: usize| [0, 1, 2].map(|index| if index == token { 1.0 } else { 0.0 });
        assert_eq!(decode_tokens(&[row(1), row(0), row(2)].concat(), 3), [1, 0]);
        assert_eq!(decode_tokens(&[row(0), row(2), row(0)].concat(), 3), [0]);
        assert_eq!(decode_tokens(&[row(0), [f32::NAN; 3], row(0)].concat(), 3), [0]);
    }
}
