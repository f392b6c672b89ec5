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
mod gradient;
mod powers;
mod vectors;

#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

pub use gradient::backward;
pub use powers::forward;

use crate::GraphOffsets;

/// Sparse adjacency matrix A in compressed sparse row (CSR) format.
#[derive(Debug, Clone, Copy)]
pub struct Csr<'a> {
    /// `[r + 1]` index of the first entry of each node of the batch, followed by the number of
    /// entries.
    pub row_starts: &'a [usize],
    /// `[m]` column of each entry: a node index within the graph.
    pub targets: &'a [u32],
    /// `[m]` edge index of each entry.
    pub edges: &'a [u32],
}

/// Checks the invariants that the unsafe code of both passes relies on.
fn check(graphs: GraphOffsets<'_>, csr: Csr<'_>, weights: &[f32]) {
    let GraphOffsets { sizes, node_starts, pair_starts } = graphs;
    assert_eq!(
        node_starts.len(),
        sizes.len() + 1,
        "node_starts must have one entry per graph and the end"
    );
    assert_eq!(
        pair_starts.len(),
        sizes.len() + 1,
        "pair_starts must have one entry per graph and the end"
    );
    for (graph, n) in sizes.iter().enumerate() {
        assert_eq!(
            node_starts[graph] + n,
            node_starts[graph + 1],
            "node_starts are inconsistent at graph {graph}"
        );
        assert_eq!(
            pair_starts[graph] + n * n,
            pair_starts[graph + 1],
            "pair_starts are inconsistent at graph {graph}"
        );
    }
    assert_eq!(
        csr.row_starts.len(),
        graphs.num_nodes() + 1,
        "row_starts must have one entry per node and the end"
    );
    assert!(csr.row_starts.is_sorted(), "row_starts must be ascending");
    assert_eq!(
        csr.row_starts[graphs.num_nodes()],
        csr.targets.len(),
        "row_starts must end with the number of entries"
    );
    assert_eq!(csr.targets.len(), csr.edges.len(), "every entry must have an edge index");
    let last = csr.edges.iter().max();
    assert!(
        last.is_none_or(|last| (*last as usize) < weights.len()),
        "every edge must have a weight"
    );
}

/// Pointer to a slice that tasks write disjointly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared(*mut f32);

// SAFETY: each write through the pointer documents why no other thread accesses that element.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Returns a pointer to an initialized slice.
    pub(crate) fn new(slice: &mut [f32]) -> Self {
        Self(slice.as_mut_ptr())
    }

    /// Returns a pointer to an uninitialized slice.
    pub(crate) fn from_uninit(slice: &mut [MaybeUninit<f32>]) -> Self {
        Self(slice.as_mut_ptr().cast())
    }

    #[inline(always)]
    pub(crate) fn pointer(self) -> *mut f32 {
        self.0
    }
}
