//! A stack of linear layers with `ReLU` and dropout between them.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::{ForwardContext, Linear, ParamInit};

/// The hidden widths of an [`Mlp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum MlpConfig {
    /// So many hidden layers as wide as the input; none is a linear layer.
    Plain {
        /// Number of hidden layers.
        hidden_layers: usize,
    },
    /// Two hidden layers, a half and a quarter as wide as the input.
    Halving {},
}

/// Linear layers with `ReLU` and dropout between them.
#[derive(Module, Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
    #[module(skip)]
    dropout: f64,
}

impl Mlp {
    /// From `width` to `outputs` through hidden layers of `shape`, each followed by `dropout`.
    pub fn new(
        width: usize,
        outputs: usize,
        shape: MlpConfig,
        dropout: f64,
        init: &mut ParamInit,
    ) -> Self {
        let mut widths = match shape {
            MlpConfig::Plain { hidden_layers } => vec![width; hidden_layers + 1],
            MlpConfig::Halving {} => vec![width, width / 2, width / 4],
        };
        widths.push(outputs);
        let layers = widths.windows(2).map(|pair| Linear::new(pair[0], pair[1], init)).collect();
        Self { layers, dropout }
    }

    /// # Shapes
    /// - `x`: `[rows, width]`
    /// - returns `[rows, outputs]`
    pub fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let (last, hidden) =
            self.layers.split_last().expect("an MLP has at least its output layer");
        last.forward(
            hidden.iter().fold(x, |x, layer| layer.forward_relu(x, ctx.dropout_mask(self.dropout))),
        )
    }
}
