//! Backward pass: one pass over the pairs for the projections and for each layer, from the last to
//! the first, and one for the gradient of the stack.

use cubecl::client::Client;
use cubecl::prelude::*;

use super::forward::NODE_FIELDS;
use super::network::{
    before_relu, hidden_unit, layer_input, multiplicity, normalized_entry, normalized_unit,
    transform_gradient,
};
use super::shape::{Chunks, FfnShape, PairScalars, gamma_start, layer_start, norm_channels};
use super::{CubeEdgeFfn, CubePairInputs};
use crate::attention::AttentionLayout;
use crate::buffer::{unit_per_element, units};
use crate::moments::NormStatistics;
use crate::sums::sum_parts;
use crate::{Buffer, UNITS};

/// Gradients computed by [`backward`].
#[derive(Debug, Clone)]
pub struct CubeEdgeFfnGradients {
    /// `[c, p]` gradient of the stack.
    pub stack: Buffer,
    /// Gradient of [`CubePairInputs::parameters`].
    pub parameters: Buffer,
}

/// Computes the gradients of the [forward pass](super::forward()).
///
/// `weight` is the number of pairs counted with their multiplicities, or `None` if the forward pass
/// used running statistics.
///
/// # Shapes
/// - `inputs`, `statistics`: as in the forward pass
/// - `d_scores`: `[h, p]` for each Transformer layer, or `None` for zeros
/// - `d_diagonal`: layout of the pairs and `[r, c]`
///
/// # Panics
/// Panics if the network is not [supported](CubeEdgeFfn::supports) or a shape is wrong.
pub fn backward(
    client: &Client,
    network: &CubeEdgeFfn,
    inputs: &CubePairInputs<'_>,
    statistics: &NormStatistics,
    weight: Option<f64>,
    d_scores: &[Option<&Buffer>],
    d_diagonal: Option<(&AttentionLayout, &Buffer)>,
) -> CubeEdgeFfnGradients {
    let shape = network.shape(inputs);
    let pairs = inputs.stack.len() / network.channels;
    let CubePairInputs { stack, parameters, counts } = *inputs;
    let chunks = Chunks::new(pairs, shape.units);
    assert_eq!(statistics.channels(), network.num_norm_channels(), "statistics of this network");
    assert_eq!(d_scores.len(), network.position_layers, "an optional gradient per layer");

    // Gradient of the output of the current layer, [c, p].
    let d = Buffer::empty(client, stack.len());
    let parts = Buffer::empty(client, chunks.count * parameters.len());
    let sums = Buffer::empty(client, parameters.len());
    let d_scores = joined(client, d_scores, network.heads * pairs);
    let (self_nodes, d_self) = match d_diagonal {
        Some((layout, gradient)) => {
            assert_eq!(layout.num_pairs(), pairs, "the layout is that of the pairs");
            let expected = layout.num_nodes() * network.channels;
            assert_eq!(gradient.len(), expected, "d_diagonal must be [r, c]");
            (self_nodes(client, layout), gradient.clone())
        }
        None => (Buffer::empty(client, 1), Buffer::empty(client, 1)),
    };
    output_gradients::launch(
        client,
        chunks.cubes(),
        shape.units(),
        stack.arg(),
        parameters.arg(),
        statistics.values.arg(),
        d_scores.arg(),
        self_nodes.arg(),
        d_self.arg(),
        d.arg(),
        parts.arg(),
        network.scalars(pairs),
        d_diagonal.is_some(),
        shape,
    );
    sum_parts(client, &parts, &sums, network.before(network.layers)..parameters.len());
    let inverse_weight = weight.map_or(0.0, |weight| 1.0 / weight) as f32;
    for layer in (0..network.layers).rev() {
        layer_gradients::launch(
            client,
            chunks.cubes(),
            shape.units(),
            stack.arg(),
            parameters.arg(),
            statistics.values.arg(),
            counts.unwrap_or(stack).arg(),
            sums.arg(),
            d.arg(),
            parts.arg(),
            network.scalars(pairs),
            inverse_weight,
            layer as u32,
            weight.is_some(),
            shape,
        );
        let range = network.before(layer)..network.first_linear_end(layer);
        sum_parts(client, &parts, &sums, range);
    }
    let d_stack = Buffer::empty(client, stack.len());
    stack_gradients::launch(
        client,
        unit_per_element(stack.len()),
        units(),
        stack.arg(),
        parameters.arg(),
        statistics.values.arg(),
        counts.unwrap_or(stack).arg(),
        sums.arg(),
        d.arg(),
        d_stack.arg(),
        network.scalars(pairs),
        inverse_weight,
        shape,
    );
    CubeEdgeFfnGradients { stack: d_stack, parameters: sums }
}

/// Copies the gradients of all Transformer layers into one buffer, with a launch for each.
fn joined(client: &Client, parts: &[Option<&Buffer>], len: usize) -> Buffer {
    let all = Buffer::empty(client, parts.len() * len);
    for (index, part) in parts.iter().enumerate() {
        assert!(part.is_none_or(|part| part.len() == len), "d_scores must be [h, p]");
        copy_part::launch(
            client,
            unit_per_element(len),
            units(),
            part.unwrap_or(&all).arg(),
            all.arg(),
            (index * len) as u32,
            len as u32,
            part.is_some(),
        );
    }
    all
}

/// Returns one plus the node of each pair of a node with itself, and zero for other pairs, `[p]`.
fn self_nodes(client: &Client, layout: &AttentionLayout) -> Buffer {
    let by_pair = Buffer::empty(client, layout.num_pairs());
    let width = layout.num_nodes().min(32_768);
    nodes_of_self_pairs::launch(
        client,
        CubeCount::new_2d(width as u32, layout.num_nodes().div_ceil(width) as u32),
        units(),
        layout.nodes().arg(),
        by_pair.arg(),
        layout.num_nodes() as u32,
    );
    by_pair
}

#[cube(launch)]
fn copy_part(from: &[f32], to: &mut [f32], start: u32, len: u32, #[comptime] present: bool) {
    let at = ABSOLUTE_POS;
    if at < len as usize {
        if comptime!(present) {
            to[start as usize + at] = from[at];
        } else {
            to[start as usize + at] = 0.0f32;
        }
    }
}

#[cube(launch)]
fn nodes_of_self_pairs(nodes: &[u32], by_pair: &mut [u32], num_nodes: u32) {
    let node = (CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize;
    if node < num_nodes as usize {
        let first = nodes[node * NODE_FIELDS] as usize;
        let n = nodes[node * NODE_FIELDS + 1] as usize;
        let row = nodes[node * NODE_FIELDS + 2] as usize;
        let mut j = UNIT_POS as usize;
        while j < n {
            by_pair[row + j] = select(first + j == node, node as u32 + 1u32, 0u32);
            j += UNITS;
        }
    }
}

/// Returns the sum of a row over the pairs of a tile.
#[cube]
fn row_sum(tile: &mut Shared<[f32]>, row: usize, count: usize, #[comptime] shape: FfnShape) -> f32 {
    let first = row * comptime!(shape.stride);
    let mut sum = 0.0f32;
    for t in 0..count {
        sum += tile[first + t];
    }
    sum
}

/// Returns the sum of products of two rows over the pairs of a tile.
#[cube]
fn product_sum(
    tile: &mut Shared<[f32]>,
    a: usize,
    b: usize,
    count: usize,
    #[comptime] shape: FfnShape,
) -> f32 {
    let stride = comptime!(shape.stride);
    let mut sum = 0.0f32;
    for t in 0..count {
        sum += tile[a * stride + t] * tile[b * stride + t];
    }
    sum
}

/// Adds the sum of a tile for a parameter to that of the earlier tiles of the chunk.
#[cube]
fn add_sum(parts: &mut [f32], parameter: usize, sum: f32, is_first: bool, parameters: usize) {
    let at = CUBE_POS_X as usize * parameters + parameter;
    let mut total = sum;
    if !is_first {
        total += parts[at];
    }
    parts[at] = total;
}

/// Computes `W₂ᵀ d` in the second rows of hidden units, where `d` is the gradient of the output of
/// layer `layer`: `[c, p]`.
#[cube]
fn relu_gradients(
    parameters: &[f32],
    d: &mut [f32],
    tile: &mut Shared<[f32]>,
    pair: usize,
    layer: usize,
    scalars: &PairScalars,
    #[comptime] shape: FfnShape,
) {
    let stride = comptime!(shape.stride);
    let (channels, hidden) = (scalars.channels as usize, scalars.hidden as usize);
    let (gradients, unit) = (channels + hidden, UNIT_POS as usize);
    let weight = gamma_start(scalars, layer) + 2 * hidden;
    for j in 0..hidden {
        tile[(gradients + j) * stride + unit] = 0.0f32;
    }
    for i in 0..channels {
        let d_i = d[i * scalars.num_pairs as usize + pair];
        for j in 0..hidden {
            tile[(gradients + j) * stride + unit] += parameters[weight + i * hidden + j] * d_i;
        }
    }
}

/// Adds the sums of a tile for the parameters before layer `layer`: the norm of the stack, or what
/// follows the first linear layer in layer `layer - 1`.
///
/// The gradient of the input of the layer is in `d` and in the rows of the virtual edge, and the
/// first rows of hidden units are those of the layer before it. All units must call it.
#[cube]
fn add_sums_before(
    stack: &[f32],
    parameters: &[f32],
    statistics: &[f32],
    tile: &mut Shared<[f32]>,
    d: &mut [f32],
    parts: &mut [f32],
    start: usize,
    count: usize,
    layer: usize,
    is_first: bool,
    num_parameters: usize,
    scalars: &PairScalars,
    #[comptime] shape: FfnShape,
) {
    let (stride, units) = comptime!((shape.stride, shape.units));
    let (channels, hidden) = (scalars.channels as usize, scalars.hidden as usize);
    let (gradients, unit) = (channels + hidden, UNIT_POS as usize);
    if layer > 0 && unit < count {
        relu_gradients(parameters, d, tile, start + unit, layer - 1, scalars, shape);
        let gamma = gamma_start(scalars, layer - 1);
        for j in 0..hidden {
            let normalized = tile[(channels + j) * stride + unit];
            if before_relu(parameters, normalized, gamma + j, scalars) <= 0.0f32 {
                tile[(gradients + j) * stride + unit] = 0.0f32;
            }
        }
    }
    sync_cube();
    let mut item = UNIT_POS as usize;
    if layer > 0 {
        let gamma = gamma_start(scalars, layer - 1);
        let (second, bias) = (2 * hidden, 2 * hidden + channels * hidden);
        while item < bias + channels {
            let mut sum = 0.0f32;
            if item < hidden {
                // ∂γ = Σ g ⊙ ĥ
                sum = product_sum(tile, gradients + item, channels + item, count, shape);
            } else if item < second {
                sum = row_sum(tile, channels + item, count, shape); // ∂β = Σ g
            } else if item < bias {
                // ∂W₂ = Σ d ⊗ r
                let (i, j) = ((item - second) / hidden, (item - second) % hidden);
                for t in 0..count {
                    let normalized = tile[(channels + j) * stride + t];
                    let relu = max(before_relu(parameters, normalized, gamma + j, scalars), 0.0f32);
                    sum += tile[i * stride + t] * relu;
                }
            } else {
                sum = row_sum(tile, item - bias, count, shape); // ∂b₂ = Σ d
            }
            add_sum(parts, gamma + item, sum, is_first, num_parameters);
            item += units;
        }
    } else {
        while item < 2 * channels {
            let mut sum = 0.0f32;
            if item < channels {
                for t in 0..count {
                    sum += tile[item * stride + t]
                        * normalized_entry(stack, statistics, item, start + t, scalars, shape);
                }
            } else {
                sum = row_sum(tile, item - channels, count, shape);
            }
            add_sum(parts, item, sum, is_first, num_parameters);
            item += units;
        }
    }
    sync_cube();
}

/// Computes the gradient of the output of the network, and the sums for the projections and for
/// what follows the first linear layer in the last layer.
#[cube(launch)]
fn output_gradients(
    stack: &[f32],
    parameters: &[f32],
    statistics: &[f32],
    d_scores: &[f32],
    self_nodes: &[u32],
    d_diagonal: &[f32],
    d: &mut [f32],
    parts: &mut [f32],
    scalars: PairScalars,
    #[comptime] diagonal: bool,
    #[comptime] shape: FfnShape,
) {
    let (stride, units) = comptime!((shape.stride, shape.units));
    let (channels, heads) = (scalars.channels as usize, scalars.heads as usize);
    let (layers, num_pairs) = (scalars.layers as usize, scalars.num_pairs as usize);
    let positions = layer_start(&scalars, layers);
    let (weights, layer_size) = (heads * channels, heads * (channels + 1));
    let items = scalars.scores as usize * (channels + 1);
    let num_parameters = positions + items;
    let unit = UNIT_POS as usize;
    let mut tile = Shared::<[f32]>::new_slice(comptime!(shape.tile));
    let begin = CUBE_POS_X as usize * scalars.tiles_per_chunk as usize * units;
    let end = min(begin + scalars.tiles_per_chunk as usize * units, num_pairs);
    let mut start = begin;
    while start < end {
        let count = min(units, end - start);
        let pair = start + unit;
        if unit < count {
            layer_input(stack, parameters, statistics, &mut tile, layers, pair, &scalars, shape);
        }
        sync_cube();
        let mut item = UNIT_POS as usize;
        while item < items {
            let (layer, entry) = (item / layer_size, item % layer_size);
            let mut sum = 0.0f32;
            if entry < weights {
                let row = (layer * heads + entry / channels) * num_pairs + start;
                let i = entry % channels;
                for t in 0..count {
                    sum += d_scores[row + t] * tile[i * stride + t];
                }
            } else {
                let row = (layer * heads + entry - weights) * num_pairs + start;
                for t in 0..count {
                    sum += d_scores[row + t];
                }
            }
            add_sum(parts, positions + item, sum, start == begin, num_parameters);
            item += units;
        }
        sync_cube();
        if unit < count {
            for i in 0..channels {
                tile[i * stride + unit] = 0.0f32;
            }
            for score in 0..scalars.scores as usize {
                let value = d_scores[score * num_pairs + pair];
                let weight = positions + (score / heads) * layer_size + (score % heads) * channels;
                for i in 0..channels {
                    tile[i * stride + unit] += parameters[weight + i] * value;
                }
            }
            if comptime!(diagonal) {
                let node = self_nodes[pair] as usize;
                if node > 0usize {
                    for i in 0..channels {
                        tile[i * stride + unit] += d_diagonal[(node - 1) * channels + i];
                    }
                }
            }
            for i in 0..channels {
                d[i * num_pairs + pair] = tile[i * stride + unit];
            }
        }
        add_sums_before(
            stack,
            parameters,
            statistics,
            &mut tile,
            d,
            parts,
            start,
            count,
            layers,
            start == begin,
            num_parameters,
            &scalars,
            shape,
        );
        start += units;
    }
}

/// Replaces the gradient of the output of layer `layer` by that of its input, and computes the sums
/// for its first linear layer and for the parameters before.
///
/// `∂h = γ/deviation (g - m₁ - m₂ ĥ)` with the means `m₁` of `g` and `m₂` of `g ĥ`, which follow
/// from the gradients of the batch norm in `totals`; with running statistics both are zero.
#[cube(launch)]
fn layer_gradients(
    stack: &[f32],
    parameters: &[f32],
    statistics: &[f32],
    counts: &[f32],
    totals: &[f32],
    d: &mut [f32],
    parts: &mut [f32],
    scalars: PairScalars,
    inverse_weight: f32,
    layer: u32,
    #[comptime] batch: bool,
    #[comptime] shape: FfnShape,
) {
    let (stride, units) = comptime!((shape.stride, shape.units));
    let (channels, hidden) = (scalars.channels as usize, scalars.hidden as usize);
    let (layer, num_pairs) = (layer as usize, scalars.num_pairs as usize);
    let (gradients, unit) = (channels + hidden, UNIT_POS as usize);
    let weight = layer_start(&scalars, layer);
    let gamma = gamma_start(&scalars, layer);
    let deviations = 2 * norm_channels(&scalars) + channels + layer * hidden;
    let num_parameters =
        layer_start(&scalars, scalars.layers as usize) + scalars.scores as usize * (channels + 1);
    let mut tile = Shared::<[f32]>::new_slice(comptime!(shape.tile));
    let begin = CUBE_POS_X as usize * scalars.tiles_per_chunk as usize * units;
    let end = min(begin + scalars.tiles_per_chunk as usize * units, num_pairs);
    let mut start = begin;
    while start < end {
        let count = min(units, end - start);
        let pair = start + unit;
        if unit < count {
            layer_input(stack, parameters, statistics, &mut tile, layer, pair, &scalars, shape);
            relu_gradients(parameters, d, &mut tile, pair, layer, &scalars, shape);
            let part = multiplicity(counts, pair, shape) * inverse_weight;
            for j in 0..hidden {
                let value = hidden_unit(parameters, &mut tile, layer, j, &scalars, shape);
                let h = normalized_unit(statistics, value, layer, j, &scalars);
                let mut g = 0.0f32;
                if before_relu(parameters, h, gamma + j, &scalars) > 0.0f32 {
                    g = tile[(gradients + j) * stride + unit];
                }
                let (d_gamma, d_beta) = (totals[gamma + j], totals[gamma + hidden + j]);
                let scale = parameters[gamma + j] * statistics[deviations + j];
                tile[(gradients + j) * stride + unit] = scale * (g - part * (d_beta + d_gamma * h));
            }
        }
        sync_cube();
        let mut item = UNIT_POS as usize;
        while item < hidden * (channels + 1) {
            let mut sum = 0.0f32;
            if item < hidden * channels {
                // ∂W₁ = Σ ∂h ⊗ x
                let (j, i) = (gradients + item / channels, item % channels);
                sum = product_sum(&mut tile, j, i, count, shape);
            } else if comptime!(!batch) {
                // Batch statistics remove any common shift.
                let j = item - hidden * channels;
                sum = row_sum(&mut tile, gradients + j, count, shape);
            }
            add_sum(parts, weight + item, sum, start == begin, num_parameters);
            item += units;
        }
        sync_cube();
        if unit < count {
            for i in 0..channels {
                let mut sum = d[i * num_pairs + pair];
                for j in 0..hidden {
                    sum += parameters[weight + j * channels + i]
                        * tile[(gradients + j) * stride + unit];
                }
                d[i * num_pairs + pair] = sum;
                tile[i * stride + unit] = sum;
            }
        }
        add_sums_before(
            stack,
            parameters,
            statistics,
            &mut tile,
            d,
            parts,
            start,
            count,
            layer,
            start == begin,
            num_parameters,
            &scalars,
            shape,
        );
        start += units;
    }
}

/// Computes the gradient of an entry of the stack from that of the input of the first layer.
#[cube(launch)]
fn stack_gradients(
    stack: &[f32],
    parameters: &[f32],
    statistics: &[f32],
    counts: &[f32],
    totals: &[f32],
    d: &[f32],
    d_stack: &mut [f32],
    scalars: PairScalars,
    inverse_weight: f32,
    #[comptime] shape: FfnShape,
) {
    let at = ABSOLUTE_POS;
    let (channels, num_pairs) = (scalars.channels as usize, scalars.num_pairs as usize);
    if at < channels * num_pairs {
        let (i, pair) = (at / num_pairs, at % num_pairs);
        let t = normalized_entry(stack, statistics, i, pair, &scalars, shape);
        let part = multiplicity(counts, pair, shape) * inverse_weight;
        let centered = d[at] - part * (totals[channels + i] + totals[i] * t);
        d_stack[at] = centered
            * parameters[i]
            * statistics[2 * norm_channels(&scalars) + i]
            * transform_gradient(stack[at], scalars.eps, shape);
    }
}
