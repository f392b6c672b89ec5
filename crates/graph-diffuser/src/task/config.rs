//! What of a task can be chosen: its loss, and the metric that epochs are compared by.

use graph_diffuser_data::TargetSchema;
use serde::{Deserialize, Serialize};

use super::{Metric, RegressionLoss, Task, TaskKind};

/// What of a task can be chosen; what is left out is as [`Task::of`] has it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskConfig {
    /// Loss of a regression; L1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<RegressionLoss>,
    /// Weight of each class in the cross-entropy of a classification; equal by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<Vec<f32>>,
    /// What the best epoch is best by; one of the task's metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
}

/// Why a task cannot be set so.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// A setting that the task does not read.
    #[error("`task.{field}` changes nothing: the dataset's task is {task}")]
    Unread {
        /// Which.
        field: &'static str,
        /// What the task is.
        task: &'static str,
    },
    /// Not one weight a class.
    #[error("`task.class_weights` has {found} numbers, and the dataset has {classes} classes")]
    ClassWeights {
        /// Weights.
        found: usize,
        /// Classes.
        classes: usize,
    },
    /// A weight that is no weight.
    #[error("`task.class_weights` holds {value}, which is not a positive number")]
    Weight {
        /// Its value.
        value: f32,
    },
    /// A metric of another task.
    #[error("`task.metric` is {}, which {task} does not have", metric.name())]
    Metric {
        /// What was asked for.
        metric: Metric,
        /// What the task is.
        task: &'static str,
        /// What there is.
        choices: &'static [Metric],
    },
}

impl TaskError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Unread { field, .. } => format!("remove `task.{field}` from the recipe"),
            Self::ClassWeights { classes, .. } => format!("give {classes} numbers, one a class"),
            Self::Weight { .. } => "give every class a number above 0".into(),
            Self::Metric { choices, .. } => {
                let names: Vec<String> =
                    choices.iter().map(|metric| format!("`{}`", metric.name())).collect();
                format!("choose one of {}", names.join(", "))
            }
        })
    }
}

impl TaskConfig {
    /// Whether nothing is chosen.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Finds whether the task of such targets reads every setting.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self, targets: TargetSchema) -> Result<(), TaskError> {
        let kind = TaskKind::of(targets);
        let task = kind.name();
        if self.loss.is_some() && !matches!(kind, TaskKind::Regression { .. }) {
            return Err(TaskError::Unread { field: "loss", task });
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
            (Some(_), _) => return Err(TaskError::Unread { field: "class_weights", task }),
        }
        match self.metric {
            Some(metric) if !kind.metrics().contains(&metric) => {
                Err(TaskError::Metric { metric, task, choices: kind.metrics() })
            }
            _ => Ok(()),
        }
    }

    /// The task of such targets, as chosen; settings were checked.
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
        toml::from_str(text).expect("a sound table")
    }

    #[test]
    fn a_choice_reaches_the_task() {
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
    fn what_a_task_does_not_read_is_refused() {
        let cases = [
            ("loss = \"l1\"", TargetSchema::LinkPrediction, "`task.loss` changes nothing"),
            (
                "class_weights = [1.0]",
                TargetSchema::Regression(1),
                "`task.class_weights` changes nothing",
            ),
            (
                "class_weights = [1.0]",
                TargetSchema::NodeMulticlass(2),
                "has 1 numbers, and the dataset has 2 classes",
            ),
            ("class_weights = [1.0, 0.0]", TargetSchema::NodeMulticlass(2), "holds 0"),
            ("metric = \"mae\"", TargetSchema::Multilabel(2), "`task.metric` is mae"),
        ];
        for (text, targets, message) in cases {
            let error = config(text).check(targets).expect_err("refused");
            assert!(error.to_string().contains(message), "{error}");
            assert!(error.hint().is_some());
        }
        assert!(toml::from_str::<TaskConfig>("los = \"l1\"").is_err());
    }

    #[test]
    fn every_metric_is_read_by_the_name_it_is_printed_with() {
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
