//! Message passing along the edges of a batch, forward and backward: GINE and GatedGCN.
//!
//! A unit computes one channel of one node or edge; sums over edges are in edge order.

mod gated;
mod gine;

pub use gated::{
    CubeGatedGradients, CubeGatedInputs, CubeGatedOutput, gated_backward, gated_forward,
};
pub use gine::{gine_backward, gine_forward};
