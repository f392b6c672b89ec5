//! Predictions gathered batch by batch, reduced to what metrics read.

use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorData};

use crate::batch::TargetTensor;

use super::links::LinkScores;
use super::sub_tokens::{SetScores, predicted_words};
use super::{Metric, Scores, Task, TaskKind, classification, graph_labels, graph_regression};

/// Predictions of all batches; a metric is over all samples, never a mean of batch means.
#[derive(Debug)]
pub struct ScoreSheet {
    task: Task,
    loss: f64,
    /// What the loss is a mean over.
    weight: f64,
    samples: Samples,
}

/// What is kept of the samples on the host.
#[derive(Debug)]
enum Samples {
    /// The most likely class and the right one.
    Classes { predicted: Vec<Option<u32>>, targets: Vec<u32> },
    /// Rows of `columns` numbers; NaN where a target is missing.
    Values { columns: usize, predicted: Vec<f32>, targets: Vec<f32> },
    /// One a graph.
    Words(Vec<SetScores>),
    /// One a graph that has any.
    Links(Vec<LinkScores>),
}

impl ScoreSheet {
    pub(super) fn new(task: Task) -> Self {
        let samples = match task.kind {
            TaskKind::NodeClassification { .. } | TaskKind::GraphClassification { .. } => {
                Samples::Classes { predicted: vec![], targets: vec![] }
            }
            TaskKind::GraphRegression { .. } | TaskKind::GraphLabels => {
                Samples::Values { columns: 1, predicted: vec![], targets: vec![] }
            }
            TaskKind::SubTokens => Samples::Words(vec![]),
            TaskKind::Links => Samples::Links(vec![]),
        };
        Self { task, loss: 0.0, weight: 0.0, samples }
    }

    /// Adds a batch with the given mean loss.
    ///
    /// # Shapes
    /// - `output`: `[rows, outputs]`, as for [`Task::loss`]
    pub fn add(&mut self, output: Tensor<2>, batch: &TargetTensor, mean_loss: f64) {
        let weight = self.task.weight(batch);
        if weight > 0.0 {
            self.loss += mean_loss * weight;
            self.weight += weight;
        }
        let [_, outputs] = output.dims();
        let output = host(output.into_data());
        match (&mut self.samples, batch) {
            (
                Samples::Classes { predicted, targets },
                TargetTensor::NodeClasses(classes) | TargetTensor::GraphClasses(classes),
            ) => {
                predicted.extend(classification::most_likely(&output, outputs));
                targets.extend(classes.to_data().iter::<i64>().map(|class| class as u32));
            }
            (Samples::Values { columns, predicted, targets }, TargetTensor::GraphValues { values, known }) => {
                *columns = outputs;
                predicted.extend(output);
                let known = host(known.to_data());
                let values = host(values.to_data()).into_iter().zip(known);
                targets.extend(values.map(|(value, known)| if known == 0.0 { f32::NAN } else { value }));
            }
            (Samples::Words(graphs), TargetTensor::SubTokens { classes, words }) => {
                let positions = classes.dims()[0] / words.len();
                let predicted = predicted_words(&output, outputs, positions);
                graphs.extend(predicted.iter().zip(words).map(|(ours, theirs)| SetScores::of(ours, theirs)));
            }
            (Samples::Links(scores), TargetTensor::Links { graphs, .. }) => {
                let mut rest = output.as_slice();
                for graph in graphs {
                    let (vectors, others) = rest.split_at(graph.nodes * outputs);
                    scores.extend(LinkScores::of(vectors, outputs, &graph.positives));
                    rest = others;
                }
            }
            _ => panic!("targets of another kind than the task's"),
        }
    }

    /// Scores over everything added.
    pub fn scores(&self) -> Scores {
        let metrics: BTreeMap<Metric, f64> = match &self.samples {
            Samples::Classes { predicted, targets } => [
                (Metric::Accuracy, classification::accuracy(predicted, targets)),
                (Metric::MacroF1, classification::macro_f1(predicted, targets)),
            ]
            .into(),
            Samples::Values { columns, predicted, targets } if self.task.kind == TaskKind::GraphLabels => [
                (Metric::AveragePrecision, graph_labels::average_precision(predicted, targets, *columns)),
                (Metric::RocAuc, graph_labels::roc_auc(predicted, targets, *columns)),
            ]
            .into(),
            Samples::Values { columns, predicted, targets } => [
                (Metric::Mae, graph_regression::mean_absolute_error(predicted, targets)),
                (Metric::Rmse, graph_regression::root_mean_square_error(predicted, targets, *columns)),
                (Metric::R2, graph_regression::r2(predicted, targets, *columns)),
                (Metric::Spearman, graph_regression::spearman(predicted, targets, *columns)),
            ]
            .into(),
            Samples::Words(graphs) => {
                let mean = |of: fn(&SetScores) -> f64| graphs.iter().map(of).sum::<f64>() / graphs.len() as f64;
                [
                    (Metric::F1, mean(|graph| graph.f1)),
                    (Metric::Precision, mean(|graph| graph.precision)),
                    (Metric::Recall, mean(|graph| graph.recall)),
                ]
                .into()
            }
            Samples::Links(graphs) => LinkScores::mean(graphs).into(),
        };
        let samples = match &self.samples {
            Samples::Classes { targets, .. } => targets.len(),
            Samples::Values { columns, targets, .. } => targets.len() / columns,
            Samples::Words(graphs) => graphs.len(),
            Samples::Links(graphs) => graphs.len(),
        };
        let loss = if self.weight > 0.0 { self.loss / self.weight } else { 0.0 };
        Scores { metric: metrics[&self.task.metric], loss, samples, metrics }
    }
}

fn host(data: TensorData) -> Vec<f32> {
    data.iter::<f32>().collect()
}
