//! Task section of a recipe: loss and selection metric.

use std::sync::Arc;

use graph_diffuser_data::{Diagnostic, TargetSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::link_prediction::LinkPrediction;
use super::multiclass::Multiclass;
use super::multilabel::Multilabel;
use super::node_classification::NodeClassification;
use super::regression::Regression;
use super::sub_tokens::SubTokens;
use super::{HeadConfig, Metric, RegressionLoss, Task, TaskKind};

/// Configuration of a [`Task`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TaskConfig {
    /// Loss of a regression task; default `l1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<RegressionLoss>,
    /// Weight of each class in the cross-entropy loss of a classification task; default: all equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<Vec<f32>>,
    /// Metric that selects the best epoch; default: the first metric of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
}

/// Error of a task configuration that does not match the dataset.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// A setting that the task does not use.
    #[error("`task.{field}` has no effect: the task of this dataset is {task}")]
    NoEffect {
        /// Name of the setting.
        field: &'static str,
        /// Name of the task.
        task: &'static str,
    },
    /// The number of weights differs from the number of classes.
    #[error("`task.class_weights` has {found} values, but the dataset has {classes} classes")]
    ClassWeights {
        /// Number of weights.
        found: usize,
        /// Number of classes.
        classes: usize,
    },
    /// A weight that is not positive.
    #[error("`task.class_weights` contains {value}, expected positive numbers")]
    Weight {
        /// Value of the weight.
        value: f32,
    },
    /// A metric of another task.
    #[error("`task.metric` is {}, which is not a metric of {task}", metric.name())]
    Metric {
        /// Configured metric.
        metric: Metric,
        /// Name of the task.
        task: &'static str,
        /// Metrics of the task.
        choices: &'static [Metric],
    },
}

impl Diagnostic for TaskError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoEffect { field, .. } => format!("remove `task.{field}` from the recipe"),
            Self::ClassWeights { classes, .. } => format!("set {classes} values, one per class"),
            Self::Weight { .. } => "use positive values only".into(),
            Self::Metric { choices, .. } => {
                let names: Vec<String> =
                    choices.iter().map(|metric| format!("`{}`", metric.name())).collect();
                format!("use one of {}", names.join(", "))
            }
        })
    }
}

impl TaskConfig {
    /// Returns whether every setting has its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the settings against the targets of a dataset.
    ///
    /// # Errors
    /// Returns the first setting that is invalid or has no effect.
    pub fn check(&self, targets: TargetSchema) -> Result<(), TaskError> {
        let kind = self.kind(targets, 1);
        let task = kind.name();
        if self.loss.is_some() && !matches!(targets, TargetSchema::Regression(_)) {
            return Err(TaskError::NoEffect { field: "loss", task });
        }
        match (&self.class_weights, targets) {
            (None, _) => {}
            (
                Some(weights),
                TargetSchema::NodeMulticlass(classes) | TargetSchema::Multiclass(classes),
            ) => {
                if weights.len() != classes {
                    return Err(TaskError::ClassWeights { found: weights.len(), classes });
                }
                if let Some(&value) =
                    weights.iter().find(|weight| !(weight.is_finite() && **weight > 0.0))
                {
                    return Err(TaskError::Weight { value });
                }
            }
            (Some(_), _) => return Err(TaskError::NoEffect { field: "class_weights", task }),
        }
        match self.metric {
            Some(metric) if !kind.metrics().contains(&metric) => {
                Err(TaskError::Metric { metric, task, choices: kind.metrics() })
            }
            _ => Ok(()),
        }
    }

    /// Creates the task of a model that predicts the given targets; settings and head must have
    /// been checked.
    pub fn init(&self, targets: TargetSchema, head: HeadConfig) -> Task {
        let kind = self.kind(targets, head.max_tokens().unwrap_or(1));
        let metric = self.metric.unwrap_or(kind.metrics()[0]);
        Task { kind, metric }
    }

    /// Returns the kind of task that predicts the given targets.
    fn kind(&self, targets: TargetSchema, max_tokens: usize) -> Arc<dyn TaskKind> {
        let class_weights = self.class_weights.clone();
        match targets {
            TargetSchema::NodeMulticlass(_) => Arc::new(NodeClassification { class_weights }),
            TargetSchema::Regression(targets) => {
                Arc::new(Regression { targets, loss: self.loss.unwrap_or_default() })
            }
            TargetSchema::Multilabel(labels) => Arc::new(Multilabel { labels }),
            TargetSchema::Multiclass(_) => Arc::new(Multiclass { class_weights }),
            TargetSchema::SubTokens(vocabulary) => Arc::new(SubTokens { vocabulary, max_tokens }),
            TargetSchema::LinkPrediction => Arc::new(LinkPrediction),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Int, Tensor};

    use crate::batch::TargetTensor;
    use crate::nn::MlpConfig;
    use crate::task::Pooling;

    use super::*;

    fn config(text: &str) -> TaskConfig {
        toml::from_str(text).expect("a valid configuration")
    }

    const HEAD: HeadConfig = HeadConfig::Graph {
        pooling: Pooling::Mean,
        mlp: MlpConfig::Plain { hidden_layers: 0 },
        dropout: 0.0,
    };

    #[test]
    fn settings_are_applied_to_the_task() {
        let tensor = |values: [[f32; 2]; 2]| Tensor::<2>::from_floats(values, &Device::flex());
        let loss = |text: &str, targets: TargetSchema, values: TargetTensor| {
            let task = config(text).init(targets, HEAD);
            task.kind.loss(tensor([[0.0, 3.0], [1.0, 0.0]]), &values).into_scalar::<f64>()
        };
        let values = || TargetTensor::Values {
            values: tensor([[0.0, 0.0], [0.0, 0.0]]),
            mask: tensor([[1.0, 1.0], [1.0, 1.0]]),
        };
        assert_eq!(loss("loss = \"l1\"", TargetSchema::Regression(2), values()), 1.0);
        assert_eq!(loss("loss = \"mse\"", TargetSchema::Regression(2), values()), 2.5);
        let classes =
            || TargetTensor::Classes(Tensor::<1, Int>::from_data([0, 0], &Device::flex()));
        let weighted = loss("class_weights = [1.0, 2.5]", TargetSchema::Multiclass(2), classes());
        assert_eq!(weighted, loss("", TargetSchema::Multiclass(2), classes()), "one class only");
        let task = config("metric = \"r2\"").init(TargetSchema::Regression(1), HEAD);
        assert_eq!(task.metric(), Metric::R2);
        assert_eq!(config("").init(TargetSchema::Regression(1), HEAD).metric(), Metric::Mae);
    }

    #[test]
    fn settings_that_do_not_match_the_task_are_rejected() {
        let cases = [
            ("loss = \"l1\"", TargetSchema::LinkPrediction, "`task.loss` has no effect"),
            (
                "class_weights = [1.0]",
                TargetSchema::Regression(1),
                "`task.class_weights` has no effect",
            ),
            (
                "class_weights = [1.0]",
                TargetSchema::NodeMulticlass(2),
                "has 1 values, but the dataset has 2 classes",
            ),
            ("class_weights = [1.0, 0.0]", TargetSchema::NodeMulticlass(2), "contains 0"),
            ("metric = \"mae\"", TargetSchema::Multilabel(2), "`task.metric` is mae"),
        ];
        for (text, targets, message) in cases {
            let error = config(text).check(targets).expect_err("invalid setting");
            assert!(error.to_string().contains(message), "{error}");
            assert!(error.hint().is_some());
        }
        assert!(toml::from_str::<TaskConfig>("los = \"l1\"").is_err());
    }

    #[test]
    fn metrics_are_parsed_by_their_names() {
        let schemas = [
            TargetSchema::NodeMulticlass(2),
            TargetSchema::Regression(1),
            TargetSchema::Multilabel(1),
            TargetSchema::Multiclass(2),
            TargetSchema::SubTokens(5),
            TargetSchema::LinkPrediction,
        ];
        for targets in schemas {
            for metric in config("").kind(targets, 1).metrics() {
                let config = config(&format!("metric = \"{}\"", metric.name()));
                assert_eq!(config.metric, Some(*metric));
                assert_eq!(Metric::parse(metric.name()), Some(*metric));
                assert_eq!(config.check(targets), Ok(()));
            }
        }
    }
}
