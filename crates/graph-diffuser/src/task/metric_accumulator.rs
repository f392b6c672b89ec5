//! Accumulation of predictions over batches, and the loss and metrics over all of them.

use burn::tensor::{Tensor, TensorData};

use crate::batch::{GraphBatch, TargetTensor};

use super::link_prediction::LinkMetrics;
use super::predictions::{PredictedValues, Predictions};
use super::sub_tokens::{TokenSetMetrics, decode_tokens};
use super::{EvalMetrics, Task, multiclass};

/// Accumulates predictions over batches; metrics are computed over all samples.
#[derive(Debug)]
pub struct MetricAccumulator {
    task: Task,
    loss_sum: f64,
    /// Total weight of the loss: number of targets, or sum of their class weights.
    loss_weight: f64,
    predictions: Predictions,
}

impl MetricAccumulator {
    pub(super) fn new(task: Task) -> Self {
        let values = PredictedValues::empty(&task.kind);
        Self {
            task,
            loss_sum: 0.0,
            loss_weight: 0.0,
            predictions: Predictions { graphs: vec![], samples: vec![], values },
        }
    }

    /// Adds a batch with its mean loss.
    ///
    /// # Shapes
    /// - `output`: `[rows, outputs]`, as for [`Task::loss`]
    pub fn add(&mut self, output: Tensor<2>, batch: &GraphBatch, mean_loss: f64) {
        let weight = self.task.loss_weight(&batch.targets);
        if weight > 0.0 {
            self.loss_sum += mean_loss * weight;
            self.loss_weight += weight;
        }
        let [_, outputs] = output.dims();
        let output = host(output.into_data());
        let Predictions { graphs, samples, values } = &mut self.predictions;
        graphs.extend(batch.indices.iter().map(|&graph| graph as u32));
        match (values, &batch.targets) {
            (
                PredictedValues::Classes { predicted, targets, .. },
                TargetTensor::NodeClasses(classes),
            ) => {
                samples.extend(batch.topology.layout.sizes.iter().map(|&size| size as u32));
                predicted.extend(multiclass::argmax(&output, outputs));
                targets.extend(classes.to_data().iter::<i64>().map(|class| class as u32));
            }
            (
                PredictedValues::Classes { predicted, targets, logits },
                TargetTensor::GraphClasses(classes),
            ) => {
                samples.extend(batch.indices.iter().map(|_| 1));
                predicted.extend(multiclass::argmax(&output, outputs));
                targets.extend(classes.to_data().iter::<i64>().map(|class| class as u32));
                logits.extend(output);
            }
            (
                PredictedValues::Regression { columns, outputs: predicted, targets }
                | PredictedValues::Labels { columns, outputs: predicted, targets },
                TargetTensor::GraphValues { values, mask },
            ) => {
                samples.extend(batch.indices.iter().map(|_| 1));
                *columns = outputs;
                predicted.extend(output);
                let mask = host(mask.to_data());
                let values = host(values.to_data()).into_iter().zip(mask);
                targets
                    .extend(values.map(|(value, mask)| if mask == 0.0 { f32::NAN } else { value }));
            }
            (
                PredictedValues::PerGraph { values, .. },
                TargetTensor::SubTokens { classes, words },
            ) => {
                samples.extend(batch.indices.iter().map(|_| 1));
                let positions = classes.dims()[0] / words.len();
                let predicted = decode_tokens(&output, outputs, positions);
                values.extend(
                    predicted
                        .iter()
                        .zip(words)
                        .flat_map(|(ours, theirs)| TokenSetMetrics::of(ours, theirs).row()),
                );
            }
            (PredictedValues::PerGraph { values, .. }, TargetTensor::Links { graphs, .. }) => {
                let mut rest = output.as_slice();
                for graph in graphs {
                    let (embeddings, others) = rest.split_at(graph.nodes * outputs);
                    let scores = LinkMetrics::of(embeddings, outputs, &graph.positives);
                    // A graph without positive pairs has no rank.
                    samples.push(u32::from(scores.is_some()));
                    values.extend(scores.into_iter().flat_map(LinkMetrics::row));
                    rest = others;
                }
            }
            _ => panic!("the targets do not match the task"),
        }
    }

    /// Computes the scores over all batches added.
    pub fn scores(&self) -> EvalMetrics {
        let metrics = self.predictions.all_metrics();
        let loss = if self.loss_weight > 0.0 { self.loss_sum / self.loss_weight } else { f64::NAN };
        EvalMetrics {
            metric: metrics[&self.task.metric],
            loss,
            samples: self.predictions.len(),
            metrics,
        }
    }

    /// Returns the predictions, sorted by graph index.
    pub fn predictions(&self) -> Predictions {
        self.predictions.sorted()
    }
}

fn host(data: TensorData) -> Vec<f32> {
    data.iter::<f32>().collect()
}
