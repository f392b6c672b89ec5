//! Decoding of model outputs to predictions.

use graph_diffuser_data::{Graph, MISSING_CLASS, Schema, TargetSchema, Targets};

use crate::task::sub_tokens::decode_tokens;

use super::trace::{NestedMatrix, PredictionAndTarget};

/// Decodes the output of one graph, with `columns` values per row.
///
/// Links are reported for the source nodes `rows`.
pub(super) fn decode(
    graph: &Graph,
    values: &[f32],
    columns: usize,
    rows: &[usize],
    schema: &Schema,
) -> PredictionAndTarget {
    let matrix: NestedMatrix =
        values.chunks(columns).map(|row| activate(row, schema.targets)).collect();
    let (names, classes) = (schema.names.targets.clone(), schema.names.classes.clone());
    let labeled =
        |values: &[f32]| values.iter().map(|value| (!value.is_nan()).then_some(*value)).collect();
    match (&graph.targets, schema.targets) {
        (Targets::NodeClasses(targets), _) => PredictionAndTarget::NodeClasses {
            predicted: matrix.iter().map(|row| argmax(row)).collect(),
            probabilities: matrix,
            targets: targets
                .iter()
                .map(|&class| (class != MISSING_CLASS).then_some(class))
                .collect(),
            names: classes,
        },
        (Targets::GraphValues(targets), TargetSchema::Multilabel(_)) => {
            PredictionAndTarget::GraphLabels {
                probabilities: matrix.concat(),
                targets: labeled(targets),
                names,
            }
        }
        (Targets::GraphValues(targets), _) => PredictionAndTarget::GraphValues {
            predicted: matrix.concat(),
            targets: labeled(targets),
            names,
        },
        (Targets::GraphClass(target), _) => {
            let probabilities = matrix.concat();
            PredictionAndTarget::GraphClass {
                predicted: argmax(&probabilities),
                probabilities,
                target: Some(*target),
                names: classes,
            }
        }
        (Targets::SubTokens(tokens), _) => {
            let predicted = decode_tokens(values, columns);
            PredictionAndTarget::SubTokens { predicted, targets: tokens.clone(), names: classes }
        }
        (Targets::Links(pairs), _) => PredictionAndTarget::Links {
            probabilities: rows.iter().map(|&row| link_probabilities(&matrix, row)).collect(),
            targets: pairs.clone(),
        },
    }
}

/// Applies softmax or sigmoid to one output row, as the task requires.
pub(super) fn activate(row: &[f32], targets: TargetSchema) -> Vec<f32> {
    match targets {
        TargetSchema::NodeMulticlass(_)
        | TargetSchema::Multiclass(_)
        | TargetSchema::SubTokens(_) => softmax(row),
        TargetSchema::Multilabel(_) => row.iter().copied().map(sigmoid).collect(),
        TargetSchema::Regression(_) | TargetSchema::LinkPrediction => row.to_vec(),
    }
}

/// Returns the probabilities of links from `node` to all nodes with these embeddings.
pub(super) fn link_probabilities(embeddings: &NestedMatrix, node: usize) -> Vec<f32> {
    let dot = |other: &Vec<f32>| -> f32 {
        embeddings[node].iter().zip(other).map(|(left, right)| left * right).sum()
    };
    embeddings.iter().map(|other| sigmoid(dot(other))).collect()
}

fn sigmoid(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}

fn softmax(scores: &[f32]) -> Vec<f32> {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f32 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

fn argmax(probabilities: &[f32]) -> u32 {
    let max = probabilities.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    probabilities.iter().position(|&probability| probability == max).unwrap_or(0) as u32
}
