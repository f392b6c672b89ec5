//! Multi-class classification of nodes: cross-entropy, accuracy and macro F1 over the nodes that
//! have a class.

use burn::module::Module;
use burn::tensor::{Int, Tensor};
use graph_diffuser_data::{MISSING_CLASS, Targets};

use crate::batch::{TargetInput, TargetTensor};
use crate::nn::{ForwardContext, Mlp, MlpConfig, ParamInit};

use super::kind::{OutputRows, TaskKind, wrong_targets};
use super::metric::Metric;
use super::multiclass::{self, argmax, class_value, class_weight_sum, cross_entropy};
use super::prediction::{ClassPrediction, Prediction};
use super::predictions::Predictions;

/// Multi-class classification of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeClassification {
    /// Weight of each class in the loss; all equal if `None`.
    pub class_weights: Option<Vec<f32>>,
}

impl TaskKind for NodeClassification {
    fn name(&self) -> &'static str {
        "node classification"
    }

    fn metrics(&self) -> &'static [Metric] {
        &multiclass::METRICS
    }

    fn output_rows(&self, nodes: usize) -> usize {
        nodes
    }

    fn loss_name(&self) -> String {
        "cross-entropy".to_owned()
    }

    fn collate(&self, input: &TargetInput<'_>) -> TargetTensor {
        let classes = input.graphs.iter().flat_map(|graph| match &graph.targets {
            Targets::NodeClasses(classes) => classes.iter(),
            _ => wrong_targets("node classes"),
        });
        let nodes = classes.clone().count();
        let observed = classes.enumerate().filter(|(_, class)| **class != MISSING_CLASS);
        let (rows, classes): (Vec<usize>, Vec<usize>) =
            observed.map(|(row, &class)| (row, class as usize)).unzip();
        if classes.len() == nodes {
            return TargetTensor::Classes(input.integers(classes));
        }
        TargetTensor::SomeClasses { rows: input.integers(rows), classes: input.integers(classes) }
    }

    fn loss(&self, output: Tensor<2>, targets: &TargetTensor) -> Tensor<1> {
        let classes = classes_of(targets);
        let output = match targets {
            TargetTensor::SomeClasses { .. } if classes.dims()[0] == 0 => {
                return output.sum() * 0.0;
            }
            TargetTensor::SomeClasses { rows, .. } => output.select(0, rows.clone()), // [observed, outputs]
            _ => output,
        };
        cross_entropy(output, classes.clone(), self.class_weights.as_deref())
    }

    fn loss_weight(&self, targets: &TargetTensor) -> f64 {
        class_weight_sum(classes_of(targets), self.class_weights.as_deref())
    }

    fn add_samples(
        &self,
        output: OutputRows<'_>,
        targets: &Targets,
        predictions: &mut Predictions,
    ) -> usize {
        let Targets::NodeClasses(targets) = targets else { wrong_targets("node classes") };
        // Logits are not kept, to limit the size of the predictions file.
        let predicted = argmax(output.values, output.columns).into_iter().map(class_value);
        let observed = predicted.zip(targets).filter(|(_, target)| **target != MISSING_CLASS);
        let (predicted, targets): (Vec<f32>, Vec<f32>) =
            observed.map(|(predicted, &target)| (predicted, target as f32)).unzip();
        predictions.outputs.extend(1, &predicted);
        predictions.targets.extend(1, &targets);
        targets.len()
    }

    fn decode(&self, output: OutputRows<'_>) -> Prediction {
        let rows = output.values.chunks(output.columns);
        Prediction::NodeClasses(rows.map(ClassPrediction::of).collect())
    }
}

fn classes_of(targets: &TargetTensor) -> &Tensor<1, Int> {
    match targets {
        TargetTensor::Classes(classes) | TargetTensor::SomeClasses { classes, .. } => classes,
        _ => wrong_targets("classes"),
    }
}

/// Computes a metric over the nodes that have a class.
pub(super) fn metric(metric: Metric, predictions: &Predictions) -> f64 {
    let class = |value: f64| (!value.is_nan()).then_some(value as u32);
    let predicted: Vec<Option<u32>> = predictions.outputs.column(0).map(class).collect();
    let targets: Vec<u32> = predictions.targets.values.iter().map(|&class| class as u32).collect();
    multiclass::metric(metric, &predicted, &targets)
}

/// Node-level head: an MLP on each node.
#[derive(Module, Debug)]
pub struct NodeHead {
    mlp: Mlp,
}

impl NodeHead {
    /// Initializes the head.
    pub fn new(
        hidden_dim: usize,
        outputs: usize,
        config: MlpConfig,
        dropout: f64,
        init: &mut ParamInit,
    ) -> Self {
        Self { mlp: Mlp::new(hidden_dim, outputs, config, dropout, init) }
    }

    /// Computes the predictions of every node.
    ///
    /// # Shapes
    /// - `x`: `[r, d]`
    /// - returns `[r, outputs]`
    pub fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.mlp.forward(x, ctx)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};
    use graph_diffuser_data::{Features, Graph, SeedTree};

    use super::*;

    fn collate(task: &NodeClassification, classes: &[&[u32]]) -> TargetTensor {
        let graph = |classes: &&[u32]| Graph {
            num_nodes: classes.len(),
            edges: vec![],
            node_features: Features::None,
            edge_features: Features::None,
            targets: Targets::NodeClasses(classes.to_vec()),
        };
        let graphs: Vec<Graph> = classes.iter().map(graph).collect();
        task.collate(&TargetInput {
            graphs: &graphs.iter().collect::<Vec<_>>(),
            indices: &[],
            seeds: SeedTree::new(0),
            device: &Device::flex(),
            dtype: DType::F64,
        })
    }

    fn output(rows: &[[f64; 2]]) -> Tensor<2> {
        let data = burn::tensor::TensorData::new(rows.concat(), [rows.len(), 2]);
        Tensor::from_data(data, (&Device::flex(), DType::F64))
    }

    #[test]
    fn missing_nodes_contribute_neither_to_loss_nor_to_weight() {
        for class_weights in [None, Some(vec![2.0, 6.0])] {
            let task = NodeClassification { class_weights };
            let some = collate(&task, &[&[1, MISSING_CLASS], &[MISSING_CLASS, 0]]);
            let all = collate(&task, &[&[1], &[0]]);
            let rows = [[0.5, 1.0], [9.0, -9.0], [7.0, 3.0], [0.25, 0.0]];
            let loss = task.loss(output(&rows), &some).into_scalar::<f64>();
            let expected = task.loss(output(&[rows[0], rows[3]]), &all).into_scalar::<f64>();
            assert_eq!(loss, expected);
            assert_eq!(task.loss_weight(&some), task.loss_weight(&all));
        }
    }

    #[test]
    fn batch_without_classes_has_loss_and_weight_zero() {
        let task = NodeClassification { class_weights: None };
        let none = collate(&task, &[&[MISSING_CLASS, MISSING_CLASS]]);
        assert_eq!(task.loss(output(&[[1.0, 2.0], [0.0, 1.0]]), &none).into_scalar::<f64>(), 0.0);
        assert_eq!(task.loss_weight(&none), 0.0);
    }

    #[test]
    fn samples_are_the_nodes_with_a_class() {
        let task = NodeClassification { class_weights: None };
        let mut predictions = Predictions::new(task.metrics());
        let output = OutputRows { values: &[1.0, 2.0, 2.0, 1.0, 1.0, 2.0], columns: 2 };
        let targets = Targets::NodeClasses(vec![1, MISSING_CLASS, 0]);
        assert_eq!(task.add_samples(output, &targets, &mut predictions), 2);
        assert_eq!(predictions.outputs.values, [1.0, 1.0]);
        assert_eq!(predictions.targets.values, [1.0, 0.0]);
    }
}
