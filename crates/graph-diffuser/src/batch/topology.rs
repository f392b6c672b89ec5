//! Structure of a batch as index tensors, and in the compressed form of the kernels.

use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor};
use graph_diffuser_data::Graph;
use graph_diffuser_kernels::EdgeIndex;

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
    /// Pair (source, target) of each edge. Not a tensor, because the pairs of a large graph that is
    /// evaluated in chunks can exceed the integers of a device.
    pairs: Arc<[usize]>,
    /// Edges grouped by both endpoints, in the form that the kernels take.
    pub(crate) edge_index: Arc<EdgeIndex>,
    #[cfg(feature = "cube")]
    device_edges: super::DeviceCell<graph_diffuser_cube::edges::CubeEdgeIndex>,
}

impl Topology {
    /// Packs the structure of `graphs`, appending `extra` isolated nodes to each graph.
    pub(super) fn new(graphs: &[&Graph], extra: usize, device: &Device) -> Self {
        let layout = BatchLayout::new(graphs.iter().map(|graph| graph.num_nodes + extra).collect());
        let (mut sources, mut targets, mut edge_pairs) = (vec![], vec![], vec![]);
        let to_u32 = |nodes: &[usize]| nodes.iter().map(|&node| node as u32).collect::<Vec<u32>>();
        for (index, graph) in graphs.iter().enumerate() {
            for &[source, target] in &graph.edges {
                let (source, target) = (source as usize, target as usize);
                sources.push(layout.node_starts[index] + source);
                targets.push(layout.node_starts[index] + target);
                edge_pairs.push(layout.pair(index, source, target));
            }
        }
        Self {
            edge_index: Arc::new(EdgeIndex::new(
                layout.nodes(),
                &to_u32(&sources),
                &to_u32(&targets),
            )),
            sources: index_tensor(sources, device),
            targets: index_tensor(targets, device),
            pairs: edge_pairs.into(),
            layout: Arc::new(layout),
            #[cfg(feature = "cube")]
            device_edges: super::DeviceCell::default(),
        }
    }

    /// Returns the pair (source, target) of each edge, `[m]`.
    ///
    /// # Panics
    /// Panics if the batch has more pairs than the device's integers can index.
    pub fn edge_pairs(&self) -> Tensor<1, Int> {
        index_tensor(self.pairs.to_vec(), &self.sources.device())
    }

    /// Returns the pair (i, i) of each node, `[r]`.
    ///
    /// # Panics
    /// Panics if the batch has more pairs than the device's integers can index.
    pub fn self_pairs(&self) -> Tensor<1, Int> {
        index_tensor(self.layout.self_pairs(), &self.sources.device())
    }

    /// Returns the edges on the device of the batch.
    #[cfg(feature = "cube")]
    pub(crate) fn edges_on_device(
        &self,
        client: &graph_diffuser_cube::Client,
    ) -> graph_diffuser_cube::edges::CubeEdgeIndex {
        let copy = || {
            let nodes = self.layout.nodes();
            let mut ends = vec![[0; 2]; self.edges()];
            for source in 0..nodes {
                for (target, edge) in self.edge_index.outgoing().entries(source) {
                    ends[edge] = [source as u32, target as u32];
                }
            }
            graph_diffuser_cube::edges::CubeEdgeIndex::new(client, nodes, &ends)
        };
        self.device_edges.get_or_init(copy)
    }

    /// Returns the number of incoming edges of each node, `[r]`.
    pub fn in_degrees(&self) -> impl Iterator<Item = usize> {
        let incoming = self.edge_index.incoming();
        (0..self.layout.nodes()).map(|node| incoming.entries(node).count())
    }

    /// Returns the number of edges, `m`.
    pub fn edges(&self) -> usize {
        self.sources.dims()[0]
    }
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::{Features, Targets};

    use super::*;

    #[test]
    fn pairs_of_large_graphs_exceed_32_bits() {
        // The smallest number of nodes with more than 2³¹ pairs.
        let nodes = 46_341;
        let graph = Graph {
            num_nodes: nodes,
            edges: vec![[nodes as u32 - 1, nodes as u32 - 2]],
            node_features: Features::None,
            edge_features: Features::None,
            targets: Targets::GraphValues(vec![]),
        };
        let topology = Topology::new(&[&graph], 0, &Device::flex());
        assert_eq!(topology.layout.pairs(), 2_147_488_281);
        assert_eq!(topology.pairs[..], [2_147_488_279]);
        assert_eq!(topology.edges(), 1);
    }
}
