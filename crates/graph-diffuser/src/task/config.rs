//! Task section of a recipe: loss and selection metric.

use std::sync::Arc;

use graph_diffuser_data::{Diagnostic, TargetKind, TargetSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::graph_targets::GraphTargets;
use super::head::HeadConfig;
use super::kind::{Task, TaskKind};
use super::link_prediction::LinkPrediction;
use super::metric::Metric;
use super::node_classification::NodeClassification;
use super::regression::RegressionLoss;
use super::sub_tokens::SubTokens;

/// Configuration of a [`Task`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TaskConfig {
    /// Loss of regression targets; default `l1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<RegressionLoss>,
    /// Standardizes regression targets by the mean and standard deviation of the training split, so
    /// that the loss does not depend on their units; predictions and metrics are in the original
    /// units; default `true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standardize: Option<bool>,
    /// Weight of each class in the cross-entropy loss of the only classification target; default:
    /// all equal.
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
    pub fn check(&self, targets: &TargetSchema) -> Result<(), TaskError> {
        let kind = self.kind(targets, 1);
        let task = kind.name();
        let is_regression = |kind: &TargetKind| matches!(kind, TargetKind::Regression(_));
        if !targets.graph_targets().iter().any(is_regression) {
            if self.loss.is_some() {
                return Err(TaskError::NoEffect { field: "loss", task });
            }
            if self.standardize.is_some() {
                return Err(TaskError::NoEffect { field: "standardize", task });
            }
        }
        if let Some(weights) = &self.class_weights {
            let Some(classes) = weighted_classes(targets) else {
                return Err(TaskError::NoEffect { field: "class_weights", task });
            };
            if weights.len() != classes {
                return Err(TaskError::ClassWeights { found: weights.len(), classes });
            }
            if let Some(&value) =
                weights.iter().find(|weight| !(weight.is_finite() && **weight > 0.0))
            {
                return Err(TaskError::Weight { value });
            }
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
    pub fn init(&self, targets: &TargetSchema, head: HeadConfig) -> Task {
        let kind = self.kind(targets, head.max_tokens().unwrap_or(1));
        let metric = self.metric.unwrap_or(kind.metrics()[0]);
        Task { kind, metric }
    }

    /// Returns the kind of task that predicts the given targets.
    fn kind(&self, targets: &TargetSchema, max_tokens: usize) -> Arc<dyn TaskKind> {
        let class_weights = self.class_weights.clone();
        match targets {
            TargetSchema::Graph(kinds) => Arc::new(GraphTargets {
                kinds: kinds.clone(),
                loss: self.loss.unwrap_or_default(),
                class_weights,
            }),
            TargetSchema::NodeMulticlass(_) => Arc::new(NodeClassification { class_weights }),
            TargetSchema::SubTokens(vocabulary) => {
                Arc::new(SubTokens { vocabulary: *vocabulary, max_tokens })
            }
            TargetSchema::LinkPrediction => Arc::new(LinkPrediction),
        }
    }
}

/// Returns the number of classes of the only classification target, if there is exactly one.
fn weighted_classes(targets: &TargetSchema) -> Option<usize> {
    let classes = |kind: &TargetKind| match kind {
        TargetKind::Regression(_) => None,
        TargetKind::Binary => Some(2),
        TargetKind::Multiclass(classes) => Some(*classes),
    };
    match targets {
        TargetSchema::Graph(kinds) => {
            let mut classified = kinds.iter().filter_map(classes);
            let first = classified.next()?;
            classified.next().is_none().then_some(first)
        }
        TargetSchema::NodeMulticlass(classes) => Some(*classes),
        TargetSchema::SubTokens(_) | TargetSchema::LinkPrediction => None,
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor};

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
            let task = config(text).init(&targets, HEAD);
            task.kind.loss(tensor([[0.0, 3.0], [1.0, 0.0]]), &values).into_scalar::<f64>()
        };
        let values = || TargetTensor::Values {
            values: tensor([[0.0, 0.0], [0.0, 0.0]]),
            mask: tensor([[1.0, 1.0], [1.0, 1.0]]),
        };
        assert_eq!(loss("loss = \"l1\"", TargetSchema::regression(2), values()), 1.0);
        assert_eq!(loss("loss = \"mse\"", TargetSchema::regression(2), values()), 2.5);
        let column = |values: [[f32; 1]; 2]| Tensor::<2>::from_floats(values, &Device::flex());
        let classes = || TargetTensor::Values {
            values: column([[0.0], [0.0]]),
            mask: column([[1.0], [1.0]]),
        };
        let weighted = loss("class_weights = [1.0, 2.5]", TargetSchema::multiclass(2), classes());
        assert_eq!(weighted, loss("", TargetSchema::multiclass(2), classes()), "one class only");
        let task = config("metric = \"r2\"").init(&TargetSchema::regression(1), HEAD);
        assert_eq!(task.metric(), Metric::R2);
        assert_eq!(config("").init(&TargetSchema::regression(1), HEAD).metric(), Metric::Mae);
    }

    #[test]
    fn settings_that_do_not_match_the_task_are_rejected() {
        let cases = [
            ("loss = \"l1\"", TargetSchema::LinkPrediction, "`task.loss` has no effect"),
            (
                "class_weights = [1.0]",
                TargetSchema::regression(1),
                "`task.class_weights` has no effect",
            ),
            (
                "class_weights = [1.0]",
                TargetSchema::NodeMulticlass(2),
                "has 1 values, but the dataset has 2 classes",
            ),
            ("class_weights = [1.0, 0.0]", TargetSchema::NodeMulticlass(2), "contains 0"),
            ("metric = \"mae\"", TargetSchema::binary(2), "`task.metric` is mae"),
        ];
        for (text, targets, message) in cases {
            let error = config(text).check(&targets).expect_err("invalid setting");
            assert!(error.to_string().contains(message), "{error}");
            assert!(error.hint().is_some());
        }
        assert!(toml::from_str::<TaskConfig>("los = \"l1\"").is_err());
    }

    #[test]
    fn metrics_are_parsed_by_their_names() {
        let schemas = [
            TargetSchema::NodeMulticlass(2),
            TargetSchema::regression(1),
            TargetSchema::binary(1),
            TargetSchema::multiclass(2),
            TargetSchema::SubTokens(5),
            TargetSchema::LinkPrediction,
        ];
        for targets in schemas {
            for metric in config("").kind(&targets, 1).metrics() {
                let config = config(&format!("metric = \"{}\"", metric.name()));
                assert_eq!(config.metric, Some(*metric));
                assert_eq!(Metric::parse(metric.name()), Some(*metric));
                assert_eq!(config.check(&targets), Ok(()));
            }
        }
    }
}
