//! Network of one pair: the units of a cube each compute a column of a tile.
//!
//! A tile has `channels` rows for the virtual edge, and twice `hidden` rows for normalized hidden
//! units and their gradients. Units write only their own column.

use cubecl::prelude::*;

use super::shape::{FfnShape, PairScalars, gamma_start, layer_start, norm_channels};

/// Returns an entry of the stack after the transform.
#[cube]
fn transformed(entry: f32, eps: f32, #[comptime] shape: FfnShape) -> f32 {
    if comptime!(shape.log) {
        (entry + eps).ln()
    } else if comptime!(shape.root) {
        let root = max(entry, 0.0f32 - entry).sqrt();
        select(entry < 0.0f32, 0.0f32 - root, root)
    } else {
        entry
    }
}

/// Returns the derivative of [`transformed`].
#[cube]
pub(super) fn transform_gradient(entry: f32, eps: f32, #[comptime] shape: FfnShape) -> f32 {
    if comptime!(shape.log) {
        1.0f32 / (entry + eps)
    } else if comptime!(shape.root) {
        let magnitude = max(entry, 0.0f32 - entry);
        select(magnitude > 0.0f32, 0.5f32 / max(magnitude, 1.0e-38f32).sqrt(), 0.0f32)
    } else {
        1.0f32.runtime()
    }
}

/// Returns the multiplicity of a pair.
#[cube]
pub(super) fn multiplicity(counts: &[f32], pair: usize, #[comptime] shape: FfnShape) -> f32 {
    if comptime!(shape.counts) { counts[pair] } else { 1.0f32.runtime() }
}

/// Returns an entry of the transformed stack.
#[cube]
pub(super) fn transformed_entry(
    stack: &[f32],
    i: usize,
    pair: usize,
    scalars: &PairScalars,
    #[comptime] shape: FfnShape,
) -> f32 {
    transformed(stack[i * scalars.num_pairs as usize + pair], scalars.eps, shape)
}

/// Returns an entry of the stack after its batch norm, without scale and shift.
#[cube]
pub(super) fn normalized_entry(
    stack: &[f32],
    statistics: &[f32],
    i: usize,
    pair: usize,
    scalars: &PairScalars,
    #[comptime] shape: FfnShape,
) -> f32 {
    let norms = norm_channels(scalars);
    let entry = transformed_entry(stack, i, pair, scalars, shape);
    (entry - statistics[i] - statistics[3 * norms + i]) * statistics[2 * norms + i]
}

/// Returns hidden unit `j` of layer `layer` for the rows of the virtual edge, without ReLU and
/// batch norm.
#[cube]
pub(super) fn hidden_unit(
    parameters: &[f32],
    tile: &mut Shared<[f32]>,
    layer: usize,
    j: usize,
    scalars: &PairScalars,
    #[comptime] shape: FfnShape,
) -> f32 {
    let stride = comptime!(shape.stride);
    let (channels, hidden) = (scalars.channels as usize, scalars.hidden as usize);
    let unit = UNIT_POS as usize;
    let weight = layer_start(scalars, layer);
    let mut sum = parameters[weight + hidden * channels + j];
    for i in 0..channels {
        sum += parameters[weight + j * channels + i] * tile[i * stride + unit];
    }
    sum
}

/// Normalizes a [hidden unit](hidden_unit), without scale and shift.
#[cube]
pub(super) fn normalized_unit(
    statistics: &[f32],
    value: f32,
    layer: usize,
    j: usize,
    scalars: &PairScalars,
) -> f32 {
    let norm = scalars.channels as usize + layer * scalars.hidden as usize + j;
    (value - statistics[norm]) * statistics[2 * norm_channels(scalars) + norm]
}

/// Computes all normalized hidden units of layer `layer`.
#[cube]
pub(super) fn normalized_units(
    parameters: &[f32],
    statistics: &[f32],
    tile: &mut Shared<[f32]>,
    layer: usize,
    scalars: &PairScalars,
    #[comptime] shape: FfnShape,
) {
    let stride = comptime!(shape.stride);
    let (channels, hidden) = (scalars.channels as usize, scalars.hidden as usize);
    for j in 0..hidden {
        let value = hidden_unit(parameters, tile, layer, j, scalars, shape);
        let normalized = normalized_unit(statistics, value, layer, j, scalars);
        tile[(channels + j) * stride + UNIT_POS as usize] = normalized;
    }
}

/// Returns the input of the ReLU: a normalized hidden unit with scale and shift.
#[cube]
pub(super) fn before_relu(
    parameters: &[f32],
    normalized: f32,
    gamma: usize,
    scalars: &PairScalars,
) -> f32 {
    parameters[gamma] * normalized + parameters[gamma + scalars.hidden as usize]
}

/// Adds `W₂ ReLU(…) + b₂` to the rows of the virtual edge, given normalized hidden units.
#[cube]
pub(super) fn add_second(
    parameters: &[f32],
    tile: &mut Shared<[f32]>,
    layer: usize,
    scalars: &PairScalars,
    #[comptime] shape: FfnShape,
) {
    let stride = comptime!(shape.stride);
    let (channels, hidden) = (scalars.channels as usize, scalars.hidden as usize);
    let unit = UNIT_POS as usize;
    let gamma = gamma_start(scalars, layer);
    let weight = gamma + 2 * hidden;
    let bias = weight + hidden * channels;
    for i in 0..channels {
        tile[i * stride + unit] += parameters[bias + i];
    }
    for j in 0..hidden {
        let normalized = tile[(channels + j) * stride + unit];
        let relu = max(before_relu(parameters, normalized, gamma + j, scalars), 0.0f32);
        for i in 0..channels {
            tile[i * stride + unit] += parameters[weight + i * hidden + j] * relu; // Eq. 2–3
        }
    }
}

/// Computes the input of layer `layer` in the rows of the virtual edge; for the number of layers,
/// the output of the network. The first rows of hidden units are those of the layer before it.
#[cube]
pub(super) fn layer_input(
    stack: &[f32],
    parameters: &[f32],
    statistics: &[f32],
    tile: &mut Shared<[f32]>,
    layer: usize,
    pair: usize,
    scalars: &PairScalars,
    #[comptime] shape: FfnShape,
) {
    let stride = comptime!(shape.stride);
    let channels = scalars.channels as usize;
    for i in 0..channels {
        let entry = normalized_entry(stack, statistics, i, pair, scalars, shape);
        tile[i * stride + UNIT_POS as usize] = entry * parameters[i] + parameters[channels + i];
    }
    for before in 0..layer {
        normalized_units(parameters, statistics, tile, before, scalars, shape);
        add_second(parameters, tile, before, scalars, shape);
    }
}
