//! Accumulation of predictions over batches, and the loss and metrics over all of them.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;

use super::kind::{Task, targets};
use super::metric::{Metric, null_as_nan};
use super::predictions::{Predictions, part_from_safetensors, to_safetensors};

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

fn nulls_as_nan<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Metric, f64>, D::Error> {
    let metrics = BTreeMap::<Metric, Option<f64>>::deserialize(deserializer)?;
    Ok(metrics.into_iter().map(|(metric, value)| (metric, value.unwrap_or(f64::NAN))).collect())
}

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

impl Task {
    /// Creates an accumulator of predictions and losses.
    pub fn metric_accumulator(&self) -> MetricAccumulator {
        MetricAccumulator {
            task: self.clone(),
            loss_sum: 0.0,
            loss_weight: 0.0,
            predictions: Predictions::new(self.metrics()),
            non_finite: Vec::new(),
        }
    }
}

impl MetricAccumulator {
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
        let part = part_from_safetensors(rest, "part")?;
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
}
