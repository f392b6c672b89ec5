//! GINE: `MLP(x_i + Σ_j ReLU(x_j + e_ij))`.

use burn::module::Module;

use crate::batch::Topology;
use crate::nn::{GraphState, Linear, ParamInit};
use crate::ops::{EdgeEmbeddings, gine_aggregate};

/// Graph isomorphism network with edge features.
#[derive(Module, Debug)]
pub(super) struct Gine {
    first: Linear,
    second: Linear,
}

impl Gine {
    pub(super) fn new(hidden_dim: usize, init: &mut ParamInit) -> Self {
        Self {
            first: Linear::new(hidden_dim, hidden_dim, init),
            second: Linear::new(hidden_dim, hidden_dim, init),
        }
    }

    /// Computes the node update without the residual connection; edges are unchanged.
    pub(super) fn forward(
        &self,
        GraphState { x, e }: GraphState,
        topology: &Topology,
    ) -> GraphState {
        let aggregated = gine_aggregate(x, e.as_ref().map(EdgeEmbeddings::expand), topology);
        GraphState { x: self.second.forward(self.first.forward_relu(aggregated, None)), e }
    }
}
