//! Messages of GINE: sum of the rectified neighbor and edge features.

use std::mem::MaybeUninit;

use super::{ROWS, check_edges, check_nodes, num_values};
use crate::buffer::UninitBuffer;
use crate::channel_blocks::{Block, Blockwise, run_all};
use crate::edges::EdgeIndex;
use crate::parallel::SharedPtr;
use crate::simd::{Isa, Simd};

/// Computes `x_i + Σ ReLU(x_j + e_ji)` over the edges j → i.
///
/// # Shapes
/// - `x`: `[r, width]`
/// - `e`: `[m, width]`, or `None` without edge features
/// - returns `[r, width]`
pub fn gine_forward(
    isa: Isa,
    edges: &EdgeIndex,
    x: &[f32],
    e: Option<&[f32]>,
    width: usize,
) -> Vec<f32> {
    check_nodes(edges, width, &[x]);
    check_edges(edges, width, e.as_slice());
    let mut out = UninitBuffer::new(x.len());
    let tasks = out.as_uninit().chunks_mut(ROWS * width).enumerate().collect();
    run_all(num_values(edges, width), tasks, |(task, out)| {
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
    edges: &EdgeIndex,
    x: &[f32],
    e: Option<&[f32]>,
    width: usize,
    d_out: &[f32],
) -> (Vec<f32>, Option<Vec<f32>>) {
    check_nodes(edges, width, &[x, d_out]);
    check_edges(edges, width, e.as_slice());
    let (mut d_x, mut d_e) = (UninitBuffer::new(x.len()), e.map(|e| UninitBuffer::new(e.len())));
    let to_edges = d_e.as_mut().map(|d_e| SharedPtr::from_uninit(d_e.as_uninit()));
    let tasks = d_x.as_uninit().chunks_mut(ROWS * width).enumerate().collect();
    run_all(num_values(edges, width), tasks, |(task, d_x)| {
        isa.run(GineBackward { edges, x, e, d_out, d_e: to_edges, width, start: task * ROWS, d_x });
    });
    // SAFETY: `GineBackward` writes the rows of all its nodes and of their outgoing edges.
    unsafe { (d_x.assume_init(), d_e.map(|d_e| d_e.assume_init())) }
}

// SAFETY of all blocks below: the public functions have checked that every buffer has `width`
// values per node or edge; `EdgeIndex` contains valid indices only; the buffers of a task have the
// rows of its nodes from `start`; and in shared buffers a task writes only the rows of the outgoing
// edges of its nodes, each of which has one source.

struct GineForward<'a> {
    edges: &'a EdgeIndex,
    x: &'a [f32],
    e: Option<&'a [f32]>,
    width: usize,
    start: usize,
    out: &'a mut [MaybeUninit<f32>],
}

impl Blockwise for GineForward<'_> {
    #[inline(always)]
    fn channels(&self) -> usize {
        self.width
    }

    /// # Safety
    /// As in [`Blockwise::block`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        let x = self.x.as_ptr();
        for (node, out) in (self.start..).zip(self.out.chunks_exact_mut(width)) {
            // SAFETY: see above.
            unsafe {
                let mut sums = block.load_all::<S, W>(simd, x.add(node * width));
                for (source, edge) in self.edges.incoming().entries(node) {
                    let message = x.add(source * width);
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
    edges: &'a EdgeIndex,
    x: &'a [f32],
    e: Option<&'a [f32]>,
    d_out: &'a [f32],
    d_e: Option<SharedPtr<f32>>,
    width: usize,
    start: usize,
    d_x: &'a mut [MaybeUninit<f32>],
}

impl Blockwise for GineBackward<'_> {
    #[inline(always)]
    fn channels(&self) -> usize {
        self.width
    }

    /// # Safety
    /// As in [`Blockwise::block`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        let d_out = self.d_out.as_ptr();
        for (node, d_x) in (self.start..).zip(self.d_x.chunks_exact_mut(width)) {
            // SAFETY: see above.
            unsafe {
                let x = block.load_all::<S, W>(simd, self.x.as_ptr().add(node * width));
                let mut sums = block.load_all::<S, W>(simd, d_out.add(node * width));
                for (target, edge) in self.edges.outgoing().entries(node) {
                    let d_message = d_out.add(target * width);
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
