//! Multi-head attention gated by virtual edges (Eq. 6–8), forward and backward, without storing
//! attention matrices.
//!
//! `Att = normalize(exp(QKᵀ/√d_head) ⊙ σ(position))`. Eight query rows of one head of one graph are
//! processed at a time, so content scores, softmax and weighted sum stay in the first-level cache.
//! Only two statistics per row are kept, from which the backward pass recomputes the weights.
//!
//! The product of Eq. 8 is evaluated directly as `exp(content - max content) · σ(position)`, which
//! saves one logarithm per pair. It can underflow for a whole row; such a row is recomputed as
//! `softmax(content + log σ(position))`, which cannot underflow.

mod products;
mod rows;

use std::ops::Range;

use crate::GraphOffsets;
use crate::parallel;
use crate::simd::{Dropout, Isa, Kernel, Simd};
use products::{
    ROWS, Scratch, accumulate, copy_scaled, dot, gather, multiply, pack_rows, pack_transposed,
    scale, unpack_transposed,
};
use rows::{Row, softmax_backward, softmax_forward};

/// Combination of content and position scores before normalization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CombineMode {
    /// `exp(content) · σ(position)`: Eq. 8 of the paper.
    Gate,
    /// `exp(content + position)`: the script of the paper's authors.
    Add,
}

/// Options of the attention kernels.
#[derive(Debug, Clone, Copy)]
pub struct AttentionKernelOptions {
    /// Number of heads `h`; must divide `width`.
    pub heads: usize,
    /// Hidden dimension `d` of a node.
    pub width: usize,
    /// If true, there are content scores and `qkv` is `[r, 3d]` (queries, keys, values); otherwise
    /// it is `[r, d]` (values).
    pub content: bool,
    /// Combination of content and position scores.
    pub combine: CombineMode,
    /// Bound of content and position scores, which are clamped to `±clamp`.
    pub clamp: Option<f32>,
    /// Dropout mask of the attention weights; the entry of a pair has index `head · p + pair`.
    pub dropout: Option<Dropout>,
}

impl AttentionKernelOptions {
    /// Returns the number of columns of `qkv`.
    fn columns(&self) -> usize {
        if self.content { 3 * self.width } else { self.width }
    }
}

/// Position scores (Eq. 6) and the block of scores of each graph.
#[derive(Debug, Clone, Copy)]
pub struct AttentionPosition<'a> {
    /// `[h, q]` scores: the concatenated blocks of pairs.
    pub scores: &'a [f32],
    /// `[b]` offset of the block of each graph in a row of `scores`. Graphs may share a block.
    pub starts: &'a [usize],
    /// `[h]` score of all pairs that involve the last node of a graph, if that is a CLS node.
    /// Blocks then contain the pairs of the other nodes only.
    pub cls: Option<&'a [f32]>,
}

/// Output of [`forward`].
#[derive(Debug)]
pub struct AttentionOutput {
    /// `[r, d]` attended values.
    pub out: Vec<f32>,
    /// `[r, h, 2]` statistics of each row and head for [`backward`]: the score subtracted in the
    /// exponents, and the reciprocal of the row sum, negated if the row was computed with
    /// logarithms.
    pub statistics: Vec<f32>,
}

/// Gradients computed by [`backward`]; empty if the input is absent.
#[derive(Debug, PartialEq)]
pub struct AttentionGradients {
    /// Gradient of `qkv`.
    pub qkv: Vec<f32>,
    /// Gradient of [`AttentionPosition::scores`].
    pub scores: Vec<f32>,
    /// Gradient of [`AttentionPosition::cls`].
    pub cls: Vec<f32>,
}

/// Attends from every node to all nodes of the same graph.
///
/// # Shapes
/// - `qkv`: `[r, 3d]` if `options.content`, otherwise `[r, d]`
pub fn forward(
    isa: Isa,
    graphs: GraphOffsets<'_>,
    options: &AttentionKernelOptions,
    qkv: &[f32],
    position: Option<AttentionPosition<'_>>,
) -> AttentionOutput {
    let inputs = Inputs::new(graphs, options, qkv, position);
    let (length, statistics_length) =
        (graphs.num_nodes() * options.width, graphs.num_nodes() * options.heads * 2);
    let mut out = Vec::with_capacity(length);
    let mut statistics = Vec::with_capacity(statistics_length);
    let outputs = (Shared(out.as_mut_ptr()), Shared(statistics.as_mut_ptr()));
    let schedule = Schedule::by_graph(&inputs);
    parallel::for_each(schedule.tasks(&inputs), |items| {
        Scratch::with(|scratch| {
            isa.run(Forward {
                inputs,
                schedule: &schedule,
                items,
                out: outputs.0,
                statistics: outputs.1,
                scratch,
            });
        });
    });
    // SAFETY: every entry belongs to one head of one graph, and every work item has written its
    // entries.
    unsafe {
        out.set_len(length);
        statistics.set_len(statistics_length);
    }
    AttentionOutput { out, statistics }
}

/// Computes the gradients of [`forward`] from its inputs, its output and the gradient of the
/// output.
///
/// Gradients of scores shared by several graphs are summed in graph order.
///
/// # Shapes
/// - `qkv`, `position`: as in [`forward`]
/// - `output`: [`AttentionOutput::out`] and [`AttentionOutput::statistics`]
/// - `d_out`: `[r, d]`
pub fn backward(
    isa: Isa,
    graphs: GraphOffsets<'_>,
    options: &AttentionKernelOptions,
    qkv: &[f32],
    position: Option<AttentionPosition<'_>>,
    output: (&[f32], &[f32]),
    d_out: &[f32],
) -> AttentionGradients {
    let inputs = Inputs::new(graphs, options, qkv, position);
    let (out, statistics) = output;
    assert_eq!(
        statistics.len(),
        graphs.num_nodes() * options.heads * 2,
        "statistics must be [r, h, 2]"
    );
    assert_eq!(out.len(), graphs.num_nodes() * options.width, "out must be [r, d]");
    assert_eq!(d_out.len(), out.len(), "d_out must have the shape of out");
    let results = Results { statistics, out, d_out };
    let scores_length = position.map_or(0, |position| position.scores.len());
    let mut d_qkv = Vec::with_capacity(qkv.len());
    let mut d_scores = Vec::with_capacity(scores_length);
    // Kept per graph so that they are summed in graph order.
    let mut d_cls = vec![0.0; graphs.num_graphs() * options.heads];
    let outputs = GradientPtrs {
        qkv: Shared(d_qkv.as_mut_ptr()),
        scores: Shared(d_scores.as_mut_ptr()),
        cls: Shared(d_cls.as_mut_ptr()),
    };
    let schedule = Schedule::by_block(&inputs);
    parallel::for_each(schedule.tasks(&inputs), |items| {
        Scratch::with(|scratch| {
            isa.run(Backward { inputs, results, schedule: &schedule, items, outputs, scratch });
        });
    });
    // SAFETY: every entry belongs to one head of one graph or, for scores, of one block, and every
    // work item has written its entries. `Schedule::by_block` has checked that the blocks cover all
    // scores.
    unsafe {
        d_qkv.set_len(qkv.len());
        d_scores.set_len(scores_length);
    }
    let cls = position.and_then(|position| position.cls).map_or(0, <[f32]>::len);
    let cls = (0..cls).map(|head| d_cls.iter().skip(head).step_by(options.heads).sum()).collect();
    AttentionGradients { qkv: d_qkv, scores: d_scores, cls }
}

/// Minimum number of pairs of a task: about 10 µs of work, which amortizes the cost of starting it.
/// Task boundaries do not affect results.
const PAIRS_PER_TASK: usize = 4 * 1024;

/// Largest exponent for which the maximum is not subtracted: `e^20` times any number of pairs is
/// finite, and so is the reciprocal of `e^-20`.
const SAFE_EXPONENT: f32 = 20.0;

/// Validated inputs of both passes.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    graphs: GraphOffsets<'a>,
    options: &'a AttentionKernelOptions,
    qkv: &'a [f32],
    position: Option<AttentionPosition<'a>>,
}

impl<'a> Inputs<'a> {
    /// Checks all shapes that the unsafe code below relies on.
    fn new(
        graphs: GraphOffsets<'a>,
        options: &'a AttentionKernelOptions,
        qkv: &'a [f32],
        position: Option<AttentionPosition<'a>>,
    ) -> Self {
        assert!(
            options.content || position.is_some(),
            "attention needs content or position scores"
        );
        assert!(
            options.heads > 0 && options.width.is_multiple_of(options.heads),
            "the hidden dimension must be divisible by the number of heads"
        );
        assert_eq!(
            graphs.node_starts.len(),
            graphs.num_graphs() + 1,
            "offsets must have one entry per graph and the end"
        );
        assert_eq!(
            graphs.pair_starts.len(),
            graphs.num_graphs() + 1,
            "offsets must have one entry per graph and the end"
        );
        for (graph, &n) in graphs.sizes.iter().enumerate() {
            assert_eq!(
                graphs.node_starts[graph + 1],
                graphs.node_starts[graph] + n,
                "nodes of the graphs must be contiguous"
            );
            assert_eq!(
                graphs.pair_starts[graph + 1],
                graphs.pair_starts[graph] + n * n,
                "pairs of the graphs must be contiguous"
            );
        }
        assert_eq!(
            qkv.len(),
            graphs.num_nodes() * options.columns(),
            "qkv must be [r, 3d], or [r, d] without content"
        );
        let inputs = Self { graphs, options, qkv, position };
        if let Some(AttentionPosition { scores, starts, cls }) = position {
            assert!(scores.len().is_multiple_of(options.heads), "scores must be [h, q]");
            assert_eq!(starts.len(), graphs.num_graphs(), "there must be one block per graph");
            for (graph, start) in starts.iter().enumerate() {
                let end = start + inputs.scored(graph).pow(2);
                assert!(
                    end <= scores.len() / options.heads,
                    "block of graph {graph} ends at {end}, beyond the scores"
                );
            }
            assert!(
                cls.is_none_or(|cls| cls.len() == options.heads),
                "there must be one CLS score per head"
            );
        }
        inputs
    }

    /// Returns the number of nodes of a graph whose pairs have individual scores: all but a CLS
    /// node.
    #[inline(always)]
    fn scored(&self, graph: usize) -> usize {
        let without = self.position.is_some_and(|position| position.cls.is_some());
        self.graphs.sizes[graph].saturating_sub(usize::from(without))
    }
}

/// Partition of the work: an item is one head of a group of graphs that must be processed
/// sequentially.
struct Schedule {
    /// All graphs, sorted by group.
    graphs: Vec<usize>,
    /// Offset of each group in `graphs`, followed by the end.
    starts: Vec<usize>,
}

impl Schedule {
    /// Puts each graph into a separate group.
    fn by_graph(inputs: &Inputs<'_>) -> Self {
        let count = inputs.graphs.num_graphs();
        Self { graphs: (0..count).collect(), starts: (0..=count).collect() }
    }

    /// Groups graphs that share a block of scores: their gradients are summed into one block.
    fn by_block(inputs: &Inputs<'_>) -> Self {
        let Some(position) = inputs.position else { return Self::by_graph(inputs) };
        let mut graphs: Vec<usize> = (0..inputs.graphs.num_graphs()).collect();
        let block_of = |graph: usize| (position.starts[graph], inputs.scored(graph));
        graphs.sort_by_key(|&graph| block_of(graph)); // stable: keeps the graph order within a block
        let (mut starts, mut end) = (vec![0], 0);
        for (index, pair) in graphs.windows(2).enumerate() {
            // Graphs without scores read no block, so each forms a group.
            if block_of(pair[0]) != block_of(pair[1]) || block_of(pair[0]).1 == 0 {
                starts.push(index + 1);
            }
        }
        for &first in &starts[..starts.len().min(graphs.len())] {
            let (start, scored) = block_of(graphs[first]);
            if scored > 0 {
                assert_eq!(start, end, "blocks of scores must be contiguous and used");
                end += scored * scored;
            }
        }
        assert_eq!(
            end,
            position.scores.len() / inputs.options.heads,
            "every score must belong to a block"
        );
        if !graphs.is_empty() {
            starts.push(graphs.len());
        }
        Self { graphs, starts }
    }

    /// Splits the items into tasks of consecutive items; items are ordered by group, then by head.
    fn tasks(&self, inputs: &Inputs<'_>) -> Vec<Range<usize>> {
        let mut tasks = Vec::new();
        let (mut first, mut pairs) = (0, 0);
        let items = (self.starts.len() - 1) * inputs.options.heads;
        for item in 0..items {
            let (graphs, _) = self.item(inputs, item);
            pairs += graphs.len() * inputs.graphs.sizes[graphs[0]].pow(2);
            if pairs >= PAIRS_PER_TASK || item + 1 == items {
                tasks.push(first..item + 1);
                (first, pairs) = (item + 1, 0);
            }
        }
        tasks
    }

    /// Returns the graphs and the head of an item.
    #[inline(always)]
    fn item(&self, inputs: &Inputs<'_>, item: usize) -> (&[usize], usize) {
        let (group, head) = (item / inputs.options.heads, item % inputs.options.heads);
        (&self.graphs[self.starts[group]..self.starts[group + 1]], head)
    }
}

/// Results of the forward pass and the gradient of its output.
#[derive(Clone, Copy)]
struct Results<'a> {
    statistics: &'a [f32],
    out: &'a [f32],
    d_out: &'a [f32],
}

/// Pointer to memory that tasks write disjointly.
#[derive(Clone, Copy)]
struct Shared(*mut f32);

// SAFETY: an item writes the columns of its head in the rows of its graphs, and the block of its
// graphs in the scores of its head. These do not overlap between items, and each item belongs to
// one task.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Outputs of the backward pass: gradients of `qkv`, of the scores, and of the CLS score of each
/// graph.
#[derive(Clone, Copy)]
struct GradientPtrs {
    qkv: Shared,
    scores: Shared,
    cls: Shared,
}

/// Sizes and offsets of one head of one graph.
#[derive(Clone, Copy)]
struct GraphHead {
    n: usize,
    /// Number of nodes whose pairs have individual scores.
    scored: usize,
    graph: usize,
    head: usize,
    d_head: usize,
    first_node: usize,
    /// Offset of the first pair in `[h, p]`.
    first_pair: usize,
    /// Offset of the first score in `[h, q]`.
    first_score: usize,
    cls: f32,
}

impl GraphHead {
    #[inline(always)]
    fn new(inputs: &Inputs<'_>, graph: usize, head: usize) -> Self {
        let Inputs { graphs, options, position, .. } = inputs;
        Self {
            n: graphs.sizes[graph],
            scored: inputs.scored(graph),
            graph,
            head,
            d_head: options.width / options.heads,
            first_node: graphs.node_starts[graph],
            first_pair: head * graphs.num_pairs() + graphs.pair_starts[graph],
            first_score: position.map_or(0, |position| {
                head * (position.scores.len() / options.heads) + position.starts[graph]
            }),
            cls: position.and_then(|position| position.cls).map_or(0.0, |cls| cls[head]),
        }
    }

    /// Returns row `i` with the position scores at `scores`; the caller sets the other pointers.
    #[inline(always)]
    fn row(
        &self,
        options: &AttentionKernelOptions,
        scores: Option<*const f32>,
        i: usize,
        weights: *mut f32,
    ) -> Row {
        let scored = if i < self.scored { self.scored } else { 0 };
        Row {
            n: self.n,
            scored,
            cls: self.cls,
            first_pair: self.first_pair + i * self.n,
            clamp: options.clamp,
            dropout: options.dropout,
            content: None,
            position: scores.map(|scores| scores.wrapping_add(self.first_score + i * scored)),
            d_position: None,
            accumulate_scores: false,
            weights,
        }
    }
}

struct Forward<'a> {
    inputs: Inputs<'a>,
    schedule: &'a Schedule,
    items: Range<usize>,
    out: Shared,
    statistics: Shared,
    scratch: &'a mut Scratch,
}

impl Kernel for Forward<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for item in self.items.clone() {
            let (graphs, head) = self.schedule.item(&self.inputs, item);
            for &graph in graphs {
                let view = GraphHead::new(&self.inputs, graph, head);
                // SAFETY: `Inputs::new` has checked all lengths; no other item writes to these
                // outputs.
                unsafe {
                    forward_head(simd, &self.inputs, view, self.out, self.statistics, self.scratch);
                };
            }
        }
    }
}

/// Computes one head of one graph.
///
/// # Safety
/// Inputs and outputs have the shapes documented at [`forward`], and no other thread accesses the
/// outputs of this head and graph.
#[inline(always)]
unsafe fn forward_head<S: Simd>(
    simd: S,
    inputs: &Inputs<'_>,
    view: GraphHead,
    Shared(out): Shared,
    Shared(statistics): Shared,
    scratch: &mut Scratch,
) {
    let Inputs { options, qkv, position, .. } = *inputs;
    let GraphHead { n, d_head, .. } = view;
    let columns = options.columns();
    let (n_padded, d_padded) = (n.next_multiple_of(S::LANES), d_head.next_multiple_of(S::LANES));
    let [keys, values, queries, content, weights, gathered] = scratch.areas([
        d_head * n_padded, // [d_head, n_padded]
        n * d_padded,      // [n, d_padded]
        d_head * n_padded,
        ROWS * n_padded, // [ROWS, n_padded]
        ROWS * n_padded,
        ROWS * d_padded, // [ROWS, d_padded]
    ]);
    // SAFETY: the caller guarantees the shapes of the slices; the areas have the lengths above.
    unsafe {
        let node = qkv.as_ptr().add(view.first_node * columns + view.head * d_head);
        let scores = position.map(|position| position.scores.as_ptr());
        let mut max_content = 0.0;
        if options.content {
            let max_query_norm_sq =
                pack_transposed(simd, n, d_head, node, columns, queries, n_padded);
            let max_key_norm_sq =
                pack_transposed(simd, n, d_head, node.add(options.width), columns, keys, n_padded);
            max_content = (max_query_norm_sq * max_key_norm_sq / d_head as f32).sqrt();
            scale(simd, d_head * n_padded, 1.0 / (d_head as f32).sqrt(), queries);
        }
        let exp_safe = exp_is_safe(options, scores.is_some(), max_content);
        pack_rows(simd, n, d_head, node.add(columns - options.width), columns, values, d_padded);
        for first in (0..n).step_by(ROWS) {
            let rows = ROWS.min(n - first);
            if options.content {
                multiply(simd, d_head, queries.add(first), 1, n_padded, keys, n_padded, content); // Eq. 7
            }
            let row = |i: usize| {
                let weights = weights.add(i * n_padded);
                let row = view.row(options, scores, first + i, weights);
                Row { content: options.content.then_some(content.add(i * n_padded)), ..row }
            };
            let mut inverse_sums = [0.0; ROWS];
            for i in (0..rows).step_by(2) {
                // The last row of an odd number is paired with itself and computed twice, with
                // equal results.
                let both = [i, (i + 1).min(rows - 1)];
                let row_statistics =
                    softmax_forward(simd, options.combine, exp_safe, [row(both[0]), row(both[1])]); // Eq. 8
                for (i, [largest, inverse_sum]) in both.into_iter().zip(row_statistics) {
                    let statistics = statistics
                        .add(((view.first_node + first + i) * options.heads + view.head) * 2);
                    *statistics = largest;
                    *statistics.add(1) = inverse_sum;
                    inverse_sums[i] = inverse_sum.abs();
                }
            }
            gather(simd, n, weights, n_padded, values, d_head, gathered);
            for (i, inverse_sum) in inverse_sums.into_iter().enumerate().take(rows) {
                let out =
                    out.add((view.first_node + first + i) * options.width + view.head * d_head);
                copy_scaled(simd, d_head, gathered.add(i * d_padded), inverse_sum, out);
            }
        }
    }
}

struct Backward<'a> {
    inputs: Inputs<'a>,
    results: Results<'a>,
    schedule: &'a Schedule,
    items: Range<usize>,
    outputs: GradientPtrs,
    scratch: &'a mut Scratch,
}

impl Kernel for Backward<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for item in self.items.clone() {
            let (graphs, head) = self.schedule.item(&self.inputs, item);
            for (nth, &graph) in graphs.iter().enumerate() {
                let view = GraphHead::new(&self.inputs, graph, head);
                // SAFETY: `Inputs::new` and `backward` have checked all lengths; no other item
                // writes to these outputs, and the first graph of the item has initialized the
                // scores that later graphs add to.
                unsafe {
                    backward_head(
                        simd,
                        &self.inputs,
                        &self.results,
                        view,
                        self.outputs,
                        nth > 0,
                        self.scratch,
                    );
                };
            }
        }
    }
}

/// Computes the gradients of one head of one graph.
///
/// # Safety
/// Inputs and outputs have the shapes documented at [`backward`], and no other thread accesses the
/// outputs of this head and graph.
#[inline(always)]
unsafe fn backward_head<S: Simd>(
    simd: S,
    inputs: &Inputs<'_>,
    results: &Results<'_>,
    view: GraphHead,
    outputs: GradientPtrs,
    accumulate_scores: bool,
    scratch: &mut Scratch,
) {
    let Inputs { options, qkv, position, .. } = *inputs;
    let GraphHead { n, d_head, .. } = view;
    let columns = options.columns();
    let content_scale = 1.0 / (d_head as f32).sqrt();
    let (n_padded, d_padded) = (n.next_multiple_of(S::LANES), d_head.next_multiple_of(S::LANES));
    let [keys, key_rows, values, d_keys, d_values, queries, d_outs, content, weights, gathered] =
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
    // SAFETY: the caller guarantees the shapes of the slices; the areas have the lengths above.
    unsafe {
        let node = qkv.as_ptr().add(view.first_node * columns + view.head * d_head);
        let scores = position.map(|position| position.scores.as_ptr());
        let d_node = outputs.qkv.0.add(view.first_node * columns + view.head * d_head);
        if options.content {
            pack_transposed(simd, n, d_head, node, columns, queries, n_padded);
            scale(simd, d_head * n_padded, content_scale, queries);
            pack_transposed(simd, n, d_head, node.add(options.width), columns, keys, n_padded);
            pack_rows(simd, n, d_head, node.add(options.width), columns, key_rows, d_padded);
            d_keys.write_bytes(0, d_head * n_padded);
        }
        pack_transposed(
            simd,
            n,
            d_head,
            node.add(columns - options.width),
            columns,
            values,
            n_padded,
        );
        let first_out = view.first_node * options.width + view.head * d_head;
        let (out, d_out) =
            (results.out.as_ptr().add(first_out), results.d_out.as_ptr().add(first_out));
        pack_transposed(simd, n, d_head, d_out, options.width, d_outs, n_padded);
        d_values.write_bytes(0, d_head * n_padded);
        let mut d_cls = simd.zero();
        for first in (0..n).step_by(ROWS) {
            let rows = ROWS.min(n - first);
            let (queries, d_outs) = (queries.add(first), d_outs.add(first));
            if options.content {
                multiply(simd, d_head, queries, 1, n_padded, keys, n_padded, content); // Eq. 7
            }
            multiply(simd, d_head, d_outs, 1, n_padded, values, n_padded, weights); // gradients of the attention weights
            let row = |i: usize| {
                let row = view.row(options, scores, first + i, weights.add(i * n_padded));
                Row {
                    content: options.content.then_some(content.add(i * n_padded)),
                    d_position: scores.map(|_| {
                        outputs.scores.0.wrapping_add(view.first_score + (first + i) * row.scored)
                    }),
                    accumulate_scores,
                    ..row
                }
            };
            for i in (0..rows).step_by(2) {
                // The last row of an odd number is paired with itself, but must write its gradients
                // only once.
                let both = [i, (i + 1).min(rows - 1)];
                let (mut row_statistics, mut row_dots) = ([[0.0; 2]; 2], [0.0; 2]);
                for ((i, row_statistics), row_dots) in
                    both.into_iter().zip(&mut row_statistics).zip(&mut row_dots)
                {
                    let statistics =
                        ((view.first_node + first + i) * options.heads + view.head) * 2;
                    let statistics = results.statistics.as_ptr().add(statistics);
                    *row_statistics = [*statistics, *statistics.add(1)];
                    // Σ_j weight · d_weight: the term of the softmax gradient that is common to the
                    // row.
                    let row = (first + i) * options.width;
                    *row_dots = dot(simd, d_head, out.add(row), d_out.add(row));
                }
                let mut pair = [row(both[0]), row(both[1])];
                if both[0] == both[1] {
                    pair[1].d_position = None;
                }
                d_cls = simd.add(
                    d_cls,
                    softmax_backward(simd, options.combine, pair, row_statistics, row_dots),
                );
            }
            accumulate(simd, d_head, d_outs, n_padded, weights, n_padded, d_values);
            if options.content {
                accumulate(simd, d_head, queries, n_padded, content, n_padded, d_keys);
                gather(simd, n, content, n_padded, key_rows, d_head, gathered);
                for i in 0..rows {
                    let d_query = d_node.add((first + i) * columns);
                    copy_scaled(simd, d_head, gathered.add(i * d_padded), content_scale, d_query);
                }
            }
        }
        if options.content {
            unpack_transposed(
                simd,
                n,
                d_head,
                d_keys,
                n_padded,
                d_node.add(options.width),
                columns,
            );
        }
        unpack_transposed(
            simd,
            n,
            d_head,
            d_values,
            n_padded,
            d_node.add(columns - options.width),
            columns,
        );
        *outputs.cls.0.add(view.graph * options.heads + view.head) = simd.reduce_sum(d_cls);
    }
}

/// Returns whether no exponent can exceed `±SAFE_EXPONENT`, given that content scores are within
/// `±max_content`.
fn exp_is_safe(options: &AttentionKernelOptions, has_position: bool, max_content: f32) -> bool {
    let clamp = options.clamp.unwrap_or(f32::INFINITY);
    let position = if has_position && options.combine == CombineMode::Add { clamp } else { 0.0 };
    max_content.min(clamp) + position <= SAFE_EXPONENT
}

#[cfg(test)]
mod tests;
