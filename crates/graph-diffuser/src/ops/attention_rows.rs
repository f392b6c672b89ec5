//! Attention of some rows to all nodes of their graph (Eq. 6–8): for evaluation alone.

use std::sync::Arc;

use burn::tensor::Tensor;
use burn::tensor::activation::softmax;
use graph_diffuser_kernels::Isa;
use graph_diffuser_kernels::attention::Rule;
use graph_diffuser_kernels::attention_rows::{self as kernel, Group};
use graph_diffuser_kernels::diffusion_rows::{Block, ROWS};

use crate::batch::{BatchLayout, indices};

use super::AttentionOptions;
use super::fused::{self, Gradient, Output, Saved, SliceOp};

/// Queries, keys and values, or values alone, head after head.
///
/// # Shapes
/// - `qkv`: `[r, 3d]` or `[r, d]`
/// - returns `[3, h, r, d_head]` or `[1, h, r, d_head]`
pub(crate) fn split_heads(qkv: Tensor<2>, d: usize, heads: usize) -> Tensor<4> {
    let [r, columns] = qkv.dims();
    let (parts, d_head) = (columns / d, d / heads);
    let by_head = qkv.reshape([r, parts, heads, d_head]).permute([1, 2, 0, 3]);
    // There and back: what is only seen in another order would be put in order for every block again.
    by_head.reshape([parts * heads * r, d_head]).reshape([parts, heads, r, d_head])
}

/// Which rows attend, and where their position scores are.
#[derive(Debug, Clone)]
pub(crate) struct RowsOf {
    /// Rows and the pairs that have scores of their own.
    pub(crate) block: Arc<Block>,
    /// Layout of the rows that layers see, CLS nodes among them.
    pub(crate) layout: Arc<BatchLayout>,
    /// Whether the last node of each graph is a CLS node, whose score stands behind those of the block.
    pub(crate) cls: bool,
}

impl RowsOf {
    /// The block as the kernel knows it; a CLS node follows the last rows of its graph.
    fn groups(&self) -> Vec<Group<'_>> {
        let Self { block, layout, cls } = self;
        let cls_pair = cls.then_some(block.pairs);
        let mut groups = Vec::new();
        for group in &block.groups {
            let nodes = layout.node_starts[group.graph]..layout.node_starts[group.graph + 1];
            let rows = nodes.start + group.rows.start..nodes.start + group.rows.end;
            let last = rows.end;
            groups.push(Group {
                nodes: nodes.clone(),
                rows,
                columns: &group.columns,
                first_pair: group.first_pair,
                unreachable_pair: block.unreachable_pair(),
                last_pair: cls_pair,
            });
            if let Some(unreachable_pair) = cls_pair.filter(|_| last + 1 == nodes.end) {
                let rows = last..nodes.end;
                groups.push(Group {
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

/// Each row of a block gathers from every node of its own graph.
///
/// # Shapes
/// - `by_head`: as [`split_heads`] makes it
/// - `position`: `[h, block.pairs]`, and one more with CLS nodes
/// - returns `[rows, d]`, a CLS node behind the last row of its graph
pub(crate) fn attention_rows(
    by_head: Tensor<4>,
    position: Option<Tensor<2>>,
    rows: &RowsOf,
    rule: &AttentionOptions,
) -> Tensor<2> {
    if !fused::can_run(&by_head) {
        return attention_rows_reference(by_head, position, rows, rule);
    }
    let [parts, h, r, d_head] = by_head.dims();
    let op = FusedAttentionRows { rule: rule.kernel(h * d_head, parts == 3), rows: rows.clone() };
    let by_head = by_head.reshape([parts * h * r, d_head]);
    let (mut outputs, _) =
        fused::apply(op, [Some(by_head), position].into_iter().flatten().collect());
    outputs.remove(0)
}

/// The fused operation: inputs by head and, where there are any, position scores.
#[derive(Debug)]
struct FusedAttentionRows {
    rule: Rule,
    rows: RowsOf,
}

impl SliceOp for FusedAttentionRows {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let groups = self.rows.groups();
        let rows = groups.iter().map(|group| group.rows.len()).sum();
        let mut out = vec![0.0; rows * self.rule.width];
        kernel::forward(
            Isa::best(),
            &self.rule,
            inputs[0],
            inputs.get(1).copied(),
            &groups,
            &mut out,
        );
        (vec![Output { values: out, shape: vec![rows, self.rule.width] }], Arc::new(()))
    }

    fn backward(
        &self,
        _: &[&[f32]],
        _: &[&[f32]],
        _: &Saved,
        _: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        unreachable!("only evaluation goes by rows, and it has no gradients")
    }
}

/// The same in plain tensor operations, group after group.
pub(crate) fn attention_rows_reference(
    by_head: Tensor<4>,
    position: Option<Tensor<2>>,
    rows: &RowsOf,
    rule: &AttentionOptions,
) -> Tensor<2> {
    let [parts, h, _, d_head] = by_head.dims();
    let device = by_head.device();
    let part = |which: usize, nodes: std::ops::Range<usize>| {
        by_head.clone().slice([which..which + 1, 0..h, nodes, 0..d_head]).squeeze_dim::<3>(0) // [h, nodes, d_head]
    };
    let gather = |group: &Group<'_>| {
        let (count, n) = (group.rows.len(), group.nodes.len());
        let position = position.as_ref().map(|scores| {
            let mut pairs = vec![group.unreachable_pair; count * n];
            for row in 0..count {
                for (place, &column) in group.columns.iter().enumerate() {
                    pairs[row * n + column as usize] = group.first_pair + place * ROWS + row;
                }
                if let Some(last_pair) = group.last_pair {
                    pairs[row * n + n - 1] = last_pair;
                }
            }
            scores.clone().select(1, indices(pairs, &device)).reshape([h, count, n])
        });
        let content = (parts == 3).then(|| {
            let scale = 1.0 / (d_head as f64).sqrt();
            (part(0, group.rows.clone()) * scale).matmul(part(1, group.nodes.clone()).transpose()) // Eq. 7
        });
        let weights = softmax(rule.combined(content, position), 2); // Eq. 8, [h, count, n]
        weights
            .matmul(part(parts - 1, group.nodes.clone()))
            .swap_dims(0, 1)
            .reshape([count, h * d_head])
    };
    Tensor::cat(rows.groups().iter().map(gather).collect(), 0)
}
