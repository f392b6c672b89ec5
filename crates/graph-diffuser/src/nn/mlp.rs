//! Multi-layer perceptron: linear layers with `ReLU` and dropout between them.

use burn::module::Module;
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ForwardContext, Linear, ParamInit};

/// Configuration of the hidden layers of an [`Mlp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum MlpConfig {
    /// Hidden layers with the dimension of the input.
    Plain {
        /// Number of hidden layers; 0 gives a single linear layer.
        hidden_layers: usize,
    },
    /// Two hidden layers with a half and a quarter of the input dimension.
    Halving {},
}

/// Multi-layer perceptron with `ReLU` and dropout between its linear layers.
#[derive(Module, Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
    #[module(skip)]
    dropout: f64,
}

impl Mlp {
    /// Initializes an MLP from `hidden_dim` to `outputs` dimensions.
    pub fn new(
        hidden_dim: usize,
        outputs: usize,
        config: MlpConfig,
        dropout: f64,
        init: &mut ParamInit,
    ) -> Self {
        let mut dims = match config {
            MlpConfig::Plain { hidden_layers } => vec![hidden_dim; hidden_layers + 1],
            MlpConfig::Halving {} => vec![hidden_dim, hidden_dim / 2, hidden_dim / 4],
        };
        dims.push(outputs);
        let layers = dims.windows(2).map(|pair| Linear::new(pair[0], pair[1], init)).collect();
        Self { layers, dropout }
    }

    /// Applies the MLP to every row.
    ///
    /// # Shapes
    /// - `x`: `[rows, hidden_dim]`
    /// - returns `[rows, outputs]`
    pub fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let (last, hidden) = self.layers.split_last().expect("an MLP has at least an output layer");
        last.forward(
            hidden.iter().fold(x, |x, layer| layer.forward_relu(x, ctx.dropout_mask(self.dropout))),
        )
    }
}
