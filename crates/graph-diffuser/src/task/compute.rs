//! Metrics of predictions: the task that computes each metric, and the metrics of one target.

use std::collections::BTreeMap;

use super::metric::Metric;
use super::predictions::Predictions;
use super::{graph_targets, node_classification};

impl Predictions {
    /// Computes a metric over all samples; NaN if it is undefined or belongs to another task.
    pub fn metric(&self, metric: Metric) -> f64 {
        let Some(column) = self.metrics.iter().position(|&found| found == metric) else {
            return f64::NAN;
        };
        match metric {
            _ if !self.kinds.is_empty() => graph_targets::metric(metric, self),
            Metric::Accuracy | Metric::MacroF1 => node_classification::metric(metric, self),
            // The other metrics are means over graphs, whose samples hold one column per metric.
            _ => self.outputs.column(column).sum::<f64>() / self.len() as f64,
        }
    }

    /// Computes all metrics of the task.
    pub fn all_metrics(&self) -> BTreeMap<Metric, f64> {
        self.metrics.iter().map(|&metric| (metric, self.metric(metric))).collect()
    }

    /// Returns the predictions of one graph-level target, with its metrics; graphs without a value
    /// of the target are left out.
    ///
    /// # Panics
    /// Panics if there is no such target.
    pub fn target(&self, target: usize) -> Self {
        let start: usize = self.kinds[..target].iter().map(|kind| kind.outputs()).sum();
        let kind = self.kinds[target];
        let all = Self {
            metrics: graph_targets::metrics(kind).to_vec(),
            kinds: vec![kind],
            graphs: self.graphs.clone(),
            samples: self.samples.clone(),
            outputs: self.outputs.select_columns(start..start + kind.outputs()),
            targets: self.targets.select_columns(target..target + 1),
        };
        let observed: Vec<usize> =
            (0..all.graphs.len()).filter(|&graph| !all.targets.values[graph].is_nan()).collect();
        if observed.len() == all.graphs.len() { all } else { all.gather(&observed) }
    }
}
