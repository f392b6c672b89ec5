//! Backward pass: gradients of the edge weights from those of all powers.

use std::ops::Range;

use super::adjacency::AdjacencyList;
use super::blocks::{Block, blocks, tasks};
use super::check;
use super::vectors::{VECTORS, with_vectors};
use crate::buffer::Buffer;
use crate::edges::Csr;
use crate::offsets::GraphOffsets;
use crate::parallel;
use crate::simd::{Isa, Kernel, Simd};

/// Writes the gradient of each edge weight to `d_weights`.
///
/// # Shapes
/// - `weights`, `d_weights`: `[m]`
/// - `stack`, as computed by [`forward`](super::forward), and `d_stack`: `[steps + 1, p]`
pub fn backward(
    isa: Isa,
    graphs: GraphOffsets<'_>,
    csr: &Csr,
    weights: &[f32],
    steps: usize,
    stack: &[f32],
    d_stack: &[f32],
    d_weights: &mut [f32],
) {
    check(graphs, csr, weights);
    let pairs = graphs.num_pairs();
    for stack in [stack, d_stack] {
        assert_eq!(stack.len(), (steps + 1) * pairs, "the stack must be [{steps} + 1, {pairs}]");
    }
    assert_eq!(d_weights.len(), weights.len(), "d_weights must have the shape of weights");

    // Each block of a graph contributes a partial sum per edge; these are added in block order.
    let blocks = blocks(graphs, csr);
    let mut partial_sums = vec![0.0; blocks.iter().map(|block| block.entries.len()).sum()];
    let mut rest = partial_sums.as_mut_slice();
    let tasks = tasks(&blocks)
        .into_iter()
        .map(|task| {
            let blocks = &blocks[task];
            let block_sums = blocks.iter().map(|block| block.entries.len()).sum();
            (
                blocks,
                rest.split_off_mut(..block_sums)
                    .expect("partial sums are allocated for all blocks"),
            )
        })
        .collect();
    parallel::for_each(tasks, |(blocks, partial_sums)| {
        isa.run(Backward { graphs, csr, weights, steps, stack, d_stack, blocks, partial_sums });
    });

    d_weights.fill(0.0);
    let mut rest = partial_sums.as_slice();
    for block in &blocks {
        let (block_sums, others) = rest.split_at(block.entries.len());
        for (edge, partial) in csr.edges(block.entries.clone()).iter().zip(block_sums) {
            d_weights[*edge as usize] += partial;
        }
        rest = others;
    }
}

struct Backward<'a> {
    graphs: GraphOffsets<'a>,
    csr: &'a Csr,
    weights: &'a [f32],
    steps: usize,
    stack: &'a [f32],
    d_stack: &'a [f32],
    blocks: &'a [Block],
    /// One value per entry of the graph of each block, block after block.
    partial_sums: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { graphs, csr, weights, steps, stack, d_stack, blocks, mut partial_sums } = self;
        let mut adjacency = AdjacencyList::default();
        let [mut last, mut next, mut dots] = [(); 3].map(|()| Buffer::zeros(0));
        let mut graph = usize::MAX;
        for block in blocks {
            let nodes = graphs.nodes(block.graph);
            if graph != block.graph {
                graph = block.graph;
                adjacency.fill_incoming(csr, nodes.clone(), weights);
            }
            let block_sums = partial_sums
                .split_off_mut(..block.entries.len())
                .expect("partial sums are allocated for these blocks");
            if steps == 0 {
                continue;
            }
            for start in block.columns.clone().step_by(VECTORS * S::LANES) {
                let columns = start..(start + VECTORS * S::LANES).min(block.columns.end);
                let space = nodes.len() * VECTORS * S::LANES;
                // SAFETY: `check` has verified that the pairs of the graph are within each channel,
                // `fill_incoming` that all edges are within the graph; the copies have `space`
                // values, and `dots` has one vector per edge.
                unsafe {
                    let from =
                        [stack, d_stack].map(|stack| stack.as_ptr().add(graphs.pair_starts[graph]));
                    let copies = [last.scratch(space), next.scratch(space)];
                    let dots = dots.scratch(adjacency.neighbors.len() * S::LANES);
                    with_vectors!(
                        S::LANES,
                        columns,
                        backward_block,
                        simd,
                        &adjacency,
                        columns,
                        graphs.num_pairs(),
                        steps,
                        from,
                        copies,
                        dots,
                        block_sums
                    );
                }
            }
        }
    }
}

/// Adds the contribution of some columns of a graph to `partial_sums`.
///
/// # Safety
/// As for `powers::forward_block`, with incoming edges and both stacks as inputs; `dots` has one
/// vector per edge.
#[inline(always)]
unsafe fn backward_block<S: Simd, const W: usize>(
    simd: S,
    adjacency: &AdjacencyList,
    columns: Range<usize>,
    pairs: usize,
    steps: usize,
    [stack, d_stack]: [*const f32; 2],
    [mut last, mut next]: [*mut f32; 2],
    dots: *mut f32,
    partial_sums: &mut [f32],
) {
    let n = adjacency.starts.len() - 1;
    let stride = W * S::LANES;
    let tail = columns.len() - (W - 1) * S::LANES;
    // SAFETY: as in `powers::forward_block`.
    unsafe {
        // Loads the row that starts at `from`, padded with zeros.
        let load_row = |from: *const f32| -> [S::V; W] {
            std::array::from_fn(|v| {
                let from = from.add(v * S::LANES);
                if v + 1 < W { simd.load(from) } else { simd.load_up_to(from, tail) }
            })
        };
        dots.write_bytes(0, adjacency.neighbors.len() * S::LANES);
        for row in 0..n {
            let from = load_row(d_stack.add(steps * pairs + row * n + columns.start));
            for (v, value) in from.into_iter().enumerate() {
                simd.store(last.add(row * stride + v * S::LANES), value);
            }
        }
        for step in (1..steps).rev() {
            for row in 0..n {
                let at = step * pairs + row * n + columns.start;
                let power = load_row(stack.add(at));
                let mut sums = load_row(d_stack.add(at));
                for at in adjacency.range(row) {
                    let neighbor = adjacency.neighbors.get_unchecked(at);
                    let weight = simd.splat(neighbor.weight);
                    let from = last.add(neighbor.node as usize * stride);
                    let mut dot = simd.load(dots.add(at * S::LANES));
                    for v in 0..W {
                        let value = simd.load(from.add(v * S::LANES));
                        sums[v] = simd.mul_add(weight, value, sums[v]);
                        dot = simd.mul_add(power[v], value, dot);
                    }
                    simd.store(dots.add(at * S::LANES), dot);
                }
                for (v, sum) in sums.into_iter().enumerate() {
                    simd.store(next.add(row * stride + v * S::LANES), sum);
                }
            }
            std::mem::swap(&mut last, &mut next);
        }
        // The first step multiplies the identity, whose row t has a single entry in column t.
        for row in 0..n {
            for at in adjacency.range(row) {
                let neighbor = adjacency.neighbors[at];
                let mut partial = simd.reduce_sum(simd.load(dots.add(at * S::LANES)));
                if columns.contains(&row) {
                    partial += *last.add(neighbor.node as usize * stride + row - columns.start);
                }
                partial_sums[neighbor.entry as usize] += partial;
            }
        }
    }
}
