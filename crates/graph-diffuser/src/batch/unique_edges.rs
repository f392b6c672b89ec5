//! Deduplication of edge features, so that each distinct edge is embedded once.
//!
//! A batch of molecules has thousands of bonds but only a handful of distinct bond types.

use std::collections::HashMap;
use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor};
use graph_diffuser_data::{Features, Graph};
use graph_diffuser_kernels::message::EdgeTypes;

use crate::ops::gather;

use super::index_tensor;

/// Mapping from the edges of a batch to its distinct edges, as returned by `unique` with inverse.
#[derive(Debug, Clone)]
pub struct UniqueEdges {
    /// Index of the distinct edge of each edge, `[m]`.
    pub inverse: Tensor<1, Int>,
    /// The mapping in the form that the message passing kernels take.
    pub(crate) types: Arc<EdgeTypes>,
}

/// Edge embeddings with one row per distinct edge.
#[derive(Debug, Clone)]
pub struct EdgeEmbeddings {
    /// Embeddings, `[distinct edges, d]`.
    pub rows: Tensor<2>,
    /// Mapping from edges to rows.
    pub unique: UniqueEdges,
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

impl EdgeEmbeddings {
    /// Wraps embeddings that hold one row per edge.
    ///
    /// # Shapes
    /// - `rows`: `[m, d]`
    pub fn per_edge(rows: Tensor<2>) -> Self {
        let unique = UniqueEdges::all_distinct(rows.dims()[0], &rows.device());
        Self { rows, unique }
    }

    /// Returns one row per edge.
    ///
    /// # Shapes
    /// - returns `[m, d]`
    pub fn expand(&self) -> Tensor<2> {
        let Self { rows, unique } = self.clone();
        // Without edges there is nothing to gather from.
        if unique.count() == 0 { rows } else { gather(rows, unique.inverse) }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, TensorData};
    use graph_diffuser_data::{SeedTree, TargetSchema, Targets};

    use crate::batch::{Batcher, FeatureTensor, GraphBatch};
    use crate::ops::{edge_endpoint_sum, edge_endpoint_sum_reference};

    use super::*;

    fn graph(nodes: usize, edges: &[([u32; 2], [u32; 2])]) -> Graph {
        Graph {
            nodes,
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
        Batcher::new(device, DType::F32).collate_graphs(
            &graphs,
            TargetSchema::Regression(1),
            vec![],
        )
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

    #[test]
    fn embeddings_of_a_batch_without_edges_expand_to_no_rows() {
        let batch = collate(&[graph(2, &[])], &Device::flex());
        let unique = batch.unique_edges.expect("edges have features");
        let rows = Tensor::zeros([0, 4], &Device::flex());
        assert_eq!(EdgeEmbeddings { rows, unique }.expand().dims(), [0, 4]);
    }

    #[test]
    fn deduplicated_and_expanded_embeddings_give_equal_sums_and_gradients() {
        let device = Device::flex().autodiff();
        let batch = collate(&example_graphs(), &device);
        let (unique, topology) =
            (batch.unique_edges.clone().expect("edges have features"), &batch.topology);
        let mut stream = SeedTree::new(0).stream("rows");
        let mut draw = |rows: usize| {
            let values: Vec<f32> = (0..rows * 5).map(|_| stream.normal() as f32).collect();
            Tensor::<2>::from_data(TensorData::new(values, [rows, 5]), &device).require_grad()
        };
        let [source, target] = [draw(7), draw(7)];
        let (rows, weights) = (draw(3), draw(5).detach());
        let run = |expanded: bool, fused: bool| {
            let e = EdgeEmbeddings { rows: rows.clone(), unique: unique.clone() };
            let e = Some(if expanded { EdgeEmbeddings::per_edge(e.expand()) } else { e });
            let op = if fused { edge_endpoint_sum } else { edge_endpoint_sum_reference };
            let sums = op(source.clone(), target.clone(), e, topology);
            let gradients = (sums.clone() * weights.clone()).sum().backward();
            let gradient = |input: &Tensor<2>| {
                input.grad(&gradients).expect("every input is used").into_data()
            };
            [sums.into_data(), gradient(&source), gradient(&target), gradient(&rows)]
        };
        let expected = run(true, false);
        for (expanded, fused) in [(false, false), (true, true), (false, true)] {
            for (ours, expected) in run(expanded, fused).iter().zip(&expected) {
                ours.assert_approx_eq::<f32>(expected, burn::tensor::Tolerance::absolute(1e-6));
            }
        }
    }
}
