//! GINE: `MLP(x_i + Σ_j ReLU(x_j + e_ij))`.

use burn::module::Module;

use crate::batch::Topology;
use crate::nn::{Init, Linear};
use crate::ops::hear;
use crate::transformer::layer::Stream;

/// Sums what the neighbours say, edge by edge.
#[derive(Module, Debug)]
pub(super) struct Gine {
    first: Linear,
    second: Linear,
}

impl Gine {
    pub(super) fn new(width: usize, init: &mut Init) -> Self {
        Self { first: Linear::new(width, width, init), second: Linear::new(width, width, init) }
    }

    /// The branch without its residual; edges pass unchanged.
    pub(super) fn forward(&self, Stream { x, e }: Stream, topology: &Topology) -> Stream {
        let heard = hear(x, e.clone(), topology);
        Stream { x: self.second.forward(self.first.forward_relu(heard, None)), e }
    }
}
