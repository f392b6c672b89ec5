//! GINE: `MLP(x_i + Σ_j ReLU(x_j + e_ij))`, or with a mean in place of the sum.

use burn::module::Module;

use crate::batch::Topology;
use crate::nn::{GraphState, Linear, ParamInit};
use crate::ops::{Aggregation, EdgeEmbeddings, gine_aggregate};

/// Graph isomorphism network with edge features.
#[derive(Module, Debug)]
pub(super) struct Gine {
    first: Linear,
    second: Linear,
    #[module(skip)]
    aggregation: Aggregation,
}

impl Gine {
    pub(super) fn new(hidden_dim: usize, aggregation: Aggregation, init: &mut ParamInit) -> Self {
        Self {
            first: Linear::new(hidden_dim, hidden_dim, init),
            second: Linear::new(hidden_dim, hidden_dim, init),
            aggregation,
        }
    }

    /// Computes the node update without the residual connection; edges are unchanged.
    pub(super) fn forward(
        &self,
        GraphState { x, e }: GraphState,
        topology: &Topology,
    ) -> GraphState {
        let edges = e.as_ref().map(EdgeEmbeddings::expand);
        let aggregated = gine_aggregate(x, edges, self.aggregation, topology);
        GraphState { x: self.second.forward(self.first.forward_relu(aggregated, None)), e }
    }
}
