//! Backward pass.

use std::ops::Range;

use super::inputs::{Inputs, Schedule};
use super::products::{
    ROWS, accumulate, copy_scaled, dot, gather, multiply, pack_rows, pack_transposed, scale,
    unpack_transposed,
};
use super::row::{GraphHead, Row};
use super::scratch::{HeadSizes, Scratch};
use super::softmax::softmax_backward;
use super::{AttentionGradients, AttentionKernelOptions, AttentionPosition};
use crate::buffer::UninitBuffer;
use crate::offsets::GraphOffsets;
use crate::parallel::{self, SharedPtr};
use crate::simd::{Isa, Kernel, Simd};

/// Computes the gradients of the [forward pass](super::forward()) from its inputs, its output and
/// the gradient of the output.
///
/// Gradients of scores shared by several graphs are summed in graph order.
///
/// # Shapes
/// - `qkv`, `position`: as in the forward pass
/// - `output`: `out` and `statistics` of an [`AttentionOutput`](super::AttentionOutput)
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
    let mut d_qkv = UninitBuffer::new(qkv.len());
    let mut d_scores = UninitBuffer::new(position.map_or(0, |position| position.scores.len()));
    // Kept per graph so that they are summed in graph order.
    let mut d_cls = vec![0.0; graphs.num_graphs() * options.heads];
    let outputs = GradientPtrs {
        qkv: SharedPtr::from_uninit(d_qkv.as_uninit()),
        scores: SharedPtr::from_uninit(d_scores.as_uninit()),
        cls: SharedPtr::new(&mut d_cls),
    };
    let (schedule, cache) = (Schedule::by_block(&inputs), parallel::scratch_cache());
    parallel::for_each_init(
        schedule.tasks(&inputs),
        || Scratch::new(&cache, &inputs, areas),
        |scratch, items| {
            isa.run(Backward { inputs, results, schedule: &schedule, items, outputs, scratch });
        },
    );
    // SAFETY: every entry belongs to one head of one graph or, for scores, of one block, and every
    // work item has written its entries. `Schedule::by_block` has checked that the blocks cover all
    // scores.
    let (d_qkv, d_scores) = unsafe { (d_qkv.assume_init(), d_scores.assume_init()) };
    let cls = position.and_then(|position| position.cls).map_or(0, <[f32]>::len);
    let cls = (0..cls).map(|head| d_cls.iter().skip(head).step_by(options.heads).sum()).collect();
    AttentionGradients { qkv: d_qkv, scores: d_scores, cls }
}

/// Results of the forward pass and the gradient of its output.
#[derive(Clone, Copy)]
struct Results<'a> {
    statistics: &'a [f32],
    out: &'a [f32],
    d_out: &'a [f32],
}

/// Outputs of the backward pass: gradients of `qkv`, of the scores, and of the CLS score of each
/// graph.
#[derive(Clone, Copy)]
struct GradientPtrs {
    qkv: SharedPtr<f32>,
    scores: SharedPtr<f32>,
    cls: SharedPtr<f32>,
}

/// Returns the lengths of keys and keys by row, values, gradients of keys and values, queries,
/// gradients of the output, content scores, weights and gradients of queries.
#[inline(always)]
fn areas(sizes: HeadSizes) -> [usize; 10] {
    let (transposed, block) = (sizes.transposed(), sizes.block());
    let [keys, values, d_keys, d_values, queries, d_outs] = [transposed; 6];
    let (key_rows, d_queries) = (sizes.rows(), sizes.block_output());
    [keys, key_rows, values, d_keys, d_values, queries, d_outs, block, block, d_queries]
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
    let sizes = HeadSizes::new(view.n, view.d_head, S::LANES);
    let HeadSizes { n, n_padded, d_head, d_padded } = sizes;
    let columns = options.columns();
    let content_scale = 1.0 / (d_head as f32).sqrt();
    let [keys, key_rows, values, d_keys, d_values, queries, d_outs, content, weights, gathered] =
        scratch.areas(areas(sizes));
    // SAFETY: the caller guarantees the shapes of the slices; the areas have the lengths above.
    unsafe {
        let node = qkv.as_ptr().add(view.first_node * columns + view.head * d_head);
        let scores = position.map(|position| position.scores.as_ptr());
        let d_node = outputs.qkv.pointer().add(view.first_node * columns + view.head * d_head);
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
                        outputs
                            .scores
                            .pointer()
                            .wrapping_add(view.first_score + (first + i) * row.scored)
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
        *outputs.cls.pointer().add(view.graph * options.heads + view.head) = simd.reduce_sum(d_cls);
    }
}
