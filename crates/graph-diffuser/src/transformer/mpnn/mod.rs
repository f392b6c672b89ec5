//! Message passing along the graph's own edges, beside attention or before it.

mod gated_gcn;
mod gine;

use burn::module::Module;
use serde::{Deserialize, Serialize};

use crate::batch::Topology;
use crate::nn::{BatchNorm, ForwardContext, ParamInit};

use super::layer::LayerState;
use gated_gcn::GatedGcn;
use gine::Gine;

/// Which message passing, and where.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MpnnConfig {
    /// Which kind.
    pub kind: MpnnKind,
    /// So many layers of it alone, before virtual edges are made.
    #[serde(default)]
    pub pre_layers: usize,
    /// Whether each Transformer layer has it beside attention.
    #[serde(default)]
    pub parallel: bool,
    /// Dropout on the messages' branch, and on the update of edges where they are updated.
    #[serde(default)]
    pub dropout: f64,
}

/// Which message passing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MpnnKind {
    /// Graph isomorphism network with edges.
    Gine,
    /// Gated graph convolution; edges are updated too.
    GatedGcn,
}

/// `BN(x + MPNN(x))`.
#[derive(Module, Debug)]
pub struct LocalMpnn {
    gine: Option<Gine>,
    gated_gcn: Option<GatedGcn>,
    norm: BatchNorm,
    #[module(skip)]
    dropout: f64,
}

impl LocalMpnn {
    /// Draws the parameters.
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

    /// Passes messages along the edges of `topology`.
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
            (None, None) => unreachable!("one of the two is built"),
        };
        let x = self.norm.forward_residual(x, branch, self.dropout, ctx);
        ctx.record(|| "message_passing".into(), &x);
        LayerState { x, e }
    }
}
