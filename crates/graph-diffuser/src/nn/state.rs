//! State of the nodes and edges of a batch between layers.

use burn::tensor::Tensor;

use crate::ops::EdgeEmbeddings;

/// Input and output of a layer.
#[derive(Debug, Clone)]
pub struct GraphState {
    /// Node states, `[r, d]`.
    pub x: Tensor<2>,
    /// Edge embeddings, `[m, d]`; `None` if edges have no features.
    pub e: Option<EdgeEmbeddings>,
}
