//! Accumulation of predictions over batches, and the loss and metrics over all of them.

use burn::tensor::Tensor;

use crate::batch::GraphBatch;

use super::predictions::{from_safetensors, to_safetensors};
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

    /// Serializes the predictions and losses, for another process.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Self { loss_sum, loss_weight, non_finite, predictions, .. } = self;
        let mut bytes: Vec<u8> =
            [loss_sum, loss_weight].into_iter().flat_map(|value| value.to_le_bytes()).collect();
        bytes.extend((non_finite.len() as u64).to_le_bytes());
        bytes.extend(non_finite.iter().flat_map(|&graph| (graph as u64).to_le_bytes()));
        bytes.extend(to_safetensors(&[("part", predictions)]));
        bytes
    }

    /// Adds the predictions and losses of another process; `None` if they are malformed.
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let (loss_sum, rest) = bytes.split_first_chunk::<8>()?;
        let (loss_weight, rest) = rest.split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<8>()?;
        let count = u64::from_le_bytes(*count) as usize;
        let (non_finite, rest) = rest.split_at_checked(count.checked_mul(8)?)?;
        let part = from_safetensors(rest, "part")?;
        self.loss_sum += f64::from_le_bytes(*loss_sum);
        self.loss_weight += f64::from_le_bytes(*loss_weight);
        let graph = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        self.non_finite.extend(non_finite.chunks_exact(8).map(|bytes| graph(bytes) as usize));
        let predictions = &mut self.predictions;
        if !part.kinds.is_empty() {
            predictions.kinds = part.kinds;
        }
        predictions.graphs.extend(part.graphs);
        predictions.samples.extend(part.samples);
        for (rows, part) in
            [(&mut predictions.outputs, part.outputs), (&mut predictions.targets, part.targets)]
        {
            rows.extend(part.columns.max(rows.columns), &part.values);
        }
        Some(())
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
