//! Transformer layer: attention in parallel with message passing, then a feed-forward network.

use burn::module::Module;

use crate::batch::GraphBatch;
use crate::nn::{BatchNorm, ForwardContext, GraphState, Linear, ParamInit};
use crate::virtual_edges::PositionScores;

use super::{AttentionConfig, DiffuserAttention, LocalMpnn};

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
}

impl LayerConfig<'_> {
    /// Initializes the layer; `local` is its message passing branch, if any.
    pub fn init(&self, local: Option<LocalMpnn>, init: &mut ParamInit) -> Layer {
        let hidden = self.ffn_ratio * self.hidden_dim;
        Layer {
            local,
            attention: self.attention.init(self.hidden_dim, init),
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

#[derive(Module, Debug)]
struct FeedForward {
    first: Linear,
    second: Linear,
}

impl Layer {
    /// Computes `y = BN(x + Attn(x)) + BN(x + MPNN(x))`, then `BN(y + FFN(y))`.
    pub fn forward(
        &self,
        state: GraphState,
        position: PositionScores<'_>,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> GraphState {
        let x = state.x.clone();
        let attended = self.attention.forward(x.clone(), position, batch, ctx);
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
        GraphState { x, e }
    }
}
