//! Message passing along the edges of a batch, forward and backward: GINE.
//!
//! A unit computes one channel of one node or edge; sums over edges are in edge order.

mod gine;

pub use gine::{gine_backward, gine_forward};
