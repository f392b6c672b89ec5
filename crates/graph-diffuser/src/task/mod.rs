//! Tasks: loss, metrics and form of predictions, one task per file.

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
pub(crate) use sub_tokens::decode_tokens;

/// Task of a model: kind of targets, loss and selection metric.
///
/// # Examples
/// ```
/// use graph_diffuser::task::{Metric, Task};
/// use graph_diffuser_data::TargetSchema;
///
/// assert_eq!(Task::of(TargetSchema::Regression(1)).metric(), Metric::Mae);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    kind: TaskKind,
    metric: Metric,
}

/// Kind of a task with the options of its loss.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskKind {
    /// Node classification: cross-entropy.
    NodeMulticlass {
        /// Weight of each class; all equal if `None`.
        class_weights: Option<Vec<f32>>,
    },
    /// Graph regression: L1 or mean squared error.
    Regression {
        /// Loss function.
        loss: RegressionLoss,
    },
    /// Multi-label graph classification: binary cross-entropy.
    Multilabel,
    /// Graph classification: cross-entropy.
    Multiclass {
        /// Weight of each class; all equal if `None`.
        class_weights: Option<Vec<f32>>,
    },
    /// Sub-token prediction: cross-entropy, averaged over positions.
    SubTokens,
    /// Link prediction: binary cross-entropy with sampled negatives.
    LinkPrediction,
}

impl TaskKind {
    /// Returns the kind that matches the targets of a dataset, with the default loss.
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

    /// Returns the metrics of the task; the first is the default selection metric.
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

    /// Returns the name of the task in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NodeMulticlass { .. } => "node classification",
            Self::Regression { .. } => "graph regression",
            Self::Multilabel => "multi-label graph classification",
            Self::Multiclass { .. } => "graph classification",
            Self::SubTokens => "sub-token prediction",
            Self::LinkPrediction => "link prediction",
        }
    }
}

impl Task {
    /// Returns the task that matches the targets of a dataset, with default loss and metric.
    pub fn of(targets: TargetSchema) -> Self {
        let kind = TaskKind::of(targets);
        let metric = kind.metrics()[0];
        Self { kind, metric }
    }

    /// Returns the kind of the task.
    pub fn kind(&self) -> &TaskKind {
        &self.kind
    }

    /// Returns the metric that selects the best epoch.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Computes the mean loss of a batch.
    ///
    /// # Shapes
    /// - `output`: `[rows, outputs]`, as returned by the model's head
    /// - returns `[1]`
    pub fn loss(&self, output: Tensor<2>, targets: &TargetTensor) -> Tensor<1> {
        match (&self.kind, targets) {
            (TaskKind::NodeMulticlass { class_weights }, TargetTensor::NodeClasses(classes))
            | (TaskKind::Multiclass { class_weights }, TargetTensor::GraphClasses(classes)) => {
                multiclass::loss(output, classes.clone(), class_weights.as_deref())
            }
            (TaskKind::Regression { loss }, TargetTensor::GraphValues { values, mask }) => {
                loss.of(output, values.clone(), mask.clone())
            }
            (TaskKind::Multilabel, TargetTensor::GraphValues { values, mask }) => {
                multilabel::loss(output, values.clone(), mask.clone())
            }
            (TaskKind::SubTokens, TargetTensor::SubTokens { classes, .. }) => {
                multiclass::loss(output, classes.clone(), None)
            }
            (TaskKind::LinkPrediction, TargetTensor::Links { first, second, labels, .. }) => {
                link_prediction::loss(output, first.clone(), second.clone(), labels.clone())
            }
            _ => panic!("the targets do not match the task"),
        }
    }

    /// Returns the weight of a batch in a mean of batch losses: the number of observed targets, or
    /// the sum of their class weights.
    pub fn loss_weight(&self, targets: &TargetTensor) -> f64 {
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
            (_, TargetTensor::GraphValues { mask, .. }) => mask.clone().sum().into_scalar::<f64>(),
            (_, TargetTensor::Links { labels, .. }) => labels.dims()[0] as f64,
        }
    }

    /// Creates an accumulator of predictions and losses.
    pub fn metric_accumulator(&self) -> MetricAccumulator {
        MetricAccumulator::new(self.clone())
    }
}

/// Returns predictions and targets of one column without missing targets.
fn observed_column<'a>(
    predicted: &'a [f32],
    targets: &'a [f32],
    columns: usize,
    column: usize,
) -> impl Iterator<Item = (f32, f32)> + 'a {
    let pairs = predicted.iter().zip(targets).skip(column).step_by(columns);
    pairs.map(|(predicted, target)| (*predicted, *target)).filter(|(_, target)| !target.is_nan())
}
