//! Edge weights learned from nodes and edges (Eq. 4–5).

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;
use serde::{Deserialize, Serialize};

use crate::batch::{EdgeEmbeddings, Topology};
use crate::nn::{BatchNorm, ForwardContext, Linear, ParamInit};
use crate::ops::{Activation, edge_update, linear};

/// Where edge weights come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum AdjacencyConfig {
    /// Every edge weighs the same.
    Fixed {},
    /// Learned (Eq. 4–5).
    Weighted {
        /// What makes a score positive.
        #[serde(default)]
        activation: EdgeActivation,
        /// Whether both ends of an edge are seen through one projection.
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

/// What makes a score positive before rows are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeActivation {
    /// `σ(a)`: Eq. 5.
    #[default]
    Sigmoid,
    /// `exp(a)`, so that a row is a softmax: the authors' grid script.
    Exp,
}

/// Whether both ends of an edge are seen through one projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Projections {
    /// One for each end: `W₁` of Eq. 4.
    #[default]
    Separate,
    /// The same for both: a version of the authors' code.
    Shared,
}

/// Scores every edge; `W₁ = [source; target; edge]` of Eq. 4.
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
    /// For nodes of `width` and, where they have features, edges of `edge_width`.
    pub fn new(
        width: usize,
        edge_width: Option<usize>,
        activation: EdgeActivation,
        projections: Projections,
        init: &mut ParamInit,
    ) -> Self {
        let hidden = 2 * width;
        Self {
            source: Linear::new(width, hidden, init),
            target: match projections {
                Projections::Separate => Some(Linear::without_bias(width, hidden, init)),
                Projections::Shared => None,
            },
            edge: edge_width.map(|edge_width| Linear::without_bias(edge_width, hidden, init)),
            norm: BatchNorm::new(hidden, init),
            output: Linear::new(hidden, 1, init),
            activation,
        }
    }

    /// Positive weights, before rows are normalised.
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
        // Projecting nodes and kinds of edges before gathering is the same sum, with fewer products.
        let source = self.source.forward(x.clone());
        let target = match &self.target {
            Some(target) => target.forward(x.clone()),
            None => linear(x.clone(), self.source.weight.val(), None, Activation::None),
        };
        let edge = match (&self.edge, e) {
            (Some(edge), Some(EdgeEmbeddings { rows, kinds })) => {
                Some(EdgeEmbeddings { rows: edge.forward(rows.clone()), kinds: kinds.clone() })
            }
            (None, _) => None,
            (Some(_), None) => panic!("edges lost the features that the model was built for"),
        };
        let hidden = edge_update(source, target, edge, topology);
        let scores = self.norm.forward_relu_linear(hidden, &self.output, ctx); // Eq. 4, [m, 1]
        match self.activation {
            EdgeActivation::Sigmoid => sigmoid(scores), // Eq. 5
            EdgeActivation::Exp => {
                // The largest score cancels in every row; taking it off keeps exp finite. A row far
                // below it is kept from vanishing, or it could not be normalised.
                let largest = scores.clone().detach().max_dim(0);
                (scores - largest).clamp_min(-80.0).exp()
            }
        }
    }
}
