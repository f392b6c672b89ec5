//! CLS token: one learned node per graph that attends to all nodes and is used for pooling.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::batch::GraphBatch;
use crate::nn::ParamInit;

/// CLS token: a learned node.
#[derive(Module, Debug)]
pub struct ClsToken {
    node: Param<Tensor<1>>,
}

impl ClsToken {
    /// Initializes the token.
    pub fn new(hidden_dim: usize, init: &mut ParamInit) -> Self {
        Self { node: init.normal([hidden_dim]) }
    }

    /// Inserts the token after the nodes of each graph.
    ///
    /// # Shapes
    /// - `x`: `[r, d]`
    /// - returns `[r + b, d]`
    ///
    /// # Panics
    /// Panics if the batch has no CLS nodes.
    pub fn append(&self, x: Tensor<2>, batch: &GraphBatch) -> Tensor<2> {
        let layout = batch.with_cls.as_ref().expect("the batcher of the model adds CLS nodes");
        let (b, d) = (layout.topology.layout.graphs(), x.dims()[1]);
        let tokens = self.node.val().unsqueeze_dim::<2>(0).expand([b, d]);
        Tensor::cat(vec![x, tokens], 0).select(0, layout.node_order.clone())
    }
}
