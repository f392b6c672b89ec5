//! Edges of a batch, grouped by node or by type in compressed sparse row (CSR) format.

use std::ops::Range;

/// Edges grouped by one of their endpoints, or by type; the edges of a group are in edge order.
///
/// Grouped by node, this is the sparse adjacency matrix of a batch: row `i` has one entry per edge
/// of node `i`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Csr {
    /// `[nodes + 1]` index of the first entry of each node, followed by the number of entries.
    starts: Vec<usize>,
    /// `[m]` node at the other end of the edge of each entry, below the number of nodes; empty if
    /// edges are grouped by type.
    neighbors: Vec<u32>,
    /// `[m]` edge of each entry; every edge occurs once.
    edges: Vec<u32>,
}

impl Csr {
    /// Groups edges by the endpoints `nodes`; `neighbors` are their other endpoints.
    pub(crate) fn new(num_nodes: usize, nodes: &[u32], neighbors: &[u32]) -> Self {
        assert_eq!(nodes.len(), neighbors.len(), "every edge must have a source and a target");
        let groups = Self::by_key(num_nodes, nodes);
        let neighbor = |edge: &u32| {
            let neighbor = neighbors[*edge as usize];
            assert!(
                (neighbor as usize) < num_nodes,
                "edge endpoint {neighbor} is out of range for {num_nodes} nodes"
            );
            neighbor
        };
        Self { neighbors: groups.edges.iter().map(neighbor).collect(), ..groups }
    }

    /// Groups edges by `keys`, without neighbors.
    fn by_key(num_keys: usize, keys: &[u32]) -> Self {
        let mut starts = vec![0; num_keys + 1];
        for key in keys {
            assert!(
                (*key as usize) < num_keys,
                "edge endpoint {key} is out of range for {num_keys} nodes"
            );
            starts[*key as usize + 1] += 1;
        }
        for key in 0..num_keys {
            starts[key + 1] += starts[key];
        }
        let mut edges = vec![0; keys.len()];
        for (edge, key) in keys.iter().enumerate() {
            let next = &mut starts[*key as usize];
            edges[*next] = edge as u32;
            *next += 1;
        }
        // Each start has been advanced to the start of the next key.
        starts.rotate_right(1);
        starts[0] = 0;
        Self { starts, neighbors: Vec::new(), edges }
    }

    /// Returns the number of nodes.
    pub(crate) fn num_nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the number of edges.
    pub(crate) fn num_edges(&self) -> usize {
        self.edges.len()
    }

    /// Iterates over the edges of `node` as (node at the other end, edge).
    #[inline(always)]
    pub fn entries(&self, node: usize) -> impl Iterator<Item = (usize, usize)> {
        let entries = self.range(node..node + 1);
        let (neighbors, edges) = (&self.neighbors[entries.clone()], &self.edges[entries]);
        neighbors.iter().zip(edges).map(|(neighbor, edge)| (*neighbor as usize, *edge as usize))
    }

    /// Returns the entries of consecutive nodes.
    #[inline(always)]
    pub(crate) fn range(&self, nodes: Range<usize>) -> Range<usize> {
        self.starts[nodes.start]..self.starts[nodes.end]
    }

    /// Returns the edges of a range of entries.
    #[inline(always)]
    pub(crate) fn edges(&self, entries: Range<usize>) -> &[u32] {
        &self.edges[entries]
    }
}

/// Edges of a batch, grouped by both endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeIndex {
    sources: Vec<u32>,
    targets: Vec<u32>,
    outgoing: Csr,
    incoming: Csr,
}

impl EdgeIndex {
    /// Creates the index; messages go from source to target.
    pub fn new(num_nodes: usize, sources: &[u32], targets: &[u32]) -> Self {
        Self {
            sources: sources.to_vec(),
            targets: targets.to_vec(),
            outgoing: Csr::new(num_nodes, sources, targets),
            incoming: Csr::new(num_nodes, targets, sources),
        }
    }

    /// Returns the number of nodes.
    pub(crate) fn num_nodes(&self) -> usize {
        self.outgoing.num_nodes()
    }

    /// Returns the number of edges.
    pub(crate) fn num_edges(&self) -> usize {
        self.sources.len()
    }

    /// Returns the edges grouped by source.
    pub fn outgoing(&self) -> &Csr {
        &self.outgoing
    }

    /// Returns the edges grouped by target.
    pub fn incoming(&self) -> &Csr {
        &self.incoming
    }

    /// Returns the source of each edge, which is below [`Self::num_nodes`].
    pub(crate) fn sources(&self) -> &[u32] {
        &self.sources
    }

    /// Returns the target of each edge, which is below [`Self::num_nodes`].
    pub(crate) fn targets(&self) -> &[u32] {
        &self.targets
    }
}

/// Edge types: edges of one type share a row of features.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeTypes {
    type_of_edge: Vec<u32>,
    edges: Csr,
}

impl EdgeTypes {
    /// Groups edges by their type.
    pub fn new(num_types: usize, type_of_edge: &[u32]) -> Self {
        Self { type_of_edge: type_of_edge.to_vec(), edges: Csr::by_key(num_types, type_of_edge) }
    }

    /// Returns the number of types.
    pub fn num_types(&self) -> usize {
        self.edges.num_nodes()
    }

    /// Returns the edges grouped by type.
    pub fn edges(&self) -> &Csr {
        &self.edges
    }

    /// Returns the type of each edge, which is below [`Self::num_types`].
    pub(crate) fn type_of_edge(&self) -> &[u32] {
        &self.type_of_edge
    }
}
