//! Weighted average of the predictions of a model and of random forests.

use burn::tensor::Tensor;
use graph_diffuser_data::Dataset;

use crate::batch::GraphBatch;
use crate::task::Task;

use super::TargetForests;

/// Number of intervals between the weights 0 and 1 from which a blend is chosen.
const INTERVALS: usize = 10;

/// Random forests and their weight in an average with a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ForestBlend {
    /// Forests of all targets.
    pub forests: TargetForests,
    /// Weight of the forests, from 0 to 1; that of the model is `1 - weight`.
    pub weight: f64,
}

impl ForestBlend {
    /// Averages the output of a model for a batch of `dataset` with that of the forests.
    ///
    /// # Shapes
    /// - `output`, returned tensor: `[b, outputs]`
    pub fn average(
        &self,
        task: &Task,
        output: Tensor<2>,
        dataset: &Dataset,
        batch: &GraphBatch,
    ) -> Tensor<2> {
        let forest = self.forests.batch_output(dataset, batch, &output);
        task.weighted_average(&[output, forest], &[1.0 - self.weight, self.weight])
    }
}

/// Losses of the candidate weights of a blend, summed over validation batches.
#[derive(Debug)]
pub(crate) struct BlendSelection {
    losses: [f64; INTERVALS + 1],
}

impl BlendSelection {
    pub(crate) fn new() -> Self {
        Self { losses: [0.0; INTERVALS + 1] }
    }

    fn weight(candidate: usize) -> f64 {
        candidate as f64 / INTERVALS as f64
    }

    /// Adds a batch with the outputs of the model and of the forests.
    pub(crate) fn add(&mut self, task: &Task, outputs: &[Tensor<2>; 2], batch: &GraphBatch) {
        let targets = task.loss_weight(batch);
        if targets == 0.0 {
            return; // the mean loss of no targets is not a number
        }
        for (candidate, loss) in self.losses.iter_mut().enumerate() {
            let weight = Self::weight(candidate);
            let output = task.weighted_average(outputs, &[1.0 - weight, weight]);
            *loss += targets * task.loss(output, batch).into_scalar::<f64>();
        }
    }

    /// Returns the weight of the forests with the lowest loss; of equal ones, the smallest.
    pub(crate) fn best(&self) -> f64 {
        let mut best = 0;
        for (candidate, loss) in self.losses.iter().enumerate() {
            if *loss < self.losses[best] {
                best = candidate;
            }
        }
        Self::weight(best)
    }
}
