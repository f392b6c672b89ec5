//! Edges of a batch on the device, grouped by node in compressed sparse row (CSR) format.

use cubecl::client::Client;

use crate::Buffer;

/// Edges grouped by one of their endpoints.
#[derive(Debug, Clone)]
pub struct CubeCsr {
    /// `[r + 1]` first entry of each node, followed by the number of entries.
    pub(crate) starts: Buffer,
    /// `[m, 2]` node at the other end, and index of the edge, of each entry.
    pub(crate) entries: Buffer,
}

impl CubeCsr {
    /// Copies edges to the device, given the (node at the other end, edge) pairs of each node.
    pub fn new<I: Iterator<Item = (usize, usize)>>(
        client: &Client,
        nodes: impl Iterator<Item = I>,
    ) -> Self {
        let (mut starts, mut entries) = (vec![0u32], Vec::<u32>::new());
        for node in nodes {
            for (neighbor, edge) in node {
                entries.extend([neighbor as u32, edge as u32]);
            }
            starts.push(entries.len() as u32 / 2);
        }
        Self {
            starts: Buffer::from_slice(client, &starts),
            entries: Buffer::from_slice(client, &entries),
        }
    }

    /// Returns the number of nodes, `r`.
    pub fn num_nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the number of edges, `m`.
    pub fn num_edges(&self) -> usize {
        self.entries.len() / 2
    }
}

/// Edges of a batch, grouped by both endpoints.
#[derive(Debug, Clone)]
pub struct CubeEdgeIndex {
    /// `[m, 2]` source and target of each edge.
    pub(crate) ends: Buffer,
    /// Edges grouped by source.
    pub(crate) outgoing: CubeCsr,
    /// Edges grouped by target.
    pub(crate) incoming: CubeCsr,
}

impl CubeEdgeIndex {
    /// Copies the edges `(source, target)` of a batch of `num_nodes` nodes to the device.
    ///
    /// # Panics
    /// Panics if an endpoint is not below `num_nodes`.
    pub fn new(client: &Client, num_nodes: usize, edges: &[[u32; 2]]) -> Self {
        let group = |by: usize| {
            let mut groups = vec![Vec::new(); num_nodes];
            for (index, ends) in edges.iter().enumerate() {
                groups[ends[by] as usize].push((ends[1 - by] as usize, index));
            }
            CubeCsr::new(client, groups.into_iter().map(Vec::into_iter))
        };
        let ends: Vec<u32> = edges.iter().flatten().copied().collect();
        Self { ends: Buffer::from_slice(client, &ends), outgoing: group(0), incoming: group(1) }
    }

    /// Returns the number of nodes, `r`.
    pub fn num_nodes(&self) -> usize {
        self.outgoing.num_nodes()
    }

    /// Returns the number of edges, `m`.
    pub fn num_edges(&self) -> usize {
        self.outgoing.num_edges()
    }
}
