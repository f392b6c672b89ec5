//! How well graphs are predicted, a line for each.

use graph_diffuser_data::{Graph, TargetSchema, Targets};
use serde::Serialize;

use crate::nn::ForwardContext;
use crate::train::{BatchSize, evaluation_batches};

use super::explainer::{Explainer, host};
use super::figure::{number, short};
use super::trace::PredictionAndTarget;

/// Pairs of nodes that are scored together: a batch takes some hundredths of a second, so that nobody waits for it.
const BATCH: BatchSize = BatchSize::pairs(1 << 16);

/// A graph with what was predicted and what is true, in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GraphScore {
    /// Number of the graph in the dataset.
    pub number: usize,
    /// What was predicted.
    pub predicted: String,
    /// What is true.
    pub truth: String,
    /// How far apart they are, from 0 on; nothing where the truth is not known.
    pub error: Option<f64>,
}

impl Explainer<'_> {
    /// Graphs of a similar size together, in batches for [`Explainer::score`].
    pub fn score_batches(&self, numbers: &[usize]) -> Vec<Vec<usize>> {
        evaluation_batches(self.dataset(), BATCH, self.batcher.chunked_eval, numbers)
    }

    /// What [`GraphScore::error`] measures.
    pub fn error_name(&self) -> &'static str {
        match self.dataset().schema.targets {
            TargetSchema::NodeMulticlass(_) => "share of nodes that are wrong",
            TargetSchema::Regression(_) => "absolute error, mean over targets",
            TargetSchema::Multilabel(_) => {
                "distance of the probabilities from the labels, mean over labels"
            }
            TargetSchema::Multiclass(_) => "one less the probability of the true class",
            TargetSchema::SubTokens(_) => "one less F1 of the words",
            TargetSchema::LinkPrediction => "one less the probability of the true links",
        }
    }

    /// Scores of some graphs, computed at once.
    pub fn score(&self, numbers: &[usize]) -> Vec<GraphScore> {
        let batch = self.batcher.collate(self.dataset(), numbers);
        let output = self.model.forward(&batch, &ForwardContext::evaluate());
        let [rows, columns] = output.dims();
        let values = host(output);
        let mut rest = values.as_slice();
        let score = |&number: &usize| {
            let graph = self.dataset().graphs.get(number);
            let own = match graph.targets {
                Targets::NodeClasses(_) | Targets::Links(_) => graph.nodes,
                _ => rows / numbers.len(),
            };
            let (piece, others) = rest.split_at(own * columns);
            rest = others;
            let from = link_sources(&graph);
            let outcome = self.outcome(&graph, piece, columns, &from);
            let (predicted, truth) = in_short(&outcome);
            GraphScore { number, predicted, truth, error: error(&outcome, &from) }
        };
        numbers.iter().map(score).collect()
    }
}

/// Nodes that true links leave, from small to large.
fn link_sources(graph: &Graph) -> Vec<usize> {
    let Targets::Links(pairs) = &graph.targets else { return vec![] };
    let mut sources: Vec<usize> = pairs.iter().map(|pair| pair[0] as usize).collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// How far a prediction is from the truth; links are told from the nodes `from`.
fn error(outcome: &PredictionAndTarget, from: &[usize]) -> Option<f64> {
    let apart = |predicted: &[f32], targets: &[Option<f32>]| {
        let known =
            predicted.iter().zip(targets).filter_map(|(value, target)| Some((value, (*target)?)));
        mean(known.map(|(value, target)| f64::from((value - target).abs())))
    };
    match outcome {
        PredictionAndTarget::NodeClasses { predicted, targets, .. } => mean(
            predicted
                .iter()
                .zip(targets)
                .map(|(predicted, target)| f64::from(u8::from(predicted != target))),
        ),
        PredictionAndTarget::GraphValues { predicted, targets, .. } => apart(predicted, targets),
        PredictionAndTarget::GraphLabels { probabilities, targets, .. } => {
            apart(probabilities, targets)
        }
        PredictionAndTarget::GraphClass { probabilities, target, .. } => {
            target.map(|target| 1.0 - f64::from(probabilities[target as usize]))
        }
        PredictionAndTarget::Words { predicted, targets, .. } => {
            let hit = predicted.iter().filter(|word| targets.contains(word)).count() as f64;
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

/// Prediction and truth as they stand in a list.
fn in_short(outcome: &PredictionAndTarget) -> (String, String) {
    const WIDTH: usize = 18;
    let class = |names: &[String], class: u32| {
        names.get(class as usize).map_or_else(|| class.to_string(), |name| short(name, WIDTH))
    };
    let first = |values: &[f32]| values.first().copied().map_or_else(String::new, number);
    let first_known = |values: &[Option<f32>]| {
        values.first().copied().flatten().map_or_else(|| "?".into(), number)
    };
    match outcome {
        PredictionAndTarget::NodeClasses { predicted, targets, .. } => {
            let right = predicted
                .iter()
                .zip(targets)
                .filter(|(predicted, target)| predicted == target)
                .count();
            (format!("{right} right"), format!("of {}", targets.len()))
        }
        PredictionAndTarget::GraphValues { predicted, targets, .. } => {
            (first(predicted), first_known(targets))
        }
        PredictionAndTarget::GraphLabels { probabilities, targets, .. } => {
            let known = targets.iter().position(Option::is_some).unwrap_or(0);
            (first(&probabilities[known..]), first_known(&targets[known..]))
        }
        PredictionAndTarget::GraphClass { predicted, target, names, .. } => (
            class(names, *predicted),
            target.map_or_else(String::new, |target| class(names, target)),
        ),
        PredictionAndTarget::Words { predicted, targets, names } => {
            let words = |words: &[u32]| {
                let words: Vec<String> = words.iter().map(|&word| class(names, word)).collect();
                short(&words.join(" "), WIDTH)
            };
            (words(predicted), words(targets))
        }
        PredictionAndTarget::Links { targets, .. } => {
            (String::new(), format!("{} links", targets.len() / 2))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_by_hand() {
        let values = PredictionAndTarget::GraphValues {
            predicted: vec![1.0, 5.0, 2.0],
            targets: vec![Some(0.5), None, Some(3.0)],
            names: vec![],
        };
        assert_eq!(error(&values, &[]), Some(0.75));
        let classes = PredictionAndTarget::NodeClasses {
            probabilities: vec![],
            predicted: vec![1, 2, 0, 0],
            targets: vec![1, 2, 3, 0],
            names: vec![],
        };
        assert_eq!(error(&classes, &[]), Some(0.25));
        assert_eq!(in_short(&classes), ("3 right".into(), "of 4".into()));
        let links = PredictionAndTarget::Links {
            probabilities: vec![vec![0.0, 0.5, 0.75]],
            targets: vec![[4, 1], [4, 2]],
        };
        assert_eq!(error(&links, &[4]), Some(1.0 - 0.625));
        let unknown = PredictionAndTarget::GraphValues {
            predicted: vec![1.0],
            targets: vec![None],
            names: vec![],
        };
        assert_eq!((error(&unknown, &[]), in_short(&unknown).1), (None, "?".into()));
        let words =
            PredictionAndTarget::Words { predicted: vec![1, 2], targets: vec![2], names: vec![] };
        assert!((error(&words, &[]).unwrap() - 1.0 / 3.0).abs() < 1e-12);
    }
}
