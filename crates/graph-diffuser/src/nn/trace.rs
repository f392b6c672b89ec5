//! Intermediate values of a forward pass over one graph, for explanations.

use burn::tensor::Tensor;

use crate::ops::AttentionComponents;

/// Intermediate values of a forward pass over one graph, for the traced rows.
#[derive(Debug, Clone, Default)]
pub struct ModelTrace {
    /// Edge weights, random-walk probabilities and position scores, if the model has virtual edges.
    ///
    /// There are no values for the CLS node.
    pub virtual_edges: Option<VirtualEdgeTrace>,
    /// Attention components of each layer.
    pub layers: Vec<AttentionComponents>,
}

/// Intermediate values of the virtual edges of some rows of one graph.
#[derive(Debug, Clone)]
pub struct VirtualEdgeTrace {
    /// Row-normalized edge weights, `[m]`.
    pub weights: Tensor<1>,
    /// Random-walk probabilities after 0 to `k` steps from each row to every node (Eq. 1),
    /// `[c, rows · n]`.
    pub walks: Tensor<2>,
    /// Position scores of each layer (Eq. 6), `[h, rows · n]`.
    pub scores: Vec<Tensor<2>>,
}

/// Collects the trace of some rows during a forward pass.
#[derive(Debug)]
pub(super) struct Tracer {
    /// Indices of the traced nodes; the CLS node, if included, is last.
    pub(super) rows: Vec<usize>,
    pub(super) trace: ModelTrace,
}
