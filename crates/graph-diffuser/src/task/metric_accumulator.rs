//! Accumulation of predictions over batches, and the loss and metrics over all of them.

use burn::tensor::Tensor;

use crate::batch::GraphBatch;

use super::{EvalMetrics, Metric, Predictions, Task, targets};

/// Accumulates predictions over batches; metrics are computed over all samples.
#[derive(Debug)]
pub struct MetricAccumulator {
    task: Task,
    loss_sum: f64,
    /// Total weight of the loss: number of targets, or sum of their class weights.
    loss_weight: f64,
    predictions: Predictions,
    /// Graphs with outputs that are NaN or infinite.
    non_finite: Vec<usize>,
}

impl MetricAccumulator {
    pub(super) fn new(task: Task) -> Self {
        let predictions = Predictions::new(task.metrics());
        Self { task, loss_sum: 0.0, loss_weight: 0.0, predictions, non_finite: Vec::new() }
    }

    /// Adds a batch with its mean loss.
    ///
    /// # Shapes
    /// - `output`: `[rows, outputs]`, as for [`Task::loss`]
    pub fn add(&mut self, output: Tensor<2>, batch: &GraphBatch, mean_loss: f64) {
        let targets = targets(batch);
        let weight = self.task.loss_weight(batch);
        if weight > 0.0 {
            self.loss_sum += mean_loss * weight;
            self.loss_weight += weight;
        }
        let (predictions, non_finite) = (&mut self.predictions, &mut self.non_finite);
        predictions.graphs.extend(batch.indices.iter().map(|&graph| graph as u32));
        self.task.for_each_graph(output, batch, |position, rows| {
            let samples = self.task.kind.add_samples(rows, &targets.graphs[position], predictions);
            predictions.samples.push(samples as u32);
            if !rows.is_finite() {
                non_finite.push(batch.indices[position]);
            }
        });
    }

    /// Computes the scores over all batches added.
    pub fn scores(&self) -> EvalMetrics {
        let mut metrics = self.predictions.all_metrics();
        let loss = if self.loss_weight > 0.0 { self.loss_sum / self.loss_weight } else { f64::NAN };
        metrics.entry(Metric::Loss).and_modify(|value| *value = loss);
        EvalMetrics {
            metric: metrics[&self.task.metric],
            loss,
            samples: self.predictions.len(),
            metrics,
        }
    }

    /// Returns the number of graphs with outputs that are NaN or infinite, and the first of them;
    /// `None` if there are none.
    pub fn non_finite(&self) -> Option<(usize, usize)> {
        Some((self.non_finite.len(), *self.non_finite.iter().min()?))
    }

    /// Returns the predictions, sorted by graph index.
    pub fn predictions(&self) -> Predictions {
        self.predictions.sorted()
    }
}
