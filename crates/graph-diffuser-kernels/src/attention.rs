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

/// Each node gathers from every node of its own graph.
///
/// `statistics` is what [`backward`] needs of each row and head: the score that was subtracted in the
/// exponent, and one over the sum of the row, negative where the row was done in logarithms.
///
/// # Shapes
/// - `qkv`: `[r, 3d]` or `[r, d]`, as `rule.content` says
/// - `position`: `[h, p]`
/// - `out`: `[r, d]`, written
/// - `statistics`: `[r, h, 2]`, written
pub fn forward(
    isa: Isa,
    graphs: Graphs<'_>,
    rule: &Rule,
    qkv: &[f32],
    position: Option<&[f32]>,
    out: &mut [f32],
    statistics: &mut [f32],
) {
    let inputs = Inputs::new(graphs, rule, qkv, position);
    assert_eq!(out.len(), graphs.nodes() * rule.width, "out is [r, d]");
    assert_eq!(statistics.len(), graphs.nodes() * rule.heads * 2, "statistics are [r, h, 2]");
    let out = Shared(out.as_mut_ptr());
    let statistics = Shared(statistics.as_mut_ptr());
    inputs.tasks().into_par_iter().for_each_init(Scratch::default, |scratch, units| {
        isa.run(Forward { inputs, units, out, statistics, scratch });
    });
}

/// The gradients of [`forward`], from its inputs, its results and the gradient of `out`.
///
/// # Shapes
/// - `qkv`, `position`, `statistics`, `out`: as in [`forward`]
/// - `d_out`: `[r, d]`
/// - `d_qkv`: as `qkv`, written
/// - `d_position`: `[h, p]`, written where it is asked for
pub fn backward(
    isa: Isa,
    graphs: Graphs<'_>,
    rule: &Rule,
    qkv: &[f32],
    position: Option<&[f32]>,
    statistics: &[f32],
    out: &[f32],
    d_out: &[f32],
    d_qkv: &mut [f32],
    d_position: Option<&mut [f32]>,
) {
    let inputs = Inputs::new(graphs, rule, qkv, position);
    assert_eq!(statistics.len(), graphs.nodes() * rule.heads * 2, "statistics are [r, h, 2]");
    assert_eq!(out.len(), graphs.nodes() * rule.width, "out is [r, d]");
    assert_eq!(d_out.len(), out.len(), "d_out has the shape of out");
    assert_eq!(d_qkv.len(), qkv.len(), "d_qkv has the shape of qkv");
    if let Some(d_position) = &d_position {
        assert_eq!(Some(d_position.len()), position.map(<[f32]>::len), "d_position has the shape of position");
    }
    let results = Results { statistics, out, d_out };
    let d_qkv = Shared(d_qkv.as_mut_ptr());
    let d_position = d_position.map(|d_position| Shared(d_position.as_mut_ptr()));
    inputs.tasks().into_par_iter().for_each_init(Scratch::default, |scratch, units| {
        isa.run(Backward { inputs, results, units, d_qkv, d_position, scratch });
    });
}

/// Query rows worked on together: with two vectors of keys they fill 16 of the 32 registers of
/// AVX-512, with one they fill 8 of the 16 of AVX2, and either hides the latency of a multiply-add.
const ROWS: usize = 8;

/// A task takes heads of graphs until it has so many pairs: some 50 µs of work, which hides the cost
/// of starting it. It does not depend on the number of threads, though nothing but time would change.
const PAIRS_PER_TASK: usize = 16 * 1024;

/// Gates are computed from position scores no smaller than this, so that the product of two of their
/// denominators, `1 + e^43` at most, is a number that has an inverse.
const SMALLEST_POSITION: f32 = -43.0;

/// A row whose gated sum is smaller is done in logarithms. In the others a gate that should have been
/// smaller than `e^-43` has less than a ten-thousand-millionth of the weight, which rounds to nothing.
const SMALLEST_SUM: f32 = 1e-8;

/// What both passes read.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    graphs: Graphs<'a>,
    rule: &'a Rule,
    qkv: &'a [f32],
    position: Option<&'a [f32]>,
}

impl<'a> Inputs<'a> {
    /// Checks all that the pointers below rely on.
    fn new(graphs: Graphs<'a>, rule: &'a Rule, qkv: &'a [f32], position: Option<&'a [f32]>) -> Self {
        assert!(rule.content || position.is_some(), "attention needs content or position scores");
        assert!(rule.heads > 0 && rule.width.is_multiple_of(rule.heads), "heads share the width equally");
        assert_eq!(graphs.node_starts.len(), graphs.count() + 1, "one start a graph, and the end");
        assert_eq!(graphs.pair_starts.len(), graphs.count() + 1, "one start a graph, and the end");
        for (graph, &n) in graphs.sizes.iter().enumerate() {
            assert_eq!(graphs.node_starts[graph + 1], graphs.node_starts[graph] + n, "nodes follow one another");
            assert_eq!(graphs.pair_starts[graph + 1], graphs.pair_starts[graph] + n * n, "pairs follow one another");
        }
        assert_eq!(qkv.len(), graphs.nodes() * rule.columns(), "qkv is [r, 3d], or [r, d] without content");
        if let Some(position) = position {
            assert_eq!(position.len(), rule.heads * graphs.pairs(), "position is [h, p]");
        }
        Self { graphs, rule, qkv, position }
    }

    /// Runs of units, a unit being one head of one graph, graph after graph.
    fn tasks(&self) -> Vec<Range<usize>> {
        let mut tasks = Vec::new();
        let (mut first, mut pairs) = (0, 0);
        let units = self.graphs.count() * self.rule.heads;
        for unit in 0..units {
            let n = self.graphs.sizes[unit / self.rule.heads];
            pairs += n * n;
            if pairs >= PAIRS_PER_TASK || unit + 1 == units {
                tasks.push(first..unit + 1);
                (first, pairs) = (unit + 1, 0);
            }
        }
        tasks
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

// SAFETY: a unit writes the columns of its head in the rows of its graph, and the pairs of its graph
// in the row of its head. No two units share any, and each is in one task.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Where one head of one graph lies.
#[derive(Clone, Copy)]
struct Unit {
    n: usize,
    head: usize,
    d_head: usize,
    first_node: usize,
    /// In `[h, p]`.
    first_pair: usize,
}

impl Unit {
    #[inline(always)]
    fn new(inputs: &Inputs<'_>, unit: usize) -> Self {
        let Inputs { graphs, rule, .. } = inputs;
        let (graph, head) = (unit / rule.heads, unit % rule.heads);
        Self {
            n: graphs.sizes[graph],
            head,
            d_head: rule.width / rule.heads,
            first_node: graphs.node_starts[graph],
            first_pair: head * graphs.pairs() + graphs.pair_starts[graph],
        }
    }
}

/// A row of one head: where its scores and weights are. Memory behind `content`, `weights` and `gates`
/// goes on to a full vector, that behind the others ends with the row.
#[derive(Clone, Copy)]
struct Row {
    n: usize,
    /// Its first pair in `[h, p]`.
    first_pair: usize,
    clamp: Option<f32>,
    dropout: Option<Dropout>,
    content: Option<*mut f32>,
    position: Option<*const f32>,
    d_position: Option<*mut f32>,
    weights: *mut f32,
    gates: *mut f32,
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
            let unit = Unit::new(&self.inputs, unit);
            // SAFETY: `Inputs::new` and `forward` have checked all lengths; no other unit writes here.
            unsafe { forward_unit(simd, &self.inputs, unit, self.out, self.statistics, self.scratch) };
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
        d_head * ROWS,     // [d_head, ROWS]
        ROWS * n_padded,   // [ROWS, n_padded]
        ROWS * n_padded,
        ROWS * d_padded, // [ROWS, d_padded]
    ]);
    // SAFETY: the caller says that the slices have their shapes; the areas have those above.
    unsafe {
        let node = qkv.as_ptr().add(unit.first_node * columns + unit.head * d_head);
        let position = position.map(<[f32]>::as_ptr);
        if rule.content {
            pack_across(n, d_head, node.add(rule.width), columns, keys, n_padded);
        }
        pack_along(simd, n, d_head, node.add(columns - rule.width), columns, values, d_padded);
        for first in (0..n).step_by(ROWS) {
            let rows = ROWS.min(n - first);
            if rule.content {
                pack_rows(rows, d_head, node.add(first * columns), columns, 1.0 / (d_head as f32).sqrt(), queries);
                multiply(simd, d_head, queries, 1, ROWS, keys, n_padded, content); // Eq. 7
            }
            let row = |i: usize| Row {
                n,
                first_pair: unit.first_pair + (first + i) * n,
                clamp: rule.clamp,
                dropout: rule.dropout,
                content: rule.content.then_some(content.add(i * n_padded)),
                position: position.map(|position| position.add(unit.first_pair + (first + i) * n)),
                d_position: None,
                weights: weights.add(i * n_padded),
                gates: weights.add(i * n_padded),
            };
            let mut inverse_sums = [0.0; ROWS];
            for i in (0..rows).step_by(2) {
                // The last of an odd number of rows is paired with itself: done twice, to the same end.
                let both = [i, (i + 1).min(rows - 1)];
                let given = weigh(simd, rule.combine, [row(both[0]), row(both[1])]); // Eq. 8
                for (i, [largest, inverse_sum]) in both.into_iter().zip(given) {
                    let statistics = statistics.add(((unit.first_node + first + i) * rule.heads + unit.head) * 2);
                    *statistics = largest;
                    *statistics.add(1) = inverse_sum;
                    inverse_sums[i] = inverse_sum.abs();
                }
            }
            multiply(simd, n, weights, n_padded, 1, values, d_padded, gathered);
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
    units: Range<usize>,
    d_qkv: Shared,
    d_position: Option<Shared>,
    scratch: &'a mut Scratch,
}

impl Kernel for Backward<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for unit in self.units.clone() {
            let unit = Unit::new(&self.inputs, unit);
            // SAFETY: `Inputs::new` and `backward` have checked all lengths; no other unit writes here.
            unsafe {
                backward_unit(simd, &self.inputs, &self.results, unit, self.d_qkv, self.d_position, self.scratch);
            };
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
    Shared(d_qkv): Shared,
    d_position: Option<Shared>,
    scratch: &mut Scratch,
) {
    let Inputs { rule, qkv, position, .. } = *inputs;
    let Unit { n, d_head, .. } = unit;
    let columns = rule.columns();
    let scale = 1.0 / (d_head as f32).sqrt();
    let (n_padded, d_padded) = (n.next_multiple_of(S::LANES), d_head.next_multiple_of(S::LANES));
    let [keys, keys_along, values, d_keys, d_values, queries, d_outs, content, weights, gates, gathered] = scratch
        .areas([
            d_head * n_padded, // [d_head, n_padded]
            n * d_padded,      // [n, d_padded]
            d_head * n_padded,
            d_head * n_padded,
            d_head * n_padded,
            d_head * ROWS, // [d_head, ROWS]
            d_head * ROWS,
            ROWS * n_padded, // [ROWS, n_padded]
            ROWS * n_padded,
            2 * n_padded,    // [2, n_padded]
            ROWS * d_padded, // [ROWS, d_padded]
        ]);
    // SAFETY: the caller says that the slices have their shapes; the areas have those above.
    unsafe {
        let node = qkv.as_ptr().add(unit.first_node * columns + unit.head * d_head);
        let position = position.map(<[f32]>::as_ptr);
        let d_node = d_qkv.add(unit.first_node * columns + unit.head * d_head);
        if rule.content {
            pack_across(n, d_head, node.add(rule.width), columns, keys, n_padded);
            pack_along(simd, n, d_head, node.add(rule.width), columns, keys_along, d_padded);
            d_keys.write_bytes(0, d_head * n_padded);
        }
        pack_across(n, d_head, node.add(columns - rule.width), columns, values, n_padded);
        d_values.write_bytes(0, d_head * n_padded);
        for first in (0..n).step_by(ROWS) {
            let rows = ROWS.min(n - first);
            let out_at = (unit.first_node + first) * rule.width + unit.head * d_head;
            let (out, d_out) = (results.out.as_ptr().add(out_at), results.d_out.as_ptr().add(out_at));
            if rule.content {
                pack_rows(rows, d_head, node.add(first * columns), columns, scale, queries);
                multiply(simd, d_head, queries, 1, ROWS, keys, n_padded, content); // Eq. 7
            }
            pack_rows(rows, d_head, d_out, rule.width, 1.0, d_outs);
            multiply(simd, d_head, d_outs, 1, ROWS, values, n_padded, weights); // gradients of the weights
            let row = |i: usize| {
                let first_pair = unit.first_pair + (first + i) * n;
                Row {
                    n,
                    first_pair,
                    clamp: rule.clamp,
                    dropout: rule.dropout,
                    content: rule.content.then_some(content.add(i * n_padded)),
                    position: position.map(|position| position.add(first_pair)),
                    d_position: d_position.map(|Shared(d_position)| d_position.add(first_pair)),
                    weights: weights.add(i * n_padded),
                    gates: gates.add(i % 2 * n_padded),
                }
            };
            for i in (0..rows).step_by(2) {
                // As in the forward pass.
                let both = [i, (i + 1).min(rows - 1)];
                let (mut given, mut shared) = ([[0.0; 2]; 2], [0.0; 2]);
                for ((i, given), shared) in both.into_iter().zip(&mut given).zip(&mut shared) {
                    let statistics = ((unit.first_node + first + i) * rule.heads + unit.head) * 2;
                    let statistics = results.statistics.as_ptr().add(statistics);
                    *given = [*statistics, *statistics.add(1)];
                    // Σ_j weight · d_weight, the part of the softmax that all pairs of the row share.
                    *shared = dot(d_head, out.add(i * rule.width), d_out.add(i * rule.width));
                }
                unweigh(simd, rule.combine, [row(both[0]), row(both[1])], given, shared);
            }
            accumulate(simd, d_head, d_outs, weights, n_padded, d_values);
            if rule.content {
                accumulate(simd, d_head, queries, content, n_padded, d_keys);
                multiply(simd, n, content, n_padded, 1, keys_along, d_padded, gathered);
                for i in 0..rows {
                    copy_scaled(simd, d_head, gathered.add(i * d_padded), scale, d_node.add((first + i) * columns));
                }
            }
        }
        if rule.content {
            unpack_across(n, d_head, d_keys, n_padded, d_node.add(rule.width), columns);
        }
        unpack_across(n, d_head, d_values, n_padded, d_node.add(columns - rule.width), columns);
    }
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

    /// Position scores of `count` pairs from `j` on (Eq. 6), not clamped; zeros where there are none.
    ///
    /// # Safety
    /// The row has these pairs.
    #[inline(always)]
    unsafe fn position<S: Simd>(&self, simd: S, j: usize, count: usize) -> S::V {
        match self.position {
            // SAFETY: the caller says that they are there.
            Some(position) => unsafe { simd.load_up_to(position.add(j), count) },
            None => simd.zero(),
        }
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
unsafe fn weigh<S: Simd>(simd: S, combine: Combine, rows: [Row; 2]) -> [Statistics; 2] {
    // SAFETY: passed on. Each call has a constant form, so that none is asked for in its loops.
    let statistics = unsafe {
        match Form::of(combine, &rows[0]) {
            Form::Content => weigh_as(simd, Form::Content, rows),
            Form::Add => weigh_as(simd, Form::Add, rows),
            Form::Gate | Form::LogGate => {
                open_gates(simd, rows);
                let mut statistics = weigh_as(simd, Form::Gate, rows);
                for (row, statistics) in rows.into_iter().zip(&mut statistics) {
                    if statistics[1] > 1.0 / SMALLEST_SUM {
                        let [[largest, inverse_sum], _] = weigh_as(simd, Form::LogGate, [row; 2]);
                        *statistics = [largest, -inverse_sum];
                    }
                }
                statistics
            }
        }
    };
    // Not earlier: the second attempt at a row does not want the mask of the first.
    if let Some(dropout) = rows[0].dropout {
        // SAFETY: as above.
        unsafe { drop_weights(simd, dropout, rows) };
    }
    statistics
}

/// # Safety
/// As for [`weigh`].
#[inline(always)]
unsafe fn weigh_as<S: Simd>(simd: S, form: Form, rows: [Row; 2]) -> [Statistics; 2] {
    let n = rows[0].n;
    let whole = n - n % S::LANES;
    let mut largest = [simd.splat(f32::NEG_INFINITY); 2];
    let mut sums = [simd.zero(); 2];
    // SAFETY: vectors begin at each `j`, and the last may be shorter. What is done to the whole ones
    // knows at compile time that it needs no mask.
    unsafe {
        let mut j = 0;
        while j < whole {
            largest = exponents_from(simd, form, &rows, j, S::LANES, largest);
            j += S::LANES;
        }
        if j < n {
            largest = exponents_from(simd, form, &rows, j, n - j, largest);
        }
        let largest = [simd.largest(largest[0]), simd.largest(largest[1])];
        let mut j = 0;
        while j < whole {
            sums = weights_from(simd, form, &rows, j, S::LANES, largest, sums);
            j += S::LANES;
        }
        if j < n {
            sums = weights_from(simd, form, &rows, j, n - j, largest, sums);
        }
        [[largest[0], 1.0 / simd.sum(sums[0])], [largest[1], 1.0 / simd.sum(sums[1])]]
    }
}

/// One vector of exponents of two rows, put where the weights will be if they are not just the content
/// scores. Returns the largest so far.
///
/// # Safety
/// The rows have `count` pairs from `j` on, with which a vector begins.
#[inline(always)]
unsafe fn exponents_from<S: Simd>(
    simd: S,
    form: Form,
    rows: &[Row; 2],
    j: usize,
    count: usize,
    mut largest: [S::V; 2],
) -> [S::V; 2] {
    for (row, largest) in rows.iter().zip(&mut largest) {
        // SAFETY: passed on.
        unsafe {
            let position = if form == Form::Gate { simd.zero() } else { row.position(simd, j, count) };
            let exponent = row.exponent(simd, form, row.content(simd, j), position);
            if form == Form::Add || form == Form::LogGate {
                simd.store(row.weights.add(j), exponent);
            }
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
    rows: &[Row; 2],
    j: usize,
    count: usize,
    largest: [f32; 2],
    mut sums: [S::V; 2],
) -> [S::V; 2] {
    // SAFETY: passed on. Both rows are read before one is written.
    unsafe {
        let mut exponents = [simd.zero(); 2];
        let mut gates = [simd.splat(1.0); 2];
        for (i, row) in rows.iter().enumerate() {
            let exponent = match form {
                Form::Content | Form::Gate => row.clamp(simd, row.content(simd, j)),
                Form::Add | Form::LogGate => simd.load(row.weights.add(j)),
            };
            // Behind the row may be anything, also what has no exponential.
            exponents[i] = simd.keep_first(simd.sub(exponent, simd.splat(largest[i])), count, 0.0);
            if form == Form::Gate {
                gates[i] = simd.load(row.gates.add(j));
            }
        }
        let weights = exp(simd, exponents);
        for (i, row) in rows.iter().enumerate() {
            let weight = if form == Form::Gate { simd.mul(weights[i], gates[i]) } else { weights[i] };
            let weight = simd.keep_first(weight, count, 0.0);
            sums[i] = simd.add(sums[i], weight);
            simd.store(row.weights.add(j), weight);
        }
        sums
    }
}

/// Multiplies the weights of two rows by the mask.
///
/// # Safety
/// As for [`weigh`].
#[inline(always)]
unsafe fn drop_weights<S: Simd>(simd: S, dropout: Dropout, rows: [Row; 2]) {
    for j in (0..rows[0].n).step_by(S::LANES) {
        let mut dropped = [simd.zero(); 2];
        for (row, dropped) in rows.iter().zip(&mut dropped) {
            let mask = simd.dropout_mask(dropout, (row.first_pair + j) as u64);
            // SAFETY: a vector begins at `j`. Both rows are read before one is written.
            *dropped = simd.mul(mask, unsafe { simd.load(row.weights.add(j)) });
        }
        for (row, dropped) in rows.iter().zip(dropped) {
            // SAFETY: as above.
            unsafe { simd.store(row.weights.add(j), dropped) };
        }
    }
}

/// The backward of [`weigh`] and the division by the sums; `shared` is `Σ_j weight · d_weight`.
///
/// Where content scores were are then their gradients, and where gradients of the weights were (after
/// dropout) are then the weights (after dropout).
///
/// # Safety
/// The rows are in memory. They may be the same.
#[inline(always)]
unsafe fn unweigh<S: Simd>(simd: S, combine: Combine, rows: [Row; 2], statistics: [Statistics; 2], shared: [f32; 2]) {
    // SAFETY: passed on. Each call has a constant form, so that none is asked for in its loop.
    unsafe {
        match Form::of(combine, &rows[0]) {
            Form::Content => unweigh_as(simd, Form::Content, rows, statistics, shared),
            Form::Add => unweigh_as(simd, Form::Add, rows, statistics, shared),
            Form::Gate | Form::LogGate => {
                open_gates(simd, rows);
                if statistics[0][1] > 0.0 && statistics[1][1] > 0.0 {
                    unweigh_as(simd, Form::Gate, rows, statistics, shared);
                } else {
                    // Logarithms are as right for a row that had no need of them.
                    unweigh_as(simd, Form::LogGate, rows, statistics, shared);
                }
            }
        }
    }
}

/// # Safety
/// As for [`unweigh`].
#[inline(always)]
unsafe fn unweigh_as<S: Simd>(simd: S, form: Form, rows: [Row; 2], statistics: [Statistics; 2], shared: [f32; 2]) {
    let n = rows[0].n;
    let whole = n - n % S::LANES;
    let statistics = [[statistics[0][0], statistics[0][1].abs()], [statistics[1][0], statistics[1][1].abs()]];
    // SAFETY: vectors begin at each `j`, and the last may be shorter.
    unsafe {
        let mut j = 0;
        while j < whole {
            gradients_from(simd, form, &rows, j, S::LANES, statistics, shared);
            j += S::LANES;
        }
        if j < n {
            gradients_from(simd, form, &rows, j, n - j, statistics, shared);
        }
    }
}

/// One vector of the gradients of two rows.
///
/// # Safety
/// The rows have `count` pairs from `j` on, with which a vector begins.
#[inline(always)]
unsafe fn gradients_from<S: Simd>(
    simd: S,
    form: Form,
    rows: &[Row; 2],
    j: usize,
    count: usize,
    statistics: [Statistics; 2],
    shared: [f32; 2],
) {
    // SAFETY: passed on. Both rows are read before one is written.
    unsafe {
        let one = simd.splat(1.0);
        let (mut contents, mut positions) = ([simd.zero(); 2], [simd.zero(); 2]);
        let (mut exponents, mut d_weights) = ([simd.zero(); 2], [simd.zero(); 2]);
        let mut gates = [one; 2];
        for (i, row) in rows.iter().enumerate() {
            contents[i] = row.content(simd, j);
            d_weights[i] = simd.load(row.weights.add(j));
            if form == Form::Add || form == Form::LogGate || row.clamp.is_some() {
                positions[i] = row.position(simd, j, count);
            }
            if form == Form::Gate || form == Form::LogGate {
                gates[i] = simd.load(row.gates.add(j));
            }
            let exponent = row.exponent(simd, form, contents[i], positions[i]);
            // As in the forward pass, and rounded otherwise if that was on another instruction set.
            exponents[i] = simd.min(simd.sub(exponent, simd.splat(statistics[i][0])), simd.splat(88.0));
        }
        let weights = exp(simd, exponents);
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
                simd.store_up_to(d_position.add(j), row.clamp_gradient(simd, positions[i], gradient), count);
            }
        }
    }
}

/// Puts `σ(position)` of two rows where their gates are.
///
/// A loop of its own: the processor looks only some four exponentials ahead, and in one long loop with
/// the weights and a division they would all wait for one another.
///
/// # Safety
/// As for [`weigh`].
#[inline(always)]
unsafe fn open_gates<S: Simd>(simd: S, rows: [Row; 2]) {
    let n = rows[0].n;
    let whole = n - n % S::LANES;
    // SAFETY: vectors begin at each `j`, and the last may be shorter.
    unsafe {
        let mut j = 0;
        while j < whole {
            gates_from(simd, &rows, j, S::LANES);
            j += S::LANES;
        }
        if j < n {
            gates_from(simd, &rows, j, n - j);
        }
    }
}

/// One vector of the gates of two rows. One division serves both: a vector of quotients takes longer
/// than an exponential.
///
/// # Safety
/// The rows have `count` pairs from `j` on, with which a vector begins.
#[inline(always)]
unsafe fn gates_from<S: Simd>(simd: S, rows: &[Row; 2], j: usize, count: usize) {
    let one = simd.splat(1.0);
    let mut negative = [simd.zero(); 2];
    for (row, negative) in rows.iter().zip(&mut negative) {
        // SAFETY: passed on.
        let position = row.clamp(simd, unsafe { row.position(simd, j, count) });
        *negative = simd.sub(simd.zero(), simd.max(position, simd.splat(SMALLEST_POSITION)));
    }
    let [power, other] = exp(simd, negative);
    let (denominator, other_denominator) = (simd.add(one, power), simd.add(one, other));
    let inverse = simd.div(one, simd.mul(denominator, other_denominator));
    // SAFETY: gates go on to a full vector.
    unsafe {
        simd.store(rows[0].gates.add(j), simd.mul(inverse, other_denominator));
        simd.store(rows[1].gates.add(j), simd.mul(inverse, denominator));
    }
}

/// `log σ(a) = min(a, 0) - log(1 + e^-|a|)`.
#[inline(always)]
fn log_sigmoid<S: Simd>(simd: S, a: S::V) -> S::V {
    let minus_size = simd.min(a, simd.sub(simd.zero(), a));
    let rest = simd.ln(simd.add(simd.splat(1.0), simd.exp(minus_size)));
    simd.sub(simd.min(a, simd.zero()), rest)
}

/// The exponentials of several vectors of numbers up to 88, to about `1e-7 + 2e-8·|a|` of themselves.
///
/// Most of the time of a row goes into them. One exponential is a chain of a dozen steps that each wait
/// for the last; here every step is taken for all vectors before the next, and the polynomial is summed
/// in pairs, so that the processor finds independent work nearby. Against [`Simd::exp`] it leaves out
/// an upper bound, the second part of `ln 2` and the instruction that rounds.
#[inline(always)]
fn exp<S: Simd, const N: usize>(simd: S, a: [S::V; N]) -> [S::V; N] {
    // A number so large that adding it rounds to a whole one.
    let rounder = simd.splat(12_582_912.0);
    let log2_e = simd.splat(std::f32::consts::LOG2_E);
    let (mut rest, mut whole, mut low, mut middle, mut high) = (a, a, a, a, a);
    for k in 0..N {
        rest[k] = simd.max(a[k], simd.splat(-87.0));
        whole[k] = simd.sub(simd.mul_add(rest[k], log2_e, rounder), rounder);
    }
    for k in 0..N {
        rest[k] = simd.mul_add(rest[k], log2_e, simd.sub(simd.zero(), whole[k]));
    }
    // 2ˣ for x within ±1/2: 1 + x · (a polynomial through 2ˣ at the zeros of a Chebyshev polynomial).
    for k in 0..N {
        low[k] = simd.mul_add(rest[k], simd.splat(0.240_226_5), simd.splat(std::f32::consts::LN_2));
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
        rest[k] = simd.mul(rest[k], simd.two_to_the(whole[k]));
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

/// `sums[d][j] += Σ_row left[d][row] · right[row][j]` for `d_head` by `columns` sums.
///
/// # Safety
/// All these entries are in memory; `columns` is a multiple of the lanes.
#[inline(always)]
unsafe fn accumulate<S: Simd>(
    simd: S,
    d_head: usize,
    left: *const f32,
    right: *const f32,
    columns: usize,
    sums: *mut f32,
) {
    // SAFETY: both calls stay within the columns.
    unsafe {
        let mut column = 0;
        if S::LANES == 16 {
            while column + 2 * S::LANES <= columns {
                accumulate_block::<S, 2>(simd, d_head, left, right.add(column), columns, sums.add(column));
                column += 2 * S::LANES;
            }
        }
        while column < columns {
            accumulate_block::<S, 1>(simd, d_head, left, right.add(column), columns, sums.add(column));
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
                let factor = simd.splat(*left.add(d * ROWS + row));
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
unsafe fn dot(d: usize, a: *const f32, b: *const f32) -> f32 {
    // SAFETY: the caller says that they are there.
    (0..d).map(|d| unsafe { *a.add(d) * *b.add(d) }).sum()
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

/// Copies `n` rows of `d`, `step` apart, to rows of `d_padded`; what is behind `d` is zero.
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

/// Copies `n` rows of `d`, `step` apart, to columns of `[d, n_padded]`; the other columns are zero.
///
/// # Safety
/// The rows are there, and there is room for `[d, n_padded]`.
#[inline(always)]
unsafe fn pack_across(n: usize, d: usize, from: *const f32, step: usize, to: *mut f32, n_padded: usize) {
    // SAFETY: the caller says so.
    unsafe {
        for d in 0..d {
            let to = to.add(d * n_padded);
            for row in 0..n {
                *to.add(row) = *from.add(row * step + d);
            }
            to.add(n).write_bytes(0, n_padded - n);
        }
    }
}

/// Copies the first `n` columns of `[d, n_padded]` to rows of `d`, `step` apart.
///
/// # Safety
/// The columns are there, and there is room for the rows.
#[inline(always)]
unsafe fn unpack_across(n: usize, d: usize, from: *const f32, n_padded: usize, to: *mut f32, step: usize) {
    for row in 0..n {
        for d in 0..d {
            // SAFETY: the caller says so.
            unsafe { *to.add(row * step + d) = *from.add(d * n_padded + row) };
        }
    }
}

/// Copies `rows` rows of `d`, `step` apart and scaled, to columns of `[d, ROWS]`; the others are zero.
///
/// # Safety
/// The rows are there, and there is room for `[d, ROWS]`.
#[inline(always)]
unsafe fn pack_rows(rows: usize, d: usize, from: *const f32, step: usize, scale: f32, to: *mut f32) {
    // SAFETY: the caller says so.
    unsafe {
        for d in 0..d {
            let to = to.add(d * ROWS);
            if rows == ROWS {
                for row in 0..ROWS {
                    *to.add(row) = scale * *from.add(row * step + d);
                }
            } else {
                for row in 0..ROWS {
                    *to.add(row) = if row < rows { scale * *from.add(row * step + d) } else { 0.0 };
                }
            }
        }
    }
}

/// Memory of one task, used again by each of its units.
#[derive(Default)]
struct Scratch(Vec<Line>);

/// A cache line: vectors that straddle two take twice as long to load.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

impl Scratch {
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
mod tests {
    use super::*;
    use crate::scramble;

    /// Sizes of graphs with the starts that [`Graphs`] points to.
    struct Batch {
        sizes: Vec<usize>,
        node_starts: Vec<usize>,
        pair_starts: Vec<usize>,
    }

    impl Batch {
        fn new(sizes: &[usize]) -> Self {
            let starts = |count: fn(usize) -> usize| {
                let mut starts = vec![0];
                starts.extend(sizes.iter().scan(0, |end, &n| {
                    *end += count(n);
                    Some(*end)
                }));
                starts
            };
            Self { sizes: sizes.to_vec(), node_starts: starts(|n| n), pair_starts: starts(|n| n * n) }
        }

        fn graphs(&self) -> Graphs<'_> {
            Graphs { sizes: &self.sizes, node_starts: &self.node_starts, pair_starts: &self.pair_starts }
        }
    }

    /// Numbers spread evenly over `±size`.
    fn draw(stream: u32, count: usize, size: f32) -> Vec<f32> {
        let draw = |index| scramble(scramble(index as u32) ^ stream) as f32 / 2_f32.powi(31) - 1.0;
        (0..count).map(|index| size * draw(index)).collect()
    }

    /// The operands of one call, and what it should give.
    struct Case {
        batch: Batch,
        rule: Rule,
        qkv: Vec<f32>,
        position: Option<Vec<f32>>,
        d_out: Vec<f32>,
    }

    /// What the two passes give.
    #[derive(Debug, PartialEq)]
    struct Given<T> {
        out: Vec<T>,
        d_qkv: Vec<T>,
        d_position: Vec<T>,
    }

    impl Case {
        fn new(sizes: &[usize], rule: Rule, directed: bool, size: f32) -> Self {
            let batch = Batch::new(sizes);
            let (r, p) = (batch.graphs().nodes(), batch.graphs().pairs());
            let qkv = draw(1, r * rule.columns(), 1.5);
            let position = directed.then(|| draw(2, rule.heads * p, size));
            Self { qkv, position, d_out: draw(3, r * rule.width, 1.0), rule, batch }
        }

        fn run(&self, isa: Isa) -> Given<f32> {
            let (graphs, rule) = (self.batch.graphs(), &self.rule);
            let position = self.position.as_deref();
            // What is written is not added to what was there.
            let mut out = vec![f32::NAN; self.d_out.len()];
            let mut statistics = vec![f32::NAN; graphs.nodes() * rule.heads * 2];
            forward(isa, graphs, rule, &self.qkv, position, &mut out, &mut statistics);
            let mut d_qkv = vec![f32::NAN; self.qkv.len()];
            let mut d_position = vec![f32::NAN; position.map_or(0, <[f32]>::len)];
            let wanted = position.map(|_| d_position.as_mut_slice());
            backward(isa, graphs, rule, &self.qkv, position, &statistics, &out, &self.d_out, &mut d_qkv, wanted);
            Given { out, d_qkv, d_position }
        }

        /// The equations as they are printed, pair after pair, with the gradients by the chain rule.
        fn naive(&self) -> Given<f64> {
            let (graphs, rule) = (self.batch.graphs(), &self.rule);
            let (d, columns, p) = (rule.width, rule.columns(), graphs.pairs());
            let d_head = d / rule.heads;
            let scale = 1.0 / (d_head as f64).sqrt();
            let bound = rule.clamp.map_or(f64::INFINITY, f64::from);
            let qkv = |row: usize, column: usize| f64::from(self.qkv[row * columns + column]);
            let mut given = Given {
                out: vec![0.0; self.d_out.len()],
                d_qkv: vec![0.0; self.qkv.len()],
                d_position: vec![0.0; self.position.as_ref().map_or(0, Vec::len)],
            };
            for (graph, &n) in graphs.sizes.iter().enumerate() {
                let start = graphs.node_starts[graph];
                for head in 0..rule.heads {
                    let (query, key, value) = (head * d_head, d + head * d_head, columns - d + head * d_head);
                    for i in 0..n {
                        let row = start + i;
                        let first_pair = head * p + graphs.pair_starts[graph] + i * n;
                        let content: Vec<f64> = (0..n)
                            .map(|j| {
                                if !rule.content {
                                    return 0.0;
                                }
                                let products = (0..d_head).map(|c| qkv(row, query + c) * qkv(start + j, key + c));
                                products.sum::<f64>() * scale
                            })
                            .collect();
                        let position: Vec<f64> = (0..n)
                            .map(|j| self.position.as_ref().map_or(0.0, |scores| f64::from(scores[first_pair + j])))
                            .collect();
                        let scores: Vec<f64> = (0..n)
                            .map(|j| {
                                let (content, at) = (content[j].clamp(-bound, bound), position[j].clamp(-bound, bound));
                                match rule.combine {
                                    Combine::Gate if self.position.is_some() => {
                                        content + at.min(0.0) - (-at.abs()).exp().ln_1p()
                                    }
                                    _ => content + at,
                                }
                            })
                            .collect();
                        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                        let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp() / sum).collect();
                        let mask = |j: usize| {
                            rule.dropout.map_or(1.0, |dropout| f64::from(dropout.factor((first_pair + j) as u64)))
                        };
                        let d_out = |c: usize| f64::from(self.d_out[row * d + head * d_head + c]);
                        let mut d_weights = vec![0.0; n];
                        for j in 0..n {
                            for c in 0..d_head {
                                let weight = weights[j] * mask(j);
                                given.out[row * d + head * d_head + c] += weight * qkv(start + j, value + c);
                                given.d_qkv[(start + j) * columns + value + c] += weight * d_out(c);
                                d_weights[j] += d_out(c) * qkv(start + j, value + c) * mask(j);
                            }
                        }
                        let shared: f64 = (0..n).map(|j| weights[j] * d_weights[j]).sum();
                        for j in 0..n {
                            let d_score = weights[j] * (d_weights[j] - shared);
                            if self.position.is_some() && position[j].abs() <= bound {
                                let slope = match rule.combine {
                                    Combine::Gate => 1.0 / (1.0 + position[j].exp()),
                                    Combine::Add => 1.0,
                                };
                                given.d_position[first_pair + j] = d_score * slope;
                            }
                            if rule.content && content[j].abs() <= bound {
                                for c in 0..d_head {
                                    given.d_qkv[row * columns + query + c] += d_score * scale * qkv(start + j, key + c);
                                    given.d_qkv[(start + j) * columns + key + c] +=
                                        d_score * scale * qkv(row, query + c);
                                }
                            }
                        }
                    }
                }
            }
            given
        }

        fn check(&self) {
            self.check_to(3e-6);
        }

        fn check_to(&self, tolerance: f64) {
            let expected = self.naive();
            for isa in Isa::available() {
                let ours = self.run(isa);
                let name = format!("{isa:?}, {:?}, {:?}", self.rule, self.batch.sizes);
                assert_close(&ours.out, &expected.out, tolerance, &format!("out, {name}"));
                assert_close(&ours.d_qkv, &expected.d_qkv, tolerance, &format!("d_qkv, {name}"));
                assert_close(&ours.d_position, &expected.d_position, tolerance, &format!("d_position, {name}"));
            }
        }
    }

    fn assert_close(ours: &[f32], expected: &[f64], tolerance: f64, what: &str) {
        assert_eq!(ours.len(), expected.len());
        let size = expected.iter().fold(0.0_f64, |size, value| size.max(value.abs()));
        for (index, (ours, expected)) in ours.iter().zip(expected).enumerate() {
            let error = (f64::from(*ours) - expected).abs();
            assert!(error <= tolerance * size, "{ours} is not {expected} at {index}: {what}");
        }
    }

    fn rule(heads: usize, d_head: usize) -> Rule {
        let combine = Combine::Gate;
        Rule { heads, width: heads * d_head, content: true, combine, clamp: None, dropout: None }
    }

    fn dropout() -> Dropout {
        Dropout { key: [0xffff_ff00, 5], threshold: 3 << 29, kept: 1.6 }
    }

    /// Content with and without position, and position alone, each combined in each way.
    fn modes() -> impl Iterator<Item = (bool, bool, Combine)> {
        [(true, true), (true, false), (false, true)]
            .into_iter()
            .flat_map(|(content, directed)| [Combine::Gate, Combine::Add].map(|combine| (content, directed, combine)))
    }

    const RAGGED: [usize; 11] = [3, 1, 0, 15, 2, 16, 17, 0, 33, 8, 9];

    #[test]
    fn two_nodes_by_hand() {
        // As in the reference: one head of width one, q = (ln 2, 0), k = (1, 0), v = (10, 20), so
        // exp(content) is (2, 1) in the first row and (1, 1) in the second. A gate of 1/4 on the first
        // pair and 1/2 on the others makes both weights of the first row equal.
        let (two, three) = (2_f32.ln(), 3_f32.ln());
        let check = |rule: Rule, qkv: &[f32], position: Option<[f32; 4]>, expected: f32| {
            let batch = Batch::new(&[2]);
            for isa in Isa::available() {
                let (mut out, mut statistics) = ([0.0; 2], [0.0; 4]);
                let position = position.as_ref().map(<[f32; 4]>::as_slice);
                forward(isa, batch.graphs(), &rule, qkv, position, &mut out, &mut statistics);
                assert!((out[0] - expected).abs() < 1e-5 && (out[1] - 15.0).abs() < 1e-5, "{out:?}, not {expected}");
            }
        };
        let qkv = [two, 1.0, 10.0, 0.0, 0.0, 20.0];
        let (gate, add) = (rule(1, 1), Rule { combine: Combine::Add, ..rule(1, 1) });
        check(gate, &qkv, Some([-three, 0.0, 0.0, 0.0]), 15.0);
        check(gate, &qkv, None, (2.0 * 10.0 + 20.0) / 3.0);
        let position = [three, 0.0, 0.0, 0.0];
        check(add, &qkv, Some(position), (6.0 * 10.0 + 20.0) / 7.0);
        // A clamp at ln 2 lets position only double, and leaves the content as it is.
        check(Rule { clamp: Some(two), ..add }, &qkv, Some(position), (4.0 * 10.0 + 20.0) / 5.0);
        // Values alone: exp(ln 3) triples, σ(ln 3) = 3/4 is one and a half times σ(0).
        let values = [10.0, 20.0];
        check(Rule { content: false, ..add }, &values, Some(position), (3.0 * 10.0 + 20.0) / 4.0);
        check(Rule { content: false, ..gate }, &values, Some(position), (1.5 * 10.0 + 20.0) / 2.5);
    }

    #[test]
    fn every_mode_agrees_with_the_equations() {
        for (content, directed, combine) in modes() {
            for clamp in [None, Some(0.7)] {
                for dropout in [None, Some(dropout())] {
                    let rule = Rule { content, combine, clamp, dropout, ..rule(3, 7) };
                    Case::new(&RAGGED, rule, directed, 4.0).check();
                }
            }
        }
    }

    #[test]
    fn every_head_count_and_width_agrees_with_the_equations() {
        for heads in 1..=16 {
            Case::new(&RAGGED[..8], Rule { dropout: Some(dropout()), ..rule(heads, 3) }, true, 3.0).check();
        }
        for d_head in (1..=33).chain([47, 48, 63, 64]) {
            Case::new(&[5, 17, 1, 9], Rule { clamp: Some(2.0), ..rule(2, d_head) }, true, 3.0).check();
        }
    }

    #[test]
    fn large_graphs_agree_with_the_equations() {
        Case::new(&[130, 1, 300], rule(1, 28), true, 3.0).check();
        let rule = Rule { combine: Combine::Add, clamp: Some(1.5), dropout: Some(dropout()), ..rule(2, 5) };
        Case::new(&[130, 0, 300, 2], rule, true, 3.0).check();
    }

    #[test]
    fn gates_that_all_but_close_leave_the_equations_true() {
        // Position scores down to -200: gates vanish in single precision, in some rows all of them.
        for content in [true, false] {
            for dropout in [None, Some(dropout())] {
                let mut case = Case::new(&RAGGED, Rule { content, dropout, ..rule(2, 5) }, true, 50.0);
                let position = case.position.as_mut().expect("it has position scores");
                for (index, score) in position.iter_mut().enumerate() {
                    *score -= if index % 7 == 3 { 20.0 } else { 150.0 };
                }
                // A logarithm of -100 is rounded at 4e-6.
                case.check_to(2e-5);
            }
        }
    }

    #[test]
    fn the_largest_content_may_have_the_smallest_gate() {
        // One head of width one: content of the first row is (100, 0), its gates e^-120 and 1/2. In
        // logarithms (-20, -0.69): a weight of 4e-9 for the first.
        let batch = Batch::new(&[2]);
        let qkv = [10.0, 10.0, 1e6, 0.0, 0.0, 2.0];
        let position = [-120.0, 0.0, 0.0, 0.0];
        let weight = 1.0 / (1.0 + 0.5 * 20_f32.exp());
        for isa in Isa::available() {
            let (mut out, mut statistics) = ([0.0; 2], [0.0; 4]);
            forward(isa, batch.graphs(), &rule(1, 1), &qkv, Some(&position), &mut out, &mut statistics);
            assert!((out[0] - (2.0 + 1e6 * weight)).abs() < 1e-5, "{isa:?} gives {}", out[0]);
            assert!(statistics[1] < 0.0 && statistics[3] > 0.0, "only the first row needs logarithms");
        }
    }

    #[test]
    fn weights_of_a_row_sum_to_one_whatever_the_scores() {
        // Gathering ones gives ones, and moving all values alike moves no score.
        for (content, directed, combine) in modes() {
            for size in [1.0, 30.0, 100.0, 1e4] {
                for shift in [0.0, -size] {
                    let rule = Rule { content, combine, ..rule(2, 3) };
                    let mut case = Case::new(&RAGGED, rule, directed, size);
                    for row in case.qkv.chunks_mut(rule.columns()) {
                        let values = row.len() - rule.width;
                        // Queries and keys of √size, so that content scores reach `size` too.
                        row[..values].iter_mut().for_each(|value| *value *= size.sqrt());
                        row[values..].fill(1.0);
                    }
                    if let Some(position) = &mut case.position {
                        for score in position {
                            *score += shift;
                        }
                    }
                    for isa in Isa::available() {
                        let Given { out, d_qkv, d_position } = case.run(isa);
                        assert!(
                            out.iter().all(|one| (one - 1.0).abs() < 2e-6),
                            "{isa:?}: scores of {size} lose weight"
                        );
                        let small = 2e-5 * size.sqrt();
                        assert!(d_position.iter().all(|slope| slope.abs() < small), "{isa:?}: scores of {size}");
                        for row in d_qkv.chunks(rule.columns()) {
                            let (scores, values) = row.split_at(row.len() - rule.width);
                            assert!(scores.iter().all(|slope| slope.abs() < small), "{isa:?}: scores of {size}");
                            assert!(values.iter().all(|slope| slope.is_finite()), "{isa:?}: scores of {size}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn scores_of_ten_thousand_choose_the_largest() {
        let batch = Batch::new(&[2]);
        let qkv = [1e4, 1e4, 1.0, -1e4, -1e4, 2.0];
        for (combine, position) in [(Combine::Gate, [-1e4, 1e4, 1e4, -1e4]), (Combine::Add, [-1e4, 1e4, 1e4, -1e4])] {
            for isa in Isa::available() {
                let (mut out, mut statistics) = ([0.0; 2], [0.0; 4]);
                let rule = Rule { combine, ..rule(1, 1) };
                forward(isa, batch.graphs(), &rule, &qkv, Some(&position), &mut out, &mut statistics);
                assert_eq!(out, [1.0, 2.0], "{isa:?}");
            }
        }
        // With values alone the least closed gate has all the weight.
        for isa in Isa::available() {
            let (mut out, mut statistics) = ([0.0; 2], [0.0; 4]);
            let rule = Rule { content: false, ..rule(1, 1) };
            let position = [-1e4, -9e3, -1e4, -1e4];
            forward(isa, batch.graphs(), &rule, &[1.0, 2.0], Some(&position), &mut out, &mut statistics);
            assert_eq!(out, [2.0, 1.5], "{isa:?}");
        }
    }

    #[test]
    fn results_are_the_same_to_the_bit_on_any_number_of_threads() {
        let rule = Rule { dropout: Some(dropout()), ..rule(4, 5) };
        let sizes: Vec<usize> = (0..60).map(|graph| graph * 37 % 61).chain([150]).collect();
        let case = Case::new(&sizes, rule, true, 3.0);
        for isa in Isa::available() {
            let mut given = [1, 2, 5].map(|threads| {
                let pool =
                    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads can be started");
                pool.install(|| case.run(isa))
            });
            let [first, others @ ..] = &mut given;
            assert!(others.iter().all(|other| other == first), "{isa:?}");
        }
    }

    #[test]
    fn a_graph_is_the_same_alone_or_in_a_batch() {
        let rule = rule(2, 6);
        let whole = Case::new(&RAGGED, rule, true, 3.0);
        let graphs = whole.batch.graphs();
        for isa in Isa::available() {
            let in_batch = whole.run(isa);
            for (graph, &n) in graphs.sizes.iter().enumerate() {
                let nodes = graphs.node_starts[graph]..graphs.node_starts[graph + 1];
                let of_nodes =
                    |values: &[f32], columns: usize| values[nodes.start * columns..nodes.end * columns].to_vec();
                let of_pairs = |values: &[f32]| -> Vec<f32> {
                    let of_head =
                        |head: &[f32]| head[graphs.pair_starts[graph]..graphs.pair_starts[graph + 1]].to_vec();
                    values.chunks(graphs.pairs()).flat_map(of_head).collect()
                };
                let alone = Case {
                    batch: Batch::new(&[n]),
                    rule,
                    qkv: of_nodes(&whole.qkv, rule.columns()),
                    position: whole.position.as_deref().map(of_pairs),
                    d_out: of_nodes(&whole.d_out, rule.width),
                };
                let expected = Given {
                    out: of_nodes(&in_batch.out, rule.width),
                    d_qkv: of_nodes(&in_batch.d_qkv, rule.columns()),
                    d_position: of_pairs(&in_batch.d_position),
                };
                assert_eq!(alone.run(isa), expected, "{isa:?}, graph {graph}");
            }
        }
    }

    #[test]
    fn a_gradient_that_is_not_asked_for_changes_no_other() {
        let case = Case::new(&RAGGED, rule(2, 4), true, 3.0);
        let (graphs, position) = (case.batch.graphs(), case.position.as_deref());
        for isa in Isa::available() {
            let given = case.run(isa);
            let (mut out, mut statistics) = (given.out.clone(), vec![0.0; graphs.nodes() * 4]);
            forward(isa, graphs, &case.rule, &case.qkv, position, &mut out, &mut statistics);
            let mut d_qkv = vec![f32::NAN; case.qkv.len()];
            backward(isa, graphs, &case.rule, &case.qkv, position, &statistics, &out, &case.d_out, &mut d_qkv, None);
            assert_eq!(d_qkv, given.d_qkv);
        }
    }
}
