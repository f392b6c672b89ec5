//! Messages along edges: gathered at one end, summed at the other.
//!
//! Whatever is summed by target goes down the edges that enter a node, whatever is summed by source down
//! those that leave it, each in the order of the edges. A row of a result belongs to one task, so no two
//! write to one place, and sums do not depend on how rows are shared out.
//!
//! [`gine_forward`] and [`gated_forward`] are the messages of the two kinds of layers; [`meet`] is what
//! both ends of an edge say together, and [`sum_by_row`] its derivative at either.

use std::mem::MaybeUninit;

use crate::batch_norm::{Block, Blockwise, by_blocks, run_all};
use crate::fresh::Fresh;
use crate::simd::{Isa, Kernel, Simd};
use crate::walk_stack::Shared;

/// Keeps a node without messages from dividing by zero.
const EPSILON: f32 = 1e-6;

/// Nodes of a task.
const ROWS: usize = 64;

/// A number of a gate costs about as much as so many that are only added: an exponential and a division.
const GATE: usize = 4;

/// The edges at each node, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incidence {
    starts: Vec<usize>,
    edges: Vec<u32>,
}

impl Incidence {
    /// By the node that each edge has at one end.
    pub fn new(nodes: usize, ends: &[u32]) -> Self {
        let mut starts = vec![0; nodes + 1];
        for end in ends {
            assert!((*end as usize) < nodes, "an edge at node {end} of {nodes}");
            starts[*end as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut edges = vec![0; ends.len()];
        for (edge, end) in ends.iter().enumerate() {
            edges[starts[*end as usize]] = edge as u32;
            starts[*end as usize] += 1;
        }
        // Every start has moved to where the next began.
        starts.rotate_right(1);
        starts[0] = 0;
        Self { starts, edges }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }

    /// The edges at a node.
    #[inline(always)]
    fn at(&self, node: usize) -> &[u32] {
        &self.edges[self.starts[node]..self.starts[node + 1]]
    }
}

/// The edges of a batch by both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edges {
    sources: Vec<u32>,
    targets: Vec<u32>,
    leaving: Incidence,
    entering: Incidence,
}

impl Edges {
    /// Edge after edge; messages go from source to target.
    pub fn new(nodes: usize, sources: &[u32], targets: &[u32]) -> Self {
        assert_eq!(sources.len(), targets.len(), "an edge has two ends");
        Self {
            sources: sources.to_vec(),
            targets: targets.to_vec(),
            leaving: Incidence::new(nodes, sources),
            entering: Incidence::new(nodes, targets),
        }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.entering.nodes()
    }

    /// Number of edges.
    pub fn count(&self) -> usize {
        self.sources.len()
    }

    /// The edges that leave each node.
    pub fn leaving(&self) -> &Incidence {
        &self.leaving
    }

    /// The edges that enter each node.
    pub fn entering(&self) -> &Incidence {
        &self.entering
    }

    /// Numbers that go over all edges and nodes.
    fn numbers(&self, width: usize) -> usize {
        (self.count() + self.nodes()) * width
    }

    #[track_caller]
    fn check_nodes(&self, width: usize, buffers: &[&[f32]]) {
        assert!(width > 0, "rows without numbers");
        for buffer in buffers {
            assert_eq!(buffer.len(), self.nodes() * width, "{} nodes of width {width}", self.nodes());
        }
    }

    #[track_caller]
    fn check_edges(&self, width: usize, buffers: &[&[f32]]) {
        for buffer in buffers {
            assert_eq!(buffer.len(), self.count() * width, "{} edges of width {width}", self.count());
        }
    }
}

/// What both ends of each edge say, and the edge itself: `s_i + t_j + e_ij` for the edges i → j.
///
/// # Shapes
/// - `at_source`, `at_target`: `[r, width]`
/// - `e`: `[m, width]`, or nothing where edges have no features
/// - returns `[m, width]`
pub fn meet(
    isa: Isa,
    edges: &Edges,
    at_source: &[f32],
    at_target: &[f32],
    e: Option<&[f32]>,
    width: usize,
) -> Vec<f32> {
    edges.check_nodes(width, &[at_source, at_target]);
    edges.check_edges(width, e.as_slice());
    let mut out = Fresh::new(edges.count() * width);
    let tasks = out.room().chunks_mut(ROWS * width).enumerate().collect();
    run_all(3 * edges.count() * width, tasks, |(task, out)| {
        isa.run(Meet { edges, at_source, at_target, e, width, start: task * ROWS, out });
    });
    // SAFETY: `Meet` writes the rows of all its edges.
    unsafe { out.written() }
}

/// For each node, the sum over its edges.
///
/// # Shapes
/// - `values`: `[m, width]`
/// - returns `[r, width]`
pub fn sum_by_row(isa: Isa, values: &[f32], width: usize, by: &Incidence) -> Vec<f32> {
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

/// What each node hears: `x_i + Σ ReLU(x_j + e_ji)` over the edges j → i.
///
/// # Shapes
/// - `x`: `[r, width]`
/// - `e`: `[m, width]`, or nothing where edges have no features
/// - returns `[r, width]`
pub fn gine_forward(isa: Isa, edges: &Edges, x: &[f32], e: Option<&[f32]>, width: usize) -> Vec<f32> {
    edges.check_nodes(width, &[x]);
    edges.check_edges(width, e.as_slice());
    let mut out = Fresh::new(x.len());
    let tasks = out.room().chunks_mut(ROWS * width).enumerate().collect();
    run_all(edges.numbers(width), tasks, |(task, out)| {
        isa.run(GineForward { edges, x, e, width, start: task * ROWS, out });
    });
    // SAFETY: `GineForward` writes the rows of all its nodes.
    unsafe { out.written() }
}

/// Derivatives of what [`gine_forward`] took: of `x`, and of `e` where there was one.
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
    let (mut d_x, mut d_e) = (Fresh::new(x.len()), e.map(|e| Fresh::new(e.len())));
    let to_edges = d_e.as_mut().map(|d_e| Shared::fresh(d_e.room()));
    let tasks = d_x.room().chunks_mut(ROWS * width).enumerate().collect();
    run_all(edges.numbers(width), tasks, |(task, d_x)| {
        isa.run(GineBackward { edges, x, e, d_out, d_e: to_edges, width, start: task * ROWS, d_x });
    });
    // SAFETY: `GineBackward` writes the rows of all its nodes, and those of the edges that leave them.
    unsafe { (d_x.written(), d_e.map(|d_e| d_e.written())) }
}

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
    pub neighbour: &'a [f32],
}

/// Derivatives of [`Gated`], in the same shapes.
#[derive(Debug)]
pub struct GatedDerivatives<'a> {
    /// Of `D x`.
    pub gate_target: &'a mut [f32],
    /// Of `E x`.
    pub gate_source: &'a mut [f32],
    /// Of `C e`.
    pub gate_edge: &'a mut [f32],
    /// Of `B x`.
    pub neighbour: &'a mut [f32],
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
    let Gated { gate_target, gate_source, gate_edge, neighbour } = inputs;
    edges.check_nodes(width, &[gate_target, gate_source, neighbour, total, out]);
    edges.check_edges(width, &[gate_edge, gates]);
    let gates = Shared::new(gates);
    let tasks = total.chunks_mut(ROWS * width).zip(out.chunks_mut(ROWS * width)).enumerate().collect();
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
/// - `neighbour`: `[r, width]`, as the forward took it
/// - `gates`: `[m, width]`, `total`, `out`: `[r, width]`, as the forward wrote them
/// - `d_out`: `[r, width]`; `d_gates`: `[m, width]`, where the gates are used for themselves
pub fn gated_backward(
    isa: Isa,
    edges: &Edges,
    neighbour: &[f32],
    width: usize,
    gates: &[f32],
    total: &[f32],
    out: &[f32],
    d_out: &[f32],
    d_gates: Option<&[f32]>,
    derivatives: GatedDerivatives<'_>,
) {
    let GatedDerivatives { gate_target, gate_source, gate_edge, neighbour: d_neighbour } = derivatives;
    edges.check_nodes(width, &[neighbour, total, out, d_out, gate_target, gate_source, d_neighbour]);
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
            neighbour,
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
    let tasks = gate_source.chunks_mut(chunk).zip(d_neighbour.chunks_mut(chunk)).enumerate().collect();
    run_all(numbers, tasks, |(task, (d_source, d_neighbour))| {
        isa.run(GatedAtSource { edges, width, gates, shares, d_edge, start: task * ROWS, d_source, d_neighbour });
    });
}

// SAFETY in all blocks below: the public functions have checked that every buffer has `width` numbers a
// node or an edge; `Incidence` and `Edges` name only nodes and edges that are there; a task's own buffers
// are the rows of its nodes from `start`; and of shared ones it writes only the rows of edges that end at
// its nodes, each of which ends at one.

struct Meet<'a> {
    edges: &'a Edges,
    at_source: &'a [f32],
    at_target: &'a [f32],
    e: Option<&'a [f32]>,
    width: usize,
    start: usize,
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Meet<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.width, self);
    }
}

impl Blockwise for Meet<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let width = self.width;
        for (edge, out) in (self.start..).zip(self.out.chunks_exact_mut(width)) {
            // SAFETY: see above; these tasks own the rows of their edges.
            unsafe {
                let source = *self.edges.sources.get_unchecked(edge) as usize * width;
                let target = *self.edges.targets.get_unchecked(edge) as usize * width;
                for v in 0..W {
                    let source = block.load::<S, W>(simd, self.at_source.as_ptr().add(source), v);
                    let target = block.load::<S, W>(simd, self.at_target.as_ptr().add(target), v);
                    let mut value = simd.add(source, target);
                    if let Some(e) = self.e {
                        value = simd.add(value, block.load::<S, W>(simd, e.as_ptr().add(edge * width), v));
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
    by: &'a Incidence,
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
                for edge in self.edges.entering.at(node) {
                    let edge = *edge as usize;
                    let said = x.add(*self.edges.sources.get_unchecked(edge) as usize * width);
                    for (v, sum) in sums.iter_mut().enumerate() {
                        let mut value = block.load::<S, W>(simd, said, v);
                        if let Some(e) = self.e {
                            value = simd.add(value, block.load::<S, W>(simd, e.as_ptr().add(edge * width), v));
                        }
                        // The value comes second: it is what `max` returns if it is not a number.
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
                for edge in self.edges.leaving.at(node) {
                    let edge = *edge as usize;
                    let d_heard = d_out.add(*self.edges.targets.get_unchecked(edge) as usize * width);
                    for v in 0..W {
                        let mut value = x[v];
                        if let Some(e) = self.e {
                            value = simd.add(value, block.load::<S, W>(simd, e.as_ptr().add(edge * width), v));
                        }
                        let d_value = simd.select_positive(value, block.load::<S, W>(simd, d_heard, v), simd.zero());
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
        let Gated { gate_target, gate_source, gate_edge, neighbour } = self.inputs;
        let rows = self.total.chunks_exact_mut(width).zip(self.out.chunks_exact_mut(width));
        for (node, (total, out)) in (self.start..).zip(rows) {
            // SAFETY: see above.
            unsafe {
                let at_target = block.load_all::<S, W>(simd, gate_target.as_ptr().add(node * width));
                let (mut totals, mut sums) = ([simd.splat(EPSILON); W], [simd.zero(); W]);
                for edge in self.edges.entering.at(node) {
                    let source = *self.edges.sources.get_unchecked(*edge as usize) as usize * width;
                    let edge = *edge as usize * width;
                    for v in 0..W {
                        let at_source = block.load::<S, W>(simd, gate_source.as_ptr().add(source), v);
                        let at_edge = block.load::<S, W>(simd, gate_edge.as_ptr().add(edge), v);
                        let gate = simd.add(simd.add(at_target[v], at_source), at_edge);
                        block.store::<S, W>(simd, self.gates.pointer().add(edge), v, gate);
                        let open = simd.sigmoid(gate);
                        totals[v] = simd.add(totals[v], open);
                        let said = block.load::<S, W>(simd, neighbour.as_ptr().add(source), v);
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
    neighbour: &'a [f32],
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
                    *share = simd.div(*share, block.load::<S, W>(simd, self.total.as_ptr().add(row), v));
                    block.store::<S, W>(simd, shares.as_mut_ptr(), v, *share);
                }
                for edge in self.edges.entering.at(node) {
                    let source = *self.edges.sources.get_unchecked(*edge as usize) as usize * width;
                    let edge = *edge as usize * width;
                    for v in 0..W {
                        let open = simd.sigmoid(block.load::<S, W>(simd, self.gates.as_ptr().add(edge), v));
                        let said = block.load::<S, W>(simd, self.neighbour.as_ptr().add(source), v);
                        let d_open = simd.mul(share[v], simd.sub(said, out[v]));
                        let slope = simd.mul(open, simd.sub(simd.splat(1.0), open));
                        let direct = match self.d_gates {
                            Some(d_gates) => block.load::<S, W>(simd, d_gates.as_ptr().add(edge), v),
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
        let rows = self.d_source.chunks_exact_mut(width).zip(self.d_neighbour.chunks_exact_mut(width));
        for (node, (d_source, d_neighbour)) in (self.start..).zip(rows) {
            let (mut gate_sums, mut sums) = ([simd.zero(); W], [simd.zero(); W]);
            // SAFETY: see above.
            unsafe {
                for edge in self.edges.leaving.at(node) {
                    let target = *self.edges.targets.get_unchecked(*edge as usize) as usize * width;
                    let edge = *edge as usize * width;
                    for v in 0..W {
                        let d_gate = block.load::<S, W>(simd, self.d_edge.as_ptr().add(edge), v);
                        gate_sums[v] = simd.add(gate_sums[v], d_gate);
                        let open = simd.sigmoid(block.load::<S, W>(simd, self.gates.as_ptr().add(edge), v));
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

#[cfg(test)]
mod tests {
    use crate::scramble;

    use super::*;

    const WIDTHS: [usize; 14] = [1, 2, 3, 7, 8, 9, 16, 17, 32, 33, 63, 64, 65, 100];

    fn random(at: usize, seed: u32) -> u32 {
        scramble(scramble(at as u32) ^ (seed << 20))
    }

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        (0..count).map(|at| random(at, seed) as f32 / u32::MAX as f32 * 4.0 - 2.0).collect()
    }

    fn wide(values: &[f32]) -> Vec<f64> {
        values.iter().map(|value| f64::from(*value)).collect()
    }

    /// Sources and targets: loops, one-way and double edges, isolated nodes; with few nodes, none.
    fn some_edges(nodes: usize) -> [Vec<u32>; 2] {
        let mut ends = [Vec::new(), Vec::new()];
        for edge in 0..if nodes == 2 { 0 } else { 3 * nodes } {
            let [source, target] = [1, 2].map(|seed| random(edge, seed) % nodes as u32);
            if source % 7 != 3 && target % 7 != 3 {
                for _ in 0..=edge % 2 {
                    ends[0].push(source);
                    ends[1].push(target);
                }
            }
        }
        ends
    }

    /// All sizes with few widths and all widths with few sizes.
    fn sizes() -> Vec<(usize, usize)> {
        let few_widths = [0, 1, 2, 15, 16, 17, 130, 300].into_iter().flat_map(|nodes| [(nodes, 5), (nodes, 64)]);
        few_widths.chain(WIDTHS.into_iter().flat_map(|width| [(1, width), (17, width), (70, width)])).collect()
    }

    fn assert_close(ours: &[f32], exact: &[f64], what: &str) {
        assert_eq!(ours.len(), exact.len(), "{what}");
        let size = exact.iter().fold(1.0_f64, |size, value| size.max(value.abs()));
        for (at, (ours, exact)) in ours.iter().zip(exact).enumerate() {
            assert!((f64::from(*ours) - exact).abs() < 2e-6 * size, "{what} at {at}: {ours} is not {exact}");
        }
    }

    #[test]
    fn a_path_of_three_by_hand() {
        // 0 -> 1, 2 -> 1, 1 -> 1, with x = 1, -3, 2 and e = 0.5, -5, 4.
        // Node 1 hears 1.5, nothing, and 1 from itself.
        let edges = Edges::new(3, &[0, 2, 1], &[1, 1, 1]);
        for isa in Isa::available() {
            let (x, e) = ([1.0, -3.0, 2.0], [0.5, -5.0, 4.0]);
            assert_eq!(gine_forward(isa, &edges, &x, Some(&e), 1), [1.0, -0.5, 2.0]);
            let (d_x, d_e) = gine_backward(isa, &edges, &x, Some(&e), 1, &[1.0, 10.0, 100.0]);
            assert_eq!(d_x, [11.0, 20.0, 100.0]);
            assert_eq!(d_e, Some(vec![10.0, 0.0, 10.0]));

            // Gates of zero are half open: a node hears the average of its neighbours.
            let zeros = [0.0; 3];
            let inputs = Gated { gate_target: &zeros, gate_source: &zeros, gate_edge: &zeros, neighbour: &x };
            let (mut gates, mut total, mut out) = ([1.0; 3], [0.0; 3], [0.0; 3]);
            gated_forward(isa, &edges, inputs, 1, &mut gates, &mut total, &mut out);
            assert_eq!(gates, zeros);
            assert!(out[0] == 0.0 && out[1].abs() < 1e-6 && out[2] == 0.0, "{out:?}");
        }
    }

    #[test]
    fn ends_meet_at_edges_and_edges_are_summed_at_ends() {
        for isa in Isa::available() {
            for (nodes, width) in sizes() {
                let [sources, targets] = some_edges(nodes);
                let edges = Edges::new(nodes, &sources, &targets);
                let [at_source, at_target] = [3, 4].map(|seed| numbers(nodes * width, seed));
                let features = numbers(sources.len() * width, 5);
                for e in [None, Some(features.as_slice())] {
                    let met = meet(isa, &edges, &at_source, &at_target, e, width);
                    assert_eq!(met.len(), sources.len() * width);
                    let mut exact = vec![0.0; nodes * width];
                    for (edge, row) in met.chunks(width).enumerate() {
                        let [source, target] = [&sources, &targets].map(|ends| ends[edge] as usize * width);
                        for (at, met) in row.iter().enumerate() {
                            let ends = at_source[source + at] + at_target[target + at];
                            assert_eq!(*met, e.map_or(ends, |e| ends + e[edge * width + at]));
                            exact[source + at] += f64::from(*met);
                        }
                    }
                    let sum = sum_by_row(isa, &met, width, edges.leaving());
                    assert_close(&sum, &exact, &format!("{isa:?} [{nodes}, {width}]"));
                }
            }
        }
    }

    #[test]
    fn gine_is_that_of_double_precision() {
        for (nodes, width) in sizes() {
            let [sources, targets] = some_edges(nodes);
            let count = sources.len();
            let edges = Edges::new(nodes, &sources, &targets);
            let (x, d_out) = (numbers(nodes * width, 3), numbers(nodes * width, 4));
            let features = numbers(count * width, 5);
            for e in [None, Some(features.as_slice())] {
                let (mut exact, mut exact_d_x, mut exact_d_e) = (wide(&x), wide(&d_out), vec![0.0; count * width]);
                for edge in 0..count {
                    for at in 0..width {
                        let [j, i] = [&sources, &targets].map(|ends| ends[edge] as usize * width + at);
                        let said = f64::from(x[j]) + e.map_or(0.0, |e| f64::from(e[edge * width + at]));
                        if said > 0.0 {
                            exact[i] += said;
                            exact_d_x[j] += f64::from(d_out[i]);
                            exact_d_e[edge * width + at] = f64::from(d_out[i]);
                        }
                    }
                }
                for isa in Isa::available() {
                    let what = format!("{isa:?} [{nodes}, {width}]");
                    let out = gine_forward(isa, &edges, &x, e, width);
                    let (d_x, d_e) = gine_backward(isa, &edges, &x, e, width, &d_out);
                    assert_close(&out, &exact, &format!("{what} out"));
                    assert_close(&d_x, &exact_d_x, &format!("{what} d_x"));
                    assert_eq!(d_e.is_some(), e.is_some());
                    if let Some(d_e) = d_e {
                        assert_close(&d_e, &exact_d_e, &format!("{what} d_e"));
                    }
                }
            }
        }
    }

    #[test]
    fn gated_messages_are_those_of_double_precision() {
        for (nodes, width) in sizes() {
            let [sources, targets] = some_edges(nodes);
            let count = sources.len();
            let edges = Edges::new(nodes, &sources, &targets);
            let [d, e, b, d_out] = [3, 4, 5, 6].map(|seed| numbers(nodes * width, seed));
            let [c, d_gates] = [7, 8].map(|seed| numbers(count * width, seed));
            let inputs = Gated { gate_target: &d, gate_source: &e, gate_edge: &c, neighbour: &b };
            for d_gates in [None, Some(d_gates.as_slice())] {
                let mut exact_gates = vec![0.0; count * width];
                let (mut sum, mut total) = (vec![0.0; nodes * width], vec![f64::from(EPSILON); nodes * width]);
                let ends = |edge: usize, at: usize| [&sources, &targets].map(|ends| ends[edge] as usize * width + at);
                for edge in 0..count {
                    for at in 0..width {
                        let ([j, i], place) = (ends(edge, at), edge * width + at);
                        let gate = f64::from(d[i]) + f64::from(e[j]) + f64::from(c[place]);
                        exact_gates[place] = gate;
                        let open = 1.0 / (1.0 + (-gate).exp());
                        sum[i] += open * f64::from(b[j]);
                        total[i] += open;
                    }
                }
                let exact: Vec<f64> = sum.iter().zip(&total).map(|(sum, total)| sum / total).collect();
                let [mut exact_d, mut exact_e, mut exact_b] = [(); 3].map(|()| vec![0.0; nodes * width]);
                let mut exact_c = vec![0.0; count * width];
                for edge in 0..count {
                    for at in 0..width {
                        let ([j, i], place) = (ends(edge, at), edge * width + at);
                        let open = 1.0 / (1.0 + (-exact_gates[place]).exp());
                        let d_sum = f64::from(d_out[i]) / total[i];
                        let d_total = -f64::from(d_out[i]) * sum[i] / (total[i] * total[i]);
                        exact_b[j] += open * d_sum;
                        let d_open = d_sum * f64::from(b[j]) + d_total;
                        let d_gate = d_open * open * (1.0 - open) + d_gates.map_or(0.0, |g| f64::from(g[place]));
                        exact_c[place] = d_gate;
                        exact_d[i] += d_gate;
                        exact_e[j] += d_gate;
                    }
                }
                for isa in Isa::available() {
                    let what = format!("{isa:?} [{nodes}, {width}]");
                    let [mut out, mut total, mut d_d, mut d_e, mut d_b] =
                        [(); 5].map(|()| vec![f32::NAN; nodes * width]);
                    let [mut gates, mut d_c] = [(); 2].map(|()| vec![f32::NAN; count * width]);
                    gated_forward(isa, &edges, inputs, width, &mut gates, &mut total, &mut out);
                    let derivatives = GatedDerivatives {
                        gate_target: &mut d_d,
                        gate_source: &mut d_e,
                        gate_edge: &mut d_c,
                        neighbour: &mut d_b,
                    };
                    gated_backward(isa, &edges, &b, width, &gates, &total, &out, &d_out, d_gates, derivatives);
                    assert_close(&gates, &exact_gates, &format!("{what} gates"));
                    assert_close(&out, &exact, &format!("{what} out"));
                    assert_close(&d_b, &exact_b, &format!("{what} d_b"));
                    assert_close(&d_c, &exact_c, &format!("{what} d_c"));
                    assert_close(&d_d, &exact_d, &format!("{what} d_d"));
                    assert_close(&d_e, &exact_e, &format!("{what} d_e"));
                }
            }
        }
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        let (nodes, width) = (1500, 70);
        let [sources, targets] = some_edges(nodes);
        let count = sources.len();
        let edges = Edges::new(nodes, &sources, &targets);
        let [d, e, b, d_out] = [3, 4, 5, 6].map(|seed| numbers(nodes * width, seed));
        let [c, d_gates] = [7, 8].map(|seed| numbers(count * width, seed));
        let inputs = Gated { gate_target: &d, gate_source: &e, gate_edge: &c, neighbour: &b };
        for isa in Isa::available() {
            let results = [1, 2, 5].map(|threads| {
                let pool = crate::Threads::new(threads);
                pool.install(|| {
                    let [mut out, mut total, mut d_d, mut d_e, mut d_b] =
                        [(); 5].map(|()| vec![f32::NAN; nodes * width]);
                    let [mut gates, mut d_c] = [(); 2].map(|()| vec![f32::NAN; count * width]);
                    let met = meet(isa, &edges, &d, &e, Some(&c), width);
                    let sum = sum_by_row(isa, &c, width, edges.entering());
                    let heard = gine_forward(isa, &edges, &d, Some(&c), width);
                    let (d_x, d_features) = gine_backward(isa, &edges, &d, Some(&c), width, &d_out);
                    let d_features = d_features.expect("edges have features");
                    gated_forward(isa, &edges, inputs, width, &mut gates, &mut total, &mut out);
                    let derivatives = GatedDerivatives {
                        gate_target: &mut d_d,
                        gate_source: &mut d_e,
                        gate_edge: &mut d_c,
                        neighbour: &mut d_b,
                    };
                    gated_backward(isa, &edges, &b, width, &gates, &total, &out, &d_out, Some(&d_gates), derivatives);
                    let all = [heard, d_x, sum, out, total, d_d, d_e, d_b, met, d_features, gates, d_c].concat();
                    all.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                })
            });
            assert!(results[0] == results[1] && results[0] == results[2], "{isa:?}");
        }
    }

    #[test]
    #[should_panic(expected = "an edge at node 3 of 3")]
    fn an_edge_to_no_node_is_refused() {
        Edges::new(3, &[0], &[3]);
    }
}
