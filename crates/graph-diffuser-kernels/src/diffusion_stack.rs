//! Diffusion stack: the powers `[I | A | … | Aᵏ]` of the adjacency matrix (Eq. 1).
//!
//! Row i of `A·Aˢ⁻¹` is a sum of rows of `Aˢ⁻¹`, one per edge of node i. Columns are independent:
//! all powers of a block of columns depend on that block only. A block is therefore taken through
//! all steps at once, with its last power in a small aligned copy for the repeated reads, and a
//! task is a sequence of blocks.
//!
//! The backward pass computes `dAˢ⁻¹ += Aᵀ dAˢ`, row by row over the *incoming* edges of a node.
//! For an edge i → t this reads row i of `dAˢ`, and so does the gradient of its weight,
//! `dw += dAˢ[i] · Aˢ⁻¹[t]`, whose other row is common to all incoming edges of t. One pass over
//! the edges reads one row per edge and computes both.

mod adjacency;
mod blocks;
mod vectors;
mod powers;
mod gradient;

#[cfg(test)]
mod tests;

pub use gradient::backward;
pub use powers::forward;

use crate::edges::Csr;
use crate::offsets::GraphOffsets;

/// Checks the invariants that the unsafe code of both passes relies on.
fn check(graphs: GraphOffsets<'_>, csr: &Csr, weights: &[f32]) {
    graphs.check();
    assert_eq!(csr.num_nodes(), graphs.num_nodes(), "edges must be grouped by the same nodes");
    assert_eq!(csr.num_edges(), weights.len(), "every edge must have a weight");
}
