//! Graph-level targets of any combination of kinds: regression, binary and multi-class.
//!
//! The loss is the mean over all observed targets of the batch. Regression targets are standardized
//! by the statistics of their schema, so that targets of different units have comparable losses;
//! predictions and metrics are in the units of the data.

use std::ops::Range;

use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData, activation::log_softmax};
use graph_diffuser_data::{Standardization, TargetKind, Targets};

use crate::batch::{TargetInput, TargetTensor};
use crate::nn::{ForwardContext, Mlp, MlpConfig, ParamInit};

use super::average::{Columns, average};
use super::binary::{self, bce_with_logits};
use super::kind::{OutputRows, TaskKind, wrong_targets};
use super::metric::Metric;
use super::multiclass::{self, argmax};
use super::pooling::Pooling;
use super::prediction::{ClassPrediction, Prediction, TargetPrediction, sigmoid};
use super::predictions::Predictions;
use super::regression::{self, RegressionLoss};
use super::sample_rows::SampleRows;

/// Prediction of graph-level targets.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphTargets {
    /// Kind of each target.
    pub kinds: Vec<TargetKind>,
    /// Loss of the regression targets.
    pub loss: RegressionLoss,
    /// Weight of each class of the only classification target in the loss; all equal if `None`.
    pub class_weights: Option<Vec<f32>>,
}

/// Adjacent targets whose losses are computed by one operation.
struct Block {
    kind: TargetKind,
    targets: Range<usize>,
    outputs: Range<usize>,
}

impl GraphTargets {
    fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut output = 0;
        for (target, &kind) in self.kinds.iter().enumerate() {
            let outputs = output..output + kind.outputs();
            output = outputs.end;
            match (blocks.last_mut(), kind) {
                (Some(last), TargetKind::Regression(_))
                    if matches!(last.kind, TargetKind::Regression(_)) =>
                {
                    (last.targets.end, last.outputs.end) = (target + 1, outputs.end);
                }
                (Some(last), TargetKind::Binary) if last.kind == TargetKind::Binary => {
                    (last.targets.end, last.outputs.end) = (target + 1, outputs.end);
                }
                _ => blocks.push(Block { kind, targets: target..target + 1, outputs }),
            }
        }
        blocks
    }

    /// Returns the weights of the targets of a block: the mask, times the class weights if there
    /// are any.
    ///
    /// # Shapes
    /// - `values`, `mask`, returned tensor: `[b, targets]`
    fn weights(&self, kind: TargetKind, values: &Tensor<2>, mask: Tensor<2>) -> Tensor<2> {
        match (&self.class_weights, kind) {
            (None, _) | (_, TargetKind::Regression(_)) => mask,
            (Some(weights), _) => {
                let shape = values.dims();
                let data = TensorData::new(weights.clone(), [weights.len()]);
                let weights = Tensor::<1>::from_data(data, (&mask.device(), mask.dtype()));
                let classes: Tensor<1, Int> = values.clone().int().flatten(0, 1);
                mask * weights.select(0, classes).reshape(shape)
            }
        }
    }
}

impl TaskKind for GraphTargets {
    fn name(&self) -> &'static str {
        let is_regression = |kind: &TargetKind| matches!(kind, TargetKind::Regression(_));
        match self.metrics() {
            _ if self.kinds.iter().all(is_regression) => "graph regression",
            [Metric::RocAuc, ..] if self.kinds.len() == 1 => "binary graph classification",
            [Metric::RocAuc, ..] => "multi-label graph classification",
            [Metric::Accuracy, ..] => "graph classification",
            _ => "multi-task graph prediction",
        }
    }

    fn metrics(&self) -> &'static [Metric] {
        let is_standardized = |kind: &TargetKind| match kind {
            TargetKind::Regression(standardization) => {
                *standardization != Standardization::IDENTITY
            }
            _ => false,
        };
        // Standardized targets have different units, so that the error of one of them would
        // dominate the mean error.
        if self.kinds.len() > 1 && self.kinds.iter().all(is_standardized) {
            return &regression::METRICS_OF_SEVERAL_UNITS;
        }
        let mut all = self.kinds.iter().map(|kind| metrics(*kind));
        let first = all.next().unwrap_or(&[Metric::Loss]);
        // Scores of different kinds have no common scale other than the loss.
        if all.all(|metrics| metrics == first) { first } else { &[Metric::Loss] }
    }

    fn loss_name(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for block in self.blocks() {
            let name = match block.kind {
                TargetKind::Regression(standardization) => match (self.loss, standardization) {
                    (RegressionLoss::L1, Standardization::IDENTITY) => "L1",
                    (RegressionLoss::Mse, Standardization::IDENTITY) => "MSE",
                    (RegressionLoss::L1, _) => "L1 of standardized targets",
                    (RegressionLoss::Mse, _) => "MSE of standardized targets",
                },
                TargetKind::Binary => "binary cross-entropy",
                TargetKind::Multiclass(_) => "cross-entropy",
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }

    fn collate(&self, input: &TargetInput<'_>) -> TargetTensor {
        let mut values = Vec::with_capacity(input.graphs.len() * self.kinds.len());
        for graph in input.graphs {
            let Targets::GraphValues(targets) = &graph.targets else {
                wrong_targets("graph values")
            };
            values.extend(targets.iter().zip(&self.kinds).map(|(&value, kind)| match kind {
                TargetKind::Regression(standardization) => standardization.apply(value),
                TargetKind::Binary | TargetKind::Multiclass(_) => value,
            }));
        }
        let shape = [input.graphs.len(), self.kinds.len()];
        let mask = values.iter().map(|value| if value.is_nan() { 0.0 } else { 1.0 }).collect();
        let values = values.into_iter().map(|value| if value.is_nan() { 0.0 } else { value });
        TargetTensor::Values {
            values: input.floats(values.collect(), shape),
            mask: input.floats(mask, shape),
        }
    }

    fn loss(&self, output: Tensor<2>, targets: &TargetTensor) -> Tensor<1> {
        let TargetTensor::Values { values, mask } = targets else { wrong_targets("values") };
        let mut total: Option<[Tensor<1>; 2]> = None;
        for Block { kind, targets, outputs } in self.blocks() {
            let output = columns(&output, &outputs);
            let values = columns(values, &targets);
            let weights = self.weights(kind, &values, columns(mask, &targets));
            let losses = match kind {
                TargetKind::Regression(_) => self.loss.of(output, values),
                TargetKind::Binary => bce_with_logits(output, values),
                TargetKind::Multiclass(_) => log_softmax(output, 1).gather(1, values.int()).neg(),
            };
            let block = [(losses * weights.clone()).sum(), weights.sum()];
            total = Some(match total {
                None => block,
                Some([loss, weight]) => {
                    let [block_loss, block_weight] = block;
                    [loss + block_loss, weight + block_weight]
                }
            });
        }
        let [loss, weight] = total.expect("a task has at least one target");
        loss / weight.clamp_min(f64::from(f32::MIN_POSITIVE))
    }

    fn loss_weight(&self, targets: &TargetTensor) -> f64 {
        let TargetTensor::Values { values, mask } = targets else { wrong_targets("values") };
        let weights = self.blocks().into_iter().map(|Block { kind, targets, .. }| {
            self.weights(kind, &columns(values, &targets), columns(mask, &targets)).sum()
        });
        weights.map(|weight| weight.into_scalar::<f64>()).sum()
    }

    fn add_samples(
        &self,
        output: OutputRows<'_>,
        targets: &Targets,
        predictions: &mut Predictions,
    ) -> usize {
        let Targets::GraphValues(targets) = targets else { wrong_targets("graph values") };
        let mut row = output.values.to_vec();
        for Block { targets, outputs, .. } in self.blocks() {
            for (target, output) in targets.zip(outputs) {
                if let TargetKind::Regression(standardization) = self.kinds[target] {
                    row[output] = standardization.invert(row[output]);
                }
            }
        }
        predictions.kinds.clone_from(&self.kinds);
        predictions.outputs.extend(output.columns, &row);
        predictions.targets.extend(self.kinds.len(), targets);
        1
    }

    fn decode(&self, output: OutputRows<'_>) -> Prediction {
        let mut rest = output.values;
        let decode = |kind: &TargetKind| {
            let (outputs, others) = rest.split_at(kind.outputs());
            rest = others;
            match kind {
                TargetKind::Regression(standardization) => {
                    TargetPrediction::Value(standardization.invert(outputs[0]))
                }
                TargetKind::Binary => TargetPrediction::Probability(sigmoid(f64::from(outputs[0]))),
                TargetKind::Multiclass(_) => TargetPrediction::Class(ClassPrediction::of(outputs)),
            }
        };
        Prediction::Graph(self.kinds.iter().map(decode).collect())
    }

    fn average(&self, outputs: &[OutputRows<'_>], weights: &[f64]) -> (Vec<f32>, usize) {
        let columns = |kind: &TargetKind| match kind {
            TargetKind::Regression(_) => Columns::Value,
            TargetKind::Binary => Columns::Logit,
            TargetKind::Multiclass(classes) => Columns::Logits(*classes),
        };
        let blocks: Vec<Columns> = self.kinds.iter().map(columns).collect();
        let values: Vec<&[f32]> = outputs.iter().map(|output| output.values).collect();
        (average(&values, weights, &blocks), outputs[0].columns)
    }
}

/// Graph-level head: pooling followed by an MLP.
#[derive(Module, Debug)]
pub struct GraphHead {
    mlp: Mlp,
    #[module(skip)]
    pooling: Pooling,
}

impl GraphHead {
    /// Initializes the head.
    pub fn new(
        hidden_dim: usize,
        outputs: usize,
        pooling: Pooling,
        config: MlpConfig,
        dropout: f64,
        init: &mut ParamInit,
    ) -> Self {
        Self { mlp: Mlp::new(hidden_dim, outputs, config, dropout, init), pooling }
    }

    /// Returns the pooling of the head.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Computes the predictions of every graph.
    ///
    /// # Shapes
    /// - `pooled`: `[b, d]`
    /// - returns `[b, outputs]`
    pub fn forward(&self, pooled: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.mlp.forward(pooled, ctx)
    }
}

/// Returns the columns of `tensor` in `range`.
fn columns(tensor: &Tensor<2>, range: &Range<usize>) -> Tensor<2> {
    let [rows, all] = tensor.dims();
    if *range == (0..all) { tensor.clone() } else { tensor.clone().slice([0..rows, range.clone()]) }
}

/// Returns the metrics of one target.
pub(super) fn metrics(kind: TargetKind) -> &'static [Metric] {
    match kind {
        TargetKind::Regression(_) => &regression::METRICS,
        TargetKind::Binary => &binary::METRICS,
        TargetKind::Multiclass(_) => &multiclass::METRICS,
    }
}

/// Computes a metric of graph-level targets of one kind; NaN if it belongs to another kind.
pub(super) fn metric(metric: Metric, predictions: &Predictions) -> f64 {
    let Predictions { outputs, targets, kinds, .. } = predictions;
    let (predicted, expected, columns) = (&outputs.values, &targets.values, targets.columns);
    match metric {
        Metric::Mae => regression::mean_absolute_error(predicted, expected),
        Metric::Rmse => regression::root_mean_square_error(predicted, expected, columns),
        Metric::R2 => regression::r2(predicted, expected, columns),
        Metric::Spearman => regression::spearman(predicted, expected, columns),
        Metric::AveragePrecision => binary::average_precision(predicted, expected, columns),
        Metric::RocAuc => binary::roc_auc(predicted, expected, columns),
        Metric::Accuracy | Metric::MacroF1 => {
            let mut start = 0;
            let scores = kinds.iter().enumerate().map(|(target, kind)| {
                let range = start..start + kind.outputs();
                start = range.end;
                class_metric(metric, outputs, range, targets.column(target))
            });
            scores.sum::<f64>() / kinds.len() as f64
        }
        _ => f64::NAN,
    }
}

/// Computes accuracy or macro F1 of one multi-class target over its observed samples.
fn class_metric(
    metric: Metric,
    outputs: &SampleRows,
    range: Range<usize>,
    targets: impl Iterator<Item = f64>,
) -> f64 {
    let rows = outputs.values.chunks(outputs.columns.max(1));
    let (predicted, expected): (Vec<Option<u32>>, Vec<u32>) = rows
        .zip(targets)
        .filter(|(_, target)| !target.is_nan())
        .map(|(row, target)| {
            let logits: Vec<f32> = row[range.clone()].iter().map(|&logit| logit as f32).collect();
            (argmax(&logits, logits.len())[0], target as u32)
        })
        .unzip();
    multiclass::metric(metric, &predicted, &expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{DType, Device};

    const REGRESSION: TargetKind =
        TargetKind::Regression(Standardization { mean: 420.0, std: 60.0 });

    fn task(kinds: &[TargetKind], class_weights: Option<Vec<f32>>) -> GraphTargets {
        GraphTargets { kinds: kinds.to_vec(), loss: RegressionLoss::L1, class_weights }
    }

    fn tensor<const R: usize, const C: usize>(rows: [[f64; C]; R]) -> Tensor<2> {
        Tensor::from_data(rows, (&Device::flex(), DType::F64))
    }

    fn loss<const R: usize, const C: usize, const T: usize>(
        task: &GraphTargets,
        output: [[f64; C]; R],
        values: [[f64; T]; R],
        mask: [[f64; T]; R],
    ) -> [f64; 2] {
        let targets = TargetTensor::Values { values: tensor(values), mask: tensor(mask) };
        let loss = task.loss(tensor(output), &targets).into_scalar::<f64>();
        [loss, task.loss_weight(&targets)]
    }

    #[test]
    fn loss_is_the_mean_over_observed_targets_of_all_kinds() {
        let kinds = [REGRESSION, TargetKind::Binary, TargetKind::Multiclass(2), REGRESSION];
        let output = [[1.0, 0.0, 0.0, 3.0_f64.ln(), 2.0], [5.0, 9.0, 0.0, 0.0, 0.5]];
        let values = [[3.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]];
        let mask = [[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]];
        // |1 - 3|, -log σ(0), -log 3/4; -log 1/2, |0.5 - 0|.
        let expected = 2.0 + 2.0_f64.ln() + (4.0_f64 / 3.0).ln() + 2.0_f64.ln() + 0.5;
        let [loss, weight] = loss(&task(&kinds, None), output, values, mask);
        assert!((loss - expected / 5.0).abs() < 1e-12, "{loss}");
        assert_eq!(weight, 5.0);
    }

    #[test]
    fn batch_without_observed_targets_has_loss_zero() {
        let task = task(&[TargetKind::Multiclass(2)], None);
        assert_eq!(loss(&task, [[1.0, 2.0]], [[0.0]], [[0.0]]), [0.0, 0.0]);
    }

    #[test]
    fn class_weights_give_a_weighted_mean() {
        let classes = task(&[TargetKind::Multiclass(2)], Some(vec![6.0, 2.0]));
        let output = [[0.0, 3.0_f64.ln()], [0.0, 0.0], [0.0, 1.0]];
        let [value, weight] = loss(&classes, output, [[1.0], [0.0], [0.0]], [[1.0], [1.0], [0.0]]);
        let expected = (2.0 * (4.0_f64 / 3.0).ln() + 6.0 * 2.0_f64.ln()) / 8.0;
        assert!((value - expected).abs() < 1e-12 && weight == 8.0, "{value}");
        let labels = task(&[REGRESSION, TargetKind::Binary], Some(vec![1.0, 3.0]));
        let [value, weight] = loss(&labels, [[2.0, 0.0]], [[0.0, 1.0]], [[1.0, 1.0]]);
        assert!((value - (2.0 + 3.0 * 2.0_f64.ln()) / 4.0).abs() < 1e-12 && weight == 4.0);
    }

    #[test]
    fn regression_predictions_are_in_the_units_of_the_data() {
        let task = task(&[TargetKind::Binary, REGRESSION], None);
        let output = OutputRows { values: &[0.0, 0.5], columns: 2 };
        let expected = [TargetPrediction::Probability(0.5), TargetPrediction::Value(450.0)];
        assert_eq!(task.decode(output), Prediction::Graph(expected.to_vec()));
        let mut predictions = Predictions::new(task.metrics());
        task.add_samples(output, &Targets::GraphValues(vec![1.0, 440.0]), &mut predictions);
        assert_eq!(predictions.outputs.values, [0.0, 450.0]);
        assert_eq!(predictions.target(1).metric(Metric::Mae), 10.0);
    }

    #[test]
    fn metrics_of_mixed_targets_are_computed_per_target() {
        let kinds = [TargetKind::Multiclass(2), REGRESSION];
        assert_eq!(task(&kinds, None).metrics(), [Metric::Loss]);
        assert_eq!(task(&kinds[..1], None).metrics(), multiclass::METRICS);
        let mut predictions = Predictions::new(&[Metric::Loss]);
        for (values, targets) in
            [([0.0, 1.0, 0.0], [1.0, 420.0]), ([1.0, 0.0, 1.0], [f32::NAN, 420.0])]
        {
            let output = OutputRows { values: &values, columns: 3 };
            let targets = Targets::GraphValues(targets.to_vec());
            task(&kinds, None).add_samples(output, &targets, &mut predictions);
        }
        assert_eq!(predictions.target(0).metric(Metric::Accuracy), 1.0);
        assert_eq!(predictions.target(1).metric(Metric::Mae), 30.0);
        assert!(predictions.target(1).metric(Metric::Accuracy).is_nan());
    }
}
