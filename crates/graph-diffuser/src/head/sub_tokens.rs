//! The name of a graph, word by word: one linear classifier for each position.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::nn::{Linear, ParamInit};

use super::Pooling;

/// One classifier over the vocabulary for each position.
#[derive(Module, Debug)]
pub struct SubTokenHead {
    positions: Vec<Linear>,
    #[module(skip)]
    pooling: Pooling,
}

impl SubTokenHead {
    /// Draws the parameters.
    pub fn new(
        width: usize,
        vocabulary: usize,
        pooling: Pooling,
        positions: usize,
        init: &mut ParamInit,
    ) -> Self {
        let positions = (0..positions).map(|_| Linear::new(width, vocabulary, init)).collect();
        Self { positions, pooling }
    }

    /// How nodes become one vector.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// # Shapes
    /// - `pooled`: `[b, d]`
    /// - returns `[b · positions, vocabulary]`, the positions of a graph one after another
    pub fn forward(&self, pooled: Tensor<2>) -> Tensor<2> {
        let words: Vec<Tensor<2>> =
            self.positions.iter().map(|linear| linear.forward(pooled.clone())).collect();
        let [b, vocabulary] = words[0].dims();
        Tensor::stack::<3>(words, 1).reshape([b * self.positions.len(), vocabulary])
    }
}
