//! Messages of GINE: sum of the rectified neighbor and edge features.

use std::mem::MaybeUninit;

use super::{Edges, ROWS};
use crate::batch_norm::{Block, Blockwise, by_blocks, run_all};
use crate::diffusion_stack::Shared;
use crate::simd::{Isa, Kernel, Simd};
use crate::uninit::UninitBuffer;

/// Computes `x_i + Σ ReLU(x_j + e_ji)` over the edges j → i.
///
/// # Shapes
/// - `x`: `[r, width]`
/// - `e`: `[m, width]`, or `None` without edge features
/// - returns `[r, width]`
pub fn gine_forward(
    isa: Isa,
    edges: &Edges,
    x: &[f32],
    e: Option<&[f32]>,
    width: usize,
) -> Vec<f32> {
    edges.check_nodes(width, &[x]);
    edges.check_edges(width, e.as_slice());
    let mut out = UninitBuffer::new(x.len());
    let tasks = out.as_uninit().chunks_mut(ROWS * width).enumerate().collect();
    run_all(edges.num_values(width), tasks, |(task, out)| {
        isa.run(GineForward { edges, x, e, width, start: task * ROWS, out });
    });
    // SAFETY: `GineForward` writes the rows of all its nodes.
    unsafe { out.assume_init() }
}

/// Computes the gradients of [`gine_forward`]: of `x`, and of `e` if given.
///
/// # Shapes
/// - `x`, `d_out`: `[r, width]`
/// - `e`: `[m, width]`
pub fn gine_backward(
    isa: Isa,
    edges: &Edges,
    x: &[f32],
    e: Option<&[f32]>,
    width: usize,
    d_out: &[f32],
) -> (Vec<f32>, Option<Vec<f32>>) {
    edges.check_nodes(width, &[x, d_out]);
    edges.check_edges(width, e.as_slice());
    let (mut d_x, mut d_e) = (UninitBuffer::new(x.len()), e.map(|e| UninitBuffer::new(e.len())));
    let to_edges = d_e.as_mut().map(|d_e| Shared::from_uninit(d_e.as_uninit()));
    let tasks = d_x.as_uninit().chunks_mut(ROWS * width).enumerate().collect();
    run_all(edges.num_values(width), tasks, |(task, d_x)| {
        isa.run(GineBackward { edges, x, e, d_out, d_e: to_edges, width, start: task * ROWS, d_x });
    });
    // SAFETY: `GineBackward` writes the rows of all its nodes and of their outgoing edges.
    unsafe { (d_x.assume_init(), d_e.map(|d_e| d_e.assume_init())) }
}

// SAFETY of all blocks below: the public functions have checked that every buffer has `width`
// values per node or edge; `Edges` contains valid indices only; the buffers of a task have the rows
// of its nodes from `start`; and in shared buffers a task writes only the rows of the outgoing
// edges of its nodes, each of which has one source.

struct GineForward<'a> {
    edges: &'a Edges,
    x: &'a [f32],
    e: Option<&'a [f32]>,
    width: usize,
    start: usize,
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for GineForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.width, self);
    }
}

impl Blockwise for GineForward<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        let x = self.x.as_ptr();
        for (node, out) in (self.start..).zip(self.out.chunks_exact_mut(width)) {
            // SAFETY: see above.
            unsafe {
                let mut sums = block.load_all::<S, W>(simd, x.add(node * width));
                for edge in self.edges.incoming.at(node) {
                    let edge = *edge as usize;
                    let message = x.add(*self.edges.sources.get_unchecked(edge) as usize * width);
                    for (v, sum) in sums.iter_mut().enumerate() {
                        let mut value = block.load::<S, W>(simd, message, v);
                        if let Some(e) = self.e {
                            value = simd.add(
                                value,
                                block.load::<S, W>(simd, e.as_ptr().add(edge * width), v),
                            );
                        }
                        // The value is the second operand, which `max` returns for NaN.
                        *sum = simd.add(*sum, simd.max(simd.zero(), value));
                    }
                }
                for (v, sum) in sums.into_iter().enumerate() {
                    block.store::<S, W>(simd, out.as_mut_ptr().cast(), v, sum);
                }
            }
        }
    }
}

struct GineBackward<'a> {
    edges: &'a Edges,
    x: &'a [f32],
    e: Option<&'a [f32]>,
    d_out: &'a [f32],
    d_e: Option<Shared>,
    width: usize,
    start: usize,
    d_x: &'a mut [MaybeUninit<f32>],
}

impl Kernel for GineBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.width, self);
    }
}

impl Blockwise for GineBackward<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        let d_out = self.d_out.as_ptr();
        for (node, d_x) in (self.start..).zip(self.d_x.chunks_exact_mut(width)) {
            // SAFETY: see above.
            unsafe {
                let x = block.load_all::<S, W>(simd, self.x.as_ptr().add(node * width));
                let mut sums = block.load_all::<S, W>(simd, d_out.add(node * width));
                for edge in self.edges.outgoing.at(node) {
                    let edge = *edge as usize;
                    let d_message =
                        d_out.add(*self.edges.targets.get_unchecked(edge) as usize * width);
                    for v in 0..W {
                        let mut value = x[v];
                        if let Some(e) = self.e {
                            value = simd.add(
                                value,
                                block.load::<S, W>(simd, e.as_ptr().add(edge * width), v),
                            );
                        }
                        let d_value = simd.select_positive(
                            value,
                            block.load::<S, W>(simd, d_message, v),
                            simd.zero(),
                        );
                        sums[v] = simd.add(sums[v], d_value);
                        if let Some(d_e) = self.d_e {
                            block.store::<S, W>(simd, d_e.pointer().add(edge * width), v, d_value);
                        }
                    }
                }
                for (v, sum) in sums.into_iter().enumerate() {
                    block.store::<S, W>(simd, d_x.as_mut_ptr().cast(), v, sum);
                }
            }
        }
    }
}
