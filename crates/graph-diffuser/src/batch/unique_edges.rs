//! Deduplication of edge features, so that each distinct edge is embedded once.
//!
//! A batch of molecules has thousands of bonds but only a handful of distinct bond types.

use std::collections::HashMap;
use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor};
use graph_diffuser_data::{Features, Graph};
use graph_diffuser_kernels::EdgeTypes;

use super::index_tensor;

/// Mapping from the edges of a batch to its distinct edges, as returned by `unique` with inverse.
#[derive(Debug, Clone)]
pub struct UniqueEdges {
    /// Index of the distinct edge of each edge, `[m]`.
    pub inverse: Tensor<1, Int>,
    /// The mapping in the form that the message passing kernels take.
    pub(crate) types: Arc<EdgeTypes>,
}

impl UniqueEdges {
    /// Creates the mapping from the index of the distinct edge of each edge.
    ///
    /// All values of `inverse` must be less than `count`.
    pub fn new(count: usize, inverse: &[u32], device: &Device) -> Self {
        let values = inverse.iter().map(|&index| index as usize).collect();
        Self {
            inverse: index_tensor(values, device),
            types: Arc::new(EdgeTypes::new(count, inverse)),
        }
    }

    /// Creates the identity mapping of `edges` distinct edges.
    pub fn all_distinct(edges: usize, device: &Device) -> Self {
        Self::new(edges, &(0..edges as u32).collect::<Vec<_>>(), device)
    }

    /// Returns the number of distinct edges.
    pub fn count(&self) -> usize {
        self.types.num_types()
    }

    /// Deduplicates edges by their categories; also returns the first edge of each distinct one.
    pub(super) fn from_graphs(graphs: &[&Graph], device: &Device) -> (Self, Vec<usize>) {
        let mut seen: HashMap<&[u32], u32> = HashMap::new();
        let (mut inverse, mut first_edges) = (Vec::new(), Vec::new());
        for graph in graphs {
            let Features::Categorical { columns, values } = &graph.edge_features else {
                panic!("all graphs of a batch have the same feature type");
            };
            for row in values.chunks_exact(*columns) {
                let index = *seen.entry(row).or_insert_with(|| {
                    first_edges.push(inverse.len());
                    first_edges.len() as u32 - 1
                });
                inverse.push(index);
            }
        }
        (Self::new(first_edges.len(), &inverse, device), first_edges)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;
    use graph_diffuser_data::Targets;

    use crate::batch::{Batcher, FeatureTensor, GraphBatch};

    use super::*;

    fn graph(nodes: usize, edges: &[([u32; 2], [u32; 2])]) -> Graph {
        Graph {
            num_nodes: nodes,
            edges: edges.iter().map(|(ends, _)| *ends).collect(),
            node_features: Features::None,
            edge_features: Features::Categorical {
                columns: 2,
                values: edges.iter().flat_map(|(_, categories)| *categories).collect(),
            },
            targets: Targets::GraphValues(vec![0.0]),
        }
    }

    fn collate(graphs: &[Graph], device: &Device) -> GraphBatch {
        let graphs: Vec<&Graph> = graphs.iter().collect();
        Batcher::new(device, DType::F32).collate_graphs(&graphs, vec![])
    }

    fn example_graphs() -> [Graph; 3] {
        [
            graph(3, &[([0, 1], [5, 1]), ([1, 0], [5, 1]), ([1, 2], [5, 2])]),
            graph(2, &[]),
            graph(2, &[([0, 1], [5, 2]), ([1, 0], [4, 1])]),
        ]
    }

    fn ints(tensor: &Tensor<1, Int>) -> Vec<i64> {
        tensor.to_data().iter::<i64>().collect()
    }

    #[test]
    fn edges_with_equal_categories_are_deduplicated_across_graphs() {
        let batch = collate(&example_graphs(), &Device::flex());
        let unique = batch.unique_edges.expect("edges have features");
        assert_eq!(ints(&unique.inverse), [0, 0, 1, 1, 2]);
        let FeatureTensor::Categorical(columns) = batch.edge_features else { panic!("categories") };
        assert_eq!(columns.iter().map(ints).collect::<Vec<_>>(), [[5, 5, 4], [1, 2, 1]]);
    }
}
