//! Deduplication of graph structures, so that equal topologies share their virtual edges.
//!
//! With a fixed adjacency, virtual edges depend on the structure of a graph only. The grids of a
//! batch, for example, have few distinct shapes.

use std::collections::HashMap;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use graph_diffuser_data::Graph;

use super::{Topology, index_tensor};

/// Distinct topologies of a batch, whose virtual edges are computed once and shared.
#[derive(Debug, Clone)]
pub struct UniqueTopologies {
    /// Topology with one graph per distinct structure.
    pub topology: Topology,
    /// Node of the shared topology that each node of the batch maps to, `[r]`.
    pub nodes: Tensor<1, Int>,
    /// Number of pairs of the batch that map to each shared pair.
    pub pair_counts: Multiplicities,
    /// Number of nodes of the batch that map to each shared node.
    pub node_counts: Multiplicities,
}

/// Number of times that each shared node or pair occurs in the batch.
///
/// Batch norm weights shared columns by their multiplicity, which gives the statistics of the whole
/// batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multiplicities {
    /// Multiplicity of each column.
    pub counts: Vec<u32>,
    /// Sum of the multiplicities: the number of nodes or pairs of the batch.
    pub total: usize,
}

impl Multiplicities {
    /// Returns the multiplicities divided by their sum, `[1, columns]`.
    pub fn fractions(&self, device: &Device, dtype: DType) -> Tensor<2> {
        let total = self.total as f64;
        let fractions: Vec<f64> =
            self.counts.iter().map(|&count| f64::from(count) / total).collect();
        let columns = fractions.len();
        Tensor::from_data(TensorData::new(fractions, [1, columns]), (device, dtype))
    }
}

impl UniqueTopologies {
    /// Returns the distinct topologies and the one of each graph; `None` if all graphs differ.
    pub(super) fn find(graphs: &[&Graph], device: &Device) -> Option<(Self, Vec<usize>)> {
        let mut found: HashMap<(usize, &[[u32; 2]]), usize> = HashMap::new();
        let mut distinct: Vec<&Graph> = Vec::new();
        let mut uses: Vec<u32> = Vec::new();
        let structure_of: Vec<usize> = graphs
            .iter()
            .map(|graph| {
                let structure =
                    *found.entry((graph.num_nodes, &graph.edges)).or_insert_with(|| {
                        distinct.push(graph);
                        uses.push(0);
                        distinct.len() - 1
                    });
                uses[structure] += 1;
                structure
            })
            .collect();
        if distinct.len() == graphs.len() {
            return None;
        }
        let topology = Topology::new(&distinct, 0, device);
        let layout = topology.layout.clone();
        let nodes = structure_of
            .iter()
            .flat_map(|&structure| layout.node_starts[structure]..layout.node_starts[structure + 1])
            .collect();
        let multiplicities = |columns: fn(usize) -> usize| {
            let counts: Vec<u32> = layout
                .sizes
                .iter()
                .zip(&uses)
                .flat_map(|(&size, &uses)| std::iter::repeat_n(uses, columns(size)))
                .collect();
            let total = counts.iter().map(|&count| count as usize).sum();
            Multiplicities { counts, total }
        };
        let unique = Self {
            nodes: index_tensor(nodes, device),
            pair_counts: multiplicities(|size| size * size),
            node_counts: multiplicities(|size| size),
            topology,
        };
        Some((unique, structure_of))
    }
}
