//! Attention of a chunk of rows to all nodes of their graphs (Eq. 6–8), for evaluation only.

use std::sync::Arc;

use burn::tensor::Tensor;
use burn::tensor::activation::softmax;
use graph_diffuser_kernels::Isa;
use graph_diffuser_kernels::attention::AttentionKernelOptions;
use graph_diffuser_kernels::attention_rows::{self as kernel, QueryGroup};
use graph_diffuser_kernels::diffusion_rows::{ROWS, RowBlock};

use crate::batch::{BatchLayout, index_tensor};

use super::AttentionOptions;
use super::fused::{self, Output, SliceOp};

/// Reshapes queries, keys and values, or values only, to a head-major layout.
///
/// # Shapes
/// - `qkv`: `[r, 3d]` or `[r, d]`
/// - returns `[3, h, r, d_head]` or `[1, h, r, d_head]`
pub(crate) fn split_heads(qkv: Tensor<2>, d: usize, heads: usize) -> Tensor<4> {
    let [r, columns] = qkv.dims();
    let (parts, d_head) = (columns / d, d / heads);
    let by_head = qkv.reshape([r, parts, heads, d_head]).permute([1, 2, 0, 3]);
    // Reshaping makes the permuted tensor contiguous once, instead of once per chunk.
    by_head.reshape([parts * heads * r, d_head]).reshape([parts, heads, r, d_head])
}

/// Query rows of a chunk and the layout of their position scores.
#[derive(Debug, Clone)]
pub(crate) struct QueryRows {
    /// Rows and the reachable pairs, which have individual scores.
    pub(crate) block: Arc<RowBlock>,
    /// Layout of the rows of the layers, including CLS nodes.
    pub(crate) layout: Arc<BatchLayout>,
    /// If `true`, the last node of each graph is a CLS node; its score follows those of the block.
    pub(crate) cls: bool,
}

impl QueryRows {
    /// Returns the groups of the kernel; a CLS node follows the last rows of its graph.
    fn groups(&self) -> Vec<QueryGroup<'_>> {
        let Self { block, layout, cls } = self;
        let cls_pair = cls.then_some(block.pairs);
        let mut groups = Vec::new();
        for group in &block.groups {
            let nodes = layout.node_starts[group.graph]..layout.node_starts[group.graph + 1];
            let rows = nodes.start + group.rows.start..nodes.start + group.rows.end;
            let last = rows.end;
            groups.push(QueryGroup {
                nodes: nodes.clone(),
                rows,
                columns: &group.columns,
                first_pair: group.first_pair,
                unreachable_pair: block.unreachable_pair(),
                last_pair: cls_pair,
            });
            if let Some(unreachable_pair) = cls_pair.filter(|_| last + 1 == nodes.end) {
                let rows = last..nodes.end;
                groups.push(QueryGroup {
                    nodes,
                    rows,
                    columns: &[],
                    first_pair: 0,
                    unreachable_pair,
                    last_pair: None,
                });
            }
        }
        groups
    }
}

/// Computes the attention of the rows of a chunk to all nodes of their graphs.
///
/// # Shapes
/// - `by_head`: the output of [`split_heads`]
/// - `position`: `[h, block.pairs]`, or `[h, block.pairs + 1]` with CLS nodes
/// - returns `[rows, d]`; a CLS node follows the last row of its graph
pub(crate) fn attention_rows(
    by_head: Tensor<4>,
    position: Option<Tensor<2>>,
    rows: &QueryRows,
    options: &AttentionOptions,
) -> Tensor<2> {
    if !fused::can_run(&by_head) {
        return attention_rows_reference(by_head, position, rows, options);
    }
    let [parts, h, r, d_head] = by_head.dims();
    let op =
        FusedAttentionRows { options: options.kernel(h * d_head, parts == 3), rows: rows.clone() };
    let by_head = by_head.reshape([parts * h * r, d_head]);
    fused::apply_single(op, [Some(by_head), position].into_iter().flatten())
}

/// Reference implementation of [`attention_rows`] in plain tensor operations.
pub(crate) fn attention_rows_reference(
    by_head: Tensor<4>,
    position: Option<Tensor<2>>,
    rows: &QueryRows,
    options: &AttentionOptions,
) -> Tensor<2> {
    let [parts, h, _, d_head] = by_head.dims();
    let device = by_head.device();
    let part = |which: usize, nodes: std::ops::Range<usize>| {
        by_head.clone().slice([which..which + 1, 0..h, nodes, 0..d_head]).squeeze_dim::<3>(0) // [h, nodes, d_head]
    };
    let gather = |group: &QueryGroup<'_>| {
        let (count, n) = (group.rows.len(), group.nodes.len());
        let position = position.as_ref().map(|scores| {
            let mut pairs = vec![group.unreachable_pair; count * n];
            for row in 0..count {
                for (index, &column) in group.columns.iter().enumerate() {
                    pairs[row * n + column as usize] = group.first_pair + index * ROWS + row;
                }
                if let Some(last_pair) = group.last_pair {
                    pairs[row * n + n - 1] = last_pair;
                }
            }
            scores.clone().select(1, index_tensor(pairs, &device)).reshape([h, count, n])
        });
        let content = (parts == 3).then(|| {
            let scale = 1.0 / (d_head as f64).sqrt();
            (part(0, group.rows.clone()) * scale).matmul(part(1, group.nodes.clone()).transpose()) // Eq. 7
        });
        let weights = softmax(options.combined(content, position), 2); // Eq. 8, [h, count, n]
        weights
            .matmul(part(parts - 1, group.nodes.clone()))
            .swap_dims(0, 1)
            .reshape([count, h * d_head])
    };
    Tensor::cat(rows.groups().iter().map(gather).collect(), 0)
}

/// Fused operation of [`attention_rows`] with inputs by head and optional position scores.
#[derive(Debug)]
struct FusedAttentionRows {
    options: AttentionKernelOptions,
    rows: QueryRows,
}

impl SliceOp for FusedAttentionRows {
    type Saved = ();

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, ()) {
        let groups = self.rows.groups();
        let rows: usize = groups.iter().map(|group| group.rows.len()).sum();
        let mut out = vec![0.0; rows * self.options.width];
        let position = inputs.get(1).copied();
        kernel::forward(Isa::best(), &self.options, inputs[0], position, &groups, &mut out);
        (vec![Output::rows(out, self.options.width)], ())
    }
}
