//! Evaluation metrics.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Predictions, graph_targets, multiclass};

/// Evaluation metric, computed over all samples rather than averaged over batches.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Mean loss over all observed targets, the default of targets of several kinds.
    Loss,
    /// Fraction of samples whose most probable class is correct.
    Accuracy,
    /// F1 score, averaged over the classes that occur in the targets or predictions.
    MacroF1,
    /// Mean absolute error over all observed values.
    Mae,
    /// Root mean squared error, averaged over targets.
    Rmse,
    /// Coefficient of determination, averaged over targets.
    R2,
    /// Spearman rank correlation, averaged over targets.
    Spearman,
    /// Area under the ROC curve, averaged over labels.
    RocAuc,
    /// Average precision, averaged over labels.
    AveragePrecision,
    /// F1 score of the predicted sub-tokens as a set, averaged over graphs.
    F1,
    /// Precision of the predicted sub-tokens as a set, averaged over graphs.
    Precision,
    /// Recall of the predicted sub-tokens as a set, averaged over graphs.
    Recall,
    /// Mean reciprocal rank of positive links among all pairs with the same first node, averaged
    /// over graphs.
    Mrr,
    /// Fraction of positive links with rank 1.
    #[serde(rename = "hits_at_1")]
    HitsAt1,
    /// Fraction of positive links with rank 3 or better.
    #[serde(rename = "hits_at_3")]
    HitsAt3,
    /// Fraction of positive links with rank 10 or better.
    #[serde(rename = "hits_at_10")]
    HitsAt10,
    /// [`Metric::Mrr`] with other positive links excluded from the candidates.
    FilteredMrr,
    /// [`Metric::HitsAt1`] with the candidates of [`Metric::FilteredMrr`].
    #[serde(rename = "filtered_hits_at_1")]
    FilteredHitsAt1,
    /// [`Metric::HitsAt3`] with the candidates of [`Metric::FilteredMrr`].
    #[serde(rename = "filtered_hits_at_3")]
    FilteredHitsAt3,
    /// [`Metric::HitsAt10`] with the candidates of [`Metric::FilteredMrr`].
    #[serde(rename = "filtered_hits_at_10")]
    FilteredHitsAt10,
    /// [`Metric::FilteredMrr`] with self-pairs excluded as well.
    FilteredNoSelfMrr,
    /// [`Metric::HitsAt1`] with the candidates of [`Metric::FilteredNoSelfMrr`].
    #[serde(rename = "filtered_no_self_hits_at_1")]
    FilteredNoSelfHitsAt1,
    /// [`Metric::HitsAt3`] with the candidates of [`Metric::FilteredNoSelfMrr`].
    #[serde(rename = "filtered_no_self_hits_at_3")]
    FilteredNoSelfHitsAt3,
    /// [`Metric::HitsAt10`] with the candidates of [`Metric::FilteredNoSelfMrr`].
    #[serde(rename = "filtered_no_self_hits_at_10")]
    FilteredNoSelfHitsAt10,
}

impl Metric {
    /// Returns whether `score` is better than `other`; every number is better than NaN.
    pub fn is_better(self, score: f64, other: f64) -> bool {
        if score.is_nan() || other.is_nan() {
            return !score.is_nan();
        }
        match self {
            Self::Loss | Self::Mae | Self::Rmse => score < other,
            _ => score > other,
        }
    }

    /// Returns the name of the metric in reports and recipes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Accuracy => "accuracy",
            Self::MacroF1 => "macro_f1",
            Self::Mae => "mae",
            Self::Rmse => "rmse",
            Self::R2 => "r2",
            Self::Spearman => "spearman",
            Self::AveragePrecision => "average_precision",
            Self::RocAuc => "roc_auc",
            Self::F1 => "f1",
            Self::Precision => "precision",
            Self::Recall => "recall",
            Self::Mrr => "mrr",
            Self::HitsAt1 => "hits_at_1",
            Self::HitsAt3 => "hits_at_3",
            Self::HitsAt10 => "hits_at_10",
            Self::FilteredMrr => "filtered_mrr",
            Self::FilteredHitsAt1 => "filtered_hits_at_1",
            Self::FilteredHitsAt3 => "filtered_hits_at_3",
            Self::FilteredHitsAt10 => "filtered_hits_at_10",
            Self::FilteredNoSelfMrr => "filtered_no_self_mrr",
            Self::FilteredNoSelfHitsAt1 => "filtered_no_self_hits_at_1",
            Self::FilteredNoSelfHitsAt3 => "filtered_no_self_hits_at_3",
            Self::FilteredNoSelfHitsAt10 => "filtered_no_self_hits_at_10",
        }
    }
}

impl Metric {
    /// Returns the metric with the given name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name))
            .ok()
    }

    /// Computes the metric from the predictions of its task.
    pub(super) fn of(self, predictions: &Predictions) -> f64 {
        if !predictions.kinds.is_empty() {
            return graph_targets::metric(self, predictions);
        }
        let (outputs, targets) = (&predictions.outputs, &predictions.targets);
        let classes = || {
            let class = |value: f64| (!value.is_nan()).then_some(value as u32);
            let predicted: Vec<Option<u32>> = outputs.column(0).map(class).collect();
            (predicted, targets.values.iter().map(|&class| class as u32).collect::<Vec<_>>())
        };
        match self {
            Self::Accuracy => {
                let (predicted, targets) = classes();
                multiclass::accuracy(&predicted, &targets)
            }
            Self::MacroF1 => {
                let (predicted, targets) = classes();
                multiclass::macro_f1(&predicted, &targets)
            }
            // The other metrics are means over graphs, whose samples hold one column per metric.
            _ => match predictions.metrics.iter().position(|&metric| metric == self) {
                Some(column) => outputs.column(column).sum::<f64>() / predictions.len() as f64,
                None => f64::NAN,
            },
        }
    }
}

/// Scores of a model on one split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalMetrics {
    /// Value of the selection metric; NaN if it is undefined.
    #[serde(deserialize_with = "null_as_nan")]
    pub metric: f64,
    /// Mean loss over all observed targets.
    #[serde(deserialize_with = "null_as_nan")]
    pub loss: f64,
    /// Number of nodes or graphs.
    pub samples: usize,
    /// All metrics of the task; empty in files of older versions.
    #[serde(
        default,
        deserialize_with = "nulls_as_nan",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub metrics: BTreeMap<Metric, f64>,
}

/// Deserializes `null` as NaN, which JSON cannot represent.
pub(crate) fn null_as_nan<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

fn nulls_as_nan<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Metric, f64>, D::Error> {
    let metrics = BTreeMap::<Metric, Option<f64>>::deserialize(deserializer)?;
    Ok(metrics.into_iter().map(|(metric, value)| (metric, value.unwrap_or(f64::NAN))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_survive_a_round_trip_and_older_files_are_readable() {
        let scores = EvalMetrics {
            metric: 0.5,
            loss: 1.5,
            samples: 3,
            metrics: [(Metric::HitsAt1, 0.25)].into(),
        };
        let text = serde_json::to_string(&scores).expect("plain data");
        assert_eq!(text, r#"{"metric":0.5,"loss":1.5,"samples":3,"metrics":{"hits_at_1":0.25}}"#);
        assert_eq!(serde_json::from_str::<EvalMetrics>(&text).expect("serialized scores"), scores);
        let old: EvalMetrics =
            serde_json::from_str(r#"{"metric":0.5,"loss":1.5,"samples":3}"#).expect("readable");
        assert!(old.metrics.is_empty());
        let undefined: EvalMetrics =
            serde_json::from_str(r#"{"metric":null,"loss":1,"samples":3,"metrics":{"r2":null}}"#)
                .expect("readable");
        assert!(undefined.metric.is_nan() && undefined.metrics[&Metric::R2].is_nan());
    }

    #[test]
    fn lower_errors_and_higher_scores_are_better() {
        assert!(Metric::Rmse.is_better(1.0, 2.0) && !Metric::R2.is_better(1.0, 2.0));
        for metric in [Metric::Mae, Metric::Mrr] {
            assert!(metric.is_better(1.0, f64::NAN) && !metric.is_better(f64::NAN, 1.0));
            assert!(!metric.is_better(f64::NAN, f64::NAN) && !metric.is_better(1.0, 1.0));
        }
    }
}
