//! Edges of a batch, indexed by node and by type.

/// Edges of each node in compressed sparse row (CSR) format, in edge order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsrIndex {
    starts: Vec<usize>,
    edges: Vec<u32>,
}

impl CsrIndex {
    /// Groups edges by one of their endpoints.
    pub fn new(nodes: usize, endpoints: &[u32]) -> Self {
        let mut starts = vec![0; nodes + 1];
        for endpoint in endpoints {
            assert!(
                (*endpoint as usize) < nodes,
                "edge endpoint {endpoint} is out of range for {nodes} nodes"
            );
            starts[*endpoint as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut edges = vec![0; endpoints.len()];
        for (edge, endpoint) in endpoints.iter().enumerate() {
            edges[starts[*endpoint as usize]] = edge as u32;
            starts[*endpoint as usize] += 1;
        }
        // Each start has been advanced to the start of the next node.
        starts.rotate_right(1);
        starts[0] = 0;
        Self { starts, edges }
    }

    /// Returns the number of nodes.
    pub fn num_nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the number of edges.
    pub fn num_edges(&self) -> usize {
        self.edges.len()
    }

    /// Returns the edges of a node.
    #[inline(always)]
    pub(super) fn at(&self, node: usize) -> &[u32] {
        &self.edges[self.starts[node]..self.starts[node + 1]]
    }
}

/// Edge types: edges of one type share a row of features.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeTypes {
    pub(super) type_of_edge: Vec<u32>,
    edges: CsrIndex,
}

impl EdgeTypes {
    /// Groups edges by their type.
    pub fn new(num_types: usize, type_of_edge: &[u32]) -> Self {
        Self { type_of_edge: type_of_edge.to_vec(), edges: CsrIndex::new(num_types, type_of_edge) }
    }

    /// Returns the number of types.
    pub fn num_types(&self) -> usize {
        self.edges.num_nodes()
    }

    /// Returns the edges of each type.
    pub fn edges(&self) -> &CsrIndex {
        &self.edges
    }
}

/// Edges of a batch, indexed by both endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edges {
    pub(super) sources: Vec<u32>,
    pub(super) targets: Vec<u32>,
    pub(super) outgoing: CsrIndex,
    pub(super) incoming: CsrIndex,
}

impl Edges {
    /// Creates the index; messages go from source to target.
    pub fn new(nodes: usize, sources: &[u32], targets: &[u32]) -> Self {
        assert_eq!(sources.len(), targets.len(), "every edge must have a source and a target");
        Self {
            sources: sources.to_vec(),
            targets: targets.to_vec(),
            outgoing: CsrIndex::new(nodes, sources),
            incoming: CsrIndex::new(nodes, targets),
        }
    }

    /// Returns the number of nodes.
    pub fn num_nodes(&self) -> usize {
        self.incoming.num_nodes()
    }

    /// Returns the number of edges.
    pub fn num_edges(&self) -> usize {
        self.sources.len()
    }

    /// Returns the outgoing edges of each node.
    pub fn outgoing(&self) -> &CsrIndex {
        &self.outgoing
    }

    /// Returns the incoming edges of each node.
    pub fn incoming(&self) -> &CsrIndex {
        &self.incoming
    }

    /// Returns the number of values of `width` channels over all edges and nodes.
    pub(super) fn num_values(&self, width: usize) -> usize {
        (self.num_edges() + self.num_nodes()) * width
    }

    #[track_caller]
    pub(super) fn check_nodes(&self, width: usize, buffers: &[&[f32]]) {
        assert!(width > 0, "the width must not be zero");
        for buffer in buffers {
            assert_eq!(
                buffer.len(),
                self.num_nodes() * width,
                "node features must be [{}, {width}]",
                self.num_nodes()
            );
        }
    }

    #[track_caller]
    pub(super) fn check_edges(&self, width: usize, buffers: &[&[f32]]) {
        for buffer in buffers {
            assert_eq!(
                buffer.len(),
                self.num_edges() * width,
                "edge features must be [{}, {width}]",
                self.num_edges()
            );
        }
    }
}
