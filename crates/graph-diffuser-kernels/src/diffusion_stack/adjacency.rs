//! Adjacency lists of one graph.

use std::ops::Range;

use super::Csr;

/// Outgoing or incoming edges of each node of one graph.
#[derive(Default)]
pub(super) struct AdjacencyList {
    /// Index of the first neighbor of each node, followed by the number of edges.
    pub(super) starts: Vec<usize>,
    pub(super) neighbors: Vec<Neighbor>,
}

/// One edge, seen from one of its endpoints.
#[derive(Clone, Copy, Default)]
pub(super) struct Neighbor {
    /// Node at the other end, below the number of nodes.
    pub(super) node: u32,
    pub(super) weight: f32,
    /// Index of the entry among those of the graph.
    pub(super) entry: u32,
}

impl AdjacencyList {
    /// Fills the lists with the outgoing edges of each node, in CSR order.
    pub(super) fn fill_outgoing(&mut self, csr: Csr<'_>, nodes: Range<usize>, weights: &[f32]) {
        let (n, first) = (nodes.len(), csr.row_starts[nodes.start]);
        self.starts.clear();
        self.starts
            .extend(csr.row_starts[nodes.start..=nodes.end].iter().map(|start| start - first));
        self.neighbors.clear();
        for at in first..csr.row_starts[nodes.end] {
            let node = csr.targets[at];
            assert!((node as usize) < n, "edge target {node} is out of range for {n} nodes");
            self.neighbors.push(Neighbor {
                node,
                weight: weights[csr.edges[at] as usize],
                entry: (at - first) as u32,
            });
        }
    }

    /// Fills the lists with the incoming edges of each node, ordered by source.
    pub(super) fn fill_incoming(&mut self, csr: Csr<'_>, nodes: Range<usize>, weights: &[f32]) {
        let (n, first) = (nodes.len(), csr.row_starts[nodes.start]);
        let entries = first..csr.row_starts[nodes.end];
        self.starts.clear();
        self.starts.resize(n + 1, 0);
        for target in &csr.targets[entries.clone()] {
            assert!((*target as usize) < n, "edge target {target} is out of range for {n} nodes");
            self.starts[*target as usize + 1] += 1;
        }
        for node in 0..n {
            self.starts[node + 1] += self.starts[node];
        }
        self.neighbors.clear();
        self.neighbors.resize(entries.len(), Neighbor::default());
        for (node, row) in nodes.enumerate() {
            for at in csr.row_starts[row]..csr.row_starts[row + 1] {
                let next = &mut self.starts[csr.targets[at] as usize];
                self.neighbors[*next] = Neighbor {
                    node: node as u32,
                    weight: weights[csr.edges[at] as usize],
                    entry: (at - first) as u32,
                };
                *next += 1;
            }
        }
        // Each start has been advanced to the start of the next node.
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }

    /// Returns the range of edges of `node`.
    ///
    /// # Safety
    /// `node` is below the number of nodes.
    #[inline(always)]
    pub(super) unsafe fn range(&self, node: usize) -> Range<usize> {
        // SAFETY: `starts` has one entry more than there are nodes.
        unsafe { *self.starts.get_unchecked(node)..*self.starts.get_unchecked(node + 1) }
    }
}
