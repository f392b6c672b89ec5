//! Forward pass.

use std::ops::Range;

use super::inputs::{Inputs, Schedule};
use super::products::{ROWS, copy_scaled, gather, multiply, pack_rows, pack_transposed, scale};
use super::row::{GraphHead, Row};
use super::scratch::{HeadSizes, Scratch};
use super::softmax::softmax_forward;
use super::{AttentionKernelOptions, AttentionOutput, AttentionPosition, CombineMode};
use crate::buffer::UninitBuffer;
use crate::offsets::GraphOffsets;
use crate::parallel::{self, SharedPtr};
use crate::simd::{Isa, Kernel, Simd};

/// Largest exponent for which the maximum is not subtracted: `e^20` times any number of pairs is
/// finite, and so is the reciprocal of `e^-20`.
const SAFE_EXPONENT: f32 = 20.0;

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
    let r = graphs.num_nodes();
    let mut out = UninitBuffer::new(r * options.width);
    let mut statistics = UninitBuffer::new(r * options.heads * 2);
    let outputs = [out.as_uninit(), statistics.as_uninit()].map(SharedPtr::from_uninit);
    let (schedule, cache) = (Schedule::by_graph(&inputs), parallel::scratch_cache());
    parallel::for_each_init(
        schedule.tasks(&inputs),
        || Scratch::new(&cache, &inputs, areas),
        |scratch, items| {
            let [out, statistics] = outputs;
            isa.run(Forward { inputs, schedule: &schedule, items, out, statistics, scratch });
        },
    );
    // SAFETY: every entry belongs to one head of one graph, and every work item has written its
    // entries.
    let (out, statistics) = unsafe { (out.assume_init(), statistics.assume_init()) };
    AttentionOutput { out, statistics }
}

/// Returns the lengths of keys, values, queries, content scores, weights and attended values.
#[inline(always)]
fn areas(sizes: HeadSizes) -> [usize; 6] {
    let (transposed, block) = (sizes.transposed(), sizes.block());
    [transposed, sizes.rows(), transposed, block, block, sizes.block_output()]
}

struct Forward<'a> {
    inputs: Inputs<'a>,
    schedule: &'a Schedule,
    items: Range<usize>,
    out: SharedPtr<f32>,
    statistics: SharedPtr<f32>,
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
    out: SharedPtr<f32>,
    statistics: SharedPtr<f32>,
    scratch: &mut Scratch,
) {
    let Inputs { options, qkv, position, .. } = *inputs;
    let sizes = HeadSizes::new(view.n, view.d_head, S::LANES);
    let HeadSizes { n, n_padded, d_head, d_padded } = sizes;
    let columns = options.columns();
    let [keys, values, queries, content, weights, gathered] = scratch.areas(areas(sizes));
    let (out, statistics) = (out.pointer(), statistics.pointer());
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

/// Returns whether no exponent can exceed `±SAFE_EXPONENT`, given that content scores are within
/// `±max_content`.
fn exp_is_safe(options: &AttentionKernelOptions, has_position: bool, max_content: f32) -> bool {
    let clamp = options.clamp.unwrap_or(f32::INFINITY);
    let position = if has_position && options.combine == CombineMode::Add { clamp } else { 0.0 };
    max_content.min(clamp) + position <= SAFE_EXPONENT
}
