//! Scores of each target, with bootstrap intervals and the scores of a constant prediction.

use std::collections::BTreeMap;

use graph_diffuser_data::{Dataset, Schema, SeedTree, Split, TargetKind, TargetSchema, Targets};
use serde::{Deserialize, Serialize};

use super::metric::{Metric, null_as_nan};
use super::predictions::Predictions;
use super::sample_rows::SampleRows;

/// Maximum number of bootstrap samples.
const MAX_BOOTSTRAP: usize = 1000;
/// Minimum number of bootstrap samples.
const MIN_BOOTSTRAP: usize = 100;
/// Number of resampled rows, over all bootstrap samples and targets, that bounds the run time.
const MAX_ROWS: usize = 5_000_000;

/// Number of samples of the rarer class from which a binary target has intervals. A bootstrap over
/// fewer samples does not contain the variation between them.
const MIN_CLASS_SAMPLES: usize = 5;

/// Scores of one target on one split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetScores {
    /// Name of the target.
    pub name: String,
    /// Kind of the target, such as `regression`.
    pub kind: String,
    /// Number of graphs or nodes with a value.
    pub samples: usize,
    /// Fraction of positive samples (binary) or of the most frequent class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prevalence: Option<f64>,
    /// Metrics of the target.
    pub metrics: BTreeMap<Metric, Score>,
}

/// Value of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Value; NaN if it is undefined.
    #[serde(deserialize_with = "null_as_nan")]
    pub value: f64,
    /// Bounds of the 95 % bootstrap interval over samples, if it is defined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Value of the [`Baseline`], if it is defined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<f64>,
    /// Value of a random forest on fingerprints and descriptors, for molecules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forest: Option<f64>,
}

/// Constant prediction that a model should beat: the mean of the training targets, or the
/// frequencies of the training classes.
#[derive(Debug, Clone, PartialEq)]
pub struct Baseline {
    /// Output of every sample, as in [`Predictions::outputs`].
    outputs: Vec<f64>,
}

impl Baseline {
    /// Computes the constant prediction of the training split; `None` for tasks without one.
    pub fn new(dataset: &Dataset) -> Option<Self> {
        let graphs = dataset.split(Split::Train).iter().map(|&graph| dataset.graphs.get(graph));
        let outputs = match &dataset.schema.targets {
            TargetSchema::Graph(kinds) => {
                let mut columns = vec![Vec::new(); kinds.len()];
                for graph in graphs {
                    let Targets::GraphValues(values) = &graph.targets else { return None };
                    for (column, &value) in columns.iter_mut().zip(values) {
                        if !value.is_nan() {
                            column.push(f64::from(value));
                        }
                    }
                }
                kinds
                    .iter()
                    .zip(&columns)
                    .flat_map(|(kind, values)| constant(*kind, values))
                    .collect()
            }
            TargetSchema::NodeMulticlass(count) => {
                let mut counts = vec![0_usize; *count];
                for graph in graphs {
                    let Targets::NodeClasses(classes) = &graph.targets else { return None };
                    for &class in classes {
                        if let Some(count) = counts.get_mut(class as usize) {
                            *count += 1;
                        }
                    }
                }
                let most = counts.iter().max()?;
                vec![counts.iter().position(|count| count == most)? as f64]
            }
            TargetSchema::SubTokens(_) | TargetSchema::LinkPrediction => return None,
        };
        Some(Self { outputs })
    }

    fn predictions(&self, predictions: &Predictions) -> Predictions {
        let columns = self.outputs.len();
        let values = self.outputs.iter().copied().cycle().take(columns * predictions.len());
        let outputs = SampleRows { columns, values: values.collect() };
        Predictions { outputs, ..predictions.clone() }
    }
}

/// Returns the outputs of a constant prediction: the mean, the log-odds or the log frequencies.
fn constant(kind: TargetKind, values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    match kind {
        TargetKind::Regression(_) => vec![mean],
        TargetKind::Binary => vec![mean.ln() - (1.0 - mean).ln()],
        TargetKind::Multiclass(classes) => (0..classes)
            .map(|class| {
                let count = values.iter().filter(|&&value| value as usize == class).count();
                (count as f64 / values.len().max(1) as f64).ln()
            })
            .collect(),
    }
}

impl TargetScores {
    /// Computes the scores of all targets.
    pub fn compute(
        predictions: &Predictions,
        schema: &Schema,
        baseline: Option<&Baseline>,
    ) -> Vec<Self> {
        let constant = baseline.map(|baseline| baseline.predictions(predictions));
        let kinds = schema.targets.graph_targets();
        if kinds.is_empty() {
            let (name, kind) = match schema.targets {
                TargetSchema::NodeMulticlass(_) => ("node class", "node_multiclass"),
                TargetSchema::SubTokens(_) => ("sub-tokens", "sub_tokens"),
                _ => ("links", "link_prediction"),
            };
            return vec![Self::new(name.into(), kind, predictions, constant.as_ref(), 1)];
        }
        let scores = |target: usize| {
            let kind = match kinds[target] {
                TargetKind::Regression(_) => "regression",
                TargetKind::Binary => "binary",
                TargetKind::Multiclass(_) => "multiclass",
            };
            let name = schema.names.target(target, kinds.len());
            let constant = constant.as_ref().map(|constant| constant.target(target));
            let of_target = predictions.target(target);
            Self::new(name, kind, &of_target, constant.as_ref(), kinds.len())
        };
        (0..kinds.len()).map(scores).collect()
    }

    /// Adds the scores of a random forest; `forest` holds its predictions of the same samples.
    pub fn with_forest(mut scores: Vec<Self>, forest: &Predictions) -> Vec<Self> {
        for (target, scores) in scores.iter_mut().enumerate() {
            let forest = forest.target(target);
            for (&metric, score) in &mut scores.metrics {
                score.forest = Some(forest.metric(metric)).filter(|value| !value.is_nan());
            }
        }
        scores
    }

    /// Returns the metric that summarizes the target: MAE, ROC-AUC, accuracy, or that of its task.
    pub fn primary_metric(&self) -> Option<Metric> {
        let primary = match self.kind.as_str() {
            "regression" => Metric::Mae,
            "binary" => Metric::RocAuc,
            "link_prediction" => Metric::Mrr,
            "sub_tokens" => Metric::F1,
            _ => Metric::Accuracy,
        };
        self.metrics.contains_key(&primary).then_some(primary)
    }

    fn new(
        name: String,
        kind: &str,
        predictions: &Predictions,
        baseline: Option<&Predictions>,
        targets: usize,
    ) -> Self {
        let defined = |value: f64| (!value.is_nan()).then_some(value);
        let mut intervals = intervals(predictions, targets);
        let labels = &predictions.targets.values;
        let rarer = [0.0, 1.0].map(|class| labels.iter().filter(|&&label| label == class).count());
        if kind == "binary" && rarer.into_iter().min() < Some(MIN_CLASS_SAMPLES) {
            intervals.clear();
        }
        let metrics = predictions.metrics.iter().map(|&metric| {
            let score = Score {
                value: predictions.metric(metric),
                interval: intervals.remove(&metric),
                baseline: baseline.and_then(|baseline| defined(baseline.metric(metric))),
                forest: None,
            };
            (metric, score)
        });
        Self {
            name,
            kind: kind.to_owned(),
            samples: predictions.len(),
            prevalence: prevalence(kind, &predictions.targets.values),
            metrics: metrics.collect(),
        }
    }
}

/// Returns the fraction of positive samples or of the most frequent class.
fn prevalence(kind: &str, targets: &[f64]) -> Option<f64> {
    let fraction = |count: usize| Some(count as f64 / targets.len() as f64);
    match kind {
        _ if targets.is_empty() => None,
        "binary" => fraction(targets.iter().filter(|&&label| label == 1.0).count()),
        "multiclass" | "node_multiclass" => {
            let mut counts = BTreeMap::<u64, usize>::new();
            for class in targets {
                *counts.entry(*class as u64).or_default() += 1;
            }
            fraction(*counts.values().max()?)
        }
        _ => None,
    }
}

/// Returns the 95 % bootstrap intervals of all metrics over graphs, or over the samples of a single
/// graph.
fn intervals(predictions: &Predictions, targets: usize) -> BTreeMap<Metric, [f64; 2]> {
    let single = (predictions.graphs.len() == 1).then(|| {
        let count = predictions.len();
        Predictions { graphs: vec![0; count], samples: vec![1; count], ..predictions.clone() }
    });
    let predictions = single.as_ref().unwrap_or(predictions);
    let units = predictions.graphs.len();
    if units < 2 {
        return BTreeMap::new();
    }
    let rows = predictions.len().max(1) * targets;
    let samples = (MAX_ROWS / rows).clamp(MIN_BOOTSTRAP, MAX_BOOTSTRAP);
    let mut values: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
    for sample in 0..samples {
        let mut stream = SeedTree::new(0).stream_at("bootstrap", sample as u64);
        let drawn: Vec<usize> = (0..units).map(|_| stream.below(units)).collect();
        for (metric, value) in predictions.gather(&drawn).all_metrics() {
            if value.is_finite() {
                values.entry(metric).or_default().push(value);
            }
        }
    }
    let interval = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let quantile =
            |fraction: f64| values[(fraction * (values.len() - 1) as f64).round() as usize];
        [quantile(0.025), quantile(0.975)]
    };
    // Metrics that are undefined in most samples, such as ROC-AUC with one positive, have no
    // meaningful interval.
    values.retain(|_, values| 2 * values.len() > samples);
    values.into_iter().map(|(metric, values)| (metric, interval(values))).collect()
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::{
        FeatureSchema, Features, Graph, Graphs, Names, Splits, Standardization,
    };

    use super::*;

    fn dataset(kinds: &[TargetKind], rows: &[&[f32]]) -> Dataset {
        let graph = |values: &&[f32]| Graph {
            num_nodes: 1,
            edges: vec![],
            node_features: Features::None,
            edge_features: Features::None,
            targets: Targets::GraphValues(values.to_vec()),
        };
        Dataset {
            graphs: Graphs::InMemory(rows.iter().map(graph).collect()),
            schema: Schema {
                node_features: FeatureSchema::None,
                edge_features: FeatureSchema::None,
                targets: TargetSchema::Graph(kinds.to_vec()),
                names: Names { targets: vec!["y".into(), "z".into()], ..Names::default() },
            },
            splits: Splits { train: (0..rows.len()).collect(), valid: vec![], test: vec![] },
        }
    }

    fn predictions(kinds: &[TargetKind], outputs: &[f64], targets: &[f64]) -> Predictions {
        let graphs: Vec<u32> = (0..targets.len() as u32 / kinds.len() as u32).collect();
        Predictions {
            metrics: vec![Metric::Loss],
            kinds: kinds.to_vec(),
            samples: vec![1; graphs.len()],
            outputs: SampleRows { columns: outputs.len() / graphs.len(), values: outputs.to_vec() },
            targets: SampleRows { columns: kinds.len(), values: targets.to_vec() },
            graphs,
        }
    }

    #[test]
    fn baseline_predicts_the_training_mean_and_the_majority_class() {
        let kinds = [TargetKind::Regression(Standardization::IDENTITY), TargetKind::Multiclass(2)];
        let train = dataset(&kinds, &[&[1.0, 1.0], &[3.0, 1.0], &[f32::NAN, 0.0]]);
        let baseline = Baseline::new(&train).expect("graph targets");
        let (outputs, targets) = ([0.0; 6], [5.0, 1.0, f64::NAN, 0.0]);
        let scores = TargetScores::compute(
            &predictions(&kinds, &outputs, &targets),
            &train.schema,
            Some(&baseline),
        );
        let [y, z] = &scores[..] else { panic!("two targets") };
        assert_eq!((y.name.as_str(), y.samples, y.prevalence), ("y", 1, None));
        assert_eq!(y.metrics[&Metric::Mae].value, 5.0);
        assert_eq!(y.metrics[&Metric::Mae].baseline, Some(3.0), "the training mean is 2");
        assert_eq!((z.samples, z.prevalence), (2, Some(0.5)));
        assert_eq!(z.metrics[&Metric::Accuracy].baseline, Some(0.5), "class 1 is predicted");
    }

    #[test]
    fn interval_contains_the_score_and_shrinks_with_the_number_of_samples() {
        let interval = |count: usize| {
            let targets: Vec<f64> =
                (0..count).map(|graph| f64::from(u8::from(graph % 3 == 0))).collect();
            let outputs: Vec<f64> =
                (0..count).map(|graph| targets[graph] + (graph * 7 % 11) as f64 / 5.0).collect();
            let kinds = [TargetKind::Binary];
            let schema = dataset(&kinds, &[]).schema;
            let scores =
                TargetScores::compute(&predictions(&kinds, &outputs, &targets), &schema, None);
            let score = scores[0].metrics[&Metric::RocAuc];
            let [lower, upper] = score.interval.expect("both classes occur");
            assert!((lower..=upper).contains(&score.value), "{score:?}");
            upper - lower
        };
        assert!(interval(400) < 0.6 * interval(60));
    }

    #[test]
    fn rare_class_has_no_interval() {
        let kinds = [TargetKind::Binary];
        let schema = dataset(&kinds, &[]).schema;
        let has_interval = |positives: usize| {
            let targets: Vec<f64> =
                (0..40).map(|row| f64::from(u8::from(row < positives))).collect();
            let outputs: Vec<f64> = (0..40).map(|row| f64::from(row % 7)).collect();
            let predictions = predictions(&kinds, &outputs, &targets);
            let scores = TargetScores::compute(&predictions, &schema, None);
            scores[0].metrics[&Metric::RocAuc].interval.is_some()
        };
        assert!(!has_interval(MIN_CLASS_SAMPLES - 1));
        assert!(has_interval(MIN_CLASS_SAMPLES));
        assert!(!has_interval(40 - MIN_CLASS_SAMPLES + 1));
    }

    #[test]
    fn undefined_scores_have_no_interval_and_survive_json() {
        let kinds = [TargetKind::Binary];
        let schema = dataset(&kinds, &[]).schema;
        let scores =
            TargetScores::compute(&predictions(&kinds, &[0.5, 1.0], &[0.0, 0.0]), &schema, None);
        let score = scores[0].metrics[&Metric::RocAuc];
        assert!(score.value.is_nan() && score.interval.is_none());
        let json = serde_json::to_string(&scores).expect("plain data");
        let read: Vec<TargetScores> = serde_json::from_str(&json).expect("serialized scores");
        assert!(read[0].metrics[&Metric::RocAuc].value.is_nan());
    }
}
