//! Messages of GatedGCN: what neighbours say, averaged by the gates of the edges.

use super::{Edges, ROWS};
use crate::batch_norm::{Block, Blockwise, by_blocks, run_all};
use crate::diffusion_stack::Shared;
use crate::simd::{Isa, Kernel, Simd};

/// Keeps a node without messages from dividing by zero.
pub(super) const EPSILON: f32 = 1e-6;

/// A number of a gate costs about as much as so many that are only added: an exponential and a division.
const GATE: usize = 4;

/// What goes into gated messages; each is a linear map of nodes or edges.
#[derive(Debug, Clone, Copy)]
pub struct Gated<'a> {
    /// `[r, width]`, `D x`: what a target says to the gates of its edges.
    pub gate_target: &'a [f32],
    /// `[r, width]`, `E x`: what a source says.
    pub gate_source: &'a [f32],
    /// `[m, width]`, `C e`: what an edge says itself.
    pub gate_edge: &'a [f32],
    /// `[r, width]`, `B x`: the message of a source.
    pub neighbor: &'a [f32],
}

/// Derivatives of [`Gated`], in the same shapes.
#[derive(Debug)]
pub struct GatedGradients<'a> {
    /// Of `D x`.
    pub gate_target: &'a mut [f32],
    /// Of `E x`.
    pub gate_source: &'a mut [f32],
    /// Of `C e`.
    pub gate_edge: &'a mut [f32],
    /// Of `B x`.
    pub neighbor: &'a mut [f32],
}

/// Gates `g_ij = D x_i + E x_j + C e_ij` of the edges j → i, and what each node hears through them:
/// `out_i = Σ σ(g_ij) B x_j / (Σ σ(g_ij) + 1e-6)`.
///
/// # Shapes
/// - `gates`: `[m, width]`
/// - `total`: `[r, width]`, the denominator, kept for the backward
/// - `out`: `[r, width]`
pub fn gated_forward(
    isa: Isa,
    edges: &Edges,
    inputs: Gated<'_>,
    width: usize,
    gates: &mut [f32],
    total: &mut [f32],
    out: &mut [f32],
) {
    let Gated { gate_target, gate_source, gate_edge, neighbor } = inputs;
    edges.check_nodes(width, &[gate_target, gate_source, neighbor, total, out]);
    edges.check_edges(width, &[gate_edge, gates]);
    let gates = Shared::new(gates);
    let tasks =
        total.chunks_mut(ROWS * width).zip(out.chunks_mut(ROWS * width)).enumerate().collect();
    run_all(edges.numbers(width) * GATE, tasks, |(task, (total, out))| {
        isa.run(GatedForward { edges, inputs, width, start: task * ROWS, gates, total, out });
    });
}

/// Writes the derivatives of what [`gated_forward`] took.
///
/// With `p_i = d_out_i / total_i`: the derivative of `σ(g_ij)` is `p_i (B x_j - out_i)`, that of `B x_j`
/// gets `σ(g_ij) p_i`.
///
/// # Shapes
/// - `neighbor`: `[r, width]`, as the forward took it
/// - `gates`: `[m, width]`, `total`, `out`: `[r, width]`, as the forward wrote them
/// - `d_out`: `[r, width]`; `d_gates`: `[m, width]`, where the gates are used for themselves
pub fn gated_backward(
    isa: Isa,
    edges: &Edges,
    neighbor: &[f32],
    width: usize,
    gates: &[f32],
    total: &[f32],
    out: &[f32],
    d_out: &[f32],
    d_gates: Option<&[f32]>,
    derivatives: GatedGradients<'_>,
) {
    let GatedGradients { gate_target, gate_source, gate_edge, neighbor: d_neighbour } = derivatives;
    edges.check_nodes(width, &[neighbor, total, out, d_out, gate_target, gate_source, d_neighbour]);
    edges.check_edges(width, &[gates, gate_edge]);
    edges.check_edges(width, d_gates.as_slice());
    let (chunk, numbers) = (ROWS * width, edges.numbers(width) * GATE);

    let mut shares = vec![0.0; d_out.len()]; // [r, width], the `p` above
    let d_edge = Shared::new(gate_edge);
    let tasks = shares.chunks_mut(chunk).zip(gate_target.chunks_mut(chunk)).enumerate().collect();
    run_all(numbers, tasks, |(task, (shares, d_target))| {
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
            shares,
            d_target,
            d_edge,
        });
    });

    let (shares, d_edge) = (&shares, &*gate_edge);
    let tasks =
        gate_source.chunks_mut(chunk).zip(d_neighbour.chunks_mut(chunk)).enumerate().collect();
    run_all(numbers, tasks, |(task, (d_source, d_neighbour))| {
        isa.run(GatedAtSource {
            edges,
            width,
            gates,
            shares,
            d_edge,
            start: task * ROWS,
            d_source,
            d_neighbour,
        });
    });
}

// SAFETY in all blocks below: the public functions have checked that every buffer has `width` numbers a
// node or an edge; `Edges` names only nodes and edges that are there; a task's own buffers are the rows of
// its nodes from `start`; and of shared ones it writes only the rows of edges that end at its nodes, each
// of which ends at one.

struct GatedForward<'a> {
    edges: &'a Edges,
    inputs: Gated<'a>,
    width: usize,
    start: usize,
    gates: Shared,
    total: &'a mut [f32],
    out: &'a mut [f32],
}

impl Kernel for GatedForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.width, self);
    }
}

impl Blockwise for GatedForward<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        let Gated { gate_target, gate_source, gate_edge, neighbor } = self.inputs;
        let rows = self.total.chunks_exact_mut(width).zip(self.out.chunks_exact_mut(width));
        for (node, (total, out)) in (self.start..).zip(rows) {
            // SAFETY: see above.
            unsafe {
                let at_target =
                    block.load_all::<S, W>(simd, gate_target.as_ptr().add(node * width));
                let (mut totals, mut sums) = ([simd.splat(EPSILON); W], [simd.zero(); W]);
                for edge in self.edges.incoming.at(node) {
                    let source = *self.edges.sources.get_unchecked(*edge as usize) as usize * width;
                    let edge = *edge as usize * width;
                    for v in 0..W {
                        let at_source =
                            block.load::<S, W>(simd, gate_source.as_ptr().add(source), v);
                        let at_edge = block.load::<S, W>(simd, gate_edge.as_ptr().add(edge), v);
                        let gate = simd.add(simd.add(at_target[v], at_source), at_edge);
                        block.store::<S, W>(simd, self.gates.pointer().add(edge), v, gate);
                        let open = simd.sigmoid(gate);
                        totals[v] = simd.add(totals[v], open);
                        let said = block.load::<S, W>(simd, neighbor.as_ptr().add(source), v);
                        sums[v] = simd.mul_add(open, said, sums[v]);
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

/// The derivatives of gates, and their sums at targets.
struct GatedAtTarget<'a> {
    edges: &'a Edges,
    neighbor: &'a [f32],
    width: usize,
    gates: &'a [f32],
    total: &'a [f32],
    out: &'a [f32],
    d_out: &'a [f32],
    d_gates: Option<&'a [f32]>,
    start: usize,
    shares: &'a mut [f32],
    d_target: &'a mut [f32],
    d_edge: Shared,
}

impl Kernel for GatedAtTarget<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.width, self);
    }
}

impl Blockwise for GatedAtTarget<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        let rows = self.shares.chunks_exact_mut(width).zip(self.d_target.chunks_exact_mut(width));
        for (node, (shares, d_target)) in (self.start..).zip(rows) {
            // SAFETY: see above.
            unsafe {
                let row = node * width;
                let out = block.load_all::<S, W>(simd, self.out.as_ptr().add(row));
                let mut share = block.load_all::<S, W>(simd, self.d_out.as_ptr().add(row));
                let mut sums = [simd.zero(); W];
                for (v, share) in share.iter_mut().enumerate() {
                    // Behind the last channel a total is zero, and what comes of it is never stored.
                    *share =
                        simd.div(*share, block.load::<S, W>(simd, self.total.as_ptr().add(row), v));
                    block.store::<S, W>(simd, shares.as_mut_ptr(), v, *share);
                }
                for edge in self.edges.incoming.at(node) {
                    let source = *self.edges.sources.get_unchecked(*edge as usize) as usize * width;
                    let edge = *edge as usize * width;
                    for v in 0..W {
                        let open = simd.sigmoid(block.load::<S, W>(
                            simd,
                            self.gates.as_ptr().add(edge),
                            v,
                        ));
                        let said = block.load::<S, W>(simd, self.neighbor.as_ptr().add(source), v);
                        let d_open = simd.mul(share[v], simd.sub(said, out[v]));
                        let slope = simd.mul(open, simd.sub(simd.splat(1.0), open));
                        let direct = match self.d_gates {
                            Some(d_gates) => {
                                block.load::<S, W>(simd, d_gates.as_ptr().add(edge), v)
                            }
                            None => simd.zero(),
                        };
                        let d_gate = simd.mul_add(d_open, slope, direct);
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

/// The sums at sources.
struct GatedAtSource<'a> {
    edges: &'a Edges,
    width: usize,
    gates: &'a [f32],
    shares: &'a [f32],
    d_edge: &'a [f32],
    start: usize,
    d_source: &'a mut [f32],
    d_neighbour: &'a mut [f32],
}

impl Kernel for GatedAtSource<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.width, self);
    }
}

impl Blockwise for GatedAtSource<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        let rows =
            self.d_source.chunks_exact_mut(width).zip(self.d_neighbour.chunks_exact_mut(width));
        for (node, (d_source, d_neighbour)) in (self.start..).zip(rows) {
            let (mut gate_sums, mut sums) = ([simd.zero(); W], [simd.zero(); W]);
            // SAFETY: see above.
            unsafe {
                for edge in self.edges.outgoing.at(node) {
                    let target = *self.edges.targets.get_unchecked(*edge as usize) as usize * width;
                    let edge = *edge as usize * width;
                    for v in 0..W {
                        let d_gate = block.load::<S, W>(simd, self.d_edge.as_ptr().add(edge), v);
                        gate_sums[v] = simd.add(gate_sums[v], d_gate);
                        let open = simd.sigmoid(block.load::<S, W>(
                            simd,
                            self.gates.as_ptr().add(edge),
                            v,
                        ));
                        let share = block.load::<S, W>(simd, self.shares.as_ptr().add(target), v);
                        sums[v] = simd.mul_add(open, share, sums[v]);
                    }
                }
                for v in 0..W {
                    block.store::<S, W>(simd, d_source.as_mut_ptr(), v, gate_sums[v]);
                    block.store::<S, W>(simd, d_neighbour.as_mut_ptr(), v, sums[v]);
                }
            }
        }
    }
}
