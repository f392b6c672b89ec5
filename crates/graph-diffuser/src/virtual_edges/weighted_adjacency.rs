//! Learned edge weights (Eq. 4–5).

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::Topology;
use crate::nn::{BatchNorm, ForwardContext, Linear, ParamInit};
use crate::ops::{Activation, EdgeEmbeddings, edge_endpoint_sum, linear};

/// Configuration of the edge weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum AdjacencyConfig {
    /// Equal weights for all edges.
    Fixed {},
    /// Learned weights (Eq. 4–5).
    Weighted {
        /// Activation of the edge scores.
        #[serde(default)]
        activation: EdgeActivation,
        /// Projections of the two endpoints of an edge.
        #[serde(default)]
        projections: Projections,
    },
}

impl Default for AdjacencyConfig {
    fn default() -> Self {
        Self::Weighted {
            activation: EdgeActivation::default(),
            projections: Projections::default(),
        }
    }
}

/// Activation that makes edge scores positive before row normalization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EdgeActivation {
    /// `σ(a)`: Eq. 5.
    #[default]
    Sigmoid,
    /// `exp(a)`, which makes each row a softmax, as in the authors' grid script.
    Exp,
}

/// Projections of the two endpoints of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Projections {
    /// One projection per endpoint: `W₁` of Eq. 4.
    #[default]
    Separate,
    /// One projection for both endpoints, as in a version of the authors' code.
    Shared,
}

/// Learned edge weights; `W₁` of Eq. 4 is stored as the blocks `source`, `target` and `edge`.
#[derive(Module, Debug)]
pub struct WeightedAdjacency {
    source: Linear,
    target: Option<Linear>,
    edge: Option<Linear>,
    norm: BatchNorm,
    output: Linear,
    #[module(skip)]
    activation: EdgeActivation,
}

impl WeightedAdjacency {
    /// Initializes the layer; `edge_dim` is the dimension of edge embeddings, if edges have
    /// features.
    pub fn new(
        hidden_dim: usize,
        edge_dim: Option<usize>,
        activation: EdgeActivation,
        projections: Projections,
        init: &mut ParamInit,
    ) -> Self {
        let hidden = 2 * hidden_dim;
        Self {
            source: Linear::new(hidden_dim, hidden, init),
            target: match projections {
                Projections::Separate => Some(Linear::without_bias(hidden_dim, hidden, init)),
                Projections::Shared => None,
            },
            edge: edge_dim.map(|edge_dim| Linear::without_bias(edge_dim, hidden, init)),
            norm: BatchNorm::new(hidden, init),
            output: Linear::new(hidden, 1, init),
            activation,
        }
    }

    /// Computes positive edge weights, before row normalization.
    ///
    /// # Shapes
    /// - `x`: `[r, d]`
    /// - returns `[m, 1]`
    pub fn forward(
        &self,
        x: &Tensor<2>,
        e: Option<&EdgeEmbeddings>,
        topology: &Topology,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        // Projecting nodes and distinct edges before gathering gives the same sum with less work.
        let source = self.source.forward(x.clone());
        let target = match &self.target {
            Some(target) => target.forward(x.clone()),
            None => linear(x.clone(), self.source.weight.val(), None, Activation::None),
        };
        let edge = match (&self.edge, e) {
            (Some(edge), Some(e)) => Some(e.map_rows(|rows| edge.forward(rows))),
            (None, _) => None,
            (Some(_), None) => panic!("the model expects edge features"),
        };
        let hidden = edge_endpoint_sum(source, target, edge, topology);
        let scores = self.norm.forward_relu_linear(hidden, &self.output, ctx); // Eq. 4, [m, 1]
        match self.activation {
            EdgeActivation::Sigmoid => sigmoid(scores), // Eq. 5
            EdgeActivation::Exp => {
                // Subtracting the largest score keeps exp finite and cancels in every normalized
                // row. The clamp prevents rows with much smaller scores from underflowing to zero.
                let largest = scores.clone().detach().max_dim(0);
                (scores - largest).clamp_min(-80.0).exp()
            }
        }
    }
}
