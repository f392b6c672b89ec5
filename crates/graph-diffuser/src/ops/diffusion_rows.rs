//! Rows of the stack of walks, without all the others (Eq. 1): for evaluation alone.

use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use graph_diffuser_kernels::Isa;
use graph_diffuser_kernels::diffusion_rows::{self as kernel, Block, Blocks, ROWS};

use crate::batch::{BatchLayout, EdgesByNode, Topology, indices};

use super::fused::{self, Gradient, Output, Saved, SliceOp};
use super::{gather, scatter_sum};

/// All rows of `topology` in blocks of about `most_pairs` pairs; without `steps` nothing reaches anything.
pub(crate) fn chunked_eval(
    topology: &Topology,
    steps: Option<usize>,
    most_pairs: usize,
) -> Blocks<'_> {
    Blocks::new(topology.layout.graphs_view(), topology.outgoing.csr(), steps, most_pairs)
}

/// `[I | A | … | Aᵏ]` of the rows of `block`, over the pairs that it lists.
///
/// # Shapes
/// - `weights`: `[m]` entries of A, one an edge; duplicates add up
/// - returns `[steps + 1, block.pairs]`
pub(crate) fn diffusion_rows(
    weights: Tensor<1>,
    topology: &Topology,
    block: &Arc<Block>,
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

/// The fused operation.
#[derive(Debug)]
struct DiffusionRows {
    layout: Arc<BatchLayout>,
    outgoing: Arc<EdgesByNode>,
    block: Arc<Block>,
    steps: usize,
}

impl SliceOp for DiffusionRows {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let shape = vec![self.steps + 1, self.block.pairs];
        let mut stack = vec![0.0; shape[0] * shape[1]];
        let (graphs, csr) = (self.layout.graphs_view(), self.outgoing.csr());
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
        unreachable!("only evaluation goes by rows, and it has no gradients")
    }
}

/// The same in plain tensor operations: a column of a group is a row of [`ROWS`] numbers.
pub(crate) fn diffusion_rows_reference(
    weights: Tensor<1>,
    topology: &Topology,
    block: &Block,
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
        for (place, &column) in group.columns.iter().enumerate() {
            let node = first_node + column as usize;
            for at in topology.outgoing.starts[node]..topology.outgoing.starts[node + 1] {
                // An edge that leads out of the columns is for longer walks.
                if let Ok(target) = group.columns.binary_search(&topology.outgoing.others[at]) {
                    from.push(first + place);
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
        let weights = weights.select(0, indices(edges, &device)).reshape([links, 1]);
        let (from, to) = (indices(from, &device), indices(to, &device));
        while powers.len() <= steps {
            let moved = gather(powers[powers.len() - 1].clone(), from.clone()) * weights.clone();
            powers.push(scatter_sum(moved, to.clone(), columns));
        }
    }
    powers.resize(steps + 1, Tensor::zeros([columns, ROWS], (&device, dtype)));
    Tensor::cat(powers.into_iter().map(|power| power.reshape([1, block.pairs])).collect(), 0)
}
