//! Message passing along edges: gather at one endpoint, sum at the other.
//!
//! Sums by target iterate over the incoming edges of a node, sums by source over its outgoing
//! edges, both in edge order. A row of the result belongs to one task, so writes are disjoint and
//! sums do not depend on the schedule.
//!
//! [`gine_forward`] and [`gated_forward`] compute the messages of the two kinds of layers;
//! [`edge_endpoint_sum`] adds the features of both endpoints of an edge, and [`scatter_sum`] is its
//! backward pass for either endpoint.

mod gated;
mod gine;

#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

pub use gated::{GatedGradients, GatedInputs, gated_backward, gated_forward};
pub use gine::{gine_backward, gine_forward};

use crate::buffer::UninitBuffer;
use crate::channel_blocks::{Block, Blockwise, run_all};
use crate::edges::{Csr, EdgeIndex, EdgeTypes};
use crate::simd::{Isa, Simd};

/// Nodes per task.
const ROWS: usize = 64;

/// Computes `s_i + t_j + e_ij` for the edges i → j: the sum of the features of both endpoints and
/// of the edge.
///
/// # Shapes
/// - `at_source`, `at_target`: `[r, width]`
/// - `e`: `[types, width]` features per edge type and the type of each edge, or `None` without edge
///   features
/// - returns `[m, width]`
pub fn edge_endpoint_sum(
    isa: Isa,
    edges: &EdgeIndex,
    at_source: &[f32],
    at_target: &[f32],
    e: Option<(&[f32], &EdgeTypes)>,
    width: usize,
) -> Vec<f32> {
    check_nodes(edges, width, &[at_source, at_target]);
    if let Some((e, edge_types)) = e {
        assert_eq!(
            edge_types.type_of_edge().len(),
            edges.num_edges(),
            "every edge must have a type"
        );
        assert_eq!(
            e.len(),
            edge_types.num_types() * width,
            "e must be [{}, {width}]",
            edge_types.num_types()
        );
    }
    let mut out = UninitBuffer::new(edges.num_edges() * width);
    let tasks = out.as_uninit().chunks_mut(ROWS * width).enumerate().collect();
    run_all(3 * edges.num_edges() * width, tasks, |(task, out)| {
        isa.run(EdgeEndpointSum { edges, at_source, at_target, e, width, start: task * ROWS, out });
    });
    // SAFETY: `EdgeEndpointSum` writes the rows of all its edges.
    unsafe { out.assume_init() }
}

/// Sums the values of the edges of each node, or of each edge type.
///
/// # Shapes
/// - `values`: `[m, width]`
/// - returns `[r, width]`
pub fn scatter_sum(isa: Isa, values: &[f32], width: usize, by: &Csr) -> Vec<f32> {
    assert!(width > 0, "the width must not be zero");
    assert_eq!(
        values.len(),
        by.num_edges() * width,
        "values must be [{}, {width}]",
        by.num_edges()
    );
    let mut out = UninitBuffer::new(by.num_nodes() * width);
    let num_values = values.len() + by.num_nodes() * width;
    let tasks = out.as_uninit().chunks_mut(ROWS * width).enumerate().collect();
    run_all(num_values, tasks, |(task, out)| {
        isa.run(Sum { values, width, by, start: task * ROWS, out });
    });
    // SAFETY: `Sum` writes the rows of all its nodes.
    unsafe { out.assume_init() }
}

/// Returns the number of values of `width` channels over all edges and nodes.
fn num_values(edges: &EdgeIndex, width: usize) -> usize {
    (edges.num_edges() + edges.num_nodes()) * width
}

#[track_caller]
fn check_nodes(edges: &EdgeIndex, width: usize, buffers: &[&[f32]]) {
    assert!(width > 0, "the width must not be zero");
    let nodes = edges.num_nodes();
    for buffer in buffers {
        assert_eq!(buffer.len(), nodes * width, "node features must be [{nodes}, {width}]");
    }
}

#[track_caller]
fn check_edges(edges: &EdgeIndex, width: usize, buffers: &[&[f32]]) {
    let edges = edges.num_edges();
    for buffer in buffers {
        assert_eq!(buffer.len(), edges * width, "edge features must be [{edges}, {width}]");
    }
}

// SAFETY of all blocks below: the public functions have checked that every buffer has `width`
// values per node, edge or edge type; `Csr`, `EdgeIndex` and `EdgeTypes` contain valid
// indices only; and the buffer of a task has the rows of its edges or nodes from `start`.

struct EdgeEndpointSum<'a> {
    edges: &'a EdgeIndex,
    at_source: &'a [f32],
    at_target: &'a [f32],
    e: Option<(&'a [f32], &'a EdgeTypes)>,
    width: usize,
    start: usize,
    out: &'a mut [MaybeUninit<f32>],
}

impl Blockwise for EdgeEndpointSum<'_> {
    #[inline(always)]
    fn channels(&self) -> usize {
        self.width
    }

    /// # Safety
    /// As in [`Blockwise::block`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        for (edge, out) in (self.start..).zip(self.out.chunks_exact_mut(width)) {
            // SAFETY: see above.
            unsafe {
                let source = *self.edges.sources().get_unchecked(edge) as usize * width;
                let target = *self.edges.targets().get_unchecked(edge) as usize * width;
                let e = self.e.map(|(e, edge_types)| {
                    e.as_ptr().add(*edge_types.type_of_edge().get_unchecked(edge) as usize * width)
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
    by: &'a Csr,
    start: usize,
    out: &'a mut [MaybeUninit<f32>],
}

impl Blockwise for Sum<'_> {
    #[inline(always)]
    fn channels(&self) -> usize {
        self.width
    }

    /// # Safety
    /// As in [`Blockwise::block`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        for (node, out) in (self.start..).zip(self.out.chunks_exact_mut(width)) {
            let mut sums = [simd.zero(); W];
            for edge in self.by.edges(self.by.range(node..node + 1)) {
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
