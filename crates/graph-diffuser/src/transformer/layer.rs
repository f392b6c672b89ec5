//! Transformer layer: attention in parallel with message passing, then a feed-forward network.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::batch::GraphBatch;
use crate::nn::{BatchNorm, ForwardContext, Linear, ParamInit};
use crate::ops::AttentionComponents;
use crate::virtual_edges::PositionScores;

use super::{AttentionConfig, ClsToken, DiffuserAttention, LocalMpnn, MpnnConfig, TracedRows};

/// Configuration of [`Layer`].
#[derive(Debug, Clone, Copy)]
pub struct LayerConfig<'a> {
    /// Hidden dimension of a node, `d`.
    pub hidden_dim: usize,
    /// Hidden dimension of the feed-forward network as a multiple of `hidden_dim`.
    pub ffn_ratio: usize,
    /// Dropout on the outputs of attention and feed-forward network, and inside the latter.
    pub dropout: f64,
    /// Attention branch.
    pub attention: &'a AttentionConfig,
    /// Message passing branch, if any.
    pub mpnn: Option<MpnnConfig>,
    /// Channels of a virtual edge, if the model has virtual edges.
    pub channels: Option<usize>,
}

impl LayerConfig<'_> {
    /// Initializes the layer.
    pub fn init(&self, init: &mut ParamInit) -> Layer {
        let hidden = self.ffn_ratio * self.hidden_dim;
        Layer {
            local: self.mpnn.map(|mpnn| LocalMpnn::new(mpnn, self.hidden_dim, init)),
            attention: self.attention.init(self.hidden_dim, self.channels, init),
            attention_norm: BatchNorm::new(self.hidden_dim, init),
            ffn: FeedForward {
                first: Linear::new(self.hidden_dim, hidden, init),
                second: Linear::new(hidden, self.hidden_dim, init),
            },
            ffn_norm: BatchNorm::new(self.hidden_dim, init),
            dropout: self.dropout,
        }
    }
}

#[derive(Module, Debug)]
struct FeedForward {
    first: Linear,
    second: Linear,
}

/// Input and output of a layer.
#[derive(Debug, Clone)]
pub struct LayerState {
    /// Node states, `[r, d]`.
    pub x: Tensor<2>,
    /// Edge states, `[m, d]`, if message passing uses edge features.
    pub e: Option<Tensor<2>>,
}

/// Transformer layer with the structure of a GPS layer.
#[derive(Module, Debug)]
pub struct Layer {
    local: Option<LocalMpnn>,
    attention: DiffuserAttention,
    attention_norm: BatchNorm,
    ffn: FeedForward,
    ffn_norm: BatchNorm,
    #[module(skip)]
    dropout: f64,
}

impl Layer {
    /// Returns the projection of virtual edges to position scores, if the layer has one.
    pub fn position(&self) -> Option<&Linear> {
        self.attention.position()
    }

    /// Returns whether the layer has a message passing branch.
    pub fn passes_messages(&self) -> bool {
        self.local.is_some()
    }

    /// Computes `y = BN(x + Attn(x)) + BN(x + MPNN(x))`, then `BN(y + FFN(y))`.
    pub fn forward(
        &self,
        state: LayerState,
        scores: PositionScores<'_>,
        cls: Option<&ClsToken>,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> LayerState {
        self.forward_traced(state, scores, cls, batch, ctx, None).0
    }

    /// Applies the layer and returns the attention components of the traced rows.
    ///
    /// Tracing requires a batch of one graph.
    pub fn forward_traced(
        &self,
        state: LayerState,
        scores: PositionScores<'_>,
        cls: Option<&ClsToken>,
        batch: &GraphBatch,
        ctx: &ForwardContext,
        traced: Option<TracedRows<'_>>,
    ) -> (LayerState, Option<AttentionComponents>) {
        let x = state.x.clone();
        let (attended, components) =
            self.attention.forward_traced(x.clone(), scores, cls, batch, ctx, traced);
        let attended = self.attention_norm.forward_residual(x, attended, self.dropout, ctx);
        ctx.record(|| "attention".into(), &attended);
        let (y, e) = match &self.local {
            Some(local) => {
                let local = local.forward(state, batch.layer_topology(), ctx);
                (attended + local.x, local.e)
            }
            None => (attended, state.e),
        };
        let hidden = self.ffn.first.forward_relu(y.clone(), ctx.dropout_mask(self.dropout));
        let x =
            self.ffn_norm.forward_residual(y, self.ffn.second.forward(hidden), self.dropout, ctx);
        ctx.record(|| "feed_forward".into(), &x);
        (LayerState { x, e }, components)
    }
}
