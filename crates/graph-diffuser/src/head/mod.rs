//! What is read off the nodes in the end.

mod graph;
mod link;
mod node;
mod sub_tokens;

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;
use crate::nn::{ForwardContext, MlpConfig, ParamInit};

pub use graph::{GraphHead, Pooling};
pub use link::LinkHead;
pub use node::NodeHead;
pub use sub_tokens::SubTokenHead;

/// What is read off the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum HeadConfig {
    /// A prediction for every node.
    Node {
        /// Hidden layers.
        mlp: MlpConfig,
        /// Dropout after each hidden layer.
        #[serde(default, skip_serializing_if = "is_zero")]
        dropout: f64,
    },
    /// A prediction for every graph.
    Graph {
        /// How nodes become one vector.
        pooling: Pooling,
        /// Hidden layers.
        mlp: MlpConfig,
        /// Dropout after each hidden layer.
        #[serde(default, skip_serializing_if = "is_zero")]
        dropout: f64,
    },
    /// A word of a vocabulary for each of several positions of a name.
    SubTokens {
        /// How nodes become one vector.
        pooling: Pooling,
        /// Number of positions.
        max_tokens: usize,
    },
    /// A vector for every node; the score of a pair is a dot product.
    Link {
        /// Hidden layers.
        mlp: MlpConfig,
        /// Dropout after each hidden layer.
        #[serde(default, skip_serializing_if = "is_zero")]
        dropout: f64,
    },
}

fn is_zero(dropout: &f64) -> bool {
    *dropout == 0.0
}

impl HeadConfig {
    /// Dropout after each hidden layer.
    pub fn dropout(self) -> f64 {
        match self {
            Self::Node { dropout, .. }
            | Self::Graph { dropout, .. }
            | Self::Link { dropout, .. } => dropout,
            Self::SubTokens { .. } => 0.0,
        }
    }

    /// Whether the model needs a CLS node in each graph.
    pub fn uses_cls(self) -> bool {
        match self {
            Self::Graph { pooling, .. } | Self::SubTokens { pooling, .. } => {
                pooling == Pooling::Cls
            }
            Self::Node { .. } | Self::Link { .. } => false,
        }
    }

    /// How many words of a name are predicted, where words are.
    pub fn max_tokens(self) -> Option<usize> {
        match self {
            Self::SubTokens { max_tokens, .. } => Some(max_tokens),
            Self::Node { .. } | Self::Graph { .. } | Self::Link { .. } => None,
        }
    }

    /// Draws the parameters.
    pub fn init(self, width: usize, outputs: usize, init: &mut ParamInit) -> Head {
        let mut head = Head { node: None, graph: None, sub_tokens: None, link: None };
        match self {
            Self::Node { mlp, dropout } => {
                head.node = Some(NodeHead::new(width, outputs, mlp, dropout, init))
            }
            Self::Graph { pooling, mlp, dropout } => {
                head.graph = Some(GraphHead::new(width, outputs, pooling, mlp, dropout, init));
            }
            Self::SubTokens { pooling, max_tokens } => {
                head.sub_tokens =
                    Some(SubTokenHead::new(width, outputs, pooling, max_tokens, init));
            }
            Self::Link { mlp, dropout } => {
                head.link = Some(LinkHead::new(width, mlp, dropout, init))
            }
        }
        head
    }
}

/// One of the heads.
#[derive(Module, Debug)]
pub struct Head {
    node: Option<NodeHead>,
    graph: Option<GraphHead>,
    sub_tokens: Option<SubTokenHead>,
    link: Option<LinkHead>,
}

impl Head {
    /// How nodes become the vector of a graph, where one is predicted from.
    pub fn pooling(&self) -> Option<Pooling> {
        let of_graph = self.graph.as_ref().map(GraphHead::pooling);
        of_graph.or(self.sub_tokens.as_ref().map(SubTokenHead::pooling))
    }

    /// What predictions are read off: pooled graphs, or nodes as they are.
    ///
    /// # Shapes
    /// - `x`: `[r, d]`, CLS nodes among them where the model has any
    /// - returns `[b, d]`, or `[r, d]` where nodes are predicted or paired
    pub fn pool(&self, x: Tensor<2>, batch: &GraphBatch) -> Tensor<2> {
        match self.pooling() {
            Some(pooling) => pooling.pool(x, batch),
            None => x,
        }
    }

    /// Rows of predictions: nodes, graphs, graphs by position, or node vectors to be paired.
    ///
    /// # Shapes
    /// - `vectors`: what [`Head::pool`] returns
    pub fn forward(&self, vectors: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        match self {
            Self { node: Some(node), .. } => node.forward(vectors, ctx),
            Self { graph: Some(graph), .. } => graph.forward(vectors, ctx),
            Self { sub_tokens: Some(sub_tokens), .. } => sub_tokens.forward(vectors),
            Self { link: Some(link), .. } => link.forward(vectors, ctx),
            _ => unreachable!("one of the four is built"),
        }
    }
}
