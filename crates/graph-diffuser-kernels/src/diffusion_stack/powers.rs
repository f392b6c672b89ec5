//! The forward: all powers of a block of columns, one after another.

use std::ops::Range;

use super::blocks::{Block, blocks, run_all, tasks};
use super::links::Links;
use super::vectors::{VECTORS, grow, with_vectors};
use super::{Csr, Shared, check};
use crate::Graphs;
use crate::fresh::Fresh;
use crate::simd::{Isa, Kernel, Simd};

/// Channel s of each graph, `Aˢ`, for s from 0 to `steps`.
///
/// # Shapes
/// - `weights`: `[m]` entries of A in the order of the edges; duplicates add up
/// - returns `[steps + 1, p]`
pub fn forward(
    isa: Isa,
    graphs: Graphs<'_>,
    csr: Csr<'_>,
    weights: &[f32],
    steps: usize,
) -> Vec<f32> {
    check(graphs, csr, weights);
    let blocks = blocks(graphs, csr);
    let mut stack = Fresh::new((steps + 1) * graphs.pairs());
    let to = Shared::fresh(stack.room());
    let tasks = tasks(&blocks).into_iter().map(|task| &blocks[task]).collect();
    run_all(tasks, |blocks| isa.run(Forward { graphs, csr, weights, steps, stack: to, blocks }));
    // SAFETY: the blocks are all columns of all graphs, and `Forward` writes all rows of each.
    unsafe { stack.written() }
}

struct Forward<'a> {
    graphs: Graphs<'a>,
    csr: Csr<'a>,
    weights: &'a [f32],
    steps: usize,
    stack: Shared,
    blocks: &'a [Block],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { graphs, csr, weights, steps, stack, blocks } = self;
        let (mut links, mut last, mut next) = (Links::default(), Vec::new(), Vec::new());
        let mut graph = usize::MAX;
        for block in blocks {
            let nodes = graphs.node_starts[block.graph]..graphs.node_starts[block.graph + 1];
            if graph != block.graph {
                graph = block.graph;
                links.leave(csr, nodes.clone(), weights);
            }
            for start in block.columns.clone().step_by(VECTORS * S::LANES) {
                let columns = start..(start + VECTORS * S::LANES).min(block.columns.end);
                let space = nodes.len() * VECTORS * S::LANES;
                // SAFETY: `check` has found the pairs of the graph inside each channel, `leave` all
                // links inside the graph; the copies have `space`, and the columns are this task's.
                unsafe {
                    let to = stack.pointer().add(graphs.pair_starts[graph]);
                    let copies = [grow(&mut last, space), grow(&mut next, space)];
                    with_vectors!(
                        S::LANES,
                        columns,
                        forward_block,
                        simd,
                        &links,
                        columns,
                        graphs.pairs(),
                        steps,
                        to,
                        copies
                    );
                }
            }
        }
    }
}

/// All powers of some columns of a graph.
///
/// # Safety
/// `to` begins the pairs of the graph in the first of `steps + 1` channels of `pairs` each; `links`
/// are those of the graph; `copies` have room for `W` vectors a node; `columns` need `W` vectors,
/// are within the graph and nobody else's.
#[inline(always)]
unsafe fn forward_block<S: Simd, const W: usize>(
    simd: S,
    links: &Links,
    columns: Range<usize>,
    pairs: usize,
    steps: usize,
    to: *mut f32,
    [mut last, mut next]: [*mut f32; 2],
) {
    let n = links.starts.len() - 1;
    let stride = W * S::LANES;
    let broken = columns.len() - (W - 1) * S::LANES;
    // SAFETY: rows of the copies are `stride` apart, those of a channel `n`; the caller has the rest.
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
        // A·I without the multiplications.
        last.write_bytes(0, n * stride);
        for row in 0..n {
            let copy = last.add(row * stride);
            for link in &links.links[links.of(row)] {
                if columns.contains(&(link.node as usize)) {
                    *copy.add(link.node as usize - columns.start) += link.weight;
                }
            }
            to.add(pairs + row * n + columns.start).copy_from_nonoverlapping(copy, columns.len());
        }
        for step in 2..=steps {
            let to = to.add(step * pairs + columns.start);
            for row in 0..n {
                let mut sums = [simd.zero(); W];
                for at in links.of(row) {
                    let link = links.links.get_unchecked(at);
                    let weight = simd.splat(link.weight);
                    let from = last.add(link.node as usize * stride);
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
                        simd.store_up_to(to.add(v * S::LANES), sum, broken);
                    }
                }
            }
            std::mem::swap(&mut last, &mut next);
        }
    }
}
