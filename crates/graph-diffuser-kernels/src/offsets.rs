//! Offsets of the graphs of a packed batch.

use std::ops::Range;

/// Offsets of the nodes and node pairs of each graph in a packed batch.
///
/// Nodes are stored graph after graph. The `n²` ordered node pairs of a graph are stored in
/// row-major order, also graph after graph.
#[derive(Debug, Clone, Copy)]
pub struct GraphOffsets<'a> {
    /// `[b]` number of nodes of each graph.
    pub sizes: &'a [usize],
    /// `[b + 1]` index of the first node of each graph, followed by the total number of nodes.
    pub node_starts: &'a [usize],
    /// `[b + 1]` index of the first pair of each graph, followed by the total number of pairs.
    pub pair_starts: &'a [usize],
}

impl GraphOffsets<'_> {
    /// Returns the number of graphs.
    pub(crate) fn num_graphs(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the total number of nodes.
    pub(crate) fn num_nodes(&self) -> usize {
        self.node_starts[self.num_graphs()]
    }

    /// Returns the total number of pairs.
    pub(crate) fn num_pairs(&self) -> usize {
        self.pair_starts[self.num_graphs()]
    }

    /// Returns the nodes of a graph.
    #[inline(always)]
    pub(crate) fn nodes(&self, graph: usize) -> Range<usize> {
        self.node_starts[graph]..self.node_starts[graph + 1]
    }

    /// Checks that the offsets match the sizes, which unsafe code relies on.
    #[track_caller]
    pub(crate) fn check(&self) {
        let Self { sizes, node_starts, pair_starts } = self;
        for starts in [node_starts, pair_starts] {
            assert_eq!(
                starts.len(),
                sizes.len() + 1,
                "offsets must have one entry per graph and the end"
            );
        }
        for (graph, n) in sizes.iter().enumerate() {
            assert_eq!(
                [node_starts[graph] + n, pair_starts[graph] + n * n],
                [node_starts[graph + 1], pair_starts[graph + 1]],
                "offsets are inconsistent at graph {graph}"
            );
        }
    }
}
