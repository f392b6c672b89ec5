//! Task section of a recipe: loss and selection metric.

use graph_diffuser_data::TargetSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Metric, RegressionLoss, Task, TaskKind};

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

impl TaskError {
    /// Returns a suggested fix.
    pub fn hint(&self) -> Option<String> {
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
        let kind = TaskKind::of(targets);
        let task = kind.name();
        if self.loss.is_some() && !matches!(kind, TaskKind::Regression { .. }) {
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

    /// Creates the task for the given targets; settings must have been checked.
    pub fn init(&self, targets: TargetSchema) -> Task {
        let mut task = Task::of(targets);
        match &mut task.kind {
            TaskKind::NodeMulticlass { class_weights } | TaskKind::Multiclass { class_weights } => {
                class_weights.clone_from(&self.class_weights);
            }
            TaskKind::Regression { loss } => *loss = self.loss.unwrap_or(*loss),
            TaskKind::Multilabel | TaskKind::SubTokens | TaskKind::LinkPrediction => {}
        }
        task.metric = self.metric.unwrap_or(task.metric);
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> TaskConfig {
        toml::from_str(text).expect("a valid configuration")
    }

    #[test]
    fn settings_are_applied_to_the_task() {
        let task = config("loss = \"mse\"\nmetric = \"r2\"").init(TargetSchema::Regression(1));
        assert_eq!(task.kind(), &TaskKind::Regression { loss: RegressionLoss::Mse });
        assert_eq!(task.metric(), Metric::R2);
        let task = config("class_weights = [1.0, 2.5]").init(TargetSchema::Multiclass(2));
        assert_eq!(task.kind(), &TaskKind::Multiclass { class_weights: Some(vec![1.0, 2.5]) });
        assert_eq!(
            config("").init(TargetSchema::LinkPrediction),
            Task::of(TargetSchema::LinkPrediction)
        );
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
            for metric in TaskKind::of(targets).metrics() {
                let config = config(&format!("metric = \"{}\"", metric.name()));
                assert_eq!(config.metric, Some(*metric));
                assert_eq!(config.check(targets), Ok(()));
            }
        }
    }
}
