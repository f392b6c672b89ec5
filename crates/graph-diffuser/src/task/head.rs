//! Prediction heads: configuration and dispatch.

use burn::module::Module;
use burn::tensor::Tensor;
use graph_diffuser_data::TargetSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;
use crate::nn::{ForwardContext, MlpConfig, ParamInit};

use super::graph_targets::GraphHead;
use super::link_prediction::LinkHead;
use super::node_classification::NodeHead;
use super::pooling::Pooling;
use super::sub_tokens::SubTokenHead;

/// Configuration of a [`Head`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum HeadConfig {
    /// Head that follows from the targets of the dataset: graph-level, node-level or link
    /// prediction.
    Auto {
        /// Pooling of node states, for graph-level targets.
        pooling: Pooling,
        /// Hidden layers of the MLP.
        mlp: MlpConfig,
        /// Dropout after each hidden layer.
        #[serde(default, skip_serializing_if = "is_zero")]
        dropout: f64,
    },
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
            Self::Auto { dropout, .. }
            | Self::Node { dropout, .. }
            | Self::Graph { dropout, .. }
            | Self::Link { dropout, .. } => dropout,
            Self::SubTokens { .. } => 0.0,
        }
    }

    /// Returns the head with another dropout probability, if it has dropout.
    #[must_use]
    pub fn with_dropout(self, value: f64) -> Self {
        let mut head = self;
        match &mut head {
            Self::Auto { dropout, .. }
            | Self::Node { dropout, .. }
            | Self::Graph { dropout, .. }
            | Self::Link { dropout, .. } => *dropout = value,
            Self::SubTokens { .. } => {}
        }
        head
    }

    /// Returns whether the model needs a CLS node in each graph.
    pub fn uses_cls(self) -> bool {
        match self {
            Self::Auto { pooling, .. }
            | Self::Graph { pooling, .. }
            | Self::SubTokens { pooling, .. } => pooling == Pooling::Cls,
            Self::Node { .. } | Self::Link { .. } => false,
        }
    }

    /// Returns the number of predicted tokens of a sub-token head.
    pub fn max_tokens(self) -> Option<usize> {
        match self {
            Self::SubTokens { max_tokens, .. } => Some(max_tokens),
            Self::Auto { .. } | Self::Node { .. } | Self::Graph { .. } | Self::Link { .. } => None,
        }
    }

    /// Returns the name of the kind in recipes.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Auto { .. } => "auto",
            Self::Node { .. } => "node",
            Self::Graph { .. } => "graph",
            Self::SubTokens { .. } => "sub_tokens",
            Self::Link { .. } => "link",
        }
    }

    /// Initializes the head for a dataset with these targets.
    pub fn init(self, hidden_dim: usize, targets: &TargetSchema, init: &mut ParamInit) -> Head {
        let outputs = targets.outputs();
        match self {
            Self::Auto { pooling, mlp, dropout } => match targets {
                TargetSchema::Graph(_) | TargetSchema::SubTokens(_) => {
                    Self::Graph { pooling, mlp, dropout }
                }
                TargetSchema::NodeMulticlass(_) => Self::Node { mlp, dropout },
                TargetSchema::LinkPrediction => Self::Link { mlp, dropout },
            }
            .init(hidden_dim, targets, init),
            Self::Node { mlp, dropout } => {
                Head::Node(NodeHead::new(hidden_dim, outputs, mlp, dropout, init))
            }
            Self::Graph { pooling, mlp, dropout } => {
                Head::Graph(GraphHead::new(hidden_dim, outputs, pooling, mlp, dropout, init))
            }
            Self::SubTokens { pooling, max_tokens } => {
                Head::SubTokens(SubTokenHead::new(hidden_dim, outputs, pooling, max_tokens, init))
            }
            Self::Link { mlp, dropout } => {
                Head::Link(LinkHead::new(hidden_dim, mlp, dropout, init))
            }
        }
    }
}

/// Prediction head.
#[derive(Module, Debug)]
pub enum Head {
    /// MLP on each node.
    Node(NodeHead),
    /// Pooling followed by an MLP.
    Graph(GraphHead),
    /// Pooling followed by one classifier per token position.
    SubTokens(SubTokenHead),
    /// Node embeddings whose dot products score links.
    Link(LinkHead),
}

impl Head {
    /// Returns the pooling of a graph-level head, if any.
    pub fn pooling(&self) -> Option<Pooling> {
        match self {
            Self::Graph(head) => Some(head.pooling()),
            Self::SubTokens(head) => Some(head.pooling()),
            Self::Node(_) | Self::Link(_) => None,
        }
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
        let output = match self {
            Self::Node(head) => head.forward(vectors, ctx),
            Self::Graph(head) => head.forward(vectors, ctx),
            Self::SubTokens(head) => head.forward(vectors),
            Self::Link(head) => head.forward(vectors, ctx),
        };
        ctx.record(|| "head".into(), &output);
        output
    }
}
