//! What is predicted: loss and metric together, one task a file.

mod graph_labels;
mod graph_regression;
mod node_classification;

use burn::tensor::{Tensor, TensorData};
use graph_diffuser_data::TargetSchema;
use serde::{Deserialize, Serialize};

use crate::batch::TargetTensor;

/// What is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// One of several classes for every node: cross-entropy and accuracy.
    NodeClassification,
    /// Numbers for every graph: mean absolute error.
    GraphRegression,
    /// Yes or no for every graph and label: logistic loss and average precision.
    GraphLabels,
}

/// What a score measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Share of nodes whose most likely class is the right one.
    Accuracy,
    /// Mean absolute error.
    Mae,
    /// Average precision, mean over labels.
    AveragePrecision,
}

impl Metric {
    /// Whether `score` is better than `other`; nothing is better than NaN, and anything beats it.
    pub fn is_better(self, score: f64, other: f64) -> bool {
        if score.is_nan() || other.is_nan() {
            return !score.is_nan();
        }
        match self {
            Self::Accuracy | Self::AveragePrecision => score > other,
            Self::Mae => score < other,
        }
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::Mae => "mae",
            Self::AveragePrecision => "average_precision",
        }
    }
}

/// How good predictions are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// The task's metric over all samples; NaN where it is not defined.
    #[serde(deserialize_with = "null_as_nan")]
    pub metric: f64,
    /// Mean loss over all known targets.
    #[serde(deserialize_with = "null_as_nan")]
    pub loss: f64,
    /// Nodes or graphs scored.
    pub samples: usize,
}

/// JSON has no NaN: it is written as `null`.
pub(crate) fn null_as_nan<'de, D: serde::Deserializer<'de>>(deserialiser: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserialiser)?.unwrap_or(f64::NAN))
}

impl Task {
    /// The task that fits the targets of a dataset.
    pub fn of(targets: TargetSchema) -> Self {
        match targets {
            TargetSchema::NodeClasses(_) => Self::NodeClassification,
            TargetSchema::GraphValues(_) => Self::GraphRegression,
            TargetSchema::GraphLabels(_) => Self::GraphLabels,
            TargetSchema::GraphClasses(_) | TargetSchema::SubTokens(_) | TargetSchema::Links => {
                panic!("no head was found to fit these targets")
            }
        }
    }

    /// What its score measures.
    pub fn metric(self) -> Metric {
        match self {
            Self::NodeClassification => Metric::Accuracy,
            Self::GraphRegression => Metric::Mae,
            Self::GraphLabels => Metric::AveragePrecision,
        }
    }

    /// Mean loss of a batch.
    ///
    /// # Shapes
    /// - `output`: `[rows, outputs]`
    /// - returns `[1]`
    pub fn loss(self, output: Tensor<2>, targets: &TargetTensor) -> Tensor<1> {
        match (self, targets) {
            (Self::NodeClassification, TargetTensor::NodeClasses(classes)) => {
                node_classification::loss(output, classes.clone())
            }
            (Self::GraphRegression, TargetTensor::GraphValues { values, known }) => {
                graph_regression::loss(output, values.clone(), known.clone())
            }
            (Self::GraphLabels, TargetTensor::GraphValues { values, known }) => {
                graph_labels::loss(output, values.clone(), known.clone())
            }
            _ => panic!("targets of another kind than the task's"),
        }
    }

    /// An empty sheet to score predictions on.
    pub fn score_sheet(self) -> ScoreSheet {
        ScoreSheet { task: self, loss: 0.0, targets: 0, rows: Vec::new() }
    }
}

/// Predictions gathered batch by batch; a metric is over all samples, never a mean of batch means.
#[derive(Debug)]
pub struct ScoreSheet {
    task: Task,
    loss: f64,
    /// Known targets, which the loss is a mean over.
    targets: usize,
    /// Predictions and targets on the host, as the task's metric reads them.
    rows: Vec<Row>,
}

/// One prediction and its target; NaN where the target is missing.
#[derive(Debug, Clone)]
struct Row {
    predicted: Vec<f32>,
    target: Vec<f32>,
}

impl ScoreSheet {
    /// Adds a batch with the given mean loss.
    pub fn add(&mut self, output: Tensor<2>, targets: &TargetTensor, mean_loss: f64) {
        let [rows, outputs] = output.dims();
        let predicted = host(output.into_data());
        let target: Vec<f32> = match targets {
            TargetTensor::NodeClasses(classes) => host(classes.clone().into_data()),
            TargetTensor::GraphValues { values, known } => host(values.clone().into_data())
                .into_iter()
                .zip(host(known.clone().into_data()))
                .map(|(value, known)| if known == 0.0 { f32::NAN } else { value })
                .collect(),
        };
        let known = target.iter().filter(|target| !target.is_nan()).count();
        self.loss += mean_loss * known as f64;
        self.targets += known;
        let target_columns = target.len() / rows.max(1);
        let predicted = predicted.chunks(outputs).map(<[f32]>::to_vec);
        let target = target.chunks(target_columns.max(1)).map(<[f32]>::to_vec);
        self.rows.extend(predicted.zip(target).map(|(predicted, target)| Row { predicted, target }));
    }

    /// Scores over everything added.
    pub fn scores(&self) -> Scores {
        let metric = match self.task {
            Task::NodeClassification => node_classification::accuracy(&self.rows),
            Task::GraphRegression => graph_regression::mean_absolute_error(&self.rows),
            Task::GraphLabels => graph_labels::average_precision(&self.rows),
        };
        Scores { metric, loss: self.loss / self.targets.max(1) as f64, samples: self.rows.len() }
    }
}

fn host(data: TensorData) -> Vec<f32> {
    data.iter::<f32>().collect()
}
