//! Edge embeddings with one row per distinct edge, expanded to one row per edge on demand.

use std::cell::OnceCell;
use std::rc::Rc;

use burn::tensor::Tensor;

use crate::batch::UniqueEdges;

use super::gather;

/// Edge embeddings of a batch.
///
/// Embeddings of deduplicated features hold one row per distinct edge. They are expanded at most
/// once per forward pass: clones share the expanded tensor.
#[derive(Debug, Clone)]
pub struct EdgeEmbeddings {
    /// Embeddings, `[distinct edges, d]`.
    rows: Tensor<2>,
    /// Mapping from edges to rows; `None` if there is one row per edge.
    unique: Option<UniqueEdges>,
    expanded: Rc<OnceCell<Tensor<2>>>,
}

impl EdgeEmbeddings {
    /// Wraps embeddings that hold one row per distinct edge.
    ///
    /// # Shapes
    /// - `rows`: `[distinct edges, d]`
    pub fn new(rows: Tensor<2>, unique: UniqueEdges) -> Self {
        Self { rows, unique: Some(unique), expanded: Rc::default() }
    }

    /// Wraps embeddings that hold one row per edge.
    ///
    /// # Shapes
    /// - `rows`: `[m, d]`
    pub fn per_edge(rows: Tensor<2>) -> Self {
        Self { rows, unique: None, expanded: Rc::default() }
    }

    /// Returns one row per edge.
    ///
    /// # Shapes
    /// - returns `[m, d]`
    pub fn expand(&self) -> Tensor<2> {
        match &self.unique {
            // Without edges there is nothing to gather from.
            Some(unique) if unique.count() > 0 => {
                let expand = || gather(self.rows.clone(), unique.inverse.clone());
                self.expanded.get_or_init(expand).clone()
            }
            _ => self.rows.clone(),
        }
    }

    /// Applies a row-wise function to every distinct row.
    pub fn map_rows(&self, function: impl FnOnce(Tensor<2>) -> Tensor<2>) -> Self {
        let rows = function(self.rows.clone());
        Self { rows, unique: self.unique.clone(), expanded: Rc::default() }
    }

    /// Returns the distinct rows and the mapping from edges to them.
    pub(crate) fn into_parts(self) -> (Tensor<2>, UniqueEdges) {
        let Self { rows, unique, .. } = self;
        let unique =
            unique.unwrap_or_else(|| UniqueEdges::all_distinct(rows.dims()[0], &rows.device()));
        (rows, unique)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, TensorData};
    use graph_diffuser_data::{Features, Graph, SeedTree, Targets};

    use crate::batch::{Batcher, GraphBatch};
    use crate::ops::{edge_endpoint_sum, edge_endpoint_sum_reference};

    use super::*;

    fn graph(num_nodes: usize, edges: &[([u32; 2], [u32; 2])]) -> Graph {
        Graph {
            num_nodes,
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

    #[test]
    fn embeddings_of_a_batch_without_edges_expand_to_no_rows() {
        let batch = collate(&[graph(2, &[])], &Device::flex());
        let unique = batch.unique_edges.expect("edges have features");
        let rows = Tensor::zeros([0, 4], &Device::flex());
        assert_eq!(EdgeEmbeddings::new(rows, unique).expand().dims(), [0, 4]);
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
            let e = EdgeEmbeddings::new(rows.clone(), unique.clone());
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
