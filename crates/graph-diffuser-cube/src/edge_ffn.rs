//! Edge-wise feed-forward network over all pairs (Eq. 2–3), fused with the position scores of every
//! Transformer layer (Eq. 6): forward and backward.
//!
//! A layer is `x + W₂ ReLU(BN(W₁ x + b₁)) + b₂`, and its input `x₀ = BN(transform(E))`. A unit
//! computes one pair; its values are a column of a tile in shared memory. Nothing but the stack and
//! the statistics is kept between passes: every pass computes the layers before again, because a
//! GPU multiplies small matrices faster than it reads their results.
//!
//! A pass ends where a sum over all pairs is needed. Forward: one pass for the statistics of each
//! batch norm, and one for the scores. Backward: one pass for the projections and one for each
//! layer, both of which also compute the sums of the layer before, and one for the gradient of the
//! stack. The gradient of the input of the current layer is the only array that passes hand on.
//!
//! All sums are gradients of parameters: the means that the backward pass of a batch norm subtracts
//! are those of `∂β` and `∂γ`. Cubes sum over chunks of pairs, whose number does not depend on the
//! device, and a second launch adds the chunks. Statistics are those of the hidden units
//! themselves, not of the input of their linear layer as on the CPU, because single precision does
//! not suffice for covariances.
//!
//! The number of launches depends on the number of layers only. Forward: two for each batch norm,
//! one for the scores, and one for the diagonal. Backward: one for each Transformer layer, one for
//! the diagonal, two for the projections and for each layer, and one for the stack.

mod backward;
mod forward;
mod network;
mod shape;

#[cfg(all(test, feature = "wgpu"))]
mod tests;

pub use backward::{CubeEdgeFfnGradients, backward};
pub use forward::{CubeEdgeFfnOutput, forward};

use crate::Buffer;

/// Pointwise transform of the stack before the network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CubePairTransform {
    /// Identity.
    None,
    /// `ln(E + eps)`, for entries above `-eps`.
    Log {
        /// Offset that keeps the logarithm finite for unreachable pairs.
        eps: f32,
    },
    /// `sign(E) √|E|`, with derivative zero at zero.
    SignedSquareRoot,
}

/// Sizes of the network and of the position projections.
#[derive(Debug, Clone, Copy)]
pub struct CubeEdgeFfn {
    /// Number of channels `c` of a virtual edge.
    pub channels: usize,
    /// Number of hidden units of a layer.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of heads of a Transformer layer.
    pub heads: usize,
    /// Number of Transformer layers.
    pub position_layers: usize,
    /// Transform of the stack.
    pub transform: CubePairTransform,
}

/// Pairs and parameters of the network.
#[derive(Debug, Clone, Copy)]
pub struct CubePairInputs<'a> {
    /// `[c, p]` diffusion stack.
    pub stack: &'a Buffer,
    /// Flat concatenation of γ and β of the norm of the stack; weight, bias, γ, β, weight and bias
    /// of each layer; weight and bias of each position projection.
    pub parameters: &'a Buffer,
    /// `[p]` multiplicity of each pair in the statistics of batch norms; `None` if all are 1.
    pub counts: Option<&'a Buffer>,
}

impl CubeEdgeFfn {
    /// Returns whether the kernels support the network for a batch of `pairs` pairs: a tile fits
    /// into shared memory, and indices into 32 bits.
    pub fn supports(&self, pairs: usize) -> bool {
        self.tile_units().is_some()
            && pairs > 0
            && self.scores() > 0
            && self.channels.max(self.scores()).saturating_mul(pairs) < u32::MAX as usize
    }

    /// Returns the number of parameters.
    pub fn num_parameters(&self) -> usize {
        self.position_start() + self.scores() * (self.channels + 1)
    }

    /// Returns the number of channels of all batch norms.
    pub fn num_norm_channels(&self) -> usize {
        self.channels + self.layers * self.hidden
    }

    /// Returns the number of scores of a pair.
    fn scores(&self) -> usize {
        self.heads * self.position_layers
    }
}
