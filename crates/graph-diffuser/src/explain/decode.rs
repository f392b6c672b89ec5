//! Decoding of model outputs to predictions.

use graph_diffuser_data::{Graph, MISSING_CLASS, Schema, TargetKind, TargetSchema, Targets};

use crate::task::sub_tokens::decode_tokens;
use crate::task::{ClassPrediction, multiclass, sigmoid};

use super::trace::{NestedMatrix, PredictionAndTarget, TracedTarget};

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
    let rows_of = |values: &[f32]| -> NestedMatrix {
        values.chunks(columns).map(|row| activate(row, &schema.targets)).collect()
    };
    let classes = schema.names.classes(0).to_vec();
    match &graph.targets {
        Targets::GraphValues(targets) => {
            PredictionAndTarget::Graph { targets: decode_targets(values, targets, schema) }
        }
        Targets::NodeClasses(targets) => {
            let probabilities = rows_of(values);
            PredictionAndTarget::NodeClasses {
                predicted: probabilities.iter().map(|row| argmax(row)).collect(),
                probabilities,
                targets: targets
                    .iter()
                    .map(|&class| (class != MISSING_CLASS).then_some(class))
                    .collect(),
                names: classes,
            }
        }
        Targets::SubTokens(tokens) => {
            let predicted = decode_tokens(values, columns);
            PredictionAndTarget::SubTokens { predicted, targets: tokens.clone(), names: classes }
        }
        Targets::Links(pairs) => {
            let embeddings = rows_of(values);
            PredictionAndTarget::Links {
                probabilities: rows
                    .iter()
                    .map(|&row| link_probabilities(&embeddings, row))
                    .collect(),
                targets: pairs.clone(),
            }
        }
    }
}

/// Decodes the outputs of graph-level targets.
fn decode_targets(values: &[f32], targets: &[f32], schema: &Schema) -> Vec<TracedTarget> {
    let kinds = schema.targets.graph_targets();
    let activated = activate(values, &schema.targets);
    let mut rest = activated.as_slice();
    let decode = |(index, kind): (usize, &TargetKind)| {
        let (outputs, others) = rest.split_at(kind.outputs());
        rest = others;
        let name = schema.names.target(index, kinds.len());
        let classes = schema.names.classes(index).to_vec();
        let value = Some(targets[index]).filter(|value| !value.is_nan());
        let class = value.map(|value| value as u32);
        match kind {
            TargetKind::Regression(_) => {
                TracedTarget::Regression { name, predicted: outputs[0], target: value }
            }
            TargetKind::Binary => {
                TracedTarget::Binary { name, probability: outputs[0], target: class, classes }
            }
            TargetKind::Multiclass(_) => TracedTarget::Multiclass {
                name,
                probabilities: outputs.to_vec(),
                predicted: argmax(outputs),
                target: class,
                classes,
            },
        }
    };
    kinds.iter().enumerate().map(decode).collect()
}

/// Converts one output row to predicted values and probabilities, as the task requires.
pub(super) fn activate(row: &[f32], targets: &TargetSchema) -> Vec<f32> {
    match targets {
        TargetSchema::Graph(kinds) => {
            let mut rest = row;
            let activate = |kind: &TargetKind| {
                let (outputs, others) = rest.split_at(kind.outputs());
                rest = others;
                match kind {
                    TargetKind::Regression(standardization) => {
                        vec![standardization.invert(outputs[0])]
                    }
                    TargetKind::Binary => vec![sigmoid(f64::from(outputs[0]))],
                    TargetKind::Multiclass(_) => softmax(outputs),
                }
            };
            kinds.iter().flat_map(activate).collect()
        }
        TargetSchema::NodeMulticlass(_) | TargetSchema::SubTokens(_) => softmax(row),
        TargetSchema::LinkPrediction => row.to_vec(),
    }
}

/// Returns the probabilities of links from `node` to all nodes with these embeddings.
pub(super) fn link_probabilities(embeddings: &NestedMatrix, node: usize) -> Vec<f32> {
    let dot = |other: &Vec<f32>| -> f32 {
        embeddings[node].iter().zip(other).map(|(left, right)| left * right).sum()
    };
    embeddings.iter().map(|other| sigmoid(f64::from(dot(other)))).collect()
}

fn softmax(scores: &[f32]) -> Vec<f32> {
    ClassPrediction::of(scores).probabilities
}

/// Returns the first most probable class; the first of all if a probability is NaN.
fn argmax(probabilities: &[f32]) -> u32 {
    multiclass::argmax(probabilities, probabilities.len())[0].unwrap_or(0)
}
