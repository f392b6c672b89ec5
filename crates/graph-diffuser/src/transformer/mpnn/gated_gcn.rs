//! `GatedGCN`: each edge decides, channel by channel, how much of its message passes.
//!
//! `g_ij = D x_i + E x_j + C e_ij`, `x_i' = A x_i + Σ_j σ(g_ij) B x_j / (Σ_j σ(g_ij) + 1e-6)`,
//! then `x + ReLU(BN(x'))` and `e + ReLU(BN(g))`.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::batch::Topology;
use crate::nn::{BatchNorm, Init, Linear, Pass};
use crate::ops::{GateTerms, hear_gated};
use crate::transformer::layer::Stream;

/// Gated messages, with a stream of edges.
#[derive(Module, Debug)]
pub(super) struct GatedGcn {
    node: Linear,
    neighbour: Linear,
    edge: Linear,
    gate_target: Linear,
    gate_source: Linear,
    node_norm: BatchNorm,
    edge_norm: BatchNorm,
    #[module(skip)]
    dropout: f64,
}

impl GatedGcn {
    pub(super) fn new(width: usize, dropout: f64, init: &mut Init) -> Self {
        let linear = |init: &mut Init| Linear::new(width, width, init);
        Self {
            node: linear(init),
            neighbour: linear(init),
            edge: linear(init),
            gate_target: linear(init),
            gate_source: linear(init),
            node_norm: BatchNorm::new(width, init),
            edge_norm: BatchNorm::new(width, init),
            dropout,
        }
    }

    /// The branch of the nodes without its residual; that of the edges is inside.
    pub(super) fn forward(&self, Stream { x, e }: Stream, topology: &Topology, pass: &Pass) -> Stream {
        let [_, d] = x.dims();
        let own = self.node.forward(x.clone());
        if topology.edges() == 0 {
            return Stream { x: self.node_norm.forward_relu(own, pass), e };
        }
        let e = e.unwrap_or_else(|| Tensor::zeros([topology.edges(), d], (&x.device(), x.dtype())));
        let terms = GateTerms {
            target: self.gate_target.forward(x.clone()),
            source: self.gate_source.forward(x.clone()),
            edge: self.edge.forward(e.clone()),
            message: self.neighbour.forward(x),
        };
        let (heard, gates) = hear_gated(terms, topology); // [r, d], [m, d]
        let x = self.node_norm.forward_relu(own + heard, pass);
        let e = e + pass.dropout(self.edge_norm.forward_relu(gates, pass), self.dropout);
        Stream { x, e: Some(e) }
    }
}
