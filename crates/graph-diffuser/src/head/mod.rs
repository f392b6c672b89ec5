//! Prediction heads.

mod graph;
mod link;
mod node;
mod sub_tokens;

use burn::module::Module;
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;
use crate::nn::{ForwardContext, MlpConfig, ParamInit};

pub use graph::{GraphHead, Pooling};
pub use link::LinkHead;
pub use node::NodeHead;
pub use sub_tokens::SubTokenHead;

/// Configuration of a [`Head`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum HeadConfig {
    /// Node-level head.
    Node {
        /// Hidden layers of the MLP.
        mlp: MlpConfig,
        /// Dropout after each hidden layer.
        #[serde(default, skip_serializing_if = "is_zero")]
        dropout: f64,
    },
    /// Graph-level head.
    Graph {
        /// Pooling of node states.
        pooling: Pooling,
        /// Hidden layers of the MLP.
        mlp: MlpConfig,
        /// Dropout after each hidden layer.
        #[serde(default, skip_serializing_if = "is_zero")]
        dropout: f64,
    },
    /// Sub-token head: one classifier over the vocabulary per token position.
    SubTokens {
        /// Pooling of node states.
        pooling: Pooling,
        /// Number of predicted tokens.
        max_tokens: usize,
    },
    /// Link prediction head: dot products of node embeddings.
    Link {
        /// Hidden layers of the MLP.
        mlp: MlpConfig,
        /// Dropout after each hidden layer.
        #[serde(default, skip_serializing_if = "is_zero")]
        dropout: f64,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(dropout: &f64) -> bool {
    *dropout == 0.0
}

impl HeadConfig {
    /// Returns the dropout probability after each hidden layer.
    pub fn dropout(self) -> f64 {
        match self {
            Self::Node { dropout, .. }
            | Self::Graph { dropout, .. }
            | Self::Link { dropout, .. } => dropout,
            Self::SubTokens { .. } => 0.0,
        }
    }

    /// Returns whether the model needs a CLS node in each graph.
    pub fn uses_cls(self) -> bool {
        match self {
            Self::Graph { pooling, .. } | Self::SubTokens { pooling, .. } => {
                pooling == Pooling::Cls
            }
            Self::Node { .. } | Self::Link { .. } => false,
        }
    }

    /// Returns the number of predicted tokens of a sub-token head.
    pub fn max_tokens(self) -> Option<usize> {
        match self {
            Self::SubTokens { max_tokens, .. } => Some(max_tokens),
            Self::Node { .. } | Self::Graph { .. } | Self::Link { .. } => None,
        }
    }

    /// Initializes the head.
    pub fn init(self, hidden_dim: usize, outputs: usize, init: &mut ParamInit) -> Head {
        let mut head = Head { node: None, graph: None, sub_tokens: None, link: None };
        match self {
            Self::Node { mlp, dropout } => {
                head.node = Some(NodeHead::new(hidden_dim, outputs, mlp, dropout, init));
            }
            Self::Graph { pooling, mlp, dropout } => {
                head.graph = Some(GraphHead::new(hidden_dim, outputs, pooling, mlp, dropout, init));
            }
            Self::SubTokens { pooling, max_tokens } => {
                head.sub_tokens =
                    Some(SubTokenHead::new(hidden_dim, outputs, pooling, max_tokens, init));
            }
            Self::Link { mlp, dropout } => {
                head.link = Some(LinkHead::new(hidden_dim, mlp, dropout, init));
            }
        }
        head
    }
}

/// Prediction head: node-level, graph-level, sub-token or link prediction.
#[derive(Module, Debug)]
pub struct Head {
    node: Option<NodeHead>,
    graph: Option<GraphHead>,
    sub_tokens: Option<SubTokenHead>,
    link: Option<LinkHead>,
}

impl Head {
    /// Returns the pooling of a graph-level head, if any.
    pub fn pooling(&self) -> Option<Pooling> {
        let of_graph = self.graph.as_ref().map(GraphHead::pooling);
        of_graph.or(self.sub_tokens.as_ref().map(SubTokenHead::pooling))
    }

    /// Pools node states for a graph-level head; other heads return them unchanged.
    ///
    /// # Shapes
    /// - `x`: `[r, d]`, including CLS nodes if the model has a CLS token
    /// - returns `[b, d]` for graph-level heads, `[r, d]` otherwise
    pub fn pool(&self, x: Tensor<2>, batch: &GraphBatch) -> Tensor<2> {
        match self.pooling() {
            Some(pooling) => pooling.pool(x, batch),
            None => x,
        }
    }

    /// Computes the predictions.
    ///
    /// # Shapes
    /// - `vectors`: the output of [`Head::pool`]
    /// - returns `[r, outputs]` (node), `[b, outputs]` (graph), `[b · max_tokens, vocabulary]`
    ///   (sub-token), or node embeddings `[r, d]` (link)
    pub fn forward(&self, vectors: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        match self {
            Self { node: Some(node), .. } => node.forward(vectors, ctx),
            Self { graph: Some(graph), .. } => graph.forward(vectors, ctx),
            Self { sub_tokens: Some(sub_tokens), .. } => sub_tokens.forward(vectors),
            Self { link: Some(link), .. } => link.forward(vectors, ctx),
            _ => unreachable!("`init` builds exactly one of the four"),
        }
    }
}
