//! Powers of the adjacency matrix, stacked (Eq. 1).

use burn::tensor::{IndexingUpdateOp, Tensor};

use crate::batch::Topology;

/// `[I | A | … | Aᵏ]` (Eq. 1), one matrix product a step.
///
/// Entry (i, j) of channel s is the probability that a walk from i is at j after s steps.
///
/// # Shapes
/// - `weights`: `[m]` entries of A, one an edge; duplicates add up
/// - returns `[steps + 1, p]`
pub fn walk_stack(weights: Tensor<1>, topology: &Topology, steps: usize) -> Tensor<2> {
    let layout = &topology.layout;
    let options = (&weights.device(), weights.dtype());
    let entries = Tensor::<1>::zeros([layout.pairs()], options);
    let entries = match topology.edges() {
        0 => entries,
        _ => entries.select_assign(0, topology.edge_pairs.clone(), weights.clone(), IndexingUpdateOp::Add),
    }; // [p]
    let stacks = layout
        .runs()
        .into_iter()
        .map(|(first, count, n)| {
            let pairs = layout.pair_starts[first]..layout.pair_starts[first + count];
            let step = entries.clone().slice([pairs]).reshape([count, n, n]);
            let identity = Tensor::<2>::eye(n, options.0).cast(options.1).unsqueeze_dim::<3>(0).expand([count, n, n]);
            let mut powers = vec![identity];
            if steps > 0 {
                powers.push(step.clone());
            }
            while powers.len() <= steps {
                powers.push(powers[powers.len() - 1].clone().matmul(step.clone()));
            }
            let rows = powers.into_iter().map(|power| power.reshape([1, count * n * n])).collect();
            Tensor::cat(rows, 0) // [steps + 1, count·n·n]
        })
        .collect();
    Tensor::cat(stacks, 1)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};
    use graph_diffuser_data::{Features, Graph, TargetSchema, Targets};

    use crate::batch::{Batcher, GraphBatch};

    use super::*;

    fn pack(graphs: &[(usize, &[[u32; 2]])]) -> GraphBatch {
        let graphs: Vec<Graph> = graphs
            .iter()
            .map(|(nodes, edges)| Graph {
                nodes: *nodes,
                edges: edges.to_vec(),
                node_features: Features::None,
                edge_features: Features::None,
                targets: Targets::GraphValues(vec![0.0]),
            })
            .collect();
        let batcher = Batcher {
            device: Device::flex(),
            dtype: DType::F64,
            share_structures: false,
            cls: false,
            return_probabilities: None,
        };
        batcher.pack_graphs(&graphs.iter().collect::<Vec<_>>(), TargetSchema::GraphValues(1), vec![])
    }

    fn stack(weights: &[f64], batch: &GraphBatch, steps: usize) -> Vec<f64> {
        let weights = Tensor::from_data(weights, (&Device::flex(), DType::F64));
        walk_stack(weights, &batch.topology, steps).into_data().iter::<f64>().collect()
    }

    #[test]
    fn a_path_of_three_by_hand() {
        // 0 - 1 - 2, where the middle goes left with 1/4 and right with 3/4. After two steps:
        // from 0: 1/4 at 0, 3/4 at 2; from 1: always back; from 2: 1/4 at 0, 3/4 at 2.
        let batch = pack(&[(3, &[[0, 1], [1, 0], [1, 2], [2, 1]])]);
        #[rustfmt::skip]
        let expected = [
            1.0, 0.0, 0.0,   0.0, 1.0, 0.0,   0.0, 0.0, 1.0,
            0.0, 1.0, 0.0,   0.25, 0.0, 0.75, 0.0, 1.0, 0.0,
            0.25, 0.0, 0.75, 0.0, 1.0, 0.0,   0.25, 0.0, 0.75,
        ];
        assert_eq!(stack(&[1.0, 0.25, 0.75, 1.0], &batch, 2), expected);
    }

    #[test]
    fn duplicates_add_up_self_loops_stay_and_nodes_without_edges_lose_their_walk() {
        // 0 -> 1 twice, 1 -> 1; node 2 alone. The second graph has one node and no edge.
        let batch = pack(&[(3, &[[0, 1], [0, 1], [1, 1]]), (1, &[])]);
        let stack = stack(&[0.5, 0.5, 1.0], &batch, 2);
        assert_eq!(stack[..10], [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
        for channel in [&stack[10..20], &stack[20..]] {
            assert_eq!(*channel, [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        }
    }

    #[test]
    fn a_batch_without_any_edge_has_the_identity_and_nothing_else() {
        let batch = pack(&[(2, &[])]);
        assert_eq!(stack(&[], &batch, 1), [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
