//! Prediction errors of individual graphs.

use graph_diffuser_data::{Graph, TargetKind, TargetSchema, Targets};
use serde::Serialize;

use crate::statistics::mean;

use super::decode::decode;
use super::explainer::Explainer;
use super::summary::{abbreviate, abbreviate_target, first_observed};
use super::trace::{PredictionAndTarget, TracedTarget};

/// Prediction, target and error of one graph.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GraphScore {
    /// Index of the graph in the dataset.
    pub index: usize,
    /// Abbreviated prediction.
    pub predicted: String,
    /// Abbreviated target.
    pub truth: String,
    /// Non-negative error, as described by [`Explainer::error_name`]; absent without a label.
    pub error: Option<f64>,
    /// Index of the target that `predicted` and `truth` describe, if graphs have targets.
    pub target: Option<usize>,
    /// Scores of the individual targets, if there are several, but at most
    /// [`GraphScore::MAX_TARGETS`].
    #[serde(skip)]
    pub targets: Vec<TargetScore>,
}

impl GraphScore {
    /// Largest number of targets of which individual scores are kept.
    pub const MAX_TARGETS: usize = 40;
}

/// Prediction and error of one target of a graph.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetScore {
    /// Abbreviated prediction.
    pub predicted: String,
    /// Abbreviated true value.
    pub truth: String,
    /// Error of this target; absent without a label.
    pub error: Option<f64>,
}

impl Explainer {
    /// Groups graphs of similar size into batches for [`Explainer::score`].
    pub fn score_batches(&self, indices: &[usize]) -> Vec<Vec<usize>> {
        self.model.batches(self.dataset(), indices)
    }

    /// Describes [`GraphScore::error`].
    pub fn error_name(&self) -> &'static str {
        let regression = |kind: &TargetKind| matches!(kind, TargetKind::Regression(_));
        match &self.dataset().schema.targets {
            TargetSchema::Graph(kinds) if kinds.iter().all(regression) => {
                "absolute error, mean over targets"
            }
            TargetSchema::Graph(kinds) if !kinds.iter().any(regression) => {
                "1 − P(true class), mean over targets"
            }
            TargetSchema::Graph(_) => "absolute error or 1 − P(true class), mean over targets",
            TargetSchema::NodeMulticlass(_) => "fraction of misclassified nodes",
            TargetSchema::SubTokens(_) => "1 − F1 of the sub-tokens",
            TargetSchema::LinkPrediction => "1 − P(true link), mean over links",
        }
    }

    /// Predicts a batch of graphs and returns their errors.
    pub fn score(&self, indices: &[usize]) -> Vec<GraphScore> {
        let output = self.model.predict(self.dataset(), indices);
        let mut rest = output.values.as_slice();
        let score = |&index: &usize| {
            let graph = self.dataset().graphs.get(index);
            let graph_rows = match graph.targets {
                Targets::NodeClasses(_) | Targets::Links(_) => graph.num_nodes,
                _ => output.rows / indices.len(),
            };
            let (values, remaining) = rest.split_at(graph_rows * output.columns);
            rest = remaining;
            let from = link_sources(&graph);
            let outcome = decode(&graph, values, output.columns, &from, &self.dataset().schema);
            let (predicted, truth) = abbreviate(&outcome);
            let (target, targets) = target_scores(&outcome);
            GraphScore { index, predicted, truth, error: error(&outcome, &from), target, targets }
        };
        indices.iter().map(score).collect()
    }
}

/// Returns the index of the target in the list of graphs, and the scores of all targets.
fn target_scores(outcome: &PredictionAndTarget) -> (Option<usize>, Vec<TargetScore>) {
    let PredictionAndTarget::Graph { targets } = outcome else { return (None, vec![]) };
    let score = |target: &TracedTarget| {
        let (predicted, truth) = abbreviate_target(target);
        TargetScore { predicted, truth, error: target.error() }
    };
    let scores = match targets.len() {
        2..=GraphScore::MAX_TARGETS => targets.iter().map(score).collect(),
        _ => vec![],
    };
    (Some(first_observed(targets)), scores)
}

/// Returns the sorted source nodes of the true links.
fn link_sources(graph: &Graph) -> Vec<usize> {
    let Targets::Links(pairs) = &graph.targets else { return vec![] };
    let mut sources: Vec<usize> = pairs.iter().map(|pair| pair[0] as usize).collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

/// Returns the error of a prediction; `from` holds the source nodes of link probabilities.
fn error(outcome: &PredictionAndTarget, from: &[usize]) -> Option<f64> {
    match outcome {
        PredictionAndTarget::NodeClasses { predicted, targets, .. } => {
            let labeled = predicted.iter().zip(targets).filter_map(|(predicted, target)| {
                target.map(|target| f64::from(u8::from(*predicted != target)))
            });
            mean(labeled)
        }
        PredictionAndTarget::Graph { targets } => {
            mean(targets.iter().filter_map(TracedTarget::error))
        }
        PredictionAndTarget::SubTokens { predicted, targets, .. } => {
            let hit = predicted.iter().filter(|token| targets.contains(token)).count() as f64;
            let all = (predicted.len() + targets.len()) as f64;
            Some(if all > 0.0 { 1.0 - 2.0 * hit / all } else { 0.0 })
        }
        PredictionAndTarget::Links { probabilities, targets } => {
            let probability = |pair: &[u32; 2]| {
                let row = from.binary_search(&(pair[0] as usize)).ok()?;
                Some(1.0 - f64::from(probabilities[row][pair[1] as usize]))
            };
            mean(targets.iter().filter_map(probability))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_match_hand_computed_values() {
        let value =
            |predicted, target| TracedTarget::Regression { name: "y".into(), predicted, target };
        let label = TracedTarget::Binary {
            name: "active".into(),
            probability: 0.75,
            target: Some(0),
            classes: vec![],
        };
        let targets = vec![value(1.0, Some(0.5)), value(5.0, None), value(2.0, Some(3.0)), label];
        assert_eq!(error(&PredictionAndTarget::Graph { targets }, &[]), Some(0.75));
        let classes = PredictionAndTarget::NodeClasses {
            probabilities: vec![],
            predicted: vec![1, 2, 0, 0, 0],
            targets: vec![Some(1), Some(2), Some(3), Some(0), None],
            names: vec![],
        };
        assert_eq!(error(&classes, &[]), Some(0.25));
        let links = PredictionAndTarget::Links {
            probabilities: vec![vec![0.0, 0.5, 0.75]],
            targets: vec![[4, 1], [4, 2]],
        };
        assert_eq!(error(&links, &[4]), Some(1.0 - 0.625));
        let unlabeled = PredictionAndTarget::Graph { targets: vec![value(1.0, None)] };
        assert_eq!(error(&unlabeled, &[]), None);
        let tokens = PredictionAndTarget::SubTokens {
            predicted: vec![1, 2],
            targets: vec![2],
            names: vec![],
        };
        assert!((error(&tokens, &[]).unwrap() - 1.0 / 3.0).abs() < 1e-12);
    }
}
