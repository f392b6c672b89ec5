//! Forward pass: statistics of each batch norm, then scores and virtual edges of nodes to
//! themselves.

use cubecl::client::Client;
use cubecl::prelude::*;

use super::network::{hidden_unit, layer_input, multiplicity, transformed_entry};
use super::shape::{Chunks, FfnShape, PairScalars, layer_start};
use super::{CubeEdgeFfn, CubePairInputs};
use crate::Buffer;
use crate::attention::AttentionLayout;
use crate::buffer::ALIGNMENT;
use crate::moments::{MOMENTS, NormStatistics, PartMoments, merged};

/// Number of values that describe a node in an [`AttentionLayout`].
pub(super) const NODE_FIELDS: usize = 3;

/// Output of [`forward`].
#[derive(Debug, Clone)]
pub struct CubeEdgeFfnOutput {
    /// `[h, p]` position scores of each Transformer layer.
    pub scores: Vec<Buffer>,
    /// `[r, c]` virtual edges of nodes to themselves, if requested.
    pub diagonal: Option<Buffer>,
    /// Statistics of the norm of the stack, then of each layer.
    pub statistics: NormStatistics,
}

/// Computes the position scores of all pairs for every Transformer layer and, given a layout of the
/// pairs, the virtual edges of nodes to themselves.
///
/// Batch norms use the `running` statistics, if given, and otherwise those of the batch.
///
/// # Panics
/// Panics if the network is not [supported](CubeEdgeFfn::supports) or a shape is wrong.
pub fn forward(
    client: &Client,
    network: &CubeEdgeFfn,
    inputs: &CubePairInputs<'_>,
    running: Option<NormStatistics>,
    diagonal: Option<&AttentionLayout>,
) -> CubeEdgeFfnOutput {
    let shape = network.shape(inputs);
    let pairs = inputs.stack.len() / network.channels;
    let statistics = running.unwrap_or_else(|| batch_statistics(client, network, inputs));
    assert_eq!(statistics.channels(), network.num_norm_channels(), "statistics of this network");

    // Each layer has its own, aligned part of one buffer.
    let layer_size = (network.heads * pairs).next_multiple_of(ALIGNMENT);
    let scores = Buffer::empty(client, network.position_layers * layer_size);
    let chunks = Chunks::new(pairs, shape.units);
    position_scores::launch(
        client,
        chunks.cubes(),
        shape.units(),
        inputs.stack.arg(),
        inputs.parameters.arg(),
        statistics.values.arg(),
        scores.arg(),
        layer_size as u32,
        network.scalars(pairs),
        shape,
    );
    let scores = (0..network.position_layers)
        .map(|layer| scores.part(layer * layer_size, network.heads * pairs))
        .collect();
    let diagonal = diagonal.map(|layout| {
        assert_eq!(layout.num_pairs(), pairs, "the layout is that of the pairs");
        let diagonal = Buffer::empty(client, layout.num_nodes() * network.channels);
        self_edges::launch(
            client,
            CubeCount::new_1d(layout.num_nodes().div_ceil(shape.units) as u32),
            shape.units(),
            inputs.stack.arg(),
            inputs.parameters.arg(),
            statistics.values.arg(),
            layout.nodes().arg(),
            diagonal.arg(),
            layout.num_nodes() as u32,
            network.scalars(pairs),
            shape,
        );
        diagonal
    });
    CubeEdgeFfnOutput { scores, diagonal, statistics }
}

/// Computes the statistics of all batch norms, in the order of the layers.
fn batch_statistics(
    client: &Client,
    network: &CubeEdgeFfn,
    inputs: &CubePairInputs<'_>,
) -> NormStatistics {
    let shape = network.shape(inputs);
    let pairs = inputs.stack.len() / network.channels;
    let chunks = Chunks::new(pairs, shape.units);
    let statistics = NormStatistics::empty(client, network.num_norm_channels());
    let shifts = Buffer::empty(client, network.channels);
    for norm in 0..=network.layers {
        let channels = network.norm(norm);
        let parts = (shape.units / channels.count).max(1);
        let moments = Buffer::empty(client, chunks.count * parts * channels.count * MOMENTS);
        norm_moments::launch(
            client,
            chunks.cubes(),
            shape.units(),
            inputs.stack.arg(),
            inputs.parameters.arg(),
            statistics.values.arg(),
            inputs.counts.unwrap_or(inputs.stack).arg(),
            moments.arg(),
            shifts.arg(),
            network.scalars(pairs),
            norm as u32,
            parts as u32,
            shape,
        );
        statistics.merge(client, &moments, channels, (norm == 0).then_some(&shifts));
    }
    statistics
}

/// Computes the moments of the input of batch norm `norm` over a chunk: the transformed stack, then
/// the hidden units of each layer. The `parts` units that share a row write separate moments.
/// Entries of the stack are shifted by those of the first pair.
#[cube(launch)]
fn norm_moments(
    stack: &[f32],
    parameters: &[f32],
    statistics: &[f32],
    counts: &[f32],
    moments: &mut [f32],
    shifts: &mut [f32],
    scalars: PairScalars,
    norm: u32,
    parts: u32,
    #[comptime] shape: FfnShape,
) {
    let (stride, units) = comptime!((shape.stride, shape.units));
    let (channels, hidden) = (scalars.channels as usize, scalars.hidden as usize);
    let parts = parts as usize;
    let rows = select(norm == 0, channels, hidden);
    let first_row = select(norm == 0, 0usize, channels);
    let items = rows * parts;
    let unit = UNIT_POS as usize;
    let mut tile = Shared::<[f32]>::new_slice(comptime!(shape.tile));
    let begin = CUBE_POS_X as usize * scalars.tiles_per_chunk as usize * units;
    let end = min(begin + scalars.tiles_per_chunk as usize * units, scalars.num_pairs as usize);
    let mut start = begin;
    while start < end {
        let count = min(units, end - start);
        if unit < count {
            let pair = start + unit;
            if norm == 0 {
                for i in 0..channels {
                    let shift = transformed_entry(stack, i, 0usize, &scalars, shape);
                    let entry = transformed_entry(stack, i, pair, &scalars, shape);
                    tile[i * stride + unit] = entry - shift;
                    if pair == 0 {
                        shifts[i] = shift;
                    }
                }
            } else {
                let layer = norm as usize - 1;
                layer_input(stack, parameters, statistics, &mut tile, layer, pair, &scalars, shape);
                for j in 0..hidden {
                    let value = hidden_unit(parameters, &mut tile, layer, j, &scalars, shape);
                    tile[(channels + j) * stride + unit] = value;
                }
            }
        }
        sync_cube();
        let mut item = UNIT_POS as usize;
        while item < items {
            let row = (first_row + item % rows) * stride;
            let mut weight = 0.0f32;
            let mut sum = 0.0f32;
            let mut t = item / rows;
            while t < count {
                let own = multiplicity(counts, start + t, shape);
                weight += own;
                sum += own * tile[row + t];
                t += parts;
            }
            // A part of a partial tile may have no pairs.
            let mean = sum / max(weight, 1.0e-30f32);
            let mut squares = 0.0f32;
            t = item / rows;
            while t < count {
                let step = tile[row + t] - mean;
                squares += multiplicity(counts, start + t, shape) * step * step;
                t += parts;
            }
            let at = (CUBE_POS_X as usize * items + item) * MOMENTS;
            if start > begin {
                let before = PartMoments {
                    weight: moments[at],
                    mean: moments[at + 1],
                    deviations: moments[at + 2],
                };
                let next = PartMoments { weight, mean, deviations: squares };
                let both = merged(&before, &next);
                moments[at] = both.weight;
                moments[at + 1] = both.mean;
                moments[at + 2] = both.deviations;
            } else {
                moments[at] = weight;
                moments[at + 1] = mean;
                moments[at + 2] = squares;
            }
            item += units;
        }
        sync_cube();
        start += units;
    }
}

/// Computes the position scores of all Transformer layers; the scores of a layer start at a
/// multiple of `layer_size`.
#[cube(launch)]
fn position_scores(
    stack: &[f32],
    parameters: &[f32],
    statistics: &[f32],
    scores: &mut [f32],
    layer_size: u32,
    scalars: PairScalars,
    #[comptime] shape: FfnShape,
) {
    let (stride, units) = comptime!((shape.stride, shape.units));
    let (channels, heads) = (scalars.channels as usize, scalars.heads as usize);
    let layers = scalars.layers as usize;
    let unit = UNIT_POS as usize;
    let mut tile = Shared::<[f32]>::new_slice(comptime!(shape.tile));
    let begin = CUBE_POS_X as usize * scalars.tiles_per_chunk as usize * units;
    let end = min(begin + scalars.tiles_per_chunk as usize * units, scalars.num_pairs as usize);
    let mut pair = begin + unit;
    while pair < end {
        layer_input(stack, parameters, statistics, &mut tile, layers, pair, &scalars, shape);
        for score in 0..scalars.scores as usize {
            let (layer, head) = (score / heads, score % heads);
            let start = layer_start(&scalars, layers) + layer * heads * (channels + 1);
            let weight = start + head * channels;
            let mut sum = parameters[start + heads * channels + head];
            for i in 0..channels {
                sum += parameters[weight + i] * tile[i * stride + unit]; // Eq. 6
            }
            let row = layer * layer_size as usize + head * scalars.num_pairs as usize;
            scores[row + pair] = sum;
        }
        pair += units;
    }
}

/// Computes the virtual edge of each node to itself.
#[cube(launch)]
fn self_edges(
    stack: &[f32],
    parameters: &[f32],
    statistics: &[f32],
    nodes: &[u32],
    diagonal: &mut [f32],
    num_nodes: u32,
    scalars: PairScalars,
    #[comptime] shape: FfnShape,
) {
    let stride = comptime!(shape.stride);
    let channels = scalars.channels as usize;
    let mut tile = Shared::<[f32]>::new_slice(comptime!(shape.tile));
    let (node, unit) = (ABSOLUTE_POS, UNIT_POS as usize);
    if node < num_nodes as usize {
        let first = nodes[node * NODE_FIELDS] as usize;
        let pair = nodes[node * NODE_FIELDS + 2] as usize + node - first;
        let layers = scalars.layers as usize;
        layer_input(stack, parameters, statistics, &mut tile, layers, pair, &scalars, shape);
        for i in 0..channels {
            diagonal[node * channels + i] = tile[i * stride + unit];
        }
    }
}
