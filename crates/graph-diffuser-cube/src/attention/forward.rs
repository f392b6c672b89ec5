//! Forward pass: one cube for each row of each head.

use cubecl::client::Client;
use cubecl::prelude::*;

use super::layout::NODE_FIELDS;
use super::score::{ScoreScalars, ScoreScalarsLaunch, ScoreShape, exponent, pair_dropout};
use super::{AttentionLayout, CubeAttentionOptions, CubeAttentionPosition};
use crate::Buffer;
use crate::reduce::{max_over_units, sum_over_units};

/// Output of [`forward`].
#[derive(Debug, Clone)]
pub struct CubeAttentionOutput {
    /// `[r, d]` attended values.
    pub out: Buffer,
    /// `[r, h, 2]` largest exponent of each row and head, and reciprocal of the sum.
    pub statistics: Buffer,
}

/// Attends from every node to all nodes of the same graph, with one launch.
///
/// # Shapes
/// - `qkv`: `[r, 3d]` if `options.content`, otherwise `[r, d]`
///
/// # Panics
/// Panics if the options are not [supported](CubeAttentionOptions::supports) or a shape is wrong.
pub fn forward(
    client: &Client,
    layout: &AttentionLayout,
    options: &CubeAttentionOptions,
    qkv: &Buffer,
    position: Option<&CubeAttentionPosition>,
) -> CubeAttentionOutput {
    let inputs = Inputs::new(client, layout, options, qkv, position);
    let (r, h) = (layout.num_nodes, options.heads);
    let out = Buffer::empty(client, r * options.width);
    let statistics = Buffer::empty(client, r * h * 2);
    attention_forward::launch(
        client,
        inputs.cubes(),
        inputs.units(),
        inputs.qkv.arg(),
        inputs.scores.arg(),
        inputs.cls.arg(),
        layout.nodes.arg(),
        inputs.node_rows.arg(),
        out.arg(),
        statistics.arg(),
        inputs.scalars(),
        inputs.shape,
    );
    CubeAttentionOutput { out, statistics }
}

/// Checked inputs of both passes; absent ones are replaced by a buffer of one element.
pub(super) struct Inputs<'a> {
    options: &'a CubeAttentionOptions,
    layout: &'a AttentionLayout,
    pub(super) qkv: &'a Buffer,
    pub(super) scores: Buffer,
    pub(super) cls: Buffer,
    pub(super) node_rows: Buffer,
    pub(super) num_scores: usize,
    pub(super) shape: ScoreShape,
}

impl<'a> Inputs<'a> {
    pub(super) fn new(
        client: &Client,
        layout: &'a AttentionLayout,
        options: &'a CubeAttentionOptions,
        qkv: &'a Buffer,
        position: Option<&CubeAttentionPosition>,
    ) -> Self {
        let (r, h) = (layout.num_nodes, options.heads);
        assert!(options.supports(r, layout.num_pairs), "unsupported attention: {options:?}");
        assert_eq!(options.width % h, 0, "the width must be divisible by the number of heads");
        assert_eq!(qkv.len(), r * options.columns(), "qkv must be [r, 3d] or [r, d]");
        assert!(options.content || position.is_some(), "attention needs scores");
        let absent = Buffer::empty(client, 1);
        let (mut scores, mut cls, mut node_rows) = [(); 3].map(|()| absent.clone()).into();
        let mut num_scores = 0;
        if let Some(position) = position {
            num_scores = position.layout.num_scores;
            assert_eq!(position.scores.len(), h * num_scores, "scores must be [h, q]");
            assert_eq!(position.layout.node_rows.len(), r, "the layouts must agree");
            scores = position.scores.clone();
            node_rows = position.layout.node_rows.clone();
            if let Some(values) = &position.cls {
                assert_eq!(values.len(), h, "there is one CLS score per head");
                cls = values.clone();
            }
        }
        let shape = ScoreShape::new(options, position);
        Self { options, layout, qkv, scores, cls, node_rows, num_scores, shape }
    }

    pub(super) fn cubes(&self) -> CubeCount {
        CubeCount::new_2d(self.layout.num_nodes as u32, self.options.heads as u32)
    }

    pub(super) fn units(&self) -> CubeDim {
        CubeDim::new_1d(self.shape.units as u32)
    }

    pub(super) fn scalars(&self) -> ScoreScalarsLaunch {
        ScoreScalarsLaunch::of(self.options, self.layout.num_pairs, self.num_scores)
    }
}

#[cube(launch)]
fn attention_forward(
    qkv: &[f32],
    scores: &[f32],
    cls: &[f32],
    nodes: &[u32],
    node_rows: &[u32],
    out: &mut [f32],
    statistics: &mut [f32],
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

    // Largest exponent and sum of the pairs of this unit, rescaled when a larger one is found.
    let mut largest = f32::new(-3.0e38f32);
    let mut sum = 0.0f32;
    let mut j = UNIT_POS as usize;
    while j < n {
        let score = exponent(qkv, scores, cls, node_rows, first, n, i, j, head, &scalars, shape);
        let before = largest;
        largest = max(largest, score);
        sum = sum * (before - largest).exp() + (score - largest).exp();
        j += units;
    }
    let total = max_over_units(largest, units);
    let inverse_sum = 1.0f32 / sum_over_units(sum * (largest - total).exp(), units); // Eq. 8
    if unit == 0usize {
        statistics[(node * heads + head) * 2] = total;
        statistics[(node * heads + head) * 2 + 1] = inverse_sum;
    }

    // Weights of one pair per unit, then one dimension per unit.
    let mut weights = Shared::<[f32]>::new_slice(units);
    let values =
        first * columns + comptime!(shape.columns - shape.d_head * shape.heads) + head * d_head;
    let mut attended = 0.0f32;
    let mut start = 0usize;
    while start < n {
        let j = start + unit;
        let mut weight = 0.0f32;
        if j < n {
            let score =
                exponent(qkv, scores, cls, node_rows, first, n, i, j, head, &scalars, shape);
            weight = (score - total).exp() * inverse_sum;
            weight *= pair_dropout(row + j as u32, head as u32, &scalars, shape);
        }
        sync_cube();
        weights[unit] = weight;
        sync_cube();
        if unit < d_head {
            let count = min(units, n - start);
            for t in 0..count {
                attended += weights[t] * qkv[values + (start + t) * columns + unit];
            }
        }
        start += units;
    }
    if unit < d_head {
        out[node * width + head * d_head + unit] = attended;
    }
}
