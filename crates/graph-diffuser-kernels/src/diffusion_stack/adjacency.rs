//! Adjacency lists of one graph.

use std::ops::Range;

use crate::edges::Csr;

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
    pub(super) fn fill_outgoing(&mut self, csr: &Csr, nodes: Range<usize>, weights: &[f32]) {
        self.starts.clear();
        self.neighbors.clear();
        for row in nodes.clone() {
            self.starts.push(self.neighbors.len());
            for (target, edge) in csr.entries(row) {
                self.neighbors.push(Neighbor {
                    node: index_within(&nodes, target),
                    weight: weights[edge],
                    entry: self.neighbors.len() as u32,
                });
            }
        }
        self.starts.push(self.neighbors.len());
    }

    /// Fills the lists with the incoming edges of each node, ordered by source.
    pub(super) fn fill_incoming(&mut self, csr: &Csr, nodes: Range<usize>, weights: &[f32]) {
        self.starts.clear();
        self.starts.resize(nodes.len() + 1, 0);
        for (target, _) in nodes.clone().flat_map(|row| csr.entries(row)) {
            self.starts[index_within(&nodes, target) as usize + 1] += 1;
        }
        for node in 0..nodes.len() {
            self.starts[node + 1] += self.starts[node];
        }
        self.neighbors.clear();
        self.neighbors.resize(csr.range(nodes.clone()).len(), Neighbor::default());
        let mut entry = 0;
        for row in nodes.clone() {
            for (target, edge) in csr.entries(row) {
                let next = &mut self.starts[target - nodes.start];
                let node = (row - nodes.start) as u32;
                self.neighbors[*next] = Neighbor { node, weight: weights[edge], entry };
                *next += 1;
                entry += 1;
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

/// Returns the index of the edge target `node` within its graph.
fn index_within(nodes: &Range<usize>, node: usize) -> u32 {
    let (index, n) = (node.wrapping_sub(nodes.start), nodes.len());
    assert!(index < n, "edge target {index} is out of range for {n} nodes");
    index as u32
}
