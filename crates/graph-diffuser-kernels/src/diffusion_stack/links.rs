//! The edges of one graph, where a step finds them.

use std::ops::Range;

use super::Csr;

/// The edges of one graph at one of their ends.
#[derive(Default)]
pub(super) struct Links {
    /// First link of each node, and the number of all.
    pub(super) starts: Vec<usize>,
    pub(super) links: Vec<Link>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Link {
    /// The node at the other end, below the number of nodes.
    pub(super) node: u32,
    pub(super) weight: f32,
    /// Which entry of the graph it is.
    pub(super) entry: u32,
}

impl Links {
    /// The edges that leave each node, in the order of the CSR.
    pub(super) fn leave(&mut self, csr: Csr<'_>, nodes: Range<usize>, weights: &[f32]) {
        let (n, first) = (nodes.len(), csr.row_starts[nodes.start]);
        self.starts.clear();
        self.starts
            .extend(csr.row_starts[nodes.start..=nodes.end].iter().map(|start| start - first));
        self.links.clear();
        for at in first..csr.row_starts[nodes.end] {
            let node = csr.targets[at];
            assert!((node as usize) < n, "an edge to node {node} of {n}");
            self.links.push(Link {
                node,
                weight: weights[csr.edges[at] as usize],
                entry: (at - first) as u32,
            });
        }
    }

    /// The edges that enter each node, by where they come from.
    pub(super) fn enter(&mut self, csr: Csr<'_>, nodes: Range<usize>, weights: &[f32]) {
        let (n, first) = (nodes.len(), csr.row_starts[nodes.start]);
        let entries = first..csr.row_starts[nodes.end];
        self.starts.clear();
        self.starts.resize(n + 1, 0);
        for target in &csr.targets[entries.clone()] {
            assert!((*target as usize) < n, "an edge to node {target} of {n}");
            self.starts[*target as usize + 1] += 1;
        }
        for node in 0..n {
            self.starts[node + 1] += self.starts[node];
        }
        self.links.clear();
        self.links.resize(entries.len(), Link::default());
        for (node, row) in nodes.enumerate() {
            for at in csr.row_starts[row]..csr.row_starts[row + 1] {
                let place = &mut self.starts[csr.targets[at] as usize];
                self.links[*place] = Link {
                    node: node as u32,
                    weight: weights[csr.edges[at] as usize],
                    entry: (at - first) as u32,
                };
                *place += 1;
            }
        }
        // Every start has moved to where the next began.
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }

    /// # Safety
    /// `node` is one of the graph.
    #[inline(always)]
    pub(super) unsafe fn of(&self, node: usize) -> Range<usize> {
        // SAFETY: there is one start more than there are nodes.
        unsafe { *self.starts.get_unchecked(node)..*self.starts.get_unchecked(node + 1) }
    }
}
