//! Message passing layers, before the Transformer layers or in parallel with attention.

mod gated_gcn;
mod gine;

use burn::module::Module;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::Topology;
use crate::nn::{BatchNorm, ForwardContext, GraphState, ParamInit};
use crate::ops::Aggregation;

use gated_gcn::GatedGcn;
use gine::Gine;

/// Configuration of message passing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MpnnConfig {
    /// Type of message passing.
    pub kind: MpnnKind,
    /// Aggregation of the messages of GINE; default `sum`. A sum grows with the degree in every
    /// layer, so `mean` is better for graphs of very different density.
    #[serde(default, skip_serializing_if = "Aggregation::is_default")]
    pub aggregation: Aggregation,
    /// Number of message passing layers before the virtual edges are computed.
    #[serde(default)]
    pub pre_layers: usize,
    /// If `true`, each Transformer layer has a message passing branch in parallel with attention.
    #[serde(default)]
    pub parallel: bool,
    /// Dropout on the message passing branch, and on the edge update of GatedGCN.
    #[serde(default)]
    pub dropout: f64,
}

/// Type of message passing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MpnnKind {
    /// Graph isomorphism network with edge features.
    Gine,
    /// Gated graph convolution, which also updates edges.
    GatedGcn,
}

/// Residual message passing layer, `BN(x + MPNN(x))`.
#[derive(Module, Debug)]
pub struct LocalMpnn {
    mpnn: Mpnn,
    norm: BatchNorm,
    #[module(skip)]
    dropout: f64,
}

/// Message passing without the residual connection.
#[derive(Module, Debug)]
enum Mpnn {
    Gine(Gine),
    GatedGcn(GatedGcn),
}

impl LocalMpnn {
    /// Initializes the layer.
    pub fn new(
        MpnnConfig { kind, aggregation, dropout, .. }: MpnnConfig,
        hidden_dim: usize,
        init: &mut ParamInit,
    ) -> Self {
        let mpnn = match kind {
            MpnnKind::Gine => Mpnn::Gine(Gine::new(hidden_dim, aggregation, init)),
            MpnnKind::GatedGcn => Mpnn::GatedGcn(GatedGcn::new(hidden_dim, dropout, init)),
        };
        Self { mpnn, norm: BatchNorm::new(hidden_dim, init), dropout }
    }

    /// Applies the layer along the edges of `topology`.
    pub fn forward(
        &self,
        state: GraphState,
        topology: &Topology,
        ctx: &ForwardContext,
    ) -> GraphState {
        let x = state.x.clone();
        let GraphState { x: branch, e } = match &self.mpnn {
            Mpnn::Gine(gine) => gine.forward(state, topology),
            Mpnn::GatedGcn(gated_gcn) => gated_gcn.forward(state, topology, ctx),
        };
        let x = self.norm.forward_residual(x, branch, self.dropout, ctx);
        ctx.record(|| "message_passing".into(), &x);
        GraphState { x, e }
    }
}
