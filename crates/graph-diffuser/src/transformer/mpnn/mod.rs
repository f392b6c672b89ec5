//! Message passing layers, before the Transformer layers or in parallel with attention.

mod gated_gcn;
mod gine;

use burn::module::Module;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::Topology;
use crate::nn::{BatchNorm, ForwardContext, ParamInit};

use super::layer::LayerState;
use gated_gcn::GatedGcn;
use gine::Gine;

/// Configuration of message passing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MpnnConfig {
    /// Type of message passing.
    pub kind: MpnnKind,
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
    gine: Option<Gine>,
    gated_gcn: Option<GatedGcn>,
    norm: BatchNorm,
    #[module(skip)]
    dropout: f64,
}

impl LocalMpnn {
    /// Initializes the layer.
    pub fn new(
        MpnnConfig { kind, dropout, .. }: MpnnConfig,
        hidden_dim: usize,
        init: &mut ParamInit,
    ) -> Self {
        let (gine, gated_gcn) = match kind {
            MpnnKind::Gine => (Some(Gine::new(hidden_dim, init)), None),
            MpnnKind::GatedGcn => (None, Some(GatedGcn::new(hidden_dim, dropout, init))),
        };
        Self { gine, gated_gcn, norm: BatchNorm::new(hidden_dim, init), dropout }
    }

    /// Applies the layer along the edges of `topology`.
    pub fn forward(
        &self,
        state: LayerState,
        topology: &Topology,
        ctx: &ForwardContext,
    ) -> LayerState {
        let x = state.x.clone();
        let LayerState { x: branch, e } = match (&self.gine, &self.gated_gcn) {
            (Some(gine), _) => gine.forward(state, topology),
            (None, Some(gated_gcn)) => gated_gcn.forward(state, topology, ctx),
            (None, None) => unreachable!("`new` builds exactly one of the two"),
        };
        let x = self.norm.forward_residual(x, branch, self.dropout, ctx);
        ctx.record(|| "message_passing".into(), &x);
        LayerState { x, e }
    }
}
