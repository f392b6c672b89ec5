//! Scores of each target over the runs of a report row.

use graph_diffuser::run::FinishedRun;
use graph_diffuser::statistics::SeedStats;
use graph_diffuser::task::Metric;
use serde::Serialize;

/// Test score of one metric of one target, over the runs of a report row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetRow {
    /// Name of the target.
    pub target: String,
    /// Kind of the target, such as `regression`.
    pub kind: String,
    /// Number of test samples with a value, in the first run.
    pub samples: usize,
    /// Fraction of positive samples or of the most frequent class, in the first run.
    pub prevalence: Option<f64>,
    /// Metric.
    pub metric: Metric,
    /// True for the metric that is shown in tables.
    pub primary: bool,
    /// Score of each run.
    #[serde(flatten)]
    pub test: SeedStats,
    /// Bounds of the 95 % bootstrap interval over samples, of a single run.
    pub interval: Option<[f64; 2]>,
    /// Score of a constant prediction, in the first run.
    pub baseline: Option<f64>,
    /// Score of a random forest on molecules, in the first run.
    pub forest: Option<f64>,
}

impl TargetRow {
    /// Returns one row per target and metric.
    pub(super) fn of_runs(runs: &[&FinishedRun]) -> Vec<Self> {
        let Some(first) = runs.first() else { return Vec::new() };
        let mut rows = Vec::new();
        for (index, target) in first.result.targets.iter().enumerate() {
            for (&metric, score) in &target.metrics {
                let scores = runs.iter().filter_map(|run| {
                    let target = run.result.targets.get(index)?;
                    Some((run.result.seed, target.metrics.get(&metric)?.value))
                });
                let Some(test) = SeedStats::from_scores(scores) else { continue };
                rows.push(Self {
                    target: target.name.clone(),
                    kind: target.kind.clone(),
                    samples: target.samples,
                    prevalence: target.prevalence,
                    metric,
                    primary: target.primary_metric() == Some(metric),
                    test,
                    interval: score.interval.filter(|_| runs.len() == 1),
                    baseline: score.baseline,
                    forest: score.forest,
                });
            }
        }
        rows
    }
}
