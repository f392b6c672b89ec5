//! What is predicted: loss and metrics together, one task a file.

mod config;
pub mod link_prediction;
mod metric;
mod metric_accumulator;
pub mod multiclass;
pub mod multilabel;
pub mod predictions;
pub mod regression;
pub mod sub_tokens;

use burn::tensor::Tensor;
use graph_diffuser_data::TargetSchema;

use crate::batch::TargetTensor;

pub use config::{TaskConfig, TaskError};
pub(crate) use metric::null_as_nan;
pub use metric::{EvalMetrics, Metric};
pub use metric_accumulator::MetricAccumulator;
pub use predictions::Predictions;
pub use regression::RegressionLoss;
pub(crate) use sub_tokens::predicted_words;

/// What is predicted, how far a prediction is from it, and how epochs are compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    kind: TaskKind,
    metric: Metric,
}

/// What is predicted, and the choices its loss has.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskKind {
    /// One of several classes for every node: cross-entropy.
    NodeMulticlass {
        /// Weight of each class; equal where there are none.
        class_weights: Option<Vec<f32>>,
    },
    /// Numbers for every graph: absolute or squared error.
    Regression {
        /// Which of the two.
        loss: RegressionLoss,
    },
    /// Yes or no for every graph and label: logistic loss.
    Multilabel,
    /// One of several classes for every graph: cross-entropy.
    Multiclass {
        /// Weight of each class; equal where there are none.
        class_weights: Option<Vec<f32>>,
    },
    /// The words of a graph's name: the mean of the positions' cross-entropies.
    SubTokens,
    /// Which pairs of nodes belong together: logistic loss.
    LinkPrediction,
}

impl TaskKind {
    /// The kind that fits the targets of a dataset, with the usual loss.
    pub fn of(targets: TargetSchema) -> Self {
        match targets {
            TargetSchema::NodeMulticlass(_) => Self::NodeMulticlass { class_weights: None },
            TargetSchema::Regression(_) => Self::Regression { loss: RegressionLoss::L1 },
            TargetSchema::Multilabel(_) => Self::Multilabel,
            TargetSchema::Multiclass(_) => Self::Multiclass { class_weights: None },
            TargetSchema::SubTokens(_) => Self::SubTokens,
            TargetSchema::LinkPrediction => Self::LinkPrediction,
        }
    }

    /// Its metrics; the first is what epochs are compared by where nobody chooses another.
    pub fn metrics(&self) -> &'static [Metric] {
        match self {
            Self::NodeMulticlass { .. } | Self::Multiclass { .. } => {
                &[Metric::Accuracy, Metric::MacroF1]
            }
            Self::Regression { .. } => &[Metric::Mae, Metric::Rmse, Metric::R2, Metric::Spearman],
            Self::Multilabel => &[Metric::AveragePrecision, Metric::RocAuc],
            Self::SubTokens => &[Metric::F1, Metric::Precision, Metric::Recall],
            Self::LinkPrediction => &[
                Metric::Mrr,
                Metric::HitsAt1,
                Metric::HitsAt3,
                Metric::HitsAt10,
                Metric::FilteredMrr,
                Metric::FilteredHitsAt1,
                Metric::FilteredHitsAt3,
                Metric::FilteredHitsAt10,
                Metric::FilteredNoSelfMrr,
                Metric::FilteredNoSelfHitsAt1,
                Metric::FilteredNoSelfHitsAt3,
                Metric::FilteredNoSelfHitsAt10,
            ],
        }
    }

    /// What it is called in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NodeMulticlass { .. } => "node classification",
            Self::Regression { .. } => "graph regression",
            Self::Multilabel => "graph labelling",
            Self::Multiclass { .. } => "graph classification",
            Self::SubTokens => "naming graphs",
            Self::LinkPrediction => "link prediction",
        }
    }
}

impl Task {
    /// The task that fits the targets of a dataset, with the usual loss and metric.
    pub fn of(targets: TargetSchema) -> Self {
        let kind = TaskKind::of(targets);
        let metric = kind.metrics()[0];
        Self { kind, metric }
    }

    /// What is predicted.
    pub fn kind(&self) -> &TaskKind {
        &self.kind
    }

    /// What epochs are compared by.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Mean loss of a batch.
    ///
    /// # Shapes
    /// - `output`: `[rows, outputs]`, rows as the model's head makes them
    /// - returns `[1]`
    pub fn loss(&self, output: Tensor<2>, targets: &TargetTensor) -> Tensor<1> {
        match (&self.kind, targets) {
            (TaskKind::NodeMulticlass { class_weights }, TargetTensor::NodeClasses(classes))
            | (TaskKind::Multiclass { class_weights }, TargetTensor::GraphClasses(classes)) => {
                multiclass::loss(output, classes.clone(), class_weights.as_deref())
            }
            (TaskKind::Regression { loss }, TargetTensor::GraphValues { values, known }) => {
                loss.of(output, values.clone(), known.clone())
            }
            (TaskKind::Multilabel, TargetTensor::GraphValues { values, known }) => {
                multilabel::loss(output, values.clone(), known.clone())
            }
            (TaskKind::SubTokens, TargetTensor::SubTokens { classes, .. }) => {
                multiclass::loss(output, classes.clone(), None)
            }
            (TaskKind::LinkPrediction, TargetTensor::Links { first, second, labels, .. }) => {
                link_prediction::loss(output, first.clone(), second.clone(), labels.clone())
            }
            _ => panic!("targets of another kind than the task's"),
        }
    }

    /// What the mean loss of a batch is a mean over: known targets, or the weights of their classes.
    pub fn weight(&self, targets: &TargetTensor) -> f64 {
        match (&self.kind, targets) {
            (
                TaskKind::NodeMulticlass { class_weights: Some(weights) }
                | TaskKind::Multiclass { class_weights: Some(weights) },
                TargetTensor::NodeClasses(classes) | TargetTensor::GraphClasses(classes),
            ) => classes
                .to_data()
                .iter::<i64>()
                .map(|class| f64::from(weights[class as usize]))
                .sum(),
            (
                _,
                TargetTensor::NodeClasses(classes)
                | TargetTensor::GraphClasses(classes)
                | TargetTensor::SubTokens { classes, .. },
            ) => classes.dims()[0] as f64,
            (_, TargetTensor::GraphValues { known, .. }) => {
                known.clone().sum().into_scalar::<f64>()
            }
            (_, TargetTensor::Links { labels, .. }) => labels.dims()[0] as f64,
        }
    }

    /// An empty sheet to score predictions on.
    pub fn metric_accumulator(&self) -> MetricAccumulator {
        MetricAccumulator::new(self.clone())
    }
}

/// Predictions and targets of one column where the target is known.
fn known_column<'a>(
    predicted: &'a [f32],
    targets: &'a [f32],
    columns: usize,
    column: usize,
) -> impl Iterator<Item = (f32, f32)> + 'a {
    let pairs = predicted.iter().zip(targets).skip(column).step_by(columns);
    pairs.map(|(predicted, target)| (*predicted, *target)).filter(|(_, target)| !target.is_nan())
}
