//! Multi-class classification of nodes: cross-entropy, accuracy and macro F1.

use burn::module::Module;
use burn::tensor::Tensor;
use graph_diffuser_data::Targets;

use crate::batch::{TargetInput, TargetTensor};
use crate::nn::{ForwardContext, Mlp, MlpConfig, ParamInit};

use super::multiclass::{argmax, class_value, class_weight_sum, cross_entropy};
use super::prediction::{ClassPrediction, Prediction};
use super::{Metric, OutputRows, Predictions, TaskKind, wrong_targets};

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
        &[Metric::Accuracy, Metric::MacroF1]
    }

    fn output_rows(&self, nodes: usize) -> usize {
        nodes
    }

    fn loss_name(&self) -> String {
        "cross-entropy".to_owned()
    }

    fn collate(&self, input: &TargetInput<'_>) -> TargetTensor {
        let classes = input.graphs.iter().flat_map(|graph| match &graph.targets {
            Targets::NodeClasses(classes) => classes.iter().map(|&class| class as usize),
            _ => wrong_targets("node classes"),
        });
        TargetTensor::Classes(input.integers(classes.collect()))
    }

    fn loss(&self, output: Tensor<2>, targets: &TargetTensor) -> Tensor<1> {
        cross_entropy(output, targets, self.class_weights.as_deref())
    }

    fn loss_weight(&self, targets: &TargetTensor) -> f64 {
        class_weight_sum(targets, self.class_weights.as_deref())
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
        predictions.outputs.extend(1, &predicted.collect::<Vec<_>>());
        let targets: Vec<f32> = targets.iter().map(|&class| class as f32).collect();
        predictions.targets.extend(1, &targets);
        targets.len()
    }

    fn decode(&self, output: OutputRows<'_>) -> Prediction {
        let rows = output.values.chunks(output.columns);
        Prediction::NodeClasses(rows.map(ClassPrediction::of).collect())
    }
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
