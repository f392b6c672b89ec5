//! Diffusion stack: powers of the weighted adjacency matrix (Eq. 1).

use std::sync::Arc;

use burn::tensor::{IndexingUpdateOp, Tensor};
use graph_diffuser_kernels::{EdgeIndex, Isa, diffusion_stack as kernel};

use crate::batch::{BatchLayout, Topology};

use super::fused::{self, Gradient, Output, SliceOp};

/// Computes the diffusion stack `[I | A | … | Aᵏ]` (Eq. 1).
///
/// Entry (i, j) of channel s is the probability that a random walk from i is at j after s steps.
///
/// # Shapes
/// - `weights`: `[m]` entries of A, one per edge; duplicate edges are summed
/// - returns `[steps + 1, p]`
pub fn diffusion_stack(weights: Tensor<1>, topology: &Topology, steps: usize) -> Tensor<2> {
    #[cfg(feature = "cube")]
    if let Some(stack) = super::cube::diffusion_stack(&weights, topology, steps) {
        return stack;
    }
    if !fused::can_run(&weights) || topology.edges() == 0 {
        return diffusion_stack_reference(weights, topology, steps);
    }
    let op = DiffusionStack {
        layout: topology.layout.clone(),
        edges: topology.edge_index.clone(),
        steps,
    };
    fused::apply_single(op, [weights])
}

/// Reference implementation of [`diffusion_stack`] with one dense matrix product per step.
pub fn diffusion_stack_reference(
    weights: Tensor<1>,
    topology: &Topology,
    steps: usize,
) -> Tensor<2> {
    let layout = &topology.layout;
    let options = (&weights.device(), weights.dtype());
    let entries = Tensor::<1>::zeros([layout.pairs()], options);
    let entries = match topology.edges() {
        0 => entries,
        _ => {
            entries.select_assign(0, topology.edge_pairs(), weights.clone(), IndexingUpdateOp::Add)
        }
    }; // [p]
    let stacks = layout
        .equal_size_runs()
        .into_iter()
        .map(|(first, count, n)| {
            let pairs = layout.pair_starts[first]..layout.pair_starts[first + count];
            let step = entries.clone().slice([pairs]).reshape([count, n, n]);
            let identity = Tensor::<2>::eye(n, options.0)
                .cast(options.1)
                .unsqueeze_dim::<3>(0)
                .expand([count, n, n]);
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

/// Fused operation of [`diffusion_stack`]: sparse products row by row, without dense matrices.
#[derive(Debug)]
struct DiffusionStack {
    layout: Arc<BatchLayout>,
    edges: Arc<EdgeIndex>,
    steps: usize,
}

impl SliceOp for DiffusionStack {
    type Saved = ();

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, ()) {
        let (graphs, csr) = (self.layout.offsets(), self.edges.outgoing());
        let values = kernel::forward(Isa::best(), graphs, csr, inputs[0], self.steps);
        (vec![Output { values, shape: vec![self.steps + 1, self.layout.pairs()] }], ())
    }

    fn reads_outputs(&self) -> bool {
        true
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        outputs: &[&[f32]],
        (): &(),
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let d_stack = fused::single(&gradients);
        let mut d_weights = vec![0.0; inputs[0].len()];
        let (graphs, csr) = (self.layout.offsets(), self.edges.outgoing());
        kernel::backward(
            Isa::best(),
            graphs,
            csr,
            inputs[0],
            self.steps,
            outputs[0],
            d_stack,
            &mut d_weights,
        );
        vec![d_weights.into()]
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};
    use graph_diffuser_data::{Features, Graph, Targets};

    use crate::batch::{Batcher, GraphBatch};

    use super::*;

    fn collate(graphs: &[(usize, &[[u32; 2]])]) -> GraphBatch {
        let graphs: Vec<Graph> = graphs
            .iter()
            .map(|(nodes, edges)| Graph {
                num_nodes: *nodes,
                edges: edges.to_vec(),
                node_features: Features::None,
                edge_features: Features::None,
                targets: Targets::GraphValues(vec![0.0]),
            })
            .collect();
        let batcher = Batcher::new(&Device::flex(), DType::F64);
        batcher.collate_graphs(&graphs.iter().collect::<Vec<_>>(), vec![])
    }

    fn stack(weights: &[f64], batch: &GraphBatch, steps: usize) -> Vec<f64> {
        let weights = Tensor::from_data(weights, (&Device::flex(), DType::F64));
        diffusion_stack_reference(weights, &batch.topology, steps)
            .into_data()
            .iter::<f64>()
            .collect()
    }

    #[test]
    fn stack_of_a_path_matches_hand_computed_values() {
        // 0 - 1 - 2, where node 1 moves left with 1/4 and right with 3/4. After two steps:
        // from 0: 1/4 at 0, 3/4 at 2; from 1: always at 1; from 2: 1/4 at 0, 3/4 at 2.
        let batch = collate(&[(3, &[[0, 1], [1, 0], [1, 2], [2, 1]])]);
        #[rustfmt::skip]
        let expected = [
            1.0, 0.0, 0.0,   0.0, 1.0, 0.0,   0.0, 0.0, 1.0,
            0.0, 1.0, 0.0,   0.25, 0.0, 0.75, 0.0, 1.0, 0.0,
            0.25, 0.0, 0.75, 0.0, 1.0, 0.0,   0.25, 0.0, 0.75,
        ];
        assert_eq!(stack(&[1.0, 0.25, 0.75, 1.0], &batch, 2), expected);
    }

    #[test]
    fn duplicate_edges_are_summed_and_rows_of_isolated_nodes_are_zero() {
        // 0 -> 1 twice, 1 -> 1; node 2 is isolated. The second graph has one node and no edge.
        let batch = collate(&[(3, &[[0, 1], [0, 1], [1, 1]]), (1, &[])]);
        let stack = stack(&[0.5, 0.5, 1.0], &batch, 2);
        assert_eq!(stack[..10], [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
        for channel in [&stack[10..20], &stack[20..]] {
            assert_eq!(*channel, [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        }
    }

    #[test]
    fn stack_of_a_batch_without_edges_is_zero_except_for_the_identity() {
        let batch = collate(&[(2, &[])]);
        assert_eq!(stack(&[], &batch, 1), [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
