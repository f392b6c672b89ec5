//! Attention directed by position scores (Eq. 6–8), forward and backward, without a matrix of pairs.
//!
//! `Att = normalise(exp(QKᵀ/√d_head) ⊙ σ(position))`, and each node gathers values with the weights
//! of its row. Eight rows of one head of one graph are worked on at a time: content scores, softmax
//! and the gathering stay in the nearest cache, and of each row only two numbers are kept, from which
//! the backward pass computes the weights again.
//!
//! The product of Eq. 8 is taken as it stands, `exp(content - largest content) · σ(position)`, which
//! saves a logarithm a pair. It can vanish for a whole row; such a row is done again as
//! `softmax(content + log σ(position))`, which cannot.

use std::cell::RefCell;
use std::f32::consts::{LN_2, LOG2_E};
use std::ops::Range;

use rayon::prelude::*;

use crate::Graphs;
use crate::simd::{Dropout, Isa, Kernel, Simd};

/// How position scores enter the softmax.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// `exp(content) · σ(position)`, normalised: Eq. 8 of the paper.
    Gate,
    /// `exp(content + position)`, normalised: the authors' script.
    Add,
}

/// How attention weights follow from content and position scores.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Number of heads, `h`; divides `width`.
    pub heads: usize,
    /// Width of a node, `d`.
    pub width: usize,
    /// Whether `qkv` is `[r, 3d]`, queries, keys and values, or `[r, d]`, values alone.
    pub content: bool,
    /// How position enters.
    pub combine: Combine,
    /// Both terms are first brought into `±clamp`.
    pub clamp: Option<f32>,
    /// The mask on the weights; that of a pair is at `head · p + pair`.
    pub dropout: Option<Dropout>,
}

impl Rule {
    /// Columns of `qkv`.
    fn columns(&self) -> usize {
        if self.content { 3 * self.width } else { self.width }
    }
}

/// Position scores, and where each graph finds those of its pairs.
#[derive(Debug, Clone, Copy)]
pub struct Position<'a> {
    /// `[h, q]` scores of blocks of pairs, one block after another.
    pub scores: &'a [f32],
    /// Where in a row of `scores` the block of each graph begins. Several graphs may read one block.
    pub starts: &'a [usize],
    /// `[h]` score of every pair that touches the last node of a graph, where that is a CLS node. A block
    /// then has the pairs of the other nodes.
    pub cls: Option<&'a [f32]>,
}

/// What [`forward`] gives.
#[derive(Debug)]
pub struct Attended {
    /// `[r, d]`
    pub out: Vec<f32>,
    /// `[r, h, 2]`, what [`backward`] needs of each row and head: the score that was subtracted in the
    /// exponent, and one over the sum of the row, negative where the row was done in logarithms.
    pub statistics: Vec<f32>,
}

/// What [`backward`] gives: gradients in the shapes of what they belong to, empty where there is nothing.
#[derive(Debug, PartialEq)]
pub struct Gradients {
    /// As `qkv`.
    pub qkv: Vec<f32>,
    /// As [`Position::scores`].
    pub scores: Vec<f32>,
    /// As [`Position::cls`].
    pub cls: Vec<f32>,
}

/// Each node gathers from every node of its own graph.
///
/// # Shapes
/// - `qkv`: `[r, 3d]` or `[r, d]`, as `rule.content` says
pub fn forward(isa: Isa, graphs: Graphs<'_>, rule: &Rule, qkv: &[f32], position: Option<Position<'_>>) -> Attended {
    let inputs = Inputs::new(graphs, rule, qkv, position);
    let (length, statistics_length) = (graphs.nodes() * rule.width, graphs.nodes() * rule.heads * 2);
    let mut out = Vec::with_capacity(length);
    let mut statistics = Vec::with_capacity(statistics_length);
    let writes = (Shared(out.as_mut_ptr()), Shared(statistics.as_mut_ptr()));
    let work = Work::by_graph(&inputs);
    work.tasks(&inputs).into_par_iter().with_max_len(1).for_each(|units| {
        Scratch::with(|scratch| {
            isa.run(Forward { inputs, work: &work, units, out: writes.0, statistics: writes.1, scratch });
        });
    });
    // SAFETY: every entry belongs to one head of one graph, and every such unit has written its own.
    unsafe {
        out.set_len(length);
        statistics.set_len(statistics_length);
    }
    Attended { out, statistics }
}

/// The gradients of [`forward`], from its inputs, its results and the gradient of its output.
///
/// Where graphs read the same scores their gradients add up, in the order of the graphs.
///
/// # Shapes
/// - `qkv`, `position`: as in [`forward`]
/// - `d_out`: `[r, d]`
pub fn backward(
    isa: Isa,
    graphs: Graphs<'_>,
    rule: &Rule,
    qkv: &[f32],
    position: Option<Position<'_>>,
    attended: (&[f32], &[f32]),
    d_out: &[f32],
) -> Gradients {
    let inputs = Inputs::new(graphs, rule, qkv, position);
    let (out, statistics) = attended;
    assert_eq!(statistics.len(), graphs.nodes() * rule.heads * 2, "statistics are [r, h, 2]");
    assert_eq!(out.len(), graphs.nodes() * rule.width, "out is [r, d]");
    assert_eq!(d_out.len(), out.len(), "d_out has the shape of out");
    let results = Results { statistics, out, d_out };
    let scores_length = position.map_or(0, |position| position.scores.len());
    let mut d_qkv = Vec::with_capacity(qkv.len());
    let mut d_scores = Vec::with_capacity(scores_length);
    // Of each graph by itself, so that they can be summed in order.
    let mut d_cls = vec![0.0; graphs.count() * rule.heads];
    let writes = Writes {
        qkv: Shared(d_qkv.as_mut_ptr()),
        scores: Shared(d_scores.as_mut_ptr()),
        cls: Shared(d_cls.as_mut_ptr()),
    };
    let work = Work::by_block(&inputs);
    work.tasks(&inputs).into_par_iter().with_max_len(1).for_each(|units| {
        Scratch::with(|scratch| isa.run(Backward { inputs, results, work: &work, units, writes, scratch }));
    });
    // SAFETY: every entry belongs to one head of one graph or, of the scores, of one block, and every such
    // unit has written its own. `Work::by_block` has checked that no score is left out.
    unsafe {
        d_qkv.set_len(qkv.len());
        d_scores.set_len(scores_length);
    }
    let cls = position.and_then(|position| position.cls).map_or(0, <[f32]>::len);
    let cls = (0..cls).map(|head| d_cls.iter().skip(head).step_by(rule.heads).sum()).collect();
    Gradients { qkv: d_qkv, scores: d_scores, cls }
}

/// Query rows worked on together: with two vectors of keys they fill 16 of the 32 registers of
/// AVX-512, with one they fill 8 of the 16 of AVX2, and either hides the latency of a multiply-add.
const ROWS: usize = 8;

/// A task takes heads of graphs until it has so many pairs: some 50 µs of work, which hides the cost
/// of starting it. It does not depend on the number of threads, though nothing but time would change.
const PAIRS_PER_TASK: usize = 16 * 1024;

/// Where exponents cannot leave `±CALM` no largest one is looked for and subtracted: `e^20` times any
/// number of pairs is a number, and so is one over `e^-20`.
const CALM: f32 = 20.0;

/// Gates are computed from position scores within `±LARGEST_POSITION`, so that they are normal numbers.
const LARGEST_POSITION: f32 = 80.0;

/// A row whose gated sum is smaller is done in logarithms. In the others a gate that should have been
/// smaller than `e^-80`, times `e^20` at most, has less than `1e-10` of the weight, which rounds to nothing.
const SMALLEST_SUM: f32 = 1e-15;

/// What both passes read.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    graphs: Graphs<'a>,
    rule: &'a Rule,
    qkv: &'a [f32],
    position: Option<Position<'a>>,
}

impl<'a> Inputs<'a> {
    /// Checks all that the pointers below rely on.
    fn new(graphs: Graphs<'a>, rule: &'a Rule, qkv: &'a [f32], position: Option<Position<'a>>) -> Self {
        assert!(rule.content || position.is_some(), "attention needs content or position scores");
        assert!(rule.heads > 0 && rule.width.is_multiple_of(rule.heads), "heads share the width equally");
        assert_eq!(graphs.node_starts.len(), graphs.count() + 1, "one start a graph, and the end");
        assert_eq!(graphs.pair_starts.len(), graphs.count() + 1, "one start a graph, and the end");
        for (graph, &n) in graphs.sizes.iter().enumerate() {
            assert_eq!(graphs.node_starts[graph + 1], graphs.node_starts[graph] + n, "nodes follow one another");
            assert_eq!(graphs.pair_starts[graph + 1], graphs.pair_starts[graph] + n * n, "pairs follow one another");
        }
        assert_eq!(qkv.len(), graphs.nodes() * rule.columns(), "qkv is [r, 3d], or [r, d] without content");
        let inputs = Self { graphs, rule, qkv, position };
        if let Some(Position { scores, starts, cls }) = position {
            assert!(scores.len().is_multiple_of(rule.heads), "scores are [h, q]");
            assert_eq!(starts.len(), graphs.count(), "one block a graph");
            for (graph, start) in starts.iter().enumerate() {
                let end = start + inputs.scored(graph).pow(2);
                assert!(end <= scores.len() / rule.heads, "the scores of graph {graph} end at {end}");
            }
            assert!(cls.is_none_or(|cls| cls.len() == rule.heads), "one score a head for the CLS node");
        }
        inputs
    }

    /// Nodes of a graph whose pairs have scores of their own: all but a CLS node.
    #[inline(always)]
    fn scored(&self, graph: usize) -> usize {
        let without = self.position.is_some_and(|position| position.cls.is_some());
        self.graphs.sizes[graph].saturating_sub(usize::from(without))
    }
}

/// How work is cut: a unit is one head of the graphs that must be done one after another.
struct Work {
    /// All graphs, those of one unit as neighbours.
    graphs: Vec<usize>,
    /// Where in `graphs` those of each unit begin, and the end.
    starts: Vec<usize>,
}

impl Work {
    /// Each graph by itself.
    fn by_graph(inputs: &Inputs<'_>) -> Self {
        let count = inputs.graphs.count();
        Self { graphs: (0..count).collect(), starts: (0..=count).collect() }
    }

    /// Graphs that read one block of scores together: their gradients add up in one place.
    fn by_block(inputs: &Inputs<'_>) -> Self {
        let Some(position) = inputs.position else { return Self::by_graph(inputs) };
        let mut graphs: Vec<usize> = (0..inputs.graphs.count()).collect();
        let place = |graph: usize| (position.starts[graph], inputs.scored(graph));
        graphs.sort_by_key(|&graph| place(graph)); // stable: graphs of one block stay in their order
        let (mut starts, mut end) = (vec![0], 0);
        for (index, pair) in graphs.windows(2).enumerate() {
            // Graphs without scores read no block, so they share none.
            if place(pair[0]) != place(pair[1]) || place(pair[0]).1 == 0 {
                starts.push(index + 1);
            }
        }
        for &first in &starts[..starts.len().min(graphs.len())] {
            let (start, scored) = place(graphs[first]);
            if scored > 0 {
                assert_eq!(start, end, "blocks of scores follow one another, and each is read");
                end += scored * scored;
            }
        }
        assert_eq!(end, position.scores.len() / inputs.rule.heads, "every score is read");
        if !graphs.is_empty() {
            starts.push(graphs.len());
        }
        Self { graphs, starts }
    }

    /// Runs of units: all heads of the first graphs, then of the next.
    fn tasks(&self, inputs: &Inputs<'_>) -> Vec<Range<usize>> {
        let mut tasks = Vec::new();
        let (mut first, mut pairs) = (0, 0);
        let units = (self.starts.len() - 1) * inputs.rule.heads;
        for unit in 0..units {
            let (graphs, _) = self.unit(inputs, unit);
            pairs += graphs.len() * inputs.graphs.sizes[graphs[0]].pow(2);
            if pairs >= PAIRS_PER_TASK || unit + 1 == units {
                tasks.push(first..unit + 1);
                (first, pairs) = (unit + 1, 0);
            }
        }
        tasks
    }

    /// Graphs and head of a unit.
    #[inline(always)]
    fn unit(&self, inputs: &Inputs<'_>, unit: usize) -> (&[usize], usize) {
        let (group, head) = (unit / inputs.rule.heads, unit % inputs.rule.heads);
        (&self.graphs[self.starts[group]..self.starts[group + 1]], head)
    }
}

/// What the backward pass reads beside.
#[derive(Clone, Copy)]
struct Results<'a> {
    statistics: &'a [f32],
    out: &'a [f32],
    d_out: &'a [f32],
}

/// Memory that tasks write to, each its own part of it.
#[derive(Clone, Copy)]
struct Shared(*mut f32);

// SAFETY: a unit writes the columns of its head in the rows of its graphs, and the block of its graphs in
// the scores of its head. No two units share any, and each is in one task.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// What the backward pass writes: gradients of `qkv` and of the scores, and of the CLS score of each graph.
#[derive(Clone, Copy)]
struct Writes {
    qkv: Shared,
    scores: Shared,
    cls: Shared,
}

/// Where one head of one graph lies.
#[derive(Clone, Copy)]
struct Unit {
    n: usize,
    /// Nodes whose pairs have scores of their own.
    scored: usize,
    graph: usize,
    head: usize,
    d_head: usize,
    first_node: usize,
    /// In `[h, p]`.
    first_pair: usize,
    /// In `[h, q]`.
    first_score: usize,
    cls: f32,
}

impl Unit {
    #[inline(always)]
    fn new(inputs: &Inputs<'_>, graph: usize, head: usize) -> Self {
        let Inputs { graphs, rule, position, .. } = inputs;
        Self {
            n: graphs.sizes[graph],
            scored: inputs.scored(graph),
            graph,
            head,
            d_head: rule.width / rule.heads,
            first_node: graphs.node_starts[graph],
            first_pair: head * graphs.pairs() + graphs.pair_starts[graph],
            first_score: position
                .map_or(0, |position| head * (position.scores.len() / rule.heads) + position.starts[graph]),
            cls: position.and_then(|position| position.cls).map_or(0.0, |cls| cls[head]),
        }
    }

    /// Row `i`, which has the position scores behind `scores` and leaves all its other places to the caller.
    #[inline(always)]
    fn row(&self, rule: &Rule, scores: Option<*const f32>, i: usize, weights: *mut f32) -> Row {
        let scored = if i < self.scored { self.scored } else { 0 };
        Row {
            n: self.n,
            scored,
            cls: self.cls,
            first_pair: self.first_pair + i * self.n,
            clamp: rule.clamp,
            dropout: rule.dropout,
            content: None,
            position: scores.map(|scores| scores.wrapping_add(self.first_score + i * scored)),
            d_position: None,
            adds: false,
            weights,
        }
    }
}

/// A row of one head: where its scores and weights are. Memory behind `content` and `weights` goes on to a
/// full vector, that behind the others ends with the row.
#[derive(Clone, Copy)]
struct Row {
    n: usize,
    /// Its first pairs have scores of their own, so many; the others have that of the CLS node.
    scored: usize,
    cls: f32,
    /// Its first pair in `[h, p]`.
    first_pair: usize,
    clamp: Option<f32>,
    dropout: Option<Dropout>,
    content: Option<*mut f32>,
    position: Option<*const f32>,
    d_position: Option<*mut f32>,
    /// Whether gradients are added to what is behind `d_position`.
    adds: bool,
    weights: *mut f32,
}

/// The score that was subtracted in the exponents of a row, and one over its sum, negative where the
/// row was done in logarithms.
type Statistics = [f32; 2];

/// How the exponent of a weight is formed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `exp(content)`.
    Content,
    /// `exp(content) · σ(position)`.
    Gate,
    /// `exp(content + log σ(position))`.
    LogGate,
    /// `exp(content + position)`.
    Add,
}

struct Forward<'a> {
    inputs: Inputs<'a>,
    work: &'a Work,
    units: Range<usize>,
    out: Shared,
    statistics: Shared,
    scratch: &'a mut Scratch,
}

impl Kernel for Forward<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for unit in self.units.clone() {
            let (graphs, head) = self.work.unit(&self.inputs, unit);
            for &graph in graphs {
                let unit = Unit::new(&self.inputs, graph, head);
                // SAFETY: `Inputs::new` has checked all lengths; no other unit writes here.
                unsafe { forward_unit(simd, &self.inputs, unit, self.out, self.statistics, self.scratch) };
            }
        }
    }
}

/// # Safety
/// Inputs and outputs have the shapes that [`forward`] says, and nobody else uses this unit's part of
/// the outputs.
#[inline(always)]
unsafe fn forward_unit<S: Simd>(
    simd: S,
    inputs: &Inputs<'_>,
    unit: Unit,
    Shared(out): Shared,
    Shared(statistics): Shared,
    scratch: &mut Scratch,
) {
    let Inputs { rule, qkv, position, .. } = *inputs;
    let Unit { n, d_head, .. } = unit;
    let columns = rule.columns();
    let (n_padded, d_padded) = (n.next_multiple_of(S::LANES), d_head.next_multiple_of(S::LANES));
    let [keys, values, queries, content, weights, gathered] = scratch.areas([
        d_head * n_padded, // [d_head, n_padded]
        n * d_padded,      // [n, d_padded]
        d_head * n_padded,
        ROWS * n_padded, // [ROWS, n_padded]
        ROWS * n_padded,
        ROWS * d_padded, // [ROWS, d_padded]
    ]);
    // SAFETY: the caller says that the slices have their shapes; the areas have those above.
    unsafe {
        let node = qkv.as_ptr().add(unit.first_node * columns + unit.head * d_head);
        let scores = position.map(|position| position.scores.as_ptr());
        let mut largest_content = 0.0;
        if rule.content {
            let longest_query = pack_across(simd, n, d_head, node, columns, queries, n_padded);
            let longest_key = pack_across(simd, n, d_head, node.add(rule.width), columns, keys, n_padded);
            largest_content = (longest_query * longest_key / d_head as f32).sqrt();
            scale(simd, d_head * n_padded, 1.0 / (d_head as f32).sqrt(), queries);
        }
        let calm = is_calm(rule, scores.is_some(), largest_content);
        pack_along(simd, n, d_head, node.add(columns - rule.width), columns, values, d_padded);
        for first in (0..n).step_by(ROWS) {
            let rows = ROWS.min(n - first);
            if rule.content {
                multiply(simd, d_head, queries.add(first), 1, n_padded, keys, n_padded, content); // Eq. 7
            }
            let row = |i: usize| {
                let weights = weights.add(i * n_padded);
                let row = unit.row(rule, scores, first + i, weights);
                Row { content: rule.content.then_some(content.add(i * n_padded)), ..row }
            };
            let mut inverse_sums = [0.0; ROWS];
            for i in (0..rows).step_by(2) {
                // The last of an odd number of rows is paired with itself: done twice, to the same end.
                let both = [i, (i + 1).min(rows - 1)];
                let given = weigh(simd, rule.combine, calm, [row(both[0]), row(both[1])]); // Eq. 8
                for (i, [largest, inverse_sum]) in both.into_iter().zip(given) {
                    let statistics = statistics.add(((unit.first_node + first + i) * rule.heads + unit.head) * 2);
                    *statistics = largest;
                    *statistics.add(1) = inverse_sum;
                    inverse_sums[i] = inverse_sum.abs();
                }
            }
            gather(simd, n, weights, n_padded, values, d_head, gathered);
            for (i, inverse_sum) in inverse_sums.into_iter().enumerate().take(rows) {
                let out = out.add((unit.first_node + first + i) * rule.width + unit.head * d_head);
                copy_scaled(simd, d_head, gathered.add(i * d_padded), inverse_sum, out);
            }
        }
    }
}

struct Backward<'a> {
    inputs: Inputs<'a>,
    results: Results<'a>,
    work: &'a Work,
    units: Range<usize>,
    writes: Writes,
    scratch: &'a mut Scratch,
}

impl Kernel for Backward<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for unit in self.units.clone() {
            let (graphs, head) = self.work.unit(&self.inputs, unit);
            for (place, &graph) in graphs.iter().enumerate() {
                let unit = Unit::new(&self.inputs, graph, head);
                // SAFETY: `Inputs::new` and `backward` have checked all lengths; no other unit writes here, and
                // what later graphs of the unit add to the first has written.
                unsafe {
                    backward_unit(simd, &self.inputs, &self.results, unit, self.writes, place > 0, self.scratch);
                };
            }
        }
    }
}

/// # Safety
/// Inputs and outputs have the shapes that [`backward`] says, and nobody else uses this unit's part of
/// the outputs.
#[inline(always)]
unsafe fn backward_unit<S: Simd>(
    simd: S,
    inputs: &Inputs<'_>,
    results: &Results<'_>,
    unit: Unit,
    writes: Writes,
    adds: bool,
    scratch: &mut Scratch,
) {
    let Inputs { rule, qkv, position, .. } = *inputs;
    let Unit { n, d_head, .. } = unit;
    let columns = rule.columns();
    let to_content = 1.0 / (d_head as f32).sqrt();
    let (n_padded, d_padded) = (n.next_multiple_of(S::LANES), d_head.next_multiple_of(S::LANES));
    let [keys, keys_along, values, d_keys, d_values, queries, d_outs, content, weights, gathered] = scratch.areas([
        d_head * n_padded, // [d_head, n_padded]
        n * d_padded,      // [n, d_padded]
        d_head * n_padded,
        d_head * n_padded,
        d_head * n_padded,
        d_head * n_padded,
        d_head * n_padded,
        ROWS * n_padded, // [ROWS, n_padded]
        ROWS * n_padded,
        ROWS * d_padded, // [ROWS, d_padded]
    ]);
    // SAFETY: the caller says that the slices have their shapes; the areas have those above.
    unsafe {
        let node = qkv.as_ptr().add(unit.first_node * columns + unit.head * d_head);
        let scores = position.map(|position| position.scores.as_ptr());
        let d_node = writes.qkv.0.add(unit.first_node * columns + unit.head * d_head);
        if rule.content {
            pack_across(simd, n, d_head, node, columns, queries, n_padded);
            scale(simd, d_head * n_padded, to_content, queries);
            pack_across(simd, n, d_head, node.add(rule.width), columns, keys, n_padded);
            pack_along(simd, n, d_head, node.add(rule.width), columns, keys_along, d_padded);
            d_keys.write_bytes(0, d_head * n_padded);
        }
        pack_across(simd, n, d_head, node.add(columns - rule.width), columns, values, n_padded);
        let first_out = unit.first_node * rule.width + unit.head * d_head;
        let (out, d_out) = (results.out.as_ptr().add(first_out), results.d_out.as_ptr().add(first_out));
        pack_across(simd, n, d_head, d_out, rule.width, d_outs, n_padded);
        d_values.write_bytes(0, d_head * n_padded);
        let mut d_cls = simd.zero();
        for first in (0..n).step_by(ROWS) {
            let rows = ROWS.min(n - first);
            let (queries, d_outs) = (queries.add(first), d_outs.add(first));
            if rule.content {
                multiply(simd, d_head, queries, 1, n_padded, keys, n_padded, content); // Eq. 7
            }
            multiply(simd, d_head, d_outs, 1, n_padded, values, n_padded, weights); // gradients of the weights
            let row = |i: usize| {
                let row = unit.row(rule, scores, first + i, weights.add(i * n_padded));
                Row {
                    content: rule.content.then_some(content.add(i * n_padded)),
                    d_position: scores
                        .map(|_| writes.scores.0.wrapping_add(unit.first_score + (first + i) * row.scored)),
                    adds,
                    ..row
                }
            };
            for i in (0..rows).step_by(2) {
                // An odd row more is paired with itself, but must leave its gradients once.
                let both = [i, (i + 1).min(rows - 1)];
                let (mut given, mut shared) = ([[0.0; 2]; 2], [0.0; 2]);
                for ((i, given), shared) in both.into_iter().zip(&mut given).zip(&mut shared) {
                    let statistics = ((unit.first_node + first + i) * rule.heads + unit.head) * 2;
                    let statistics = results.statistics.as_ptr().add(statistics);
                    *given = [*statistics, *statistics.add(1)];
                    // Σ_j weight · d_weight, the part of the softmax that all pairs of the row share.
                    let row = (first + i) * rule.width;
                    *shared = dot(simd, d_head, out.add(row), d_out.add(row));
                }
                let mut pair = [row(both[0]), row(both[1])];
                if both[0] == both[1] {
                    pair[1].d_position = None;
                }
                d_cls = simd.add(d_cls, unweigh(simd, rule.combine, pair, given, shared));
            }
            accumulate(simd, d_head, d_outs, n_padded, weights, n_padded, d_values);
            if rule.content {
                accumulate(simd, d_head, queries, n_padded, content, n_padded, d_keys);
                gather(simd, n, content, n_padded, keys_along, d_head, gathered);
                for i in 0..rows {
                    let d_query = d_node.add((first + i) * columns);
                    copy_scaled(simd, d_head, gathered.add(i * d_padded), to_content, d_query);
                }
            }
        }
        if rule.content {
            unpack_across(simd, n, d_head, d_keys, n_padded, d_node.add(rule.width), columns);
        }
        unpack_across(simd, n, d_head, d_values, n_padded, d_node.add(columns - rule.width), columns);
        *writes.cls.0.add(unit.graph * rule.heads + unit.head) = simd.sum(d_cls);
    }
}

/// Whether no exponent of a unit can leave `±CALM`, if content scores cannot leave `±largest_content`.
fn is_calm(rule: &Rule, directed: bool, largest_content: f32) -> bool {
    let clamp = rule.clamp.unwrap_or(f32::INFINITY);
    let position = if directed && rule.combine == Combine::Add { clamp } else { 0.0 };
    largest_content.min(clamp) + position <= CALM
}

impl Form {
    /// That of a row in the first attempt.
    #[inline(always)]
    fn of(combine: Combine, row: &Row) -> Self {
        match (row.position, combine) {
            (None, _) => Self::Content,
            (Some(_), Combine::Gate) => Self::Gate,
            (Some(_), Combine::Add) => Self::Add,
        }
    }
}

impl Row {
    /// Content scores from pair `j` on (Eq. 7), not clamped; zeros where there are none.
    ///
    /// # Safety
    /// The row has a pair `j`, with which a vector begins.
    #[inline(always)]
    unsafe fn content<S: Simd>(&self, simd: S, j: usize) -> S::V {
        match self.content {
            // SAFETY: the row goes on to a full vector.
            Some(content) => unsafe { simd.load(content.add(j)) },
            None => simd.zero(),
        }
    }

    /// Of the vector that begins at pair `j`, how many pairs have scores of their own. Where it is `whole`
    /// all have, which is then known at compile time.
    #[inline(always)]
    fn own<S: Simd>(&self, _: S, j: usize, whole: bool) -> usize {
        if whole { S::LANES } else { self.scored.saturating_sub(j).min(S::LANES) }
    }

    /// Position scores from pair `j` on (Eq. 6), not clamped; zeros where there are none.
    ///
    /// # Safety
    /// The row has a pair `j`, with which a vector begins, and a full vector of scores where it is `whole`.
    #[inline(always)]
    unsafe fn position<S: Simd>(&self, simd: S, j: usize, whole: bool) -> S::V {
        let own = self.own(simd, j, whole);
        match self.position {
            // SAFETY: so many scores are there.
            Some(position) => simd.keep_first(unsafe { simd.load_up_to(position.wrapping_add(j), own) }, own, self.cls),
            None => simd.zero(),
        }
    }

    /// Fetches the scores that will be read, and the place of gradients that will be written, when the next
    /// rows have come to `j`.
    #[inline(always)]
    fn prefetch_position<S: Simd>(&self, simd: S, j: usize) {
        let ahead = j + ROWS * self.scored;
        if let Some(position) = self.position {
            simd.prefetch(position.wrapping_add(ahead));
        }
        if let Some(d_position) = self.d_position {
            simd.prefetch(d_position.wrapping_add(ahead));
        }
    }

    /// Position scores as gates are computed from them.
    #[inline(always)]
    fn bounded<S: Simd>(&self, simd: S, position: S::V) -> S::V {
        let bound = self.clamp.unwrap_or(LARGEST_POSITION).min(LARGEST_POSITION);
        simd.max(simd.min(position, simd.splat(bound)), simd.splat(-bound))
    }

    /// `scores` within `±clamp`.
    #[inline(always)]
    fn clamp<S: Simd>(&self, simd: S, scores: S::V) -> S::V {
        match self.clamp {
            Some(bound) => simd.max(simd.min(scores, simd.splat(bound)), simd.splat(-bound)),
            None => scores,
        }
    }

    /// The gradient of `scores` before [`Row::clamp`], from that behind it.
    #[inline(always)]
    fn clamp_gradient<S: Simd>(&self, simd: S, scores: S::V, gradient: S::V) -> S::V {
        match self.clamp {
            Some(bound) => {
                let size = simd.max(scores, simd.sub(simd.zero(), scores));
                simd.select_positive(simd.sub(size, simd.splat(bound)), simd.zero(), gradient)
            }
            None => gradient,
        }
    }

    /// What stands in the exponent for these scores, before the largest is subtracted.
    #[inline(always)]
    fn exponent<S: Simd>(&self, simd: S, form: Form, content: S::V, position: S::V) -> S::V {
        let content = self.clamp(simd, content);
        match form {
            Form::Content | Form::Gate => content,
            Form::LogGate => simd.add(content, log_sigmoid(simd, self.clamp(simd, position))),
            Form::Add => simd.add(content, self.clamp(simd, position)),
        }
    }
}

/// Turns two rows of content scores into weights that are yet to be divided by their sums.
///
/// Behind the weights of a row are zeros up to a full vector.
///
/// # Safety
/// The rows are in memory. They may be the same.
#[inline(always)]
unsafe fn weigh<S: Simd>(simd: S, combine: Combine, calm: bool, rows: [Row; 2]) -> [Statistics; 2] {
    // SAFETY: passed on. Each call has a constant form, so that none is asked for in its loops.
    unsafe {
        match Form::of(combine, &rows[0]) {
            Form::Content => weigh_as(simd, Form::Content, calm, rows),
            Form::Add => weigh_as(simd, Form::Add, calm, rows),
            Form::Gate | Form::LogGate => {
                let mut statistics =
                    if calm { weigh_as(simd, Form::Gate, true, rows) } else { weigh_as(simd, Form::Gate, false, rows) };
                for (row, statistics) in rows.into_iter().zip(&mut statistics) {
                    if statistics[1] > 1.0 / SMALLEST_SUM {
                        let [[largest, inverse_sum], _] = weigh_as(simd, Form::LogGate, false, [row; 2]);
                        *statistics = [largest, -inverse_sum];
                    }
                }
                statistics
            }
        }
    }
}

/// Pairs of these rows, and how many of them fill whole vectors with scores of their own.
#[inline(always)]
fn extent<S: Simd>(_: S, rows: &[Row; 2]) -> (usize, usize) {
    let scored = rows[0].scored.min(rows[1].scored);
    (rows[0].n, scored - scored % S::LANES)
}

/// # Safety
/// As for [`weigh`].
#[inline(always)]
unsafe fn weigh_as<S: Simd>(simd: S, form: Form, calm: bool, rows: [Row; 2]) -> [Statistics; 2] {
    let (n, whole) = extent(simd, &rows);
    let mut sums = [simd.zero(); 2];
    // SAFETY: vectors begin at each `j`, and the last may be shorter. What is done to the whole ones
    // knows at compile time that it needs no mask.
    unsafe {
        let largest = if calm { [0.0; 2] } else { largest_exponents(simd, form, &rows) };
        let mut j = 0;
        while j < whole {
            sums = weights_from(simd, form, calm, &rows, j, true, largest, sums);
            j += S::LANES;
        }
        while j < n {
            sums = weights_from(simd, form, calm, &rows, j, false, largest, sums);
            j += S::LANES;
        }
        [[largest[0], 1.0 / simd.sum(sums[0])], [largest[1], 1.0 / simd.sum(sums[1])]]
    }
}

/// # Safety
/// As for [`weigh`].
#[inline(always)]
unsafe fn largest_exponents<S: Simd>(simd: S, form: Form, rows: &[Row; 2]) -> [f32; 2] {
    let (n, whole) = extent(simd, rows);
    let mut largest = [simd.splat(f32::NEG_INFINITY); 2];
    // SAFETY: as in `weigh_as`.
    unsafe {
        let mut j = 0;
        while j < whole {
            largest = exponents_from(simd, form, rows, j, true, largest);
            j += S::LANES;
        }
        while j < n {
            largest = exponents_from(simd, form, rows, j, false, largest);
            j += S::LANES;
        }
    }
    [simd.largest(largest[0]), simd.largest(largest[1])]
}

/// One vector of exponents of two rows. Returns the largest so far.
///
/// # Safety
/// The rows have a pair `j`, with which a vector begins, and scores of their own from there on where it is
/// `whole`.
#[inline(always)]
unsafe fn exponents_from<S: Simd>(
    simd: S,
    form: Form,
    rows: &[Row; 2],
    j: usize,
    whole: bool,
    mut largest: [S::V; 2],
) -> [S::V; 2] {
    let count = if whole { S::LANES } else { rows[0].n - j };
    for (row, largest) in rows.iter().zip(&mut largest) {
        // SAFETY: passed on.
        unsafe {
            let position = if form == Form::Gate { simd.zero() } else { row.position(simd, j, whole) };
            let exponent = row.exponent(simd, form, row.content(simd, j), position);
            *largest = simd.max(*largest, simd.keep_first(exponent, count, f32::NEG_INFINITY));
        }
    }
    largest
}

/// One vector of weights of two rows. Returns the sums so far.
///
/// # Safety
/// As for [`exponents_from`].
#[inline(always)]
unsafe fn weights_from<S: Simd>(
    simd: S,
    form: Form,
    calm: bool,
    rows: &[Row; 2],
    j: usize,
    whole: bool,
    largest: [f32; 2],
    mut sums: [S::V; 2],
) -> [S::V; 2] {
    let count = if whole { S::LANES } else { rows[0].n - j };
    // SAFETY: passed on. Both rows are read before one is written.
    unsafe {
        let (mut exponents, mut positions) = ([simd.zero(); 2], [simd.zero(); 2]);
        for (i, row) in rows.iter().enumerate() {
            if form != Form::Content {
                positions[i] = row.position(simd, j, whole);
                row.prefetch_position(simd, j);
            }
            let exponent = row.exponent(simd, form, row.content(simd, j), positions[i]);
            // Behind the row may be anything, also what has no exponential.
            exponents[i] = simd.keep_first(exponent, count, largest[i]);
            if !calm {
                exponents[i] = simd.max(simd.sub(exponents[i], simd.splat(largest[i])), simd.splat(-87.0));
            }
        }
        let weights = if form == Form::Gate {
            let [p, q] = [rows[0].bounded(simd, positions[0]), rows[1].bounded(simd, positions[1])];
            let [a, b, c, d] = exp(simd, [exponents[0], exponents[1], p, q], [false, false, true, true]);
            let one = simd.splat(1.0);
            [simd.mul(a, simd.inverse(simd.add(one, c))), simd.mul(b, simd.inverse(simd.add(one, d)))]
        } else {
            exp(simd, exponents, [false; 2])
        };
        for (i, row) in rows.iter().enumerate() {
            let weight = simd.keep_first(weights[i], count, 0.0);
            sums[i] = simd.add(sums[i], weight);
            let dropped = match row.dropout {
                Some(dropout) => simd.mul(weight, simd.dropout_mask(dropout, (row.first_pair + j) as u64)),
                None => weight,
            };
            simd.store(row.weights.add(j), dropped);
        }
        sums
    }
}

/// The backward of [`weigh`] and the division by the sums; `shared` is `Σ_j weight · d_weight`.
///
/// Where content scores were are then their gradients, and where gradients of the weights were (after
/// dropout) are then the weights (after dropout). Returns what is to be summed to the gradient of the CLS
/// score.
///
/// # Safety
/// The rows are in memory. They may be the same.
#[inline(always)]
unsafe fn unweigh<S: Simd>(
    simd: S,
    combine: Combine,
    rows: [Row; 2],
    statistics: [Statistics; 2],
    shared: [f32; 2],
) -> S::V {
    // SAFETY: passed on. Each call has a constant form, so that none is asked for in its loop.
    unsafe {
        match Form::of(combine, &rows[0]) {
            Form::Content => unweigh_as(simd, Form::Content, rows, statistics, shared),
            Form::Add => unweigh_as(simd, Form::Add, rows, statistics, shared),
            Form::Gate | Form::LogGate => {
                if statistics[0][1] > 0.0 && statistics[1][1] > 0.0 {
                    unweigh_as(simd, Form::Gate, rows, statistics, shared)
                } else {
                    // Logarithms are as right for a row that had no need of them.
                    unweigh_as(simd, Form::LogGate, rows, statistics, shared)
                }
            }
        }
    }
}

/// # Safety
/// As for [`unweigh`].
#[inline(always)]
unsafe fn unweigh_as<S: Simd>(
    simd: S,
    form: Form,
    rows: [Row; 2],
    statistics: [Statistics; 2],
    shared: [f32; 2],
) -> S::V {
    let (n, whole) = extent(simd, &rows);
    let mut d_cls = simd.zero();
    let statistics = [[statistics[0][0], statistics[0][1].abs()], [statistics[1][0], statistics[1][1].abs()]];
    // SAFETY: vectors begin at each `j`, and the last may be shorter.
    unsafe {
        let mut j = 0;
        while j < whole {
            gradients_from(simd, form, &rows, j, true, statistics, shared);
            j += S::LANES;
        }
        while j < n {
            d_cls = simd.add(d_cls, gradients_from(simd, form, &rows, j, false, statistics, shared));
            j += S::LANES;
        }
    }
    d_cls
}

/// One vector of the gradients of two rows. Returns those of the CLS score.
///
/// # Safety
/// As for [`exponents_from`].
#[inline(always)]
unsafe fn gradients_from<S: Simd>(
    simd: S,
    form: Form,
    rows: &[Row; 2],
    j: usize,
    whole: bool,
    statistics: [Statistics; 2],
    shared: [f32; 2],
) -> S::V {
    let count = if whole { S::LANES } else { rows[0].n - j };
    let mut d_cls = simd.zero();
    // SAFETY: passed on. Both rows are read before one is written.
    unsafe {
        let one = simd.splat(1.0);
        let (mut contents, mut positions) = ([simd.zero(); 2], [simd.zero(); 2]);
        let (mut exponents, mut d_weights) = ([simd.zero(); 2], [simd.zero(); 2]);
        let mut gates = [one; 2];
        for (i, row) in rows.iter().enumerate() {
            contents[i] = row.content(simd, j);
            d_weights[i] = simd.load(row.weights.add(j));
            if form != Form::Content {
                positions[i] = row.position(simd, j, whole);
                row.prefetch_position(simd, j);
            }
            let exponent = row.exponent(simd, form, contents[i], positions[i]);
            // As in the forward pass, and rounded otherwise if that was on another instruction set.
            let exponent = simd.sub(exponent, simd.splat(statistics[i][0]));
            exponents[i] = simd.max(simd.min(exponent, simd.splat(87.0)), simd.splat(-87.0));
        }
        let weights = if form == Form::Gate || form == Form::LogGate {
            let [p, q] = [rows[0].bounded(simd, positions[0]), rows[1].bounded(simd, positions[1])];
            let [a, b, c, d] = exp(simd, [exponents[0], exponents[1], p, q], [false, false, true, true]);
            gates = [simd.inverse(simd.add(one, c)), simd.inverse(simd.add(one, d))];
            [a, b]
        } else {
            exp(simd, exponents, [false; 2])
        };
        for (i, row) in rows.iter().enumerate() {
            let weight = simd.mul(weights[i], simd.splat(statistics[i][1]));
            let weight = if form == Form::Gate { simd.mul(weight, gates[i]) } else { weight };
            let weight = simd.keep_first(weight, count, 0.0);
            let (d_weight, dropped) = match row.dropout {
                Some(dropout) => {
                    let mask = simd.dropout_mask(dropout, (row.first_pair + j) as u64);
                    (simd.mul(d_weights[i], mask), simd.mul(weight, mask))
                }
                None => (d_weights[i], weight),
            };
            simd.store(row.weights.add(j), dropped);
            let d_score = simd.mul(weight, simd.sub(d_weight, simd.splat(shared[i])));
            if let Some(content) = row.content {
                simd.store(content.add(j), row.clamp_gradient(simd, contents[i], d_score));
            }
            if let Some(d_position) = row.d_position {
                // The slope of log σ is 1 - σ.
                let gradient = match form {
                    Form::Gate | Form::LogGate => simd.mul(d_score, simd.sub(one, gates[i])),
                    Form::Content | Form::Add => d_score,
                };
                let gradient = row.clamp_gradient(simd, positions[i], gradient);
                let (own, d_position) = (row.own(simd, j, whole), d_position.wrapping_add(j));
                let own_gradient = simd.keep_first(gradient, own, 0.0);
                d_cls = simd.add(d_cls, simd.sub(gradient, own_gradient));
                let before = if row.adds { simd.load_up_to(d_position, own) } else { simd.zero() };
                simd.store_up_to(d_position, simd.add(before, own_gradient), own);
            }
        }
    }
    d_cls
}

/// `log σ(a) = min(a, 0) - log(1 + e^-|a|)`.
#[inline(always)]
fn log_sigmoid<S: Simd>(simd: S, a: S::V) -> S::V {
    let minus_size = simd.min(a, simd.sub(simd.zero(), a));
    let rest = simd.ln(simd.add(simd.splat(1.0), simd.exp(minus_size)));
    simd.sub(simd.min(a, simd.zero()), rest)
}

/// The exponentials of several vectors of numbers within `±87`, or of their negatives where `negative`, to
/// about `1e-7 + 2e-8·|a|` of themselves.
///
/// Most of the time of a row goes into them. One exponential is a chain of a dozen steps that each wait
/// for the last; here every step is taken for all vectors before the next, and the polynomial is summed
/// in pairs, so that the processor finds independent work nearby. Against [`Simd::exp`] it leaves out
/// the bounds, the second part of `ln 2` and the instruction that rounds.
#[inline(always)]
fn exp<S: Simd, const N: usize>(simd: S, a: [S::V; N], negative: [bool; N]) -> [S::V; N] {
    // A number so large that adding it rounds to a whole one.
    let rounder = simd.splat(12_582_912.0);
    let (mut rest, mut whole, mut low, mut middle, mut high) = (a, a, a, a, a);
    for k in 0..N {
        let log2_e = simd.splat(if negative[k] { -LOG2_E } else { LOG2_E });
        whole[k] = simd.sub(simd.mul_add(a[k], log2_e, rounder), rounder);
        rest[k] = simd.mul_sub(a[k], log2_e, whole[k]);
    }
    // 2ˣ for x within ±1/2: 1 + x · (a polynomial through 2ˣ at the zeros of a Chebyshev polynomial).
    for k in 0..N {
        low[k] = simd.mul_add(rest[k], simd.splat(0.240_226_5), simd.splat(LN_2));
        middle[k] = simd.mul_add(rest[k], simd.splat(9.618_082e-3), simd.splat(5.550_357e-2));
        high[k] = simd.mul_add(rest[k], simd.splat(1.545_326_2e-4), simd.splat(1.339_097_9e-3));
    }
    for k in 0..N {
        let square = simd.mul(rest[k], rest[k]);
        middle[k] = simd.mul_add(high[k], square, middle[k]);
        high[k] = square;
    }
    for k in 0..N {
        low[k] = simd.mul_add(middle[k], high[k], low[k]);
    }
    for k in 0..N {
        rest[k] = simd.mul_add(low[k], rest[k], simd.splat(1.0));
    }
    for k in 0..N {
        rest[k] = simd.times_two_to_the(rest[k], whole[k]);
    }
    rest
}

/// `product[row][column] = Σ_k left[row, k] · right[k, column]` for [`ROWS`] rows and `columns`
/// columns, a multiple of the lanes.
///
/// An entry of `left` is `row · row_step + k · depth_step` from its start; the other two are dense.
///
/// # Safety
/// All these entries are in memory.
#[inline(always)]
unsafe fn multiply<S: Simd>(
    simd: S,
    depth: usize,
    left: *const f32,
    row_step: usize,
    depth_step: usize,
    right: *const f32,
    columns: usize,
    product: *mut f32,
) {
    // SAFETY: all calls stay within the columns.
    unsafe {
        let mut column = 0;
        // With 32 registers there is room for 16 sums, which hide the latency of a multiply-add with
        // ease: two vectors a row, or two sums of one.
        if S::LANES == 16 {
            while column + 2 * S::LANES <= columns {
                let (right, product) = (right.add(column), product.add(column));
                multiply_block::<S, 2, 1>(simd, depth, left, row_step, depth_step, right, columns, product);
                column += 2 * S::LANES;
            }
            if column < columns {
                let (right, product) = (right.add(column), product.add(column));
                multiply_block::<S, 1, 2>(simd, depth, left, row_step, depth_step, right, columns, product);
            }
        } else {
            while column < columns {
                let (right, product) = (right.add(column), product.add(column));
                multiply_block::<S, 1, 1>(simd, depth, left, row_step, depth_step, right, columns, product);
                column += S::LANES;
            }
        }
    }
}

/// [`ROWS`] rows of `VECTORS` vectors, each the total of `SUMS` sums.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn multiply_block<S: Simd, const VECTORS: usize, const SUMS: usize>(
    simd: S,
    depth: usize,
    left: *const f32,
    row_step: usize,
    depth_step: usize,
    right: *const f32,
    columns: usize,
    product: *mut f32,
) {
    let mut sums = [[[simd.zero(); VECTORS]; ROWS]; SUMS];
    // SAFETY: the caller says that these entries exist.
    unsafe {
        let (mut left, mut right) = (left, right);
        let mut k = 0;
        while k + SUMS <= depth {
            for sums in &mut sums {
                add_products(simd, left, row_step, right, sums);
                left = left.wrapping_add(depth_step);
                right = right.wrapping_add(columns);
            }
            k += SUMS;
        }
        if k < depth {
            add_products(simd, left, row_step, right, &mut sums[0]);
        }
        for row in 0..ROWS {
            for v in 0..VECTORS {
                let mut total = sums[0][row][v];
                for sums in &sums[1..] {
                    total = simd.add(total, sums[row][v]);
                }
                simd.store(product.add(row * columns + v * S::LANES), total);
            }
        }
    }
}

/// Adds the products of one column of `left` and one row of `right`.
///
/// # Safety
/// `left` has [`ROWS`] numbers, `row_step` apart, and `right` has `VECTORS` vectors.
#[inline(always)]
unsafe fn add_products<S: Simd, const VECTORS: usize>(
    simd: S,
    left: *const f32,
    row_step: usize,
    right: *const f32,
    sums: &mut [[S::V; VECTORS]; ROWS],
) {
    // SAFETY: the caller says so.
    unsafe {
        let mut vectors = [simd.zero(); VECTORS];
        for (v, vector) in vectors.iter_mut().enumerate() {
            *vector = simd.load(right.add(v * S::LANES));
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            let factor = simd.splat(*left.add(row * row_step));
            for (sum, vector) in sums.iter_mut().zip(vectors) {
                *sum = simd.mul_add(factor, vector, *sum);
            }
        }
    }
}

/// `product[row][c] = Σ_k left[row][k] · right[k][c]` for [`ROWS`] rows, with `right` as [`pack_along`] has
/// left it.
///
/// # Safety
/// `left` is `[ROWS, left_step]`, with zeros from `depth` to the next even number; there is room for
/// `[ROWS, d_padded]`.
#[inline(always)]
unsafe fn gather<S: Simd>(
    simd: S,
    depth: usize,
    left: *const f32,
    left_step: usize,
    right: *const f32,
    d: usize,
    product: *mut f32,
) {
    // SAFETY: the caller says so.
    unsafe {
        if in_pairs(simd, d) {
            let mut sums = [simd.zero(); ROWS];
            let mut k = 0;
            while k < depth {
                let rows = simd.load(right.add(k / 2 * S::LANES));
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.mul_add(simd.splat_pair(left.add(row * left_step + k)), rows, *sum);
                }
                k += 2;
            }
            for (row, sum) in sums.into_iter().enumerate() {
                simd.store(product.add(row * S::LANES), simd.add_pairs(sum));
            }
        } else {
            multiply(simd, depth, left, left_step, 1, right, d.next_multiple_of(S::LANES), product);
        }
    }
}

/// Whether a vector has room for two rows of `d`.
#[inline(always)]
fn in_pairs<S: Simd>(_: S, d: usize) -> bool {
    2 * d <= S::LANES
}

/// `sums[d][j] += Σ_row left[d][row] · right[row][j]` for `d_head` by `columns` sums and [`ROWS`] rows.
///
/// # Safety
/// All these entries are in memory; `columns` is a multiple of the lanes.
#[inline(always)]
unsafe fn accumulate<S: Simd>(
    simd: S,
    d_head: usize,
    left: *const f32,
    left_step: usize,
    right: *const f32,
    columns: usize,
    sums: *mut f32,
) {
    // SAFETY: both calls stay within the columns.
    unsafe {
        let mut column = 0;
        if S::LANES == 16 {
            while column + 2 * S::LANES <= columns {
                accumulate_block::<S, 2>(simd, d_head, left, left_step, right.add(column), columns, sums.add(column));
                column += 2 * S::LANES;
            }
        }
        while column < columns {
            accumulate_block::<S, 1>(simd, d_head, left, left_step, right.add(column), columns, sums.add(column));
            column += S::LANES;
        }
    }
}

/// # Safety
/// As for [`accumulate`].
#[inline(always)]
unsafe fn accumulate_block<S: Simd, const VECTORS: usize>(
    simd: S,
    d_head: usize,
    left: *const f32,
    left_step: usize,
    right: *const f32,
    columns: usize,
    sums: *mut f32,
) {
    // SAFETY: the caller says that these entries exist.
    unsafe {
        let mut rows = [[simd.zero(); VECTORS]; ROWS];
        for (row, vectors) in rows.iter_mut().enumerate() {
            for (v, vector) in vectors.iter_mut().enumerate() {
                *vector = simd.load(right.add(row * columns + v * S::LANES));
            }
        }
        for d in 0..d_head {
            let sums = sums.add(d * columns);
            let mut totals = [simd.zero(); VECTORS];
            for (v, total) in totals.iter_mut().enumerate() {
                *total = simd.load(sums.add(v * S::LANES));
            }
            for (row, vectors) in rows.iter().enumerate() {
                let factor = simd.splat(*left.add(d * left_step + row));
                for (total, vector) in totals.iter_mut().zip(vectors) {
                    *total = simd.mul_add(factor, *vector, *total);
                }
            }
            for (v, total) in totals.into_iter().enumerate() {
                simd.store(sums.add(v * S::LANES), total);
            }
        }
    }
}

/// `a · b`.
///
/// # Safety
/// Both have `d` numbers.
#[inline(always)]
unsafe fn dot<S: Simd>(simd: S, d: usize, a: *const f32, b: *const f32) -> f32 {
    let mut total = simd.zero();
    for start in (0..d).step_by(S::LANES) {
        // SAFETY: the caller says that they are there.
        unsafe {
            let a = simd.load_up_to(a.add(start), d - start);
            total = simd.mul_add(a, simd.load_up_to(b.add(start), d - start), total);
        }
    }
    simd.sum(total)
}

/// Multiplies `count` numbers, a multiple of the lanes.
///
/// # Safety
/// They are there.
#[inline(always)]
unsafe fn scale<S: Simd>(simd: S, count: usize, factor: f32, numbers: *mut f32) {
    for start in (0..count).step_by(S::LANES) {
        // SAFETY: the caller says so.
        unsafe { simd.store(numbers.add(start), simd.mul(simd.load(numbers.add(start)), simd.splat(factor))) };
    }
}

/// Copies `d` numbers, scaled.
///
/// # Safety
/// They are there in full vectors, and there is room for `d`.
#[inline(always)]
unsafe fn copy_scaled<S: Simd>(simd: S, d: usize, from: *const f32, scale: f32, to: *mut f32) {
    for start in (0..d).step_by(S::LANES) {
        // SAFETY: the caller says so.
        unsafe { simd.store_up_to(to.add(start), simd.mul(simd.load(from.add(start)), simd.splat(scale)), d - start) };
    }
}

/// Copies `n` rows of `d`, `step` apart, to rows of `d_padded`; what is behind `d` is zero. Narrow rows are
/// put two in one, their numbers in turns.
///
/// # Safety
/// The rows are there, and there is room for `[n, d_padded]`.
#[inline(always)]
unsafe fn pack_along<S: Simd>(
    simd: S,
    n: usize,
    d: usize,
    from: *const f32,
    step: usize,
    to: *mut f32,
    d_padded: usize,
) {
    if in_pairs(simd, d) {
        for row in (0..n).step_by(2) {
            // SAFETY: the caller says so.
            unsafe {
                let first = simd.load_partial(from.add(row * step), d);
                let second = if row + 1 < n { simd.load_partial(from.add((row + 1) * step), d) } else { simd.zero() };
                simd.store(to.add(row / 2 * S::LANES), simd.interleave(first, second));
            }
        }
        return;
    }
    for row in 0..n {
        for start in (0..d).step_by(S::LANES) {
            // SAFETY: the caller says so.
            unsafe {
                let values = simd.load_up_to(from.add(row * step + start), d - start);
                simd.store(to.add(row * d_padded + start), values);
            }
        }
    }
}

/// Copies `n` rows of `d`, `step` apart, to columns of `[d, n_padded]`; the other columns are zero. Returns
/// the largest sum of squares of a row.
///
/// # Safety
/// The rows are there, and there is room for `[d, n_padded]`.
#[inline(always)]
unsafe fn pack_across<S: Simd>(
    simd: S,
    n: usize,
    d: usize,
    from: *const f32,
    step: usize,
    to: *mut f32,
    n_padded: usize,
) -> f32 {
    let mut longest = simd.zero();
    for row in (0..n).step_by(S::LANES) {
        let mut squares = simd.zero();
        for start in (0..d).step_by(S::LANES) {
            let block = [S::LANES.min(n - row), S::LANES.min(d - start)];
            // SAFETY: the caller says so.
            unsafe {
                let to = to.add(start * n_padded + row);
                simd.transpose(from.add(row * step + start), step, block, to, n_padded, S::LANES);
                for column in 0..block[1] {
                    let column = simd.load(to.add(column * n_padded));
                    squares = simd.mul_add(column, column, squares);
                }
            }
        }
        longest = simd.max(longest, squares);
    }
    simd.largest(longest)
}

/// Copies the first `n` columns of `[d, n_padded]` to rows of `d`, `step` apart.
///
/// # Safety
/// The columns are there, and there is room for the rows.
#[inline(always)]
unsafe fn unpack_across<S: Simd>(
    simd: S,
    n: usize,
    d: usize,
    from: *const f32,
    n_padded: usize,
    to: *mut f32,
    step: usize,
) {
    for row in (0..n).step_by(S::LANES) {
        for start in (0..d).step_by(S::LANES) {
            let block = [S::LANES.min(d - start), S::LANES.min(n - row)];
            // SAFETY: the caller says so.
            unsafe {
                let from = from.add(start * n_padded + row);
                simd.transpose(from, n_padded, block, to.add(row * step + start), step, block[0]);
            }
        }
    }
}

/// Memory of one thread, used again by each of its units.
#[derive(Default)]
struct Scratch(Vec<Line>);

/// A cache line: vectors that straddle two take twice as long to load.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

impl Scratch {
    /// Kept from call to call: clearing it for every task took a fiftieth of the time.
    fn with(work: impl FnOnce(&mut Self)) {
        thread_local!(static OF_THREAD: RefCell<Scratch> = RefCell::default());
        OF_THREAD.with_borrow_mut(work);
    }

    /// Areas of these lengths, each at the start of a line; what is in them is left from before.
    fn areas<const N: usize>(&mut self, lengths: [usize; N]) -> [*mut f32; N] {
        let lines = lengths.map(|length| length.div_ceil(16));
        let total = lines.iter().sum();
        if self.0.len() < total {
            self.0.resize(total, Line([0.0; 16]));
        }
        let start = self.0.as_mut_ptr();
        let mut next = 0;
        lines.map(|lines| {
            let area = start.wrapping_add(next).cast();
            next += lines;
            area
        })
    }
}

#[cfg(test)]
mod tests;
