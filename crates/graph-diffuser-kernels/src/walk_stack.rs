//! Powers of the adjacency matrix, stacked: `[I | A | … | Aᵏ]` (Eq. 1).
//!
//! Row i of `A·Aˢ⁻¹` is a sum of rows of `Aˢ⁻¹`, one an edge of i. Columns never meet: all powers of a
//! block of columns follow from that block alone. So a block is taken through all steps at once, its
//! last power kept in a small aligned copy that the many reads go to, and a task is a run of blocks.
//!
//! The backward goes the other way, `dAˢ⁻¹ += Aᵀ dAˢ`, row after row over the edges that *enter* a
//! node. An edge i → t needs row i of `dAˢ` there, and so does its own derivative,
//! `dw += dAˢ[i] · Aˢ⁻¹[t]`, whose other row is the same for all edges that enter t: one pass over
//! the edges reads one row an edge and computes both.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::Graphs;
use crate::fresh::Fresh;
use crate::parallel;
use crate::simd::{Isa, Kernel, Simd};

/// Columns that are taken through all steps together: eight vectors of sixteen, which in the backward
/// are half of the registers of AVX-512, a quarter for a power and a quarter for sums. A batch of
/// grids of 100 to 130 nodes would move it.
const BLOCK: usize = 128;

/// Multiplications of one step that are worth a task of their own, some ten thousand pairs of a
/// grid: long beside the start of a task, short beside a batch.
const TASK: usize = 1 << 16;

/// The entries of A by row.
#[derive(Debug, Clone, Copy)]
pub struct Csr<'a> {
    /// First entry of each node of the batch, and the number of all entries.
    pub row_starts: &'a [usize],
    /// Column of each entry: a node, counted from the first of its graph.
    pub targets: &'a [u32],
    /// Which edge each entry is.
    pub edges: &'a [u32],
}

/// Channel s of each graph, `Aˢ`, for s from 0 to `steps`.
///
/// # Shapes
/// - `weights`: `[m]` entries of A in the order of the edges; duplicates add up
/// - returns `[steps + 1, p]`
pub fn forward(isa: Isa, graphs: Graphs<'_>, csr: Csr<'_>, weights: &[f32], steps: usize) -> Vec<f32> {
    check(graphs, csr, weights);
    let blocks = blocks(graphs, csr);
    let mut stack = Fresh::new((steps + 1) * graphs.pairs());
    let to = Shared::fresh(stack.room());
    let tasks = tasks(&blocks).into_iter().map(|task| &blocks[task]).collect();
    run_all(tasks, |blocks| isa.run(Forward { graphs, csr, weights, steps, stack: to, blocks }));
    // SAFETY: the blocks are all columns of all graphs, and `Forward` writes all rows of each.
    unsafe { stack.written() }
}

/// Writes the derivative of each weight, given that of the stack.
///
/// # Shapes
/// - `weights`, `d_weights`: `[m]`
/// - `stack`, as [`forward`] wrote it, and `d_stack`: `[steps + 1, p]`
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

/// What the loops below trust.
fn check(graphs: Graphs<'_>, csr: Csr<'_>, weights: &[f32]) {
    let Graphs { sizes, node_starts, pair_starts } = graphs;
    assert_eq!(node_starts.len(), sizes.len() + 1, "one start of nodes a graph, and their number");
    assert_eq!(pair_starts.len(), sizes.len() + 1, "one start of pairs a graph, and their number");
    for (graph, n) in sizes.iter().enumerate() {
        assert_eq!(node_starts[graph] + n, node_starts[graph + 1], "nodes of graph {graph}");
        assert_eq!(pair_starts[graph] + n * n, pair_starts[graph + 1], "pairs of graph {graph}");
    }
    assert_eq!(csr.row_starts.len(), graphs.nodes() + 1, "one start of entries a node, and their number");
    assert!(csr.row_starts.is_sorted(), "rows follow one another");
    assert_eq!(csr.row_starts[graphs.nodes()], csr.targets.len(), "every entry is in a row");
    assert_eq!(csr.targets.len(), csr.edges.len(), "every entry is an edge");
    let last = csr.edges.iter().max();
    assert!(last.is_none_or(|last| (*last as usize) < weights.len()), "every edge has a weight");
}

/// Some columns of one graph.
#[derive(Debug, Clone)]
struct Block {
    graph: usize,
    columns: Range<usize>,
    /// Entries of the graph in the CSR.
    entries: Range<usize>,
}

/// All columns of all graphs, in blocks of at most [`BLOCK`] and about equal within a graph.
fn blocks(graphs: Graphs<'_>, csr: Csr<'_>) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (graph, &n) in graphs.sizes.iter().enumerate() {
        let nodes = graphs.node_starts[graph]..graphs.node_starts[graph + 1];
        let entries = csr.row_starts[nodes.start]..csr.row_starts[nodes.end];
        // Whole vectors of sixteen, so that only the last block of a graph has a broken one.
        let width = n.div_ceil(n.div_ceil(BLOCK).max(1)).next_multiple_of(16);
        let starts = (0..n).step_by(width.max(1));
        blocks.extend(starts.map(|start| Block {
            graph,
            columns: start..(start + width).min(n),
            entries: entries.clone(),
        }));
    }
    blocks
}

/// Runs of blocks with about [`TASK`] multiplications each.
fn tasks(blocks: &[Block]) -> Vec<Range<usize>> {
    let mut tasks = Vec::new();
    let (mut start, mut work) = (0, 0);
    for (at, block) in blocks.iter().enumerate() {
        work += block.columns.len() * (block.entries.len() + block.columns.end);
        if work >= TASK || at + 1 == blocks.len() {
            tasks.push(start..at + 1);
            (start, work) = (at + 1, 0);
        }
    }
    tasks
}

/// In parallel where there is more than one.
fn run_all<T: Send>(mut tasks: Vec<T>, run: impl Fn(T) + Sync) {
    if tasks.len() > 1 {
        parallel::for_each(tasks, run);
    } else if let Some(task) = tasks.pop() {
        run(task);
    }
}

/// A slice that tasks write disjoint parts of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared(*mut f32);

// SAFETY: whoever writes through the pointer says why nobody else touches that place.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn new(slice: &mut [f32]) -> Self {
        Self(slice.as_mut_ptr())
    }

    pub(crate) fn fresh(slice: &mut [MaybeUninit<f32>]) -> Self {
        Self(slice.as_mut_ptr().cast())
    }

    #[inline(always)]
    pub(crate) fn pointer(self) -> *mut f32 {
        self.0
    }
}

/// The edges of one graph at one of their ends.
#[derive(Default)]
struct Links {
    /// First link of each node, and the number of all.
    starts: Vec<usize>,
    links: Vec<Link>,
}

#[derive(Clone, Copy, Default)]
struct Link {
    /// The node at the other end, below the number of nodes.
    node: u32,
    weight: f32,
    /// Which entry of the graph it is.
    entry: u32,
}

impl Links {
    /// The edges that leave each node, in the order of the CSR.
    fn leave(&mut self, csr: Csr<'_>, nodes: Range<usize>, weights: &[f32]) {
        let (n, first) = (nodes.len(), csr.row_starts[nodes.start]);
        self.starts.clear();
        self.starts.extend(csr.row_starts[nodes.start..=nodes.end].iter().map(|start| start - first));
        self.links.clear();
        for at in first..csr.row_starts[nodes.end] {
            let node = csr.targets[at];
            assert!((node as usize) < n, "an edge to node {node} of {n}");
            self.links.push(Link { node, weight: weights[csr.edges[at] as usize], entry: (at - first) as u32 });
        }
    }

    /// The edges that enter each node, by where they come from.
    fn enter(&mut self, csr: Csr<'_>, nodes: Range<usize>, weights: &[f32]) {
        let (n, first) = (nodes.len(), csr.row_starts[nodes.start]);
        let entries = first..csr.row_starts[nodes.end];
        self.starts.clear();
        self.starts.resize(n + 1, 0);
        for target in &csr.targets[entries.clone()] {
            assert!((*target as usize) < n, "an edge to node {target} of {n}");
            self.starts[*target as usize + 1] += 1;
        }
        for node in 0..n {
            self.starts[node + 1] += self.starts[node];
        }
        self.links.clear();
        self.links.resize(entries.len(), Link::default());
        for (node, row) in nodes.enumerate() {
            for at in csr.row_starts[row]..csr.row_starts[row + 1] {
                let place = &mut self.starts[csr.targets[at] as usize];
                self.links[*place] =
                    Link { node: node as u32, weight: weights[csr.edges[at] as usize], entry: (at - first) as u32 };
                *place += 1;
            }
        }
        // Every start has moved to where the next began.
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }

    /// # Safety
    /// `node` is one of the graph.
    #[inline(always)]
    unsafe fn of(&self, node: usize) -> Range<usize> {
        // SAFETY: there is one start more than there are nodes.
        unsafe { *self.starts.get_unchecked(node)..*self.starts.get_unchecked(node + 1) }
    }
}

/// Sixteen numbers on one cache line: rows of the copies are made of them and begin on them.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// At least `count` numbers, aligned.
fn grow(lines: &mut Vec<Line>, count: usize) -> *mut f32 {
    if lines.len() * 16 < count {
        lines.resize(count.div_ceil(16), Line([0.0; 16]));
    }
    lines.as_mut_ptr().cast()
}

/// Vectors of a block; a block of 128 columns is cut further where vectors have eight lanes.
const VECTORS: usize = 8;

/// Calls `$function` with as many vectors as `$columns` need.
macro_rules! with_vectors {
    ($lanes:expr, $columns:expr, $function:ident, $($argument:expr),*) => {
        match $columns.len().div_ceil($lanes) {
            0 | 1 => $function::<S, 1>($($argument),*),
            2 => $function::<S, 2>($($argument),*),
            3 => $function::<S, 3>($($argument),*),
            4 => $function::<S, 4>($($argument),*),
            5 => $function::<S, 5>($($argument),*),
            6 => $function::<S, 6>($($argument),*),
            7 => $function::<S, 7>($($argument),*),
            _ => $function::<S, VECTORS>($($argument),*),
        }
    };
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
        let (mut links, mut last, mut next, mut dots) = (Links::default(), Vec::new(), Vec::new(), Vec::new());
        let mut graph = usize::MAX;
        for block in blocks {
            let nodes = graphs.node_starts[block.graph]..graphs.node_starts[block.graph + 1];
            if graph != block.graph {
                graph = block.graph;
                links.enter(csr, nodes.clone(), weights);
            }
            let own = shares.split_off_mut(..block.entries.len()).expect("shares were made for these blocks");
            if steps == 0 {
                continue;
            }
            for start in block.columns.clone().step_by(VECTORS * S::LANES) {
                let columns = start..(start + VECTORS * S::LANES).min(block.columns.end);
                let space = nodes.len() * VECTORS * S::LANES;
                // SAFETY: `check` has found the pairs of the graph inside each channel, `enter` all
                // links inside the graph; the copies have `space`, the dots a vector a link.
                unsafe {
                    let from = [stack, d_stack].map(|stack| stack.as_ptr().add(graphs.pair_starts[graph]));
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
/// As for [`forward_block`], with the two stacks in `from`; `dots` has room for a vector a link.
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
    // SAFETY: as in `forward_block`.
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

#[cfg(test)]
mod tests {
    use crate::scramble;

    use super::*;

    /// Graphs with their edges in any order, and the CSR that follows.
    struct Batch {
        sizes: Vec<usize>,
        node_starts: Vec<usize>,
        pair_starts: Vec<usize>,
        /// Graph, source, target of each edge.
        edges: Vec<[usize; 3]>,
        row_starts: Vec<usize>,
        csr_targets: Vec<u32>,
        csr_edges: Vec<u32>,
    }

    impl Batch {
        fn new(sizes: &[usize], edges: &[[usize; 3]]) -> Self {
            let (mut node_starts, mut pair_starts) = (vec![0], vec![0]);
            for (graph, n) in sizes.iter().enumerate() {
                node_starts.push(node_starts[graph] + n);
                pair_starts.push(pair_starts[graph] + n * n);
            }
            let mut order: Vec<usize> = (0..edges.len()).collect();
            order.sort_by_key(|edge| node_starts[edges[*edge][0]] + edges[*edge][1]);
            let rows = order.iter().map(|edge| node_starts[edges[*edge][0]] + edges[*edge][1]);
            let rows: Vec<usize> = rows.collect();
            let nodes = node_starts[sizes.len()];
            Self {
                sizes: sizes.to_vec(),
                node_starts,
                pair_starts,
                edges: edges.to_vec(),
                row_starts: (0..=nodes).map(|node| rows.partition_point(|row| *row < node)).collect(),
                csr_targets: order.iter().map(|edge| edges[*edge][2] as u32).collect(),
                csr_edges: order.iter().map(|edge| *edge as u32).collect(),
            }
        }

        /// Sizes around a vector and a block; isolated nodes, loops, one-way and double edges; every
        /// fourth graph without any edge.
        fn ragged() -> Self {
            let sizes = [2, 300, 0, 1, 15, 16, 17, 1, 130, 0, 2];
            let mut edges = Vec::new();
            for (graph, &n) in sizes.iter().enumerate().filter(|(graph, n)| graph % 4 != 3 && **n > 0) {
                for edge in 0..3 * n {
                    let draw = |stream: usize| number(edge * 4 + stream + graph * 100_000) as usize % n;
                    let (source, target) = (draw(0), draw(1));
                    if source % 7 != 3 {
                        edges.extend(vec![[graph, source, target]; 1 + usize::from(draw(2) % 5 == 0)]);
                        edges.push([graph, target, source]);
                    }
                }
            }
            edges.sort_by_key(|edge| scramble((edge[0] * 91 + edge[1] * 17 + edge[2]) as u32));
            Self::new(&sizes, &edges)
        }

        fn graphs(&self) -> Graphs<'_> {
            Graphs { sizes: &self.sizes, node_starts: &self.node_starts, pair_starts: &self.pair_starts }
        }

        fn csr(&self) -> Csr<'_> {
            Csr { row_starts: &self.row_starts, targets: &self.csr_targets, edges: &self.csr_edges }
        }

        fn stack(&self, isa: Isa, weights: &[f32], steps: usize) -> Vec<f32> {
            forward(isa, self.graphs(), self.csr(), weights, steps)
        }

        fn derivative(&self, isa: Isa, weights: &[f32], steps: usize, stack: &[f32], d_stack: &[f32]) -> Vec<f32> {
            let mut d_weights = vec![f32::NAN; weights.len()];
            backward(isa, self.graphs(), self.csr(), weights, steps, stack, d_stack, &mut d_weights);
            d_weights
        }

        fn adjacency(&self, graph: usize, weights: &[f32]) -> Vec<f64> {
            let n = self.sizes[graph];
            let mut matrix = vec![0.0; n * n];
            for ([own, source, target], weight) in self.edges.iter().zip(weights) {
                if *own == graph {
                    matrix[source * n + target] += f64::from(*weight);
                }
            }
            matrix
        }
    }

    fn number(index: usize) -> u32 {
        scramble(scramble(index as u32) ^ 0x9e37_79b9)
    }

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|at| number(at + (seed << 24)) as f32 / u32::MAX as f32 - 0.5).collect()
    }

    /// `a · b`, added to `sum`; `transposed` says which of them is.
    fn multiply(n: usize, a: &[f64], b: &[f64], transposed: [bool; 2], sum: &mut [f64]) {
        for i in 0..n {
            for k in 0..n {
                let left = if transposed[0] { a[k * n + i] } else { a[i * n + k] };
                if left != 0.0 {
                    for j in 0..n {
                        sum[i * n + j] += left * if transposed[1] { b[j * n + k] } else { b[k * n + j] };
                    }
                }
            }
        }
    }

    fn assert_close(ours: &[f32], exact: &[f64], tolerance: f64, what: &str) {
        assert_eq!(ours.len(), exact.len());
        let size = exact.iter().fold(1e-30_f64, |size, value| size.max(value.abs()));
        for (at, (ours, exact)) in ours.iter().zip(exact).enumerate() {
            let error = (f64::from(*ours) - exact).abs() / size;
            assert!(error < tolerance, "{what} at {at}: {ours} is not {exact}");
        }
    }

    #[test]
    fn a_path_of_three_by_hand() {
        // 0 - 1 - 2, where the middle goes left with 1/4 and right with 3/4.
        let batch = Batch::new(&[3], &[[0, 2, 1], [0, 1, 0], [0, 0, 1], [0, 1, 2]]);
        let weights = [1.0, 0.25, 1.0, 0.75];
        #[rustfmt::skip]
        let expected = [
            1.0, 0.0, 0.0,   0.0, 1.0, 0.0,   0.0, 0.0, 1.0,
            0.0, 1.0, 0.0,   0.25, 0.0, 0.75, 0.0, 1.0, 0.0,
            0.25, 0.0, 0.75, 0.0, 1.0, 0.0,   0.25, 0.0, 0.75,
        ];
        // Of A²[0, 2] = w01 w12 only; the derivative by w01 is 3/4, by w12 is 1.
        let mut d_stack = [0.0; 27];
        d_stack[18 + 2] = 1.0;
        for isa in Isa::available() {
            let stack = batch.stack(isa, &weights, 2);
            assert_eq!(stack, expected, "{isa:?}");
            assert_eq!(batch.derivative(isa, &weights, 2, &stack, &d_stack), [0.0, 0.0, 0.75, 1.0], "{isa:?}");
        }
    }

    #[test]
    fn without_steps_or_edges_there_is_the_identity_and_nothing_to_learn() {
        let batch = Batch::new(&[2, 0, 1], &[]);
        for isa in Isa::available() {
            assert_eq!(batch.stack(isa, &[], 0), [1.0, 0.0, 0.0, 1.0, 1.0]);
            assert_eq!(batch.stack(isa, &[], 1), [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
            assert_eq!(batch.derivative(isa, &[], 1, &[0.0; 10], &[1.0; 10]), []);
            assert_eq!(Batch::new(&[], &[]).stack(isa, &[], 3), []);
            let edge = Batch::new(&[2], &[[0, 0, 1]]);
            assert_eq!(edge.derivative(isa, &[2.0], 0, &[1.0, 0.0, 0.0, 1.0], &[1.0; 4]), [0.0]);
        }
    }

    #[test]
    fn powers_and_derivatives_are_those_of_dense_matrices() {
        let batch = Batch::ragged();
        let steps = 4;
        let pairs = batch.graphs().pairs();
        let weights: Vec<f32> = numbers(batch.edges.len(), 1).iter().map(|value| value + 0.2).collect();
        let d_stack = numbers((steps + 1) * pairs, 2);
        let mut exact = vec![0.0; (steps + 1) * pairs];
        let mut d_exact = vec![0.0; weights.len()];
        for (graph, &n) in batch.sizes.iter().enumerate() {
            let a = batch.adjacency(graph, &weights);
            let part = |channel: usize| {
                channel * pairs + batch.pair_starts[graph]..channel * pairs + batch.pair_starts[graph + 1]
            };
            let mut powers = vec![vec![0.0; n * n]];
            (0..n).for_each(|node| powers[0][node * n + node] = 1.0);
            for step in 1..=steps {
                let mut power = vec![0.0; n * n];
                multiply(n, &powers[step - 1], &a, [false, false], &mut power);
                powers.push(power);
            }
            for (channel, power) in powers.iter().enumerate() {
                exact[part(channel)].copy_from_slice(power);
            }
            let derivative_of = |channel: usize| d_stack[part(channel)].iter().map(|value| f64::from(*value));
            let mut above: Vec<f64> = derivative_of(steps).collect();
            let mut d_a = vec![0.0; n * n];
            for step in (0..steps).rev() {
                multiply(n, &above, &powers[step], [false, true], &mut d_a);
                let mut below: Vec<f64> = derivative_of(step).collect();
                multiply(n, &a, &above, [true, false], &mut below);
                above = below;
            }
            for ([own, source, target], derivative) in batch.edges.iter().zip(&mut d_exact) {
                if *own == graph {
                    *derivative = d_a[source * n + target];
                }
            }
        }
        for isa in Isa::available() {
            let stack = batch.stack(isa, &weights, steps);
            for (channel, exact) in exact.chunks(pairs).enumerate() {
                assert_close(&stack[channel * pairs..][..pairs], exact, 1e-6, &format!("{isa:?} channel {channel}"));
            }
            let derivative = batch.derivative(isa, &weights, steps, &stack, &d_stack);
            assert_close(&derivative, &d_exact, 1e-6, &format!("{isa:?} derivative"));
        }
    }

    #[test]
    fn a_graph_is_the_same_alone_or_in_a_batch() {
        let (batch, steps) = (Batch::ragged(), 3);
        let weights = numbers(batch.edges.len(), 1);
        let pairs = batch.graphs().pairs();
        for graph in 0..batch.sizes.len() {
            let own: Vec<usize> = (0..weights.len()).filter(|edge| batch.edges[*edge][0] == graph).collect();
            let edges: Vec<[usize; 3]> =
                own.iter().map(|edge| [0, batch.edges[*edge][1], batch.edges[*edge][2]]).collect();
            let alone = Batch::new(&batch.sizes[graph..=graph], &edges);
            let own_weights: Vec<f32> = own.iter().map(|edge| weights[*edge]).collect();
            for isa in Isa::available() {
                let together = batch.stack(isa, &weights, steps);
                let alone = alone.stack(isa, &own_weights, steps);
                let n = batch.sizes[graph];
                for channel in 0..=steps {
                    let part = &together[channel * pairs + batch.pair_starts[graph]..][..n * n];
                    assert_eq!(&alone[channel * n * n..(channel + 1) * n * n], part, "{isa:?} graph {graph}");
                }
            }
        }
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        let (batch, steps) = (Batch::ragged(), 5);
        let weights = numbers(batch.edges.len(), 1);
        let d_stack = numbers((steps + 1) * batch.graphs().pairs(), 2);
        assert!(tasks(&blocks(batch.graphs(), batch.csr())).len() > 3, "nothing to run in parallel");
        for isa in Isa::available() {
            let results = [1, 2, 5].map(|threads| {
                let pool = crate::Threads::new(threads);
                pool.install(|| {
                    let stack = batch.stack(isa, &weights, steps);
                    let derivative = batch.derivative(isa, &weights, steps, &stack, &d_stack);
                    [stack, derivative].concat().into_iter().map(f32::to_bits).collect::<Vec<_>>()
                })
            });
            assert!(results[0] == results[1] && results[0] == results[2], "{isa:?}");
        }
    }

    #[test]
    #[should_panic(expected = "an edge to node 2 of 2")]
    fn an_edge_that_leaves_its_graph_is_refused() {
        let batch = Batch::new(&[2, 2], &[[0, 1, 2]]);
        batch.stack(Isa::best(), &[1.0], 2);
    }
}
