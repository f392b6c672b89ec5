//! Forward pass: all powers of a block of columns.

use std::ops::Range;

use super::adjacency::AdjacencyList;
use super::blocks::{Block, blocks, tasks};
use super::check;
use super::vectors::{VECTORS, with_vectors};
use crate::buffer::{Buffer, UninitBuffer};
use crate::edges::Csr;
use crate::offsets::GraphOffsets;
use crate::parallel::{self, SharedPtr};
use crate::simd::{Isa, Kernel, Simd};

/// Computes `Aˢ` of each graph for s from 0 to `steps`.
///
/// # Shapes
/// - `weights`: `[m]` entries of A in edge order; duplicate edges are summed
/// - returns `[steps + 1, p]`
pub fn forward(
    isa: Isa,
    graphs: GraphOffsets<'_>,
    csr: &Csr,
    weights: &[f32],
    steps: usize,
) -> Vec<f32> {
    check(graphs, csr, weights);
    let blocks = blocks(graphs, csr);
    let mut stack = UninitBuffer::new((steps + 1) * graphs.num_pairs());
    let to = SharedPtr::from_uninit(stack.as_uninit());
    let tasks = tasks(&blocks).into_iter().map(|task| &blocks[task]).collect();
    parallel::for_each(tasks, |blocks| {
        isa.run(Forward { graphs, csr, weights, steps, stack: to, blocks });
    });
    // SAFETY: the blocks cover all columns of all graphs, and `Forward` writes all rows of each.
    unsafe { stack.assume_init() }
}

struct Forward<'a> {
    graphs: GraphOffsets<'a>,
    csr: &'a Csr,
    weights: &'a [f32],
    steps: usize,
    stack: SharedPtr<f32>,
    blocks: &'a [Block],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { graphs, csr, weights, steps, stack, blocks } = self;
        let mut adjacency = AdjacencyList::default();
        let [mut last, mut next] = [(); 2].map(|()| Buffer::zeros(0));
        let mut graph = usize::MAX;
        for block in blocks {
            let nodes = graphs.nodes(block.graph);
            if graph != block.graph {
                graph = block.graph;
                adjacency.fill_outgoing(csr, nodes.clone(), weights);
            }
            for start in block.columns.clone().step_by(VECTORS * S::LANES) {
                let columns = start..(start + VECTORS * S::LANES).min(block.columns.end);
                let space = nodes.len() * VECTORS * S::LANES;
                // SAFETY: `check` has verified that the pairs of the graph are within each channel,
                // `fill_outgoing` that all edges are within the graph; the copies have `space`
                // values, and no other task writes these columns.
                unsafe {
                    let to = stack.pointer().add(graphs.pair_starts[graph]);
                    let copies = [last.scratch(space), next.scratch(space)];
                    with_vectors!(
                        S::LANES,
                        columns,
                        forward_block,
                        simd,
                        &adjacency,
                        columns,
                        graphs.num_pairs(),
                        steps,
                        to,
                        copies
                    );
                }
            }
        }
    }
}

/// Computes all powers of some columns of a graph.
///
/// # Safety
/// `to` points to the pairs of the graph in the first of `steps + 1` channels of `pairs` values
/// each; `adjacency` has the outgoing edges of the graph; `copies` have `W` vectors per node;
/// `columns` need `W` vectors, are within the graph, and are not written by any other thread.
#[inline(always)]
unsafe fn forward_block<S: Simd, const W: usize>(
    simd: S,
    adjacency: &AdjacencyList,
    columns: Range<usize>,
    pairs: usize,
    steps: usize,
    to: *mut f32,
    [mut last, mut next]: [*mut f32; 2],
) {
    let n = adjacency.starts.len() - 1;
    let stride = W * S::LANES;
    let tail = columns.len() - (W - 1) * S::LANES;
    // SAFETY: rows of the copies are `stride` apart, those of a channel `n`; the rest is guaranteed
    // by the caller.
    unsafe {
        for row in 0..n {
            let to = to.add(row * n + columns.start);
            to.write_bytes(0, columns.len());
            if columns.contains(&row) {
                *to.add(row - columns.start) = 1.0;
            }
        }
        if steps == 0 {
            return;
        }
        // First power: A·I without multiplications.
        last.write_bytes(0, n * stride);
        for row in 0..n {
            let copy = last.add(row * stride);
            for neighbor in &adjacency.neighbors[adjacency.range(row)] {
                if columns.contains(&(neighbor.node as usize)) {
                    *copy.add(neighbor.node as usize - columns.start) += neighbor.weight;
                }
            }
            to.add(pairs + row * n + columns.start).copy_from_nonoverlapping(copy, columns.len());
        }
        for step in 2..=steps {
            let to = to.add(step * pairs + columns.start);
            for row in 0..n {
                let mut sums = [simd.zero(); W];
                for at in adjacency.range(row) {
                    let neighbor = adjacency.neighbors.get_unchecked(at);
                    let weight = simd.splat(neighbor.weight);
                    let from = last.add(neighbor.node as usize * stride);
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = simd.mul_add(weight, simd.load(from.add(v * S::LANES)), *sum);
                    }
                }
                let to = to.add(row * n);
                for (v, sum) in sums.into_iter().enumerate() {
                    simd.store(next.add(row * stride + v * S::LANES), sum);
                    if v + 1 < W {
                        simd.store(to.add(v * S::LANES), sum);
                    } else {
                        simd.store_up_to(to.add(v * S::LANES), sum, tail);
                    }
                }
            }
            std::mem::swap(&mut last, &mut next);
        }
    }
}
