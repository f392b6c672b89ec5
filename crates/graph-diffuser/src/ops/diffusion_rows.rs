//! Diffusion stack of a chunk of rows (Eq. 1), for evaluation only.

use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use graph_diffuser_kernels::diffusion_rows::{self as kernel, ROWS, RowBlock, RowBlocks};
use graph_diffuser_kernels::{EdgeIndex, Isa};

use crate::batch::{BatchLayout, Topology, index_tensor};

use super::fused::{self, Output, SliceOp};
use super::{gather, scatter_sum};

/// Splits all rows of `topology` into chunks of about `max_pairs` reachable pairs.
///
/// Without `steps`, no pair is reachable.
pub(crate) fn row_chunks(
    topology: &Topology,
    steps: Option<usize>,
    max_pairs: usize,
) -> RowBlocks<'_> {
    let outgoing = topology.edge_index.outgoing();
    RowBlocks::new(topology.layout.offsets(), outgoing, steps, max_pairs)
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
        edges: topology.edge_index.clone(),
        block: block.clone(),
        steps,
    };
    fused::apply_single(op, [weights])
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
    let outgoing = topology.edge_index.outgoing();
    for group in &block.groups {
        group.self_pairs().for_each(|pair| identity[pair] = 1.0);
        let (first_node, first) =
            (topology.layout.node_starts[group.graph], group.first_pair / ROWS);
        for (index, &column) in group.columns.iter().enumerate() {
            for (target, edge) in outgoing.entries(first_node + column as usize) {
                // Targets outside the columns are reached only by walks of more than `steps` steps.
                let target = (target - first_node) as u32;
                if let Ok(target) = group.columns.binary_search(&target) {
                    from.push(first + index);
                    to.push(first + target);
                    edges.push(edge);
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

/// Fused operation of [`diffusion_rows`].
#[derive(Debug)]
struct DiffusionRows {
    layout: Arc<BatchLayout>,
    edges: Arc<EdgeIndex>,
    block: Arc<RowBlock>,
    steps: usize,
}

impl SliceOp for DiffusionRows {
    type Saved = ();

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, ()) {
        let shape = vec![self.steps + 1, self.block.pairs];
        let mut stack = vec![0.0; shape[0] * shape[1]];
        let (graphs, csr) = (self.layout.offsets(), self.edges.outgoing());
        kernel::forward(Isa::best(), graphs, csr, inputs[0], self.steps, &self.block, &mut stack);
        (vec![Output { values: stack, shape }], ())
    }
}
