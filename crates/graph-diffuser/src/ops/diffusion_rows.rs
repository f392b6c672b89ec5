//! Diffusion stack of a chunk of rows (Eq. 1), for evaluation only.

use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use graph_diffuser_kernels::Isa;
use graph_diffuser_kernels::diffusion_rows::{self as kernel, ROWS, RowBlock, RowBlocks};

use crate::batch::{BatchLayout, EdgesByNode, Topology, index_tensor};

use super::fused::{self, Gradient, Output, Saved, SliceOp};
use super::{gather, scatter_sum};

/// Splits all rows of `topology` into chunks of about `max_pairs` reachable pairs.
///
/// Without `steps`, no pair is reachable.
pub(crate) fn row_chunks(
    topology: &Topology,
    steps: Option<usize>,
    max_pairs: usize,
) -> RowBlocks<'_> {
    RowBlocks::new(topology.layout.offsets(), topology.outgoing.csr(), steps, max_pairs)
}

/// Computes `[I | A | … | Aᵏ]` for the rows and reachable pairs of `block`.
///
/// # Shapes
/// - `weights`: `[m]` entries of A, one per edge; duplicate edges are summed
/// - returns `[steps + 1, block.pairs]`
pub(crate) fn diffusion_rows(
    weights: Tensor<1>,
    topology: &Topology,
    block: &Arc<RowBlock>,
    steps: usize,
) -> Tensor<2> {
    if !fused::can_run(&weights) || topology.edges() == 0 {
        return diffusion_rows_reference(weights, topology, block, steps);
    }
    let op = DiffusionRows {
        layout: topology.layout.clone(),
        outgoing: topology.outgoing.clone(),
        block: block.clone(),
        steps,
    };
    let (mut outputs, _) = fused::apply(op, vec![weights]);
    outputs.remove(0)
}

/// Fused operation of [`diffusion_rows`].
#[derive(Debug)]
struct DiffusionRows {
    layout: Arc<BatchLayout>,
    outgoing: Arc<EdgesByNode>,
    block: Arc<RowBlock>,
    steps: usize,
}

impl SliceOp for DiffusionRows {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let shape = vec![self.steps + 1, self.block.pairs];
        let mut stack = vec![0.0; shape[0] * shape[1]];
        let (graphs, csr) = (self.layout.offsets(), self.outgoing.csr());
        kernel::forward(Isa::best(), graphs, csr, inputs[0], self.steps, &self.block, &mut stack);
        (vec![Output { values: stack, shape }], Arc::new(()))
    }

    fn backward(
        &self,
        _: &[&[f32]],
        _: &[&[f32]],
        _: &Saved,
        _: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        unreachable!("chunked evaluation has no gradients")
    }
}

/// Reference implementation of [`diffusion_rows`] in plain tensor operations.
///
/// Each column of a row group is stored as [`ROWS`] consecutive values.
pub(crate) fn diffusion_rows_reference(
    weights: Tensor<1>,
    topology: &Topology,
    block: &RowBlock,
    steps: usize,
) -> Tensor<2> {
    let (device, dtype) = (weights.device(), weights.dtype());
    let columns = block.pairs / ROWS;
    let mut identity = vec![0.0_f32; block.pairs];
    let (mut from, mut to, mut edges) = (vec![], vec![], vec![]);
    for group in &block.groups {
        group.self_pairs().for_each(|pair| identity[pair] = 1.0);
        let (first_node, first) =
            (topology.layout.node_starts[group.graph], group.first_pair / ROWS);
        for (index, &column) in group.columns.iter().enumerate() {
            let node = first_node + column as usize;
            for at in topology.outgoing.starts[node]..topology.outgoing.starts[node + 1] {
                // Targets outside the columns are reached only by walks of more than `steps` steps.
                if let Ok(target) = group.columns.binary_search(&topology.outgoing.neighbors[at]) {
                    from.push(first + index);
                    to.push(first + target);
                    edges.push(topology.outgoing.edges[at] as usize);
                }
            }
        }
    }
    let links = edges.len();
    let walks =
        Tensor::<2>::from_data(TensorData::new(identity, [columns, ROWS]), (&device, dtype));
    let mut powers = vec![walks];
    if links > 0 {
        let weights = weights.select(0, index_tensor(edges, &device)).reshape([links, 1]);
        let (from, to) = (index_tensor(from, &device), index_tensor(to, &device));
        while powers.len() <= steps {
            let moved = gather(powers[powers.len() - 1].clone(), from.clone()) * weights.clone();
            powers.push(scatter_sum(moved, to.clone(), columns));
        }
    }
    powers.resize(steps + 1, Tensor::zeros([columns, ROWS], (&device, dtype)));
    Tensor::cat(powers.into_iter().map(|power| power.reshape([1, block.pairs])).collect(), 0)
}
