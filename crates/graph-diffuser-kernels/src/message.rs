//! Messages along edges: gathered at one end, summed at the other.
//!
//! Whatever is summed by target goes down the edges that enter a node, whatever is summed by source down
//! those that leave it, each in the order of the edges. A row of a result belongs to one task, so no two
//! write to one place, and sums do not depend on how rows are shared out.
//!
//! [`gine_forward`] and [`gated_forward`] are the messages of the two kinds of layers; [`edge_update`] is what
//! both ends of an edge say together, and [`scatter_sum`] its derivative at either.

mod edges;
mod gated;
mod gine;

#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

pub use edges::{CsrIndex, EdgeTypes, Edges};
pub use gated::{Gated, GatedGradients, gated_backward, gated_forward};
pub use gine::{gine_backward, gine_forward};

use crate::batch_norm::{Block, Blockwise, by_blocks, run_all};
use crate::fresh::Fresh;
use crate::simd::{Isa, Kernel, Simd};

/// Nodes of a task.
const ROWS: usize = 64;

/// What both ends of each edge say, and the edge itself: `s_i + t_j + e_ij` for the edges i → j.
///
/// # Shapes
/// - `at_source`, `at_target`: `[r, width]`
/// - `e`: `[kinds, width]` and the kinds of the edges, or nothing where edges have no features
/// - returns `[m, width]`
pub fn edge_update(
    isa: Isa,
    edges: &Edges,
    at_source: &[f32],
    at_target: &[f32],
    e: Option<(&[f32], &EdgeTypes)>,
    width: usize,
) -> Vec<f32> {
    edges.check_nodes(width, &[at_source, at_target]);
    if let Some((e, kinds)) = e {
        assert_eq!(kinds.of_edge.len(), edges.count(), "every edge has a kind");
        assert_eq!(e.len(), kinds.count() * width, "{} kinds of width {width}", kinds.count());
    }
    let mut out = Fresh::new(edges.count() * width);
    let tasks = out.room().chunks_mut(ROWS * width).enumerate().collect();
    run_all(3 * edges.count() * width, tasks, |(task, out)| {
        isa.run(EdgeUpdate { edges, at_source, at_target, e, width, start: task * ROWS, out });
    });
    // SAFETY: `EdgeUpdate` writes the rows of all its edges.
    unsafe { out.written() }
}

/// For each node, or each kind of edge, the sum over its edges.
///
/// # Shapes
/// - `values`: `[m, width]`
/// - returns `[r, width]`
pub fn scatter_sum(isa: Isa, values: &[f32], width: usize, by: &CsrIndex) -> Vec<f32> {
    assert!(width > 0, "rows without numbers");
    assert_eq!(values.len(), by.edges() * width, "{} edges of width {width}", by.edges());
    let mut out = Fresh::new(by.nodes() * width);
    let numbers = values.len() + by.nodes() * width;
    let tasks = out.room().chunks_mut(ROWS * width).enumerate().collect();
    run_all(numbers, tasks, |(task, out)| {
        isa.run(Sum { values, width, by, start: task * ROWS, out });
    });
    // SAFETY: `Sum` writes the rows of all its nodes.
    unsafe { out.written() }
}

// SAFETY in all blocks below: the public functions have checked that every buffer has `width` numbers a
// node, an edge or a kind; `CsrIndex`, `Edges` and `EdgeTypes` name only what is there; and a task's own
// buffer is the rows of its edges or nodes from `start`.

struct EdgeUpdate<'a> {
    edges: &'a Edges,
    at_source: &'a [f32],
    at_target: &'a [f32],
    e: Option<(&'a [f32], &'a EdgeTypes)>,
    width: usize,
    start: usize,
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for EdgeUpdate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.width, self);
    }
}

impl Blockwise for EdgeUpdate<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        for (edge, out) in (self.start..).zip(self.out.chunks_exact_mut(width)) {
            // SAFETY: see above.
            unsafe {
                let source = *self.edges.sources.get_unchecked(edge) as usize * width;
                let target = *self.edges.targets.get_unchecked(edge) as usize * width;
                let e = self.e.map(|(e, kinds)| {
                    e.as_ptr().add(*kinds.of_edge.get_unchecked(edge) as usize * width)
                });
                for v in 0..W {
                    let source = block.load::<S, W>(simd, self.at_source.as_ptr().add(source), v);
                    let target = block.load::<S, W>(simd, self.at_target.as_ptr().add(target), v);
                    let mut value = simd.add(source, target);
                    if let Some(e) = e {
                        value = simd.add(value, block.load::<S, W>(simd, e, v));
                    }
                    block.store::<S, W>(simd, out.as_mut_ptr().cast(), v, value);
                }
            }
        }
    }
}

struct Sum<'a> {
    values: &'a [f32],
    width: usize,
    by: &'a CsrIndex,
    start: usize,
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Sum<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.width, self);
    }
}

impl Blockwise for Sum<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        for (node, out) in (self.start..).zip(self.out.chunks_exact_mut(width)) {
            let mut sums = [simd.zero(); W];
            for edge in self.by.at(node) {
                // SAFETY: see above.
                unsafe {
                    let values = self.values.as_ptr().add(*edge as usize * width);
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = simd.add(*sum, block.load::<S, W>(simd, values, v));
                    }
                }
            }
            for (v, sum) in sums.into_iter().enumerate() {
                // SAFETY: see above.
                unsafe { block.store::<S, W>(simd, out.as_mut_ptr().cast(), v, sum) };
            }
        }
    }
}
