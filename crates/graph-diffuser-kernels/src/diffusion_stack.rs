//! Powers of the adjacency matrix, stacked: `[I | A | … | Aᵏ]` (Eq. 1).
//!
//! Row i of `A·Aˢ⁻¹` is a sum of rows of `Aˢ⁻¹`, one an edge of i. Columns never meet: all powers of a
//! block of columns follow from that block alone. So a block is taken through all steps at once, its
//! last power kept in a small aligned copy that the many reads go to, and a task is a run of blocks.
//!
//! The backward goes the other way, `dAˢ⁻¹ += Aᵀ dAˢ`, row after row over the edges that *enter* a
//! node. An edge i → t needs row i of `dAˢ` there, and so does its own derivative,
//! `dw += dAˢ[i] · Aˢ⁻¹[t]`, whose other row is the same for all edges that enter t: one pass over
//! the edges reads one row an edge and computes both.

mod blocks;
mod derivative;
mod links;
mod powers;
mod vectors;

#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

pub use derivative::backward;
pub use powers::forward;

use crate::Graphs;

/// The entries of A by row.
#[derive(Debug, Clone, Copy)]
pub struct Csr<'a> {
    /// First entry of each node of the batch, and the number of all entries.
    pub row_starts: &'a [usize],
    /// Column of each entry: a node, counted from the first of its graph.
    pub targets: &'a [u32],
    /// Which edge each entry is.
    pub edges: &'a [u32],
}

/// What the loops of both directions trust.
fn check(graphs: Graphs<'_>, csr: Csr<'_>, weights: &[f32]) {
    let Graphs { sizes, node_starts, pair_starts } = graphs;
    assert_eq!(node_starts.len(), sizes.len() + 1, "one start of nodes a graph, and their number");
    assert_eq!(pair_starts.len(), sizes.len() + 1, "one start of pairs a graph, and their number");
    for (graph, n) in sizes.iter().enumerate() {
        assert_eq!(node_starts[graph] + n, node_starts[graph + 1], "nodes of graph {graph}");
        assert_eq!(pair_starts[graph] + n * n, pair_starts[graph + 1], "pairs of graph {graph}");
    }
    assert_eq!(
        csr.row_starts.len(),
        graphs.nodes() + 1,
        "one start of entries a node, and their number"
    );
    assert!(csr.row_starts.is_sorted(), "rows follow one another");
    assert_eq!(csr.row_starts[graphs.nodes()], csr.targets.len(), "every entry is in a row");
    assert_eq!(csr.targets.len(), csr.edges.len(), "every entry is an edge");
    let last = csr.edges.iter().max();
    assert!(last.is_none_or(|last| (*last as usize) < weights.len()), "every edge has a weight");
}

/// A slice that tasks write disjoint parts of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared(*mut f32);

// SAFETY: whoever writes through the pointer says why nobody else touches that place.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn new(slice: &mut [f32]) -> Self {
        Self(slice.as_mut_ptr())
    }

    pub(crate) fn fresh(slice: &mut [MaybeUninit<f32>]) -> Self {
        Self(slice.as_mut_ptr().cast())
    }

    #[inline(always)]
    pub(crate) fn pointer(self) -> *mut f32 {
        self.0
    }
}
