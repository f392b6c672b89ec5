//! The edges of a batch, and those at each node.

/// The edges at each node, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsrIndex {
    starts: Vec<usize>,
    edges: Vec<u32>,
}

impl CsrIndex {
    /// By the node that each edge has at one end.
    pub fn new(nodes: usize, ends: &[u32]) -> Self {
        let mut starts = vec![0; nodes + 1];
        for end in ends {
            assert!((*end as usize) < nodes, "an edge at node {end} of {nodes}");
            starts[*end as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut edges = vec![0; ends.len()];
        for (edge, end) in ends.iter().enumerate() {
            edges[starts[*end as usize]] = edge as u32;
            starts[*end as usize] += 1;
        }
        // Every start has moved to where the next began.
        starts.rotate_right(1);
        starts[0] = 0;
        Self { starts, edges }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }

    /// The edges at a node.
    #[inline(always)]
    pub(super) fn at(&self, node: usize) -> &[u32] {
        &self.edges[self.starts[node]..self.starts[node + 1]]
    }
}

/// Edges that are alike share a row: whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeTypes {
    pub(super) of_edge: Vec<u32>,
    edges: CsrIndex,
}

impl EdgeTypes {
    /// By the kind of each edge.
    pub fn new(kinds: usize, of_edge: &[u32]) -> Self {
        Self { of_edge: of_edge.to_vec(), edges: CsrIndex::new(kinds, of_edge) }
    }

    /// Number of kinds.
    pub fn count(&self) -> usize {
        self.edges.nodes()
    }

    /// The edges of each kind.
    pub fn edges(&self) -> &CsrIndex {
        &self.edges
    }
}

/// The edges of a batch by both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edges {
    pub(super) sources: Vec<u32>,
    pub(super) targets: Vec<u32>,
    pub(super) outgoing: CsrIndex,
    pub(super) incoming: CsrIndex,
}

impl Edges {
    /// Edge after edge; messages go from source to target.
    pub fn new(nodes: usize, sources: &[u32], targets: &[u32]) -> Self {
        assert_eq!(sources.len(), targets.len(), "an edge has two ends");
        Self {
            sources: sources.to_vec(),
            targets: targets.to_vec(),
            outgoing: CsrIndex::new(nodes, sources),
            incoming: CsrIndex::new(nodes, targets),
        }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.incoming.nodes()
    }

    /// Number of edges.
    pub fn count(&self) -> usize {
        self.sources.len()
    }

    /// The edges that leave each node.
    pub fn outgoing(&self) -> &CsrIndex {
        &self.outgoing
    }

    /// The edges that enter each node.
    pub fn incoming(&self) -> &CsrIndex {
        &self.incoming
    }

    /// Numbers that go over all edges and nodes.
    pub(super) fn numbers(&self, width: usize) -> usize {
        (self.count() + self.nodes()) * width
    }

    #[track_caller]
    pub(super) fn check_nodes(&self, width: usize, buffers: &[&[f32]]) {
        assert!(width > 0, "rows without numbers");
        for buffer in buffers {
            assert_eq!(
                buffer.len(),
                self.nodes() * width,
                "{} nodes of width {width}",
                self.nodes()
            );
        }
    }

    #[track_caller]
    pub(super) fn check_edges(&self, width: usize, buffers: &[&[f32]]) {
        for buffer in buffers {
            assert_eq!(
                buffer.len(),
                self.count() * width,
                "{} edges of width {width}",
                self.count()
            );
        }
    }
}
