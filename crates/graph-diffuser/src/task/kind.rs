//! Task of a model: what depends on the kind of the targets, and the metric that selects the best
//! epoch.

use std::fmt::Debug;
use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use graph_diffuser_data::Targets;

use crate::batch::{BatchTargets, GraphBatch, TargetCollator, TargetInput, TargetTensor};

use super::average::{Columns, average};
use super::metric::Metric;
use super::prediction::Prediction;
use super::predictions::Predictions;

/// Everything that depends on the kind of the targets, except the head.
pub trait TaskKind: Debug + Send + Sync {
    /// Returns the name of the task in messages.
    fn name(&self) -> &'static str;

    /// Returns the metrics of the task; the first is the default selection metric.
    fn metrics(&self) -> &'static [Metric];

    /// Returns the number of rows of the model output for a graph with `nodes` nodes; default: one.
    fn output_rows(&self, _nodes: usize) -> usize {
        1
    }

    /// Returns the name of the loss in messages.
    fn loss_name(&self) -> String;

    /// Collates the targets of a batch for the loss.
    fn collate(&self, input: &TargetInput<'_>) -> TargetTensor;

    /// Computes the mean loss of a batch.
    ///
    /// # Shapes
    /// - `output`: `[rows, outputs]`, as returned by the model's head
    /// - returns `[1]`
    fn loss(&self, output: Tensor<2>, targets: &TargetTensor) -> Tensor<1>;

    /// Returns the weight of a batch in a mean of batch losses: the number of observed targets, or
    /// the sum of their class weights.
    fn loss_weight(&self, targets: &TargetTensor) -> f64 {
        targets.observed()
    }

    /// Adds the output and the targets of one graph to the predictions that metrics are computed
    /// from, and returns the number of samples added.
    fn add_samples(
        &self,
        output: OutputRows<'_>,
        targets: &Targets,
        predictions: &mut Predictions,
    ) -> usize;

    /// Converts the output of one graph into a prediction.
    fn decode(&self, output: OutputRows<'_>) -> Prediction;

    /// Averages the outputs of several models for the same rows with one weight per model, and
    /// returns the values and the number of columns of an output with this average; default: the
    /// mean of class probabilities.
    fn average(&self, outputs: &[OutputRows<'_>], weights: &[f64]) -> (Vec<f32>, usize) {
        let columns = outputs[0].columns;
        let values: Vec<&[f32]> = outputs.iter().map(|output| output.values).collect();
        (average(&values, weights, &[Columns::Logits(columns)]), columns)
    }
}

/// Rows of the model output that belong to one graph.
#[derive(Debug, Clone, Copy)]
pub struct OutputRows<'a> {
    /// Values in row-major order.
    pub values: &'a [f32],
    /// Number of columns.
    pub columns: usize,
}

impl OutputRows<'_> {
    /// Returns whether no value is NaN or infinite.
    pub fn is_finite(&self) -> bool {
        self.values.iter().all(|value| value.is_finite())
    }
}

/// Task of a model, with the metric that selects the best epoch.
///
/// # Examples
/// ```
/// use graph_diffuser::task::{HeadConfig, Metric, Pooling, TaskConfig};
/// use graph_diffuser::nn::MlpConfig;
/// use graph_diffuser_data::TargetSchema;
///
/// let head = HeadConfig::Graph {
///     pooling: Pooling::Mean,
///     mlp: MlpConfig::Plain { hidden_layers: 0 },
///     dropout: 0.0,
/// };
/// let task = TaskConfig::default().init(&TargetSchema::regression(1), head);
/// assert_eq!(task.metric(), Metric::Mae);
/// ```
#[derive(Debug, Clone)]
pub struct Task {
    pub(super) kind: Arc<dyn TaskKind>,
    pub(super) metric: Metric,
}

impl Task {
    /// Returns the name of the task in messages.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Returns the name of the loss in messages, such as `L1 of standardized targets`.
    pub fn loss_name(&self) -> String {
        self.kind.loss_name()
    }

    /// Returns the metric that selects the best epoch.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the metrics of the task.
    pub fn metrics(&self) -> &'static [Metric] {
        self.kind.metrics()
    }

    /// Computes the mean loss of a batch.
    ///
    /// # Shapes
    /// - `output`: `[rows, outputs]`, as returned by the model's head
    /// - returns `[1]`
    ///
    /// # Panics
    /// Panics if the batch was collated without targets.
    pub fn loss(&self, output: Tensor<2>, batch: &GraphBatch) -> Tensor<1> {
        self.kind.loss(output, &targets(batch).tensor)
    }

    /// Returns the weight of a batch in a mean of batch losses: the number of observed targets, or
    /// the sum of their class weights.
    ///
    /// # Panics
    /// Panics if the batch was collated without targets.
    pub fn loss_weight(&self, batch: &GraphBatch) -> f64 {
        self.loss_weight_of(self.target_tensor(batch))
    }

    /// Returns the targets of a batch as the loss needs them.
    pub(crate) fn target_tensor<'a>(&self, batch: &'a GraphBatch) -> &'a TargetTensor {
        &targets(batch).tensor
    }

    /// Returns the [weight](Self::loss_weight) of targets.
    pub(crate) fn loss_weight_of(&self, targets: &TargetTensor) -> f64 {
        self.kind.loss_weight(targets)
    }

    /// Converts the model output of a batch into one prediction per graph.
    ///
    /// # Shapes
    /// - `output`: `[rows, outputs]`
    pub fn predictions(&self, output: Tensor<2>, batch: &GraphBatch) -> Vec<Prediction> {
        let mut predictions = Vec::with_capacity(batch.topology.layout.graphs());
        self.for_each_graph(output, batch, |_, rows| predictions.push(self.kind.decode(rows)));
        predictions
    }

    /// Averages the outputs of several models for one batch: values of regression targets and
    /// probabilities of all others, except that link prediction averages the logits of links.
    ///
    /// # Shapes
    /// - `outputs`: `[rows, outputs]` each
    /// - returns an output for [`Task::loss`] and [`Task::predictions`]
    ///
    /// # Panics
    /// Panics if there are no outputs.
    pub fn average(&self, outputs: &[Tensor<2>]) -> Tensor<2> {
        match outputs {
            [only] => only.clone(),
            outputs => self.weighted_average(outputs, &vec![1.0; outputs.len()]),
        }
    }

    /// Averages outputs like [`Task::average`], with one weight per output.
    ///
    /// # Panics
    /// Panics if there are no outputs.
    pub fn weighted_average(&self, outputs: &[Tensor<2>], weights: &[f64]) -> Tensor<2> {
        let [rows, columns] = outputs[0].dims();
        let values: Vec<Vec<f32>> =
            outputs.iter().map(|output| output.to_data().iter::<f32>().collect()).collect();
        let output_rows: Vec<OutputRows<'_>> =
            values.iter().map(|values| OutputRows { values, columns }).collect();
        let (values, columns) = self.kind.average(&output_rows, weights);
        let options = (&outputs[0].device(), outputs[0].dtype());
        Tensor::from_data(TensorData::new(values, [rows, columns]), options)
    }

    /// Returns for each graph of a batch whether its outputs are neither NaN nor infinite.
    pub fn are_finite(&self, output: Tensor<2>, batch: &GraphBatch) -> Vec<bool> {
        let mut finite = Vec::with_capacity(batch.indices.len());
        self.for_each_graph(output, batch, |_, rows| finite.push(rows.is_finite()));
        finite
    }

    /// Calls `visit` with the position and the output of each graph of a batch.
    pub(super) fn for_each_graph(
        &self,
        output: Tensor<2>,
        batch: &GraphBatch,
        mut visit: impl FnMut(usize, OutputRows<'_>),
    ) {
        let [_, columns] = output.dims();
        let values: Vec<f32> = output.into_data().iter::<f32>().collect();
        let mut rest = values.as_slice();
        for (position, &nodes) in batch.topology.layout.sizes.iter().enumerate() {
            let (values, others) = rest.split_at(self.kind.output_rows(nodes) * columns);
            visit(position, OutputRows { values, columns });
            rest = others;
        }
    }
}

impl TargetCollator for Task {
    fn collate(&self, input: &TargetInput<'_>) -> TargetTensor {
        self.kind.collate(input)
    }
}

/// Returns the targets of a batch.
pub(super) fn targets(batch: &GraphBatch) -> &BatchTargets {
    batch.targets.as_ref().expect("the batcher collates targets")
}

/// Panics because a batch or graph has targets of another task.
pub(super) fn wrong_targets(expected: &str) -> ! {
    panic!("targets do not match the task: expected {expected}")
}
