//! `GatedGCN`: messages weighted by a learned gate per edge and channel.
//!
//! `g_ij = D x_i + E x_j + C e_ij`, `x_i' = A x_i + Σ_j σ(g_ij) B x_j / (Σ_j σ(g_ij) + 1e-6)`,
//! then `x + ReLU(BN(x'))` and `e + ReLU(BN(g))`.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::batch::Topology;
use crate::nn::{BatchNorm, ForwardContext, GraphState, Linear, ParamInit};
use crate::ops::{EdgeEmbeddings, GatedGcnInputs, gated_gcn_aggregate};

/// Gated graph convolution with edge updates.
#[derive(Module, Debug)]
pub(super) struct GatedGcn {
    node: Linear,
    neighbor: Linear,
    edge: Linear,
    gate_target: Linear,
    gate_source: Linear,
    node_norm: BatchNorm,
    edge_norm: BatchNorm,
    #[module(skip)]
    dropout: f64,
}

impl GatedGcn {
    pub(super) fn new(hidden_dim: usize, dropout: f64, init: &mut ParamInit) -> Self {
        let linear = |init: &mut ParamInit| Linear::new(hidden_dim, hidden_dim, init);
        Self {
            node: linear(init),
            neighbor: linear(init),
            edge: linear(init),
            gate_target: linear(init),
            gate_source: linear(init),
            node_norm: BatchNorm::new(hidden_dim, init),
            edge_norm: BatchNorm::new(hidden_dim, init),
            dropout,
        }
    }

    /// Computes the node update without, and the edge update with, the residual connection.
    pub(super) fn forward(
        &self,
        GraphState { x, e }: GraphState,
        topology: &Topology,
        ctx: &ForwardContext,
    ) -> GraphState {
        let [_, d] = x.dims();
        let node_term = self.node.forward(x.clone());
        if topology.edges() == 0 {
            return GraphState { x: self.node_norm.forward_relu(node_term, ctx), e };
        }
        let e = match e {
            Some(e) => e.expand(),
            None => Tensor::zeros([topology.edges(), d], (&x.device(), x.dtype())),
        };
        let terms = GatedGcnInputs {
            target: self.gate_target.forward(x.clone()),
            source: self.gate_source.forward(x.clone()),
            edge: self.edge.forward(e.clone()),
            message: self.neighbor.forward(x),
        };
        let (aggregated, gates) = gated_gcn_aggregate(terms, topology); // [r, d], [m, d]
        let x = self.node_norm.forward_relu(node_term + aggregated, ctx);
        let e = e + ctx.dropout(self.edge_norm.forward_relu(gates, ctx), self.dropout);
        GraphState { x, e: Some(EdgeEmbeddings::per_edge(e)) }
    }
}
