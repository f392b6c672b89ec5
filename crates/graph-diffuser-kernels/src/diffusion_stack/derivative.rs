//! The backward: from the derivatives of all powers to those of the weights.

use std::ops::Range;

use super::blocks::{Block, blocks, run_all, tasks};
use super::links::Links;
use super::vectors::{VECTORS, grow, with_vectors};
use super::{Csr, check};
use crate::Graphs;
use crate::simd::{Isa, Kernel, Simd};

/// Writes the derivative of each weight, given that of the stack.
///
/// # Shapes
/// - `weights`, `d_weights`: `[m]`
/// - `stack`, as [`forward`](super::forward) wrote it, and `d_stack`: `[steps + 1, p]`
pub fn backward(
    isa: Isa,
    graphs: Graphs<'_>,
    csr: Csr<'_>,
    weights: &[f32],
    steps: usize,
    stack: &[f32],
    d_stack: &[f32],
    d_weights: &mut [f32],
) {
    check(graphs, csr, weights);
    let pairs = graphs.pairs();
    for stack in [stack, d_stack] {
        assert_eq!(stack.len(), (steps + 1) * pairs, "a stack of {steps} steps over {pairs} pairs");
    }
    assert_eq!(d_weights.len(), weights.len(), "one derivative a weight");

    // A weight gets a share from each block of its graph; they are added in the order of the blocks.
    let blocks = blocks(graphs, csr);
    let mut shares = vec![0.0; blocks.iter().map(|block| block.entries.len()).sum()];
    let mut rest = shares.as_mut_slice();
    let tasks = tasks(&blocks)
        .into_iter()
        .map(|task| {
            let blocks = &blocks[task];
            let own = blocks.iter().map(|block| block.entries.len()).sum();
            (blocks, rest.split_off_mut(..own).expect("shares were made for all blocks"))
        })
        .collect();
    run_all(tasks, |(blocks, shares)| {
        isa.run(Backward { graphs, csr, weights, steps, stack, d_stack, blocks, shares });
    });

    d_weights.fill(0.0);
    let mut rest = shares.as_slice();
    for block in &blocks {
        let (own, others) = rest.split_at(block.entries.len());
        for (edge, share) in csr.edges[block.entries.clone()].iter().zip(own) {
            d_weights[*edge as usize] += share;
        }
        rest = others;
    }
}

struct Backward<'a> {
    graphs: Graphs<'a>,
    csr: Csr<'a>,
    weights: &'a [f32],
    steps: usize,
    stack: &'a [f32],
    d_stack: &'a [f32],
    blocks: &'a [Block],
    /// One number an entry of each block's graph, block after block.
    shares: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { graphs, csr, weights, steps, stack, d_stack, blocks, mut shares } = self;
        let (mut links, mut last, mut next, mut dots) =
            (Links::default(), Vec::new(), Vec::new(), Vec::new());
        let mut graph = usize::MAX;
        for block in blocks {
            let nodes = graphs.node_starts[block.graph]..graphs.node_starts[block.graph + 1];
            if graph != block.graph {
                graph = block.graph;
                links.enter(csr, nodes.clone(), weights);
            }
            let own = shares
                .split_off_mut(..block.entries.len())
                .expect("shares were made for these blocks");
            if steps == 0 {
                continue;
            }
            for start in block.columns.clone().step_by(VECTORS * S::LANES) {
                let columns = start..(start + VECTORS * S::LANES).min(block.columns.end);
                let space = nodes.len() * VECTORS * S::LANES;
                // SAFETY: `check` has found the pairs of the graph inside each channel, `enter` all
                // links inside the graph; the copies have `space`, the dots a vector a link.
                unsafe {
                    let from =
                        [stack, d_stack].map(|stack| stack.as_ptr().add(graphs.pair_starts[graph]));
                    let copies = [grow(&mut last, space), grow(&mut next, space)];
                    let dots = grow(&mut dots, links.links.len() * S::LANES);
                    with_vectors!(
                        S::LANES,
                        columns,
                        backward_block,
                        simd,
                        &links,
                        columns,
                        graphs.pairs(),
                        steps,
                        from,
                        copies,
                        dots,
                        own
                    );
                }
            }
        }
    }
}

/// Adds what some columns of a graph say of its weights to `shares`.
///
/// # Safety
/// As for `powers::forward_block`, with the two stacks in `from`; `dots` has room for a vector a link.
#[inline(always)]
unsafe fn backward_block<S: Simd, const W: usize>(
    simd: S,
    links: &Links,
    columns: Range<usize>,
    pairs: usize,
    steps: usize,
    [stack, d_stack]: [*const f32; 2],
    [mut last, mut next]: [*mut f32; 2],
    dots: *mut f32,
    shares: &mut [f32],
) {
    let n = links.starts.len() - 1;
    let stride = W * S::LANES;
    let broken = columns.len() - (W - 1) * S::LANES;
    // SAFETY: as in `powers::forward_block`.
    unsafe {
        // The row of a channel that begins at `from`, zeros behind it.
        let load_row = |from: *const f32| -> [S::V; W] {
            std::array::from_fn(|v| {
                let from = from.add(v * S::LANES);
                if v + 1 < W { simd.load(from) } else { simd.load_up_to(from, broken) }
            })
        };
        dots.write_bytes(0, links.links.len() * S::LANES);
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
                for at in links.of(row) {
                    let link = links.links.get_unchecked(at);
                    let weight = simd.splat(link.weight);
                    let from = last.add(link.node as usize * stride);
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
        // The first step multiplies the identity, of which row t has one entry, in column t.
        for row in 0..n {
            for at in links.of(row) {
                let link = links.links[at];
                let mut share = simd.sum(simd.load(dots.add(at * S::LANES)));
                if columns.contains(&row) {
                    share += *last.add(link.node as usize * stride + row - columns.start);
                }
                shares[link.entry as usize] += share;
            }
        }
    }
}
