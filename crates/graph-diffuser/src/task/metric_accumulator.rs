//! Predictions gathered batch by batch, and the loss and metrics over all of them.

use burn::tensor::{Tensor, TensorData};

use crate::batch::{GraphBatch, TargetTensor};

use super::link_prediction::LinkMetrics;
use super::predictions::{PredictedValues, Predictions};
use super::sub_tokens::{TokenSetMetrics, predicted_words};
use super::{EvalMetrics, Task, multiclass};

/// Predictions of all batches; a metric is over all samples, never a mean of batch means.
#[derive(Debug)]
pub struct MetricAccumulator {
    task: Task,
    loss: f64,
    /// What the loss is a mean over.
    weight: f64,
    predictions: Predictions,
}

impl MetricAccumulator {
    pub(super) fn new(task: Task) -> Self {
        let values = PredictedValues::empty(&task.kind);
        Self {
            task,
            loss: 0.0,
            weight: 0.0,
            predictions: Predictions { graphs: vec![], samples: vec![], values },
        }
    }

    /// Adds a batch with the given mean loss.
    ///
    /// # Shapes
    /// - `output`: `[rows, outputs]`, as for [`Task::loss`]
    pub fn add(&mut self, output: Tensor<2>, batch: &GraphBatch, mean_loss: f64) {
        let weight = self.task.weight(&batch.targets);
        if weight > 0.0 {
            self.loss += mean_loss * weight;
            self.weight += weight;
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
                TargetTensor::GraphValues { values, known },
            ) => {
                samples.extend(batch.indices.iter().map(|_| 1));
                *columns = outputs;
                predicted.extend(output);
                let known = host(known.to_data());
                let values = host(values.to_data()).into_iter().zip(known);
                targets.extend(
                    values.map(|(value, known)| if known == 0.0 { f32::NAN } else { value }),
                );
            }
            (
                PredictedValues::PerGraph { values, .. },
                TargetTensor::SubTokens { classes, words },
            ) => {
                samples.extend(batch.indices.iter().map(|_| 1));
                let positions = classes.dims()[0] / words.len();
                let predicted = predicted_words(&output, outputs, positions);
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
                    let (vectors, others) = rest.split_at(graph.nodes * outputs);
                    let scores = LinkMetrics::of(vectors, outputs, &graph.positives);
                    samples.push(u32::from(scores.is_some())); // a graph without positive pairs has no rank
                    values.extend(scores.into_iter().flat_map(LinkMetrics::row));
                    rest = others;
                }
            }
            _ => panic!("targets of another kind than the task's"),
        }
    }

    /// Scores over everything added.
    pub fn scores(&self) -> EvalMetrics {
        let metrics = self.predictions.all_metrics();
        let loss = if self.weight > 0.0 { self.loss / self.weight } else { 0.0 };
        EvalMetrics {
            metric: metrics[&self.task.metric],
            loss,
            samples: self.predictions.len(),
            metrics,
        }
    }

    /// The predictions, by ascending graph index.
    pub fn predictions(&self) -> Predictions {
        self.predictions.sorted()
    }
}

fn host(data: TensorData) -> Vec<f32> {
    data.iter::<f32>().collect()
}
