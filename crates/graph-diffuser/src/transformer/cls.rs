//! CLS token: one learned node per graph that attends to all nodes and is used for pooling.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::batch::ClsLayout;
use crate::nn::ParamInit;

/// CLS token: a learned node and the learned virtual edge of all pairs with it.
#[derive(Module, Debug)]
pub struct ClsToken {
    node: Param<Tensor<1>>,
    edge: Option<Param<Tensor<1>>>,
}

impl ClsToken {
    /// Initializes the token; `channels` is the number of channels of a virtual edge, if attention
    /// uses position scores.
    pub fn new(hidden_dim: usize, channels: Option<usize>, init: &mut ParamInit) -> Self {
        Self {
            node: init.normal([hidden_dim]),
            edge: channels.map(|channels| init.normal([channels])),
        }
    }

    /// Inserts the token after the nodes of each graph.
    ///
    /// # Shapes
    /// - `x`: `[r, d]`
    /// - returns `[r + b, d]`
    pub fn append(&self, x: Tensor<2>, layout: &ClsLayout) -> Tensor<2> {
        let (b, d) = (layout.topology.layout.graphs(), x.dims()[1]);
        let tokens = self.node.val().unsqueeze_dim::<2>(0).expand([b, d]);
        Tensor::cat(vec![x, tokens], 0).select(0, layout.node_order.clone())
    }

    /// Returns the learned virtual edge, `[c', 1]`.
    pub(super) fn edge(&self) -> Tensor<2> {
        let edge = self.edge.as_ref().expect("`check` requires virtual edges for position scores");
        edge.val().unsqueeze_dim(1)
    }
}
