//! Paired comparison of two configurations on the same test graphs, with a bootstrap interval.
//!
//! Models of similar quality make errors on the same graphs, so their difference has a much smaller
//! sampling error than either score. Every bootstrap sample draws test graphs, the same for both,
//! and runs of each configuration.

use graph_diffuser_data::{SeedTree, map_ranges};
use serde::Serialize;

use graph_diffuser::run::FinishedRun;
use graph_diffuser::statistics::mean;
use graph_diffuser::task::{Metric, Predictions};

/// Number of bootstrap samples.
const SAMPLES: usize = 1000;
/// Number of predictions above which fewer bootstrap samples are drawn.
const LARGE: usize = 2_000_000;

/// Paired difference between a configuration and the first one of a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairedDifference {
    /// Name of the baseline configuration.
    pub baseline: String,
    /// Name of the configuration.
    pub recipe: String,
    /// Metric.
    pub metric: Metric,
    /// Number of test graphs.
    pub graphs: usize,
    /// Number of runs of the baseline and of the configuration.
    pub runs: [usize; 2],
    /// Mean metric of the configuration minus that of the baseline.
    pub difference: f64,
    /// Bounds of the 95% bootstrap interval.
    pub interval: [f64; 2],
    /// Number of bootstrap samples with a finite difference.
    pub samples: usize,
}

impl PairedDifference {
    /// Compares every group of runs with the first; groups without predictions of the same test
    /// graphs are skipped.
    pub(super) fn to_first(groups: &[(&str, Vec<&FinishedRun>)]) -> Vec<Self> {
        let Some(((name, baseline), others)) = groups.split_first() else { return Vec::new() };
        others
            .iter()
            .filter_map(|(other, runs)| Self::new((name, baseline), (other, runs)))
            .collect()
    }

    /// Compares two groups of runs; returns `None` unless both predict the same test graphs.
    fn new<'a>(
        baseline: (&str, &[&'a FinishedRun]),
        other: (&str, &[&'a FinishedRun]),
    ) -> Option<Self> {
        let metric = baseline.1.first()?.result.metric;
        let predictions = |runs: &[&'a FinishedRun]| -> Option<Vec<&'a Predictions>> {
            let same_metric = runs.iter().all(|run| run.result.metric == metric);
            runs.iter().map(|run| run.test_predictions.as_ref().filter(|_| same_metric)).collect()
        };
        let (candidates, baselines) = (predictions(other.1)?, predictions(baseline.1)?);
        let (first, _) = (baselines.first()?, candidates.first()?);
        if !candidates.iter().chain(&baselines).all(|predictions| predictions.is_paired_with(first))
        {
            return None;
        }
        let scores = |runs: &[&Predictions]| -> Vec<f64> {
            runs.iter().map(|run| run.metric(metric)).collect()
        };
        let difference = mean(scores(&candidates))? - mean(scores(&baselines))?;
        if !difference.is_finite() {
            return None;
        }
        let graphs = first.graphs.len();
        // One bootstrap sample: the same graphs for all runs, and runs of each group.
        let sample = |index: usize| {
            let mut stream = SeedTree::new(0).stream_at("bootstrap", index as u64);
            let mut draw =
                |count: usize| (0..count).map(|_| stream.below(count)).collect::<Vec<usize>>();
            let drawn = draw(graphs);
            let mut group = |runs: &[&Predictions]| {
                let scores: Vec<f64> =
                    runs.iter().map(|run| run.gather(&drawn).metric(metric)).collect();
                mean(draw(runs.len()).into_iter().map(|run| scores[run])).unwrap_or(f64::NAN)
            };
            group(&candidates) - group(&baselines)
        };
        let size = first.len() * (candidates.len() + baselines.len());
        let samples = if size > LARGE { SAMPLES / 5 } else { SAMPLES };
        let mut sampled = in_parallel(samples, &sample);
        sampled.retain(|difference| difference.is_finite());
        sampled.sort_by(f64::total_cmp);
        let quantile = |fraction: f64| {
            sampled.get((fraction * (sampled.len() - 1) as f64).round() as usize).copied()
        };
        Some(Self {
            baseline: baseline.0.to_owned(),
            recipe: other.0.to_owned(),
            metric,
            graphs,
            runs: [baselines.len(), candidates.len()],
            difference,
            interval: if sampled.is_empty() {
                [f64::NAN; 2]
            } else {
                [quantile(0.025)?, quantile(0.975)?]
            },
            samples: sampled.len(),
        })
    }

    /// Returns whether the interval excludes zero.
    pub fn is_significant(&self) -> bool {
        self.interval[0] > 0.0 || self.interval[1] < 0.0
    }
}

/// Evaluates `sample` for the indices `0..count` on several threads, in order.
fn in_parallel(count: usize, sample: &(impl Fn(usize) -> f64 + Sync)) -> Vec<f64> {
    map_ranges(count, 1, |range| range.map(sample).collect::<Vec<f64>>()).concat()
}

#[cfg(test)]
mod tests {
    use graph_diffuser::recipe::Recipe;
    use graph_diffuser::run::RunResult;
    use graph_diffuser::task::{EvalMetrics, SampleRows};
    use graph_diffuser::train::BestEpoch;
    use graph_diffuser_data::{Standardization, TargetKind};

    use super::*;

    /// A run whose prediction for graph `g` is off by `error(g)`.
    fn run(seed: u64, error: impl Fn(u32) -> f32) -> FinishedRun {
        let graphs: Vec<u32> = (0..400).collect();
        let column = |value: &dyn Fn(u32) -> f64| SampleRows {
            columns: 1,
            values: graphs.iter().map(|&graph| value(graph)).collect(),
        };
        let predictions = Predictions {
            metrics: vec![Metric::Mae, Metric::Rmse],
            kinds: vec![TargetKind::Regression(Standardization::IDENTITY)],
            samples: vec![1; graphs.len()],
            outputs: column(&|graph| f64::from(graph as f32 + error(graph))),
            targets: column(&|graph| f64::from(graph)),
            graphs,
        };
        let metrics = predictions.all_metrics();
        let test = EvalMetrics { metric: metrics[&Metric::Mae], loss: 0.0, samples: 400, metrics };
        FinishedRun {
            directory: format!("runs/zinc-s{seed}").into(),
            schema: None,
            data: None,
            recipe: Recipe { seed, ..Recipe::find("zinc", &[]).expect("the recipe is built in") },
            result: RunResult {
                seed,
                metric: Metric::Mae,
                parameters: 1,
                best: BestEpoch { epoch: 1, valid: test.clone() },
                test,
                targets: vec![],
                epochs: 1,
                seconds: 1.0,
                ensemble: None,
                blend: None,
            },
            history: vec![],
            member_histories: vec![],
            has_fingerprints: false,
            environment: None,
            test_predictions: Some(predictions),
        }
    }

    fn compare(baseline: &[FinishedRun], other: &[FinishedRun]) -> Option<PairedDifference> {
        let (baseline, other): (Vec<_>, Vec<_>) =
            (baseline.iter().collect(), other.iter().collect());
        PairedDifference::new(("a", &baseline), ("b", &other))
    }

    #[test]
    fn small_difference_between_correlated_errors_is_significant() {
        // Errors between 0.2 and 10.1; the second configuration is better by 0.1 on every graph.
        let error = |graph: u32| (graph * 37 % 100) as f32 / 10.0 + 0.2;
        let paired = compare(&[run(0, error)], &[run(0, |graph| error(graph) - 0.1)])
            .expect("both predict the same graphs");
        assert!((paired.difference + 0.1).abs() < 1e-4, "{paired:?}");
        assert!(paired.is_significant() && paired.interval[0] > -0.11, "{paired:?}");
    }

    #[test]
    fn variance_between_seeds_widens_the_interval() {
        let seeds = |shift: f32| [run(0, move |_| 1.0 + shift), run(1, move |_| 2.0 + shift)];
        let paired = compare(&seeds(0.0), &seeds(0.1)).expect("both predict the same graphs");
        assert!((paired.difference - 0.1).abs() < 1e-4, "{paired:?}");
        assert!(!paired.is_significant(), "{paired:?}");
        assert_eq!(paired.runs, [2, 2]);
    }

    #[test]
    fn runs_without_predictions_are_not_compared() {
        let mut without = run(0, |_| 1.0);
        without.test_predictions = None;
        assert_eq!(compare(&[run(0, |_| 1.0)], &[without]), None);
    }
}
