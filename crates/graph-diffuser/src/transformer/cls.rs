//! The CLS token: one learned node a graph that everything attends to and that is read in the end.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::batch::ClsLayout;
use crate::nn::ParamInit;

/// A learned node and the learned virtual edge of every pair that touches it.
#[derive(Module, Debug)]
pub struct ClsToken {
    node: Param<Tensor<1>>,
    edge: Option<Param<Tensor<1>>>,
}

impl ClsToken {
    /// `channels` are those of a virtual edge, where attention reads any.
    pub fn new(hidden_dim: usize, channels: Option<usize>, init: &mut ParamInit) -> Self {
        Self {
            node: init.normal([hidden_dim]),
            edge: channels.map(|channels| init.normal([channels])),
        }
    }

    /// Adds the token behind the nodes of each graph.
    ///
    /// # Shapes
    /// - `x`: `[r, d]`
    /// - returns `[r + b, d]`
    pub fn append(&self, x: Tensor<2>, layout: &ClsLayout) -> Tensor<2> {
        let (b, d) = (layout.topology.layout.graphs(), x.dims()[1]);
        let tokens = self.node.val().unsqueeze_dim::<2>(0).expand([b, d]);
        Tensor::cat(vec![x, tokens], 0).select(0, layout.node_order.clone())
    }

    /// `[c', 1]`
    pub(super) fn edge(&self) -> Tensor<2> {
        let edge =
            self.edge.as_ref().expect("the config was checked: position needs virtual edges");
        edge.val().unsqueeze_dim(1)
    }
}
