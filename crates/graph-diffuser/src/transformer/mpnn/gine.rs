//! GINE: `x_i + MLP(x_i + Σ_j ReLU(x_j + e_ij))`.

use burn::module::Module;
use burn::tensor::activation::relu;

use crate::batch::Topology;
use crate::nn::{Init, Linear, Pass};
use crate::ops::hear;
use crate::transformer::layer::Stream;

/// Sums what the neighbours say, edge by edge.
#[derive(Module, Debug)]
pub(super) struct Gine {
    first: Linear,
    second: Linear,
    #[module(skip)]
    dropout: f64,
}

impl Gine {
    pub(super) fn new(width: usize, dropout: f64, init: &mut Init) -> Self {
        Self { first: Linear::new(width, width, init), second: Linear::new(width, width, init), dropout }
    }

    /// The residual is inside; edges pass unchanged.
    pub(super) fn forward(&self, Stream { x, e }: Stream, topology: &Topology, pass: &Pass) -> Stream {
        let heard = hear(x.clone(), e.clone(), topology);
        let heard = self.second.forward(relu(self.first.forward(heard)));
        Stream { x: x + pass.dropout(heard, self.dropout), e }
    }
}
