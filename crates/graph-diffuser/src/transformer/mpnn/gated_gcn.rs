//! `GatedGCN`: each edge decides, channel by channel, how much of its message passes.
//!
//! `g_ij = D x_i + E x_j + C e_ij`, `x_i' = A x_i + Σ_j σ(g_ij) B x_j / (Σ_j σ(g_ij) + 1e-6)`,
//! then `x + ReLU(BN(x'))` and `e + ReLU(BN(g))`.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::{relu, sigmoid};

use crate::batch::Topology;
use crate::nn::{BatchNorm, Init, Linear, Pass};
use crate::ops::{gather_rows, sum_by_row};
use crate::transformer::layer::Stream;

/// Keeps a node without messages from dividing by zero.
const EPSILON: f64 = 1e-6;

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

    /// Residuals of nodes and edges are inside.
    pub(super) fn forward(&self, Stream { x, e }: Stream, topology: &Topology, pass: &Pass) -> Stream {
        let [r, d] = x.dims();
        let own = self.node.forward(x.clone());
        let drop = |x: Tensor<2>| pass.dropout(x, self.dropout);
        if topology.edges() == 0 {
            let x = x + drop(relu(self.node_norm.forward(own, pass)));
            return Stream { x, e };
        }
        let (sources, targets) = (topology.sources.clone(), topology.targets.clone());
        let e = e.unwrap_or_else(|| Tensor::zeros([topology.edges(), d], (&x.device(), x.dtype())));
        let gates = gather_rows(self.gate_target.forward(x.clone()), targets.clone())
            + gather_rows(self.gate_source.forward(x.clone()), sources.clone())
            + self.edge.forward(e.clone()); // [m, d]
        let open = sigmoid(gates.clone());
        let messages = open.clone() * gather_rows(self.neighbour.forward(x.clone()), sources);
        let heard = sum_by_row(messages, targets.clone(), r) / (sum_by_row(open, targets, r) + EPSILON);
        let x = x + drop(relu(self.node_norm.forward(own + heard, pass)));
        let e = e + drop(relu(self.edge_norm.forward(gates, pass)));
        Stream { x, e: Some(e) }
    }
}
