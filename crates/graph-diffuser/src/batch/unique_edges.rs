//! Edges that are alike: what is computed of their features is computed once.
//!
//! A batch of molecules has thousands of bonds of a handful of kinds.

use std::collections::HashMap;
use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor};
use graph_diffuser_data::{Features, Graph};
use graph_diffuser_kernels::message::EdgeTypes;

use crate::ops::gather;

use super::indices;

/// Which edges of a batch are alike.
#[derive(Debug, Clone)]
pub struct UniqueEdges {
    /// `[m]` kind of each edge.
    pub of_edge: Tensor<1, Int>,
    /// The same as the message kernels read it.
    pub(crate) kinds: Arc<EdgeTypes>,
}

/// Vectors of edges, one for all that are alike.
#[derive(Debug, Clone)]
pub struct EdgeEmbeddings {
    /// `[kinds, d]`
    pub rows: Tensor<2>,
    /// Whose they are.
    pub kinds: UniqueEdges,
}

impl UniqueEdges {
    /// EdgeTypes of the given numbers, which are all below `count`.
    pub fn new(count: usize, of_edge: &[u32], device: &Device) -> Self {
        let wide = of_edge.iter().map(|&kind| kind as usize).collect();
        Self { of_edge: indices(wide, device), kinds: Arc::new(EdgeTypes::new(count, of_edge)) }
    }

    /// Every edge is of its own kind.
    pub fn each(edges: usize, device: &Device) -> Self {
        Self::new(edges, &(0..edges as u32).collect::<Vec<_>>(), device)
    }

    /// Number of kinds.
    pub fn count(&self) -> usize {
        self.kinds.count()
    }

    /// Finds edges with the same categories, and one edge of each kind.
    pub(super) fn find(graphs: &[&Graph], device: &Device) -> (Self, Vec<usize>) {
        let mut found: HashMap<&[u32], u32> = HashMap::new();
        let (mut of_edge, mut examples) = (Vec::new(), Vec::new());
        for graph in graphs {
            let Features::Categorical { columns, values } = &graph.edge_features else {
                panic!("graphs of one batch have features of one kind");
            };
            for row in values.chunks_exact(*columns) {
                let kind = *found.entry(row).or_insert_with(|| {
                    examples.push(of_edge.len());
                    examples.len() as u32 - 1
                });
                of_edge.push(kind);
            }
        }
        (Self::new(examples.len(), &of_edge, device), examples)
    }
}

impl EdgeEmbeddings {
    /// Vectors of each edge.
    ///
    /// # Shapes
    /// - `rows`: `[m, d]`
    pub fn of_each(rows: Tensor<2>) -> Self {
        let kinds = UniqueEdges::each(rows.dims()[0], &rows.device());
        Self { rows, kinds }
    }

    /// One row an edge.
    ///
    /// # Shapes
    /// - returns `[m, d]`
    pub fn expand(&self) -> Tensor<2> {
        let Self { rows, kinds } = self.clone();
        // Without edges there are no kinds either.
        if kinds.count() == 0 { rows } else { gather(rows, kinds.of_edge) }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, TensorData};
    use graph_diffuser_data::{SeedTree, TargetSchema, Targets};

    use crate::batch::{Batcher, FeatureTensor, GraphBatch};
    use crate::ops::{edge_update, edge_update_reference};

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

    fn pack(graphs: &[Graph], device: &Device) -> GraphBatch {
        let graphs: Vec<&Graph> = graphs.iter().collect();
        Batcher::new(device, DType::F32).collate_graphs(
            &graphs,
            TargetSchema::Regression(1),
            vec![],
        )
    }

    fn some() -> [Graph; 3] {
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
    fn edges_with_the_same_categories_are_one_kind_across_graphs() {
        let batch = pack(&some(), &Device::flex());
        let kinds = batch.unique_edges.expect("edges have features");
        assert_eq!(ints(&kinds.of_edge), [0, 0, 1, 1, 2]);
        let FeatureTensor::Categorical(columns) = batch.edge_features else { panic!("categories") };
        assert_eq!(columns.iter().map(ints).collect::<Vec<_>>(), [[5, 5, 4], [1, 2, 1]]);
    }

    #[test]
    fn a_batch_without_edges_has_no_kinds() {
        let batch = pack(&[graph(2, &[])], &Device::flex());
        let kinds = batch.unique_edges.expect("edges have features");
        let rows = Tensor::zeros([0, 4], &Device::flex());
        assert_eq!(EdgeEmbeddings { rows, kinds }.expand().dims(), [0, 4]);
    }

    #[test]
    fn what_is_said_once_for_a_kind_is_heard_at_every_edge_and_its_gradient_comes_back() {
        let device = Device::flex().autodiff();
        let batch = pack(&some(), &device);
        let (kinds, topology) =
            (batch.unique_edges.clone().expect("edges have features"), &batch.topology);
        let mut stream = SeedTree::new(0).stream("rows");
        let mut draw = |rows: usize| {
            let values: Vec<f32> = (0..rows * 5).map(|_| stream.normal() as f32).collect();
            Tensor::<2>::from_data(TensorData::new(values, [rows, 5]), &device).require_grad()
        };
        let [source, target] = [draw(7), draw(7)];
        let (rows, weights) = (draw(3), draw(5).detach());
        let run = |each: bool, fused: bool| {
            let e = EdgeEmbeddings { rows: rows.clone(), kinds: kinds.clone() };
            let e = Some(if each { EdgeEmbeddings::of_each(e.expand()) } else { e });
            let op = if fused { edge_update } else { edge_update_reference };
            let met = op(source.clone(), target.clone(), e, topology);
            let gradients = (met.clone() * weights.clone()).sum().backward();
            let gradient = |of: &Tensor<2>| of.grad(&gradients).expect("all are read").into_data();
            [met.into_data(), gradient(&source), gradient(&target), gradient(&rows)]
        };
        let expected = run(true, false);
        for (each, fused) in [(false, false), (true, true), (false, true)] {
            for (ours, expected) in run(each, fused).iter().zip(&expected) {
                ours.assert_approx_eq::<f32>(expected, burn::tensor::Tolerance::absolute(1e-6));
            }
        }
    }
}
