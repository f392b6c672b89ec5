//! One Transformer layer: attention and message passing side by side, then a feed-forward network.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::batch::GraphBatch;
use crate::nn::{BatchNorm, Init, Linear, Pass};
use crate::ops::AttentionParts;
use crate::virtual_edges::PositionScores;

use super::{AskedRows, AttentionConfig, ClsToken, DiffuserAttention, LocalBranch, MpnnConfig};

/// What [`Layer`] needs to exist.
#[derive(Debug, Clone, Copy)]
pub struct LayerConfig<'a> {
    /// Width of a node, `d`.
    pub width: usize,
    /// Hidden width of the feed-forward network, in widths.
    pub ffn_multiplier: usize,
    /// Dropout on the output of attention and of the feed-forward network, and inside the latter.
    pub dropout: f64,
    /// The attention branch.
    pub attention: &'a AttentionConfig,
    /// The local branch, where there is one.
    pub mpnn: Option<MpnnConfig>,
    /// Channels of a virtual edge, where there are any.
    pub channels: Option<usize>,
}

impl LayerConfig<'_> {
    /// Draws the parameters.
    pub fn init(&self, init: &mut Init) -> Layer {
        let hidden = self.ffn_multiplier * self.width;
        Layer {
            local: self.mpnn.map(|mpnn| LocalBranch::new(mpnn, self.width, init)),
            attention: self.attention.init(self.width, self.channels, init),
            attention_norm: BatchNorm::new(self.width, init),
            ffn: FeedForward {
                first: Linear::new(self.width, hidden, init),
                second: Linear::new(hidden, self.width, init),
            },
            ffn_norm: BatchNorm::new(self.width, init),
            dropout: self.dropout,
        }
    }
}

#[derive(Module, Debug)]
struct FeedForward {
    first: Linear,
    second: Linear,
}

/// Nodes and edges on their way through the layers.
#[derive(Debug, Clone)]
pub struct Stream {
    /// `[r, d]`
    pub x: Tensor<2>,
    /// `[m, d]`, where messages read edges.
    pub e: Option<Tensor<2>>,
}

/// One layer, as in GPS.
#[derive(Module, Debug)]
pub struct Layer {
    local: Option<LocalBranch>,
    attention: DiffuserAttention,
    attention_norm: BatchNorm,
    ffn: FeedForward,
    ffn_norm: BatchNorm,
    #[module(skip)]
    dropout: f64,
}

impl Layer {
    /// The projection of virtual edges to this layer's position scores.
    pub fn position(&self) -> Option<&Linear> {
        self.attention.position()
    }

    /// Whether messages pass beside attention.
    pub fn passes_messages(&self) -> bool {
        self.local.is_some()
    }

    /// `y = BN(x + Attn(x)) + BN(x + MPNN(x))`, then `BN(y + FFN(y))`.
    pub fn forward(
        &self,
        stream: Stream,
        scores: PositionScores<'_>,
        cls: Option<&ClsToken>,
        batch: &GraphBatch,
        pass: &Pass,
    ) -> Stream {
        self.forward_asked(stream, scores, cls, batch, pass, None).0
    }

    /// The same, and what the attention of the asked rows is made of; the batch is one graph.
    pub fn forward_asked(
        &self,
        stream: Stream,
        scores: PositionScores<'_>,
        cls: Option<&ClsToken>,
        batch: &GraphBatch,
        pass: &Pass,
        asked: Option<AskedRows<'_>>,
    ) -> (Stream, Option<AttentionParts>) {
        let x = stream.x.clone();
        let (attended, parts) = self.attention.forward_asked(x.clone(), scores, cls, batch, pass, asked);
        let attended = self.attention_norm.forward_join(x, attended, self.dropout, pass);
        pass.note(|| "attention".into(), &attended);
        let (y, e) = match &self.local {
            Some(local) => {
                let local = local.forward(stream, batch.layer_topology(), pass);
                (attended + local.x, local.e)
            }
            None => (attended, stream.e),
        };
        let hidden = self.ffn.first.forward_relu(y.clone(), pass.dropout_site(self.dropout));
        let x = self.ffn_norm.forward_join(y, self.ffn.second.forward(hidden), self.dropout, pass);
        pass.note(|| "feed_forward".into(), &x);
        (Stream { x, e }, parts)
    }
}
