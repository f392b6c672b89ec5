//! Attention directed by position scores (Eq. 6–8), forward and backward, without a matrix of pairs.
//!
//! `Att = normalize(exp(QKᵀ/√d_head) ⊙ σ(position))`, and each node gathers values with the weights
//! of its row. Eight rows of one head of one graph are worked on at a time: content scores, softmax
//! and the gathering stay in the nearest cache, and of each row only two numbers are kept, from which
//! the backward pass computes the weights again.
//!
//! The product of Eq. 8 is taken as it stands, `exp(content - largest content) · σ(position)`, which
//! saves a logarithm a pair. It can vanish for a whole row; such a row is done again as
//! `softmax(content + log σ(position))`, which cannot.

mod products;
mod rows;

use std::ops::Range;

use crate::Graphs;
use crate::parallel;
use crate::simd::{Dropout, Isa, Kernel, Simd};
use products::{
    ROWS, Scratch, accumulate, copy_scaled, dot, gather, multiply, pack_across, pack_along, scale,
    unpack_across,
};
use rows::{Row, unweigh, weigh};

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
pub fn forward(
    isa: Isa,
    graphs: Graphs<'_>,
    rule: &Rule,
    qkv: &[f32],
    position: Option<Position<'_>>,
) -> Attended {
    let inputs = Inputs::new(graphs, rule, qkv, position);
    let (length, statistics_length) =
        (graphs.nodes() * rule.width, graphs.nodes() * rule.heads * 2);
    let mut out = Vec::with_capacity(length);
    let mut statistics = Vec::with_capacity(statistics_length);
    let writes = (Shared(out.as_mut_ptr()), Shared(statistics.as_mut_ptr()));
    let work = Work::by_graph(&inputs);
    parallel::for_each(work.tasks(&inputs), |units| {
        Scratch::with(|scratch| {
            isa.run(Forward {
                inputs,
                work: &work,
                units,
                out: writes.0,
                statistics: writes.1,
                scratch,
            });
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
    parallel::for_each(work.tasks(&inputs), |units| {
        Scratch::with(|scratch| {
            isa.run(Backward { inputs, results, work: &work, units, writes, scratch })
        });
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

/// A task takes heads of graphs until it has so many pairs: some 10 µs of work, which hides the cost
/// of starting it. It does not depend on the number of threads, though nothing but time would change.
const PAIRS_PER_TASK: usize = 4 * 1024;

/// Where exponents cannot leave `±CALM` no largest one is looked for and subtracted: `e^20` times any
/// number of pairs is a number, and so is one over `e^-20`.
const CALM: f32 = 20.0;

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
    fn new(
        graphs: Graphs<'a>,
        rule: &'a Rule,
        qkv: &'a [f32],
        position: Option<Position<'a>>,
    ) -> Self {
        assert!(rule.content || position.is_some(), "attention needs content or position scores");
        assert!(
            rule.heads > 0 && rule.width.is_multiple_of(rule.heads),
            "heads share the width equally"
        );
        assert_eq!(graphs.node_starts.len(), graphs.count() + 1, "one start a graph, and the end");
        assert_eq!(graphs.pair_starts.len(), graphs.count() + 1, "one start a graph, and the end");
        for (graph, &n) in graphs.sizes.iter().enumerate() {
            assert_eq!(
                graphs.node_starts[graph + 1],
                graphs.node_starts[graph] + n,
                "nodes follow one another"
            );
            assert_eq!(
                graphs.pair_starts[graph + 1],
                graphs.pair_starts[graph] + n * n,
                "pairs follow one another"
            );
        }
        assert_eq!(
            qkv.len(),
            graphs.nodes() * rule.columns(),
            "qkv is [r, 3d], or [r, d] without content"
        );
        let inputs = Self { graphs, rule, qkv, position };
        if let Some(Position { scores, starts, cls }) = position {
            assert!(scores.len().is_multiple_of(rule.heads), "scores are [h, q]");
            assert_eq!(starts.len(), graphs.count(), "one block a graph");
            for (graph, start) in starts.iter().enumerate() {
                let end = start + inputs.scored(graph).pow(2);
                assert!(
                    end <= scores.len() / rule.heads,
                    "the scores of graph {graph} end at {end}"
                );
            }
            assert!(
                cls.is_none_or(|cls| cls.len() == rule.heads),
                "one score a head for the CLS node"
            );
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
            first_score: position.map_or(0, |position| {
                head * (position.scores.len() / rule.heads) + position.starts[graph]
            }),
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
                unsafe {
                    forward_unit(simd, &self.inputs, unit, self.out, self.statistics, self.scratch)
                };
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
            let longest_key =
                pack_across(simd, n, d_head, node.add(rule.width), columns, keys, n_padded);
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
                    let statistics = statistics
                        .add(((unit.first_node + first + i) * rule.heads + unit.head) * 2);
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
                    backward_unit(
                        simd,
                        &self.inputs,
                        &self.results,
                        unit,
                        self.writes,
                        place > 0,
                        self.scratch,
                    );
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
    let [keys, keys_along, values, d_keys, d_values, queries, d_outs, content, weights, gathered] =
        scratch.areas([
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
        let (out, d_out) =
            (results.out.as_ptr().add(first_out), results.d_out.as_ptr().add(first_out));
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
                    d_position: scores.map(|_| {
                        writes.scores.0.wrapping_add(unit.first_score + (first + i) * row.scored)
                    }),
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
        unpack_across(
            simd,
            n,
            d_head,
            d_values,
            n_padded,
            d_node.add(columns - rule.width),
            columns,
        );
        *writes.cls.0.add(unit.graph * rule.heads + unit.head) = simd.sum(d_cls);
    }
}

/// Whether no exponent of a unit can leave `±CALM`, if content scores cannot leave `±largest_content`.
fn is_calm(rule: &Rule, directed: bool, largest_content: f32) -> bool {
    let clamp = rule.clamp.unwrap_or(f32::INFINITY);
    let position = if directed && rule.combine == Combine::Add { clamp } else { 0.0 };
    largest_content.min(clamp) + position <= CALM
}

#[cfg(test)]
mod tests;
