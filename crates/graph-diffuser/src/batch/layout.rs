//! Offsets of the nodes and node pairs of each graph of a batch.

/// Node and pair offsets of each graph of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchLayout {
    /// Number of nodes of each graph.
    pub sizes: Vec<usize>,
    /// First node of each graph, followed by the total number of nodes.
    pub node_starts: Vec<usize>,
    /// First pair of each graph, followed by the total number of pairs.
    pub pair_starts: Vec<usize>,
    #[cfg(feature = "cube")]
    device_copy: super::DeviceCell<graph_diffuser_cube::attention::AttentionLayout>,
}

impl BatchLayout {
    /// Creates the layout of graphs with the given numbers of nodes, in this order.
    pub fn new(sizes: Vec<usize>) -> Self {
        let starts = |count: fn(usize) -> usize| {
            let mut starts = vec![0];
            for &size in &sizes {
                starts.push(starts[starts.len() - 1] + count(size));
            }
            starts
        };
        Self {
            node_starts: starts(|size| size),
            pair_starts: starts(|size| size * size),
            sizes,
            #[cfg(feature = "cube")]
            device_copy: super::DeviceCell::default(),
        }
    }

    /// Returns the number of graphs, `b`.
    pub fn graphs(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the number of nodes, `r`.
    pub fn nodes(&self) -> usize {
        self.node_starts[self.graphs()]
    }

    /// Returns the number of pairs, `p`.
    pub fn pairs(&self) -> usize {
        self.pair_starts[self.graphs()]
    }

    /// Returns the runs of consecutive graphs of equal size as (first graph, number of graphs,
    /// size).
    ///
    /// Reference operations stack each run into one dense tensor. A batch sorted by size has few
    /// runs.
    pub fn equal_size_runs(&self) -> Vec<(usize, usize, usize)> {
        let mut runs: Vec<(usize, usize, usize)> = Vec::new();
        for (graph, &size) in self.sizes.iter().enumerate() {
            match runs.last_mut() {
                Some((_, count, last)) if *last == size => *count += 1,
                _ => runs.push((graph, 1, size)),
            }
        }
        runs
    }

    /// Returns the index of the pair (i, i) of every node.
    pub(crate) fn self_pairs(&self) -> Vec<usize> {
        let graphs = self.sizes.iter().enumerate();
        graphs
            .flat_map(|(graph, &size)| (0..size).map(move |node| self.pair(graph, node, node)))
            .collect()
    }

    /// Returns the layout in the form that the kernels take.
    pub(crate) fn offsets(&self) -> graph_diffuser_kernels::GraphOffsets<'_> {
        let Self { sizes, node_starts, pair_starts, .. } = self;
        graph_diffuser_kernels::GraphOffsets { sizes, node_starts, pair_starts }
    }

    /// Returns the layout on the device of the batch.
    #[cfg(feature = "cube")]
    pub(crate) fn on_device(
        &self,
        client: &graph_diffuser_cube::Client,
    ) -> graph_diffuser_cube::attention::AttentionLayout {
        let copy = || graph_diffuser_cube::attention::AttentionLayout::new(client, &self.sizes);
        self.device_copy.get_or_init(copy)
    }

    /// Returns the index of the pair (node, other), where both are indices within the graph.
    pub(super) fn pair(&self, graph: usize, node: usize, other: usize) -> usize {
        self.pair_starts[graph] + node * self.sizes[graph] + other
    }
}
