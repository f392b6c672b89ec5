//! Structure of a batch as index tensors, and in the compressed form of the kernels.

use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor};
use graph_diffuser_data::Graph;
use graph_diffuser_kernels::message::Edges;

use super::{BatchLayout, index_tensor};

/// Structure of a batch: its layout, and the endpoints and pair index of every edge.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Offsets of each graph.
    pub layout: Arc<BatchLayout>,
    /// Source node of each edge, `[m]`.
    pub sources: Tensor<1, Int>,
    /// Target node of each edge, `[m]`.
    pub targets: Tensor<1, Int>,
    /// Pair (source, target) of each edge, `[m]`.
    pub edge_pairs: Tensor<1, Int>,
    /// Pair (i, i) of each node, `[r]`.
    pub self_pairs: Tensor<1, Int>,
    /// Edges grouped by source node, for the diffusion kernels.
    pub(crate) outgoing: Arc<EdgesByNode>,
    /// Edges grouped by both endpoints, for the message passing kernels.
    pub(crate) messages: Arc<Edges>,
}

/// Edges of a batch grouped by node, in compressed sparse row form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EdgesByNode {
    /// First entry of each node, followed by the total number of edges.
    pub(crate) starts: Vec<usize>,
    /// Index of the neighbor within its graph.
    pub(crate) neighbors: Vec<u32>,
    /// Index of the edge in the batch.
    pub(crate) edges: Vec<u32>,
}

impl EdgesByNode {
    /// Groups edges by node; `ends` holds, for each edge, the index of its node in the batch and
    /// the index of its neighbor within the graph.
    fn new(nodes: usize, ends: &[(usize, u32)]) -> Self {
        let mut starts = vec![0; nodes + 1];
        for &(node, _) in ends {
            starts[node + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let (mut neighbors, mut edges) = (vec![0; ends.len()], vec![0; ends.len()]);
        for (edge, &(node, other)) in ends.iter().enumerate() {
            (neighbors[next[node]], edges[next[node]]) = (other, edge as u32);
            next[node] += 1;
        }
        Self { starts, neighbors, edges }
    }

    pub(crate) fn csr(&self) -> graph_diffuser_kernels::diffusion_stack::Csr<'_> {
        graph_diffuser_kernels::diffusion_stack::Csr {
            row_starts: &self.starts,
            targets: &self.neighbors,
            edges: &self.edges,
        }
    }
}

impl Topology {
    /// Packs the structure of `graphs`, appending `extra` isolated nodes to each graph.
    pub(super) fn new(graphs: &[&Graph], extra: usize, device: &Device) -> Self {
        let layout = BatchLayout::new(graphs.iter().map(|graph| graph.num_nodes + extra).collect());
        let (mut sources, mut targets, mut edge_pairs) = (vec![], vec![], vec![]);
        let mut outgoing = Vec::new();
        let to_u32 = |nodes: &[usize]| nodes.iter().map(|&node| node as u32).collect::<Vec<u32>>();
        for (index, graph) in graphs.iter().enumerate() {
            for &[source, target] in &graph.edges {
                outgoing.push((layout.node_starts[index] + source as usize, target));
                let (source, target) = (source as usize, target as usize);
                sources.push(layout.node_starts[index] + source);
                targets.push(layout.node_starts[index] + target);
                edge_pairs.push(layout.pair(index, source, target));
            }
        }
        Self {
            outgoing: Arc::new(EdgesByNode::new(layout.nodes(), &outgoing)),
            messages: Arc::new(Edges::new(layout.nodes(), &to_u32(&sources), &to_u32(&targets))),
            sources: index_tensor(sources, device),
            targets: index_tensor(targets, device),
            edge_pairs: index_tensor(edge_pairs, device),
            self_pairs: index_tensor(layout.self_pairs(), device),
            layout: Arc::new(layout),
        }
    }

    /// Returns the number of edges, `m`.
    pub fn edges(&self) -> usize {
        self.sources.dims()[0]
    }
}
