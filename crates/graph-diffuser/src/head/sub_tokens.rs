//! Sub-token prediction head: one linear classifier per token position.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::nn::{Linear, ParamInit};

use super::Pooling;

/// Sub-token head: one classifier over the vocabulary per token position.
#[derive(Module, Debug)]
pub struct SubTokenHead {
    positions: Vec<Linear>,
    #[module(skip)]
    pooling: Pooling,
}

impl SubTokenHead {
    /// Initializes the head.
    pub fn new(
        hidden_dim: usize,
        vocabulary: usize,
        pooling: Pooling,
        max_tokens: usize,
        init: &mut ParamInit,
    ) -> Self {
        let positions =
            (0..max_tokens).map(|_| Linear::new(hidden_dim, vocabulary, init)).collect();
        Self { positions, pooling }
    }

    /// Returns the pooling of the head.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Computes the logits of every token position.
    ///
    /// # Shapes
    /// - `pooled`: `[b, d]`
    /// - returns `[b · max_tokens, vocabulary]`, with the positions of a graph in consecutive rows
    pub fn forward(&self, pooled: Tensor<2>) -> Tensor<2> {
        let logits: Vec<Tensor<2>> =
            self.positions.iter().map(|linear| linear.forward(pooled.clone())).collect();
        let [b, vocabulary] = logits[0].dims();
        Tensor::stack::<3>(logits, 1).reshape([b * self.positions.len(), vocabulary])
    }
}
