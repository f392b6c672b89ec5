//! Backward pass: gradients by row, by column, and of scores that graphs share.

use cubecl::client::Client;
use cubecl::prelude::*;

use super::forward::Inputs;
use super::layout::{NODE_FIELDS, ROW_FIELDS};
use super::score::{
    ScoreScalars, ScoreShape, clamp_gradient, clamped, content_score, exponent, pair_dropout,
    position_gradient,
};
use super::{AttentionLayout, CubeAttentionOptions, CubeAttentionOutput, CubeAttentionPosition};
use crate::buffer::units;
use crate::reduce::sum_over_units;
use crate::{Buffer, UNITS};

/// Gradients computed by [`backward`].
#[derive(Debug, Clone)]
pub struct CubeAttentionGradients {
    /// Gradient of `qkv`.
    pub qkv: Buffer,
    /// Gradient of [`CubeAttentionPosition::scores`], if there are any.
    pub scores: Option<Buffer>,
    /// Gradient of [`CubeAttentionPosition::cls`], if there are any.
    pub cls: Option<Buffer>,
}

/// Computes the gradients of the [forward pass](super::forward()) from its inputs, its output and
/// the gradient of the output, with two launches, and one for each kind of position scores.
///
/// # Shapes
/// - `qkv`, `position`: as in the forward pass
/// - `d_out`: `[r, d]`
///
/// # Panics
/// Panics if the options are not [supported](CubeAttentionOptions::supports) or a shape is wrong.
pub fn backward(
    client: &Client,
    layout: &AttentionLayout,
    options: &CubeAttentionOptions,
    qkv: &Buffer,
    position: Option<&CubeAttentionPosition>,
    output: &CubeAttentionOutput,
    d_out: &Buffer,
) -> CubeAttentionGradients {
    let inputs = Inputs::new(client, layout, options, qkv, position);
    let (r, h) = (layout.num_nodes, options.heads);
    assert_eq!(output.out.len(), r * options.width, "out must be [r, d]");
    assert_eq!(output.statistics.len(), r * h * 2, "statistics must be [r, h, 2]");
    assert_eq!(d_out.len(), r * options.width, "d_out must be [r, d]");
    let d_qkv = Buffer::empty(client, qkv.len());
    // Gradient of the exponent of every pair, [h, p].
    let d_exponents = Buffer::empty(client, h * layout.num_pairs);
    row_gradients::launch(
        client,
        inputs.cubes(),
        inputs.units(),
        qkv.arg(),
        inputs.scores.arg(),
        inputs.cls.arg(),
        layout.nodes.arg(),
        inputs.node_rows.arg(),
        output.out.arg(),
        output.statistics.arg(),
        d_out.arg(),
        d_qkv.arg(),
        d_exponents.arg(),
        inputs.scalars(),
        inputs.shape,
    );
    column_gradients::launch(
        client,
        inputs.cubes(),
        inputs.units(),
        qkv.arg(),
        inputs.scores.arg(),
        inputs.cls.arg(),
        layout.nodes.arg(),
        inputs.node_rows.arg(),
        output.statistics.arg(),
        d_out.arg(),
        d_exponents.arg(),
        d_qkv.arg(),
        inputs.scalars(),
        inputs.shape,
    );
    let scores = position.map(|position| {
        let d_scores = Buffer::empty(client, position.scores.len());
        if position.layout.num_rows > 0 {
            let rows = position.layout.num_rows;
            let width = rows.min(32_768);
            score_gradients::launch(
                client,
                CubeCount::new_3d(width as u32, rows.div_ceil(width) as u32, h as u32),
                units(),
                position.scores.arg(),
                position.layout.rows.arg(),
                position.layout.pair_rows.arg(),
                d_exponents.arg(),
                d_scores.arg(),
                rows as u32,
                inputs.scalars(),
                inputs.shape,
            );
        }
        d_scores
    });
    let cls = position.and_then(|position| position.cls.as_ref()).map(|values| {
        let d_cls = Buffer::empty(client, h);
        cls_gradient::launch(
            client,
            CubeCount::new_1d(h as u32),
            units(),
            values.arg(),
            layout.nodes.arg(),
            d_exponents.arg(),
            d_cls.arg(),
            r as u32,
            inputs.scalars(),
            inputs.shape,
        );
        d_cls
    });
    CubeAttentionGradients { qkv: d_qkv, scores, cls }
}

/// Computes the gradients of the exponents of one row of one head, and of its query.
#[cube(launch)]
fn row_gradients(
    qkv: &[f32],
    scores: &[f32],
    cls: &[f32],
    nodes: &[u32],
    node_rows: &[u32],
    out: &[f32],
    statistics: &[f32],
    d_out: &[f32],
    d_qkv: &mut [f32],
    d_exponents: &mut [f32],
    scalars: ScoreScalars,
    #[comptime] shape: ScoreShape,
) {
    let (d_head, heads, columns) = comptime!((shape.d_head, shape.heads, shape.columns));
    let units = comptime!(shape.units);
    let width = comptime!(shape.d_head * shape.heads);
    let (node, head, unit) = (CUBE_POS_X as usize, CUBE_POS_Y as usize, UNIT_POS as usize);
    let first = nodes[node * NODE_FIELDS] as usize;
    let n = nodes[node * NODE_FIELDS + 1] as usize;
    let row = nodes[node * NODE_FIELDS + 2];
    let i = node - first;
    let largest = statistics[(node * heads + head) * 2];
    let inverse_sum = statistics[(node * heads + head) * 2 + 1];

    // Σ_j weight · d_weight: the term of the softmax gradient that is common to the row.
    let mut product = 0.0f32;
    if unit < d_head {
        let at = node * width + head * d_head + unit;
        product = out[at] * d_out[at];
    }
    let common = sum_over_units(product, units);

    let mut tile = Shared::<[f32]>::new_slice(units);
    let values =
        first * columns + comptime!(shape.columns - shape.d_head * shape.heads) + head * d_head;
    let keys = first * columns + width + head * d_head;
    let mut d_query = 0.0f32;
    let mut start = 0usize;
    while start < n {
        let j = start + unit;
        let mut d_content = 0.0f32;
        if j < n {
            let score =
                exponent(qkv, scores, cls, node_rows, first, n, i, j, head, &scalars, shape);
            let weight = (score - largest).exp() * inverse_sum;
            let mut d_weight = 0.0f32;
            for c in 0..d_head {
                d_weight += d_out[node * width + head * d_head + c] * qkv[values + j * columns + c];
            }
            d_weight *= pair_dropout(row + j as u32, head as u32, &scalars, shape);
            let gradient = weight * (d_weight - common);
            d_exponents[head * scalars.num_pairs as usize + row as usize + j] = gradient;
            if comptime!(shape.content) {
                let content =
                    content_score(qkv, first + i, first + j, head, scalars.content_scale, shape);
                d_content = gradient * clamp_gradient(content, scalars.clamp, shape);
            }
        }
        if comptime!(shape.content) {
            sync_cube();
            tile[unit] = d_content;
            sync_cube();
            if unit < d_head {
                let count = min(units, n - start);
                for t in 0..count {
                    d_query += tile[t] * qkv[keys + (start + t) * columns + unit];
                }
            }
        }
        start += units;
    }
    if comptime!(shape.content) {
        if unit < d_head {
            d_qkv[node * columns + head * d_head + unit] = d_query * scalars.content_scale;
        }
    }
}

/// Computes the gradients of the key and the value of one node of one head.
#[cube(launch)]
fn column_gradients(
    qkv: &[f32],
    scores: &[f32],
    cls: &[f32],
    nodes: &[u32],
    node_rows: &[u32],
    statistics: &[f32],
    d_out: &[f32],
    d_exponents: &[f32],
    d_qkv: &mut [f32],
    scalars: ScoreScalars,
    #[comptime] shape: ScoreShape,
) {
    let (d_head, heads, columns) = comptime!((shape.d_head, shape.heads, shape.columns));
    let units = comptime!(shape.units);
    let width = comptime!(shape.d_head * shape.heads);
    let (node, head, unit) = (CUBE_POS_X as usize, CUBE_POS_Y as usize, UNIT_POS as usize);
    let first = nodes[node * NODE_FIELDS] as usize;
    let n = nodes[node * NODE_FIELDS + 1] as usize;
    let first_pair = nodes[first * NODE_FIELDS + 2] as usize;
    let j = node - first;

    let mut weights = Shared::<[f32]>::new_slice(units);
    let mut d_contents = Shared::<[f32]>::new_slice(units);
    let mut d_key = 0.0f32;
    let mut d_value = 0.0f32;
    let mut start = 0usize;
    while start < n {
        let i = start + unit;
        let mut weight = 0.0f32;
        let mut d_content = 0.0f32;
        if i < n {
            let at = ((first + i) * heads + head) * 2;
            let score =
                exponent(qkv, scores, cls, node_rows, first, n, i, j, head, &scalars, shape);
            let pair = first_pair + i * n + j;
            weight = (score - statistics[at]).exp() * statistics[at + 1];
            weight *= pair_dropout(pair as u32, head as u32, &scalars, shape);
            if comptime!(shape.content) {
                let content =
                    content_score(qkv, first + i, first + j, head, scalars.content_scale, shape);
                d_content = d_exponents[head * scalars.num_pairs as usize + pair]
                    * clamp_gradient(content, scalars.clamp, shape);
            }
        }
        sync_cube();
        weights[unit] = weight;
        d_contents[unit] = d_content;
        sync_cube();
        if unit < d_head {
            let count = min(units, n - start);
            for t in 0..count {
                let query = first + start + t;
                d_value += weights[t] * d_out[query * width + head * d_head + unit];
                if comptime!(shape.content) {
                    d_key += d_contents[t] * qkv[query * columns + head * d_head + unit];
                }
            }
        }
        start += units;
    }
    if unit < d_head {
        let values = comptime!(shape.columns - shape.d_head * shape.heads);
        d_qkv[node * columns + values + head * d_head + unit] = d_value;
        if comptime!(shape.content) {
            d_qkv[node * columns + width + head * d_head + unit] = d_key * scalars.content_scale;
        }
    }
}

/// Sums the gradients of one row of a block of scores over the graphs that share the block.
#[cube(launch)]
fn score_gradients(
    scores: &[f32],
    rows: &[u32],
    pair_rows: &[u32],
    d_exponents: &[f32],
    d_scores: &mut [f32],
    num_rows: u32,
    scalars: ScoreScalars,
    #[comptime] shape: ScoreShape,
) {
    let row = (CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize;
    let head = CUBE_POS_Z as usize;
    if row < num_rows as usize {
        let first = head * scalars.num_scores as usize + rows[row * ROW_FIELDS] as usize;
        let scored = rows[row * ROW_FIELDS + 1] as usize;
        let list = rows[row * ROW_FIELDS + 2] as usize;
        let end = rows[row * ROW_FIELDS + 3] as usize;
        let mut j = UNIT_POS as usize;
        while j < scored {
            let mut sum = 0.0f32;
            for entry in list..end {
                let pair = pair_rows[entry] as usize + j;
                sum += d_exponents[head * scalars.num_pairs as usize + pair];
            }
            let score = scores[first + j];
            d_scores[first + j] = sum
                * position_gradient(clamped(score, scalars.clamp, shape), shape)
                * clamp_gradient(score, scalars.clamp, shape);
            j += UNITS;
        }
    }
}

/// Sums the gradient of the CLS score of one head over all pairs with the last node of a graph.
#[cube(launch)]
fn cls_gradient(
    cls: &[f32],
    nodes: &[u32],
    d_exponents: &[f32],
    d_cls: &mut [f32],
    num_nodes: u32,
    scalars: ScoreScalars,
    #[comptime] shape: ScoreShape,
) {
    let (head, unit) = (CUBE_POS_X as usize, UNIT_POS as usize);
    let mut sum = 0.0f32;
    let mut node = UNIT_POS as usize;
    while node < num_nodes as usize {
        let n = nodes[node * NODE_FIELDS + 1] as usize;
        let last = n - 1usize;
        let row = head * scalars.num_pairs as usize + nodes[node * NODE_FIELDS + 2] as usize;
        if node - nodes[node * NODE_FIELDS] as usize == last {
            for j in 0..n {
                sum += d_exponents[row + j];
            }
        } else {
            sum += d_exponents[row + last];
        }
        node += UNITS;
    }
    let total = sum_over_units(sum, UNITS);
    if unit == 0usize {
        let score = cls[head];
        d_cls[head] = total
            * position_gradient(clamped(score, scalars.clamp, shape), shape)
            * clamp_gradient(score, scalars.clamp, shape);
    }
}
