//! What scores measure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a score measures, always over all samples and never a mean of batch means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Share of samples whose most likely class is the right one.
    Accuracy,
    /// F1 of each class that is there or was predicted, mean over those classes.
    MacroF1,
    /// Mean absolute error over all known values.
    Mae,
    /// Root of the mean squared error of each target, mean over targets.
    Rmse,
    /// Share of the variance that is explained, mean over targets.
    R2,
    /// Correlation of ranks, mean over targets.
    Spearman,
    /// Average precision, mean over labels.
    AveragePrecision,
    /// Area under the receiver operating characteristic, mean over labels.
    RocAuc,
    /// F1 of the predicted words as a set, mean over graphs.
    F1,
    /// Share of the predicted words that are right, mean over graphs.
    Precision,
    /// Share of the right words that are predicted, mean over graphs.
    Recall,
    /// Reciprocal rank of a pair that belongs together among all pairs with its first node, mean over graphs.
    Mrr,
    /// Share of such pairs of rank 1.
    #[serde(rename = "hits_at_1")]
    HitsAt1,
    /// Share of rank 3 or better.
    #[serde(rename = "hits_at_3")]
    HitsAt3,
    /// Share of rank 10 or better.
    #[serde(rename = "hits_at_10")]
    HitsAt10,
    /// [`Metric::Mrr`] where other pairs that belong together are no rivals.
    FilteredMrr,
    /// [`Metric::HitsAt1`] of those ranks.
    #[serde(rename = "filtered_hits_at_1")]
    FilteredHitsAt1,
    /// [`Metric::HitsAt3`] of those ranks.
    #[serde(rename = "filtered_hits_at_3")]
    FilteredHitsAt3,
    /// [`Metric::HitsAt10`] of those ranks.
    #[serde(rename = "filtered_hits_at_10")]
    FilteredHitsAt10,
    /// [`Metric::FilteredMrr`] where a node with itself is no rival either.
    FilteredNoSelfMrr,
    /// [`Metric::HitsAt1`] of those ranks.
    #[serde(rename = "filtered_no_self_hits_at_1")]
    FilteredNoSelfHitsAt1,
    /// [`Metric::HitsAt3`] of those ranks.
    #[serde(rename = "filtered_no_self_hits_at_3")]
    FilteredNoSelfHitsAt3,
    /// [`Metric::HitsAt10`] of those ranks.
    #[serde(rename = "filtered_no_self_hits_at_10")]
    FilteredNoSelfHitsAt10,
}

impl Metric {
    /// Whether `score` is better than `other`; nothing is better than NaN, and anything beats it.
    pub fn is_better(self, score: f64, other: f64) -> bool {
        if score.is_nan() || other.is_nan() {
            return !score.is_nan();
        }
        match self {
            Self::Mae | Self::Rmse => score < other,
            _ => score > other,
        }
    }

    /// Its name in tables and recipes.
    pub fn name(self) -> &'static str {
        match self {
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

/// How good predictions are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalMetrics {
    /// The metric that epochs are compared by; NaN where it is not defined.
    #[serde(deserialize_with = "null_as_nan")]
    pub metric: f64,
    /// Mean loss over all known targets.
    #[serde(deserialize_with = "null_as_nan")]
    pub loss: f64,
    /// Nodes or graphs scored.
    pub samples: usize,
    /// Every metric of the task; none in files of older versions.
    #[serde(
        default,
        deserialize_with = "nulls_as_nan",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub metrics: BTreeMap<Metric, f64>,
}

/// JSON has no NaN: it is written as `null`.
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
    fn scores_are_read_back_and_older_ones_have_no_table() {
        let scores = EvalMetrics {
            metric: 0.5,
            loss: 1.5,
            samples: 3,
            metrics: [(Metric::HitsAt1, 0.25)].into(),
        };
        let text = serde_json::to_string(&scores).expect("plain data");
        assert_eq!(text, r#"{"metric":0.5,"loss":1.5,"samples":3,"metrics":{"hits_at_1":0.25}}"#);
        assert_eq!(
            serde_json::from_str::<EvalMetrics>(&text).expect("what is written can be read"),
            scores
        );
        let old: EvalMetrics =
            serde_json::from_str(r#"{"metric":0.5,"loss":1.5,"samples":3}"#).expect("readable");
        assert!(old.metrics.is_empty());
        let undefined: EvalMetrics =
            serde_json::from_str(r#"{"metric":null,"loss":1,"samples":3,"metrics":{"r2":null}}"#)
                .expect("readable");
        assert!(undefined.metric.is_nan() && undefined.metrics[&Metric::R2].is_nan());
    }

    #[test]
    fn errors_fall_and_all_else_rises() {
        assert!(Metric::Rmse.is_better(1.0, 2.0) && !Metric::R2.is_better(1.0, 2.0));
        for metric in [Metric::Mae, Metric::Mrr] {
            assert!(metric.is_better(1.0, f64::NAN) && !metric.is_better(f64::NAN, 1.0));
            assert!(!metric.is_better(f64::NAN, f64::NAN) && !metric.is_better(1.0, 1.0));
        }
    }
}
