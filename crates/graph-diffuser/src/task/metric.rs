//! Names and directions of evaluation metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

    /// Returns the metric with the given name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name))
            .ok()
    }
}

/// Deserializes `null` as NaN, which JSON cannot represent.
pub(crate) fn null_as_nan<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_errors_and_higher_scores_are_better() {
        assert!(Metric::Rmse.is_better(1.0, 2.0) && !Metric::R2.is_better(1.0, 2.0));
        for metric in [Metric::Mae, Metric::Mrr] {
            assert!(metric.is_better(1.0, f64::NAN) && !metric.is_better(f64::NAN, 1.0));
            assert!(!metric.is_better(f64::NAN, f64::NAN) && !metric.is_better(1.0, 1.0));
        }
    }
}
