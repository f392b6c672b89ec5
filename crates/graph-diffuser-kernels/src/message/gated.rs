//! Messages of GatedGCN: average of the neighbor messages, weighted by edge gates.

use super::{ROWS, check_edges, check_nodes, num_values};
use crate::channel_blocks::{Block, Blockwise, run_all};
use crate::edges::EdgeIndex;
use crate::parallel::SharedPtr;
use crate::simd::{Isa, Simd};

/// Term added to the sum of the gates, so that nodes without incoming edges do not divide by zero.
pub(super) const EPSILON: f32 = 1e-6;

/// Cost of a gate value relative to an addition: one exponential and one division.
const GATE_COST: usize = 4;

/// Inputs of gated messages; each is a linear projection of node or edge features.
#[derive(Debug, Clone, Copy)]
pub struct GatedInputs<'a> {
    /// `[r, width]`, `D x`: gate contribution of the target.
    pub gate_target: &'a [f32],
    /// `[r, width]`, `E x`: gate contribution of the source.
    pub gate_source: &'a [f32],
    /// `[m, width]`, `C e`: gate contribution of the edge.
    pub gate_edge: &'a [f32],
    /// `[r, width]`, `B x`: message of the source.
    pub neighbor: &'a [f32],
}

/// Gradients of [`GatedInputs`], in the same shapes.
#[derive(Debug)]
pub struct GatedGradients<'a> {
    /// Gradient of `D x`.
    pub gate_target: &'a mut [f32],
    /// Gradient of `E x`.
    pub gate_source: &'a mut [f32],
    /// Gradient of `C e`.
    pub gate_edge: &'a mut [f32],
    /// Gradient of `B x`.
    pub neighbor: &'a mut [f32],
}

/// Computes the gates `g_ij = D x_i + E x_j + C e_ij` of the edges j → i and the gated average
/// `out_i = Σ σ(g_ij) B x_j / (Σ σ(g_ij) + 1e-6)`.
///
/// # Shapes
/// - `gates`: `[m, width]`, written
/// - `total`: `[r, width]`, the denominator, written for the backward pass
/// - `out`: `[r, width]`, written
pub fn gated_forward(
    isa: Isa,
    edges: &EdgeIndex,
    inputs: GatedInputs<'_>,
    width: usize,
    gates: &mut [f32],
    total: &mut [f32],
    out: &mut [f32],
) {
    let GatedInputs { gate_target, gate_source, gate_edge, neighbor } = inputs;
    check_nodes(edges, width, &[gate_target, gate_source, neighbor, total, out]);
    check_edges(edges, width, &[gate_edge, gates]);
    let gates = SharedPtr::new(gates);
    let tasks =
        total.chunks_mut(ROWS * width).zip(out.chunks_mut(ROWS * width)).enumerate().collect();
    run_all(num_values(edges, width) * GATE_COST, tasks, |(task, (total, out))| {
        isa.run(GatedForward { edges, inputs, width, start: task * ROWS, gates, total, out });
    });
}

/// Writes the gradients of [`gated_forward`] to `gradients`.
///
/// With `p_i = d_out_i / total_i`, the gradient of `σ(g_ij)` is `p_i (B x_j - out_i)`, and the edge
/// adds `σ(g_ij) p_i` to the gradient of `B x_j`.
///
/// # Shapes
/// - `neighbor`: `[r, width]`, as passed to the forward pass
/// - `gates`: `[m, width]`, `total`, `out`: `[r, width]`, as computed by the forward pass
/// - `d_out`: `[r, width]`
/// - `d_gates`: `[m, width]`, gradient of the gates if they have other uses
pub fn gated_backward(
    isa: Isa,
    edges: &EdgeIndex,
    neighbor: &[f32],
    width: usize,
    gates: &[f32],
    total: &[f32],
    out: &[f32],
    d_out: &[f32],
    d_gates: Option<&[f32]>,
    gradients: GatedGradients<'_>,
) {
    let GatedGradients { gate_target, gate_source, gate_edge, neighbor: d_neighbor } = gradients;
    check_nodes(edges, width, &[neighbor, total, out, d_out, gate_target, gate_source, d_neighbor]);
    check_edges(edges, width, &[gates, gate_edge]);
    check_edges(edges, width, d_gates.as_slice());
    let (chunk, num_values) = (ROWS * width, num_values(edges, width) * GATE_COST);

    let mut scaled_d_out = vec![0.0; d_out.len()]; // [r, width], the `p` above
    let d_edge = SharedPtr::new(gate_edge);
    let tasks =
        scaled_d_out.chunks_mut(chunk).zip(gate_target.chunks_mut(chunk)).enumerate().collect();
    run_all(num_values, tasks, |(task, (scaled_d_out, d_target))| {
        let start = task * ROWS;
        isa.run(GatedAtTarget {
            edges,
            neighbor,
            width,
            gates,
            total,
            out,
            d_out,
            d_gates,
            start,
            scaled_d_out,
            d_target,
            d_edge,
        });
    });

    let (scaled_d_out, d_edge) = (&scaled_d_out, &*gate_edge);
    let tasks =
        gate_source.chunks_mut(chunk).zip(d_neighbor.chunks_mut(chunk)).enumerate().collect();
    run_all(num_values, tasks, |(task, (d_source, d_neighbor))| {
        isa.run(GatedAtSource {
            edges,
            width,
            gates,
            scaled_d_out,
            d_edge,
            start: task * ROWS,
            d_source,
            d_neighbor,
        });
    });
}

// SAFETY of all blocks below: the public functions have checked that every buffer has `width`
// values per node or edge; `EdgeIndex` contains valid indices only; the buffers of a task have the
// rows of its nodes from `start`; and in shared buffers a task writes only the rows of the incoming
// edges of its nodes, each of which has one target.

struct GatedForward<'a> {
    edges: &'a EdgeIndex,
    inputs: GatedInputs<'a>,
    width: usize,
    start: usize,
    gates: SharedPtr<f32>,
    total: &'a mut [f32],
    out: &'a mut [f32],
}

impl Blockwise for GatedForward<'_> {
    #[inline(always)]
    fn channels(&self) -> usize {
        self.width
    }

    /// # Safety
    /// As in [`Blockwise::block`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        let GatedInputs { gate_target, gate_source, gate_edge, neighbor } = self.inputs;
        let rows = self.total.chunks_exact_mut(width).zip(self.out.chunks_exact_mut(width));
        for (node, (total, out)) in (self.start..).zip(rows) {
            // SAFETY: see above.
            unsafe {
                let at_target =
                    block.load_all::<S, W>(simd, gate_target.as_ptr().add(node * width));
                let (mut totals, mut sums) = ([simd.splat(EPSILON); W], [simd.zero(); W]);
                for (source, edge) in self.edges.incoming().entries(node) {
                    let (source, edge) = (source * width, edge * width);
                    for v in 0..W {
                        let at_source =
                            block.load::<S, W>(simd, gate_source.as_ptr().add(source), v);
                        let at_edge = block.load::<S, W>(simd, gate_edge.as_ptr().add(edge), v);
                        let gate = simd.add(simd.add(at_target[v], at_source), at_edge);
                        block.store::<S, W>(simd, self.gates.pointer().add(edge), v, gate);
                        let sigma = simd.sigmoid(gate);
                        totals[v] = simd.add(totals[v], sigma);
                        let message = block.load::<S, W>(simd, neighbor.as_ptr().add(source), v);
                        sums[v] = simd.mul_add(sigma, message, sums[v]);
                    }
                }
                for v in 0..W {
                    block.store::<S, W>(simd, total.as_mut_ptr(), v, totals[v]);
                    block.store::<S, W>(simd, out.as_mut_ptr(), v, simd.div(sums[v], totals[v]));
                }
            }
        }
    }
}

/// Computes the gradients of the gates, and their sums by target.
struct GatedAtTarget<'a> {
    edges: &'a EdgeIndex,
    neighbor: &'a [f32],
    width: usize,
    gates: &'a [f32],
    total: &'a [f32],
    out: &'a [f32],
    d_out: &'a [f32],
    d_gates: Option<&'a [f32]>,
    start: usize,
    scaled_d_out: &'a mut [f32],
    d_target: &'a mut [f32],
    d_edge: SharedPtr<f32>,
}

impl Blockwise for GatedAtTarget<'_> {
    #[inline(always)]
    fn channels(&self) -> usize {
        self.width
    }

    /// # Safety
    /// As in [`Blockwise::block`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        let rows =
            self.scaled_d_out.chunks_exact_mut(width).zip(self.d_target.chunks_exact_mut(width));
        for (node, (scaled_d_out, d_target)) in (self.start..).zip(rows) {
            // SAFETY: see above.
            unsafe {
                let row = node * width;
                let out = block.load_all::<S, W>(simd, self.out.as_ptr().add(row));
                let mut scaled = block.load_all::<S, W>(simd, self.d_out.as_ptr().add(row));
                let mut sums = [simd.zero(); W];
                for (v, scaled) in scaled.iter_mut().enumerate() {
                    // Padding lanes divide by zero; their results are never stored.
                    *scaled = simd
                        .div(*scaled, block.load::<S, W>(simd, self.total.as_ptr().add(row), v));
                    block.store::<S, W>(simd, scaled_d_out.as_mut_ptr(), v, *scaled);
                }
                for (source, edge) in self.edges.incoming().entries(node) {
                    let (source, edge) = (source * width, edge * width);
                    for v in 0..W {
                        let sigma = simd.sigmoid(block.load::<S, W>(
                            simd,
                            self.gates.as_ptr().add(edge),
                            v,
                        ));
                        let message =
                            block.load::<S, W>(simd, self.neighbor.as_ptr().add(source), v);
                        let d_sigma = simd.mul(scaled[v], simd.sub(message, out[v]));
                        let slope = simd.mul(sigma, simd.sub(simd.splat(1.0), sigma));
                        let direct = match self.d_gates {
                            Some(d_gates) => {
                                block.load::<S, W>(simd, d_gates.as_ptr().add(edge), v)
                            }
                            None => simd.zero(),
                        };
                        let d_gate = simd.mul_add(d_sigma, slope, direct);
                        block.store::<S, W>(simd, self.d_edge.pointer().add(edge), v, d_gate);
                        sums[v] = simd.add(sums[v], d_gate);
                    }
                }
                for (v, sum) in sums.into_iter().enumerate() {
                    block.store::<S, W>(simd, d_target.as_mut_ptr(), v, sum);
                }
            }
        }
    }
}

/// Computes the sums by source.
struct GatedAtSource<'a> {
    edges: &'a EdgeIndex,
    width: usize,
    gates: &'a [f32],
    scaled_d_out: &'a [f32],
    d_edge: &'a [f32],
    start: usize,
    d_source: &'a mut [f32],
    d_neighbor: &'a mut [f32],
}

impl Blockwise for GatedAtSource<'_> {
    #[inline(always)]
    fn channels(&self) -> usize {
        self.width
    }

    /// # Safety
    /// As in [`Blockwise::block`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        let rows =
            self.d_source.chunks_exact_mut(width).zip(self.d_neighbor.chunks_exact_mut(width));
        for (node, (d_source, d_neighbor)) in (self.start..).zip(rows) {
            let (mut gate_sums, mut sums) = ([simd.zero(); W], [simd.zero(); W]);
            // SAFETY: see above.
            unsafe {
                for (target, edge) in self.edges.outgoing().entries(node) {
                    let (target, edge) = (target * width, edge * width);
                    for v in 0..W {
                        let d_gate = block.load::<S, W>(simd, self.d_edge.as_ptr().add(edge), v);
                        gate_sums[v] = simd.add(gate_sums[v], d_gate);
                        let sigma = simd.sigmoid(block.load::<S, W>(
                            simd,
                            self.gates.as_ptr().add(edge),
                            v,
                        ));
                        let scaled =
                            block.load::<S, W>(simd, self.scaled_d_out.as_ptr().add(target), v);
                        sums[v] = simd.mul_add(sigma, scaled, sums[v]);
                    }
                }
                for v in 0..W {
                    block.store::<S, W>(simd, d_source.as_mut_ptr(), v, gate_sums[v]);
                    block.store::<S, W>(simd, d_neighbor.as_mut_ptr(), v, sums[v]);
                }
            }
        }
    }
}
