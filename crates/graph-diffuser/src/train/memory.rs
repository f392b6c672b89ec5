//! Estimate of the peak memory of a training step.
//!
//! The estimate counts the values per node pair, node and edge that operations keep for the
//! backward pass. The factors were measured with a counting allocator, in single precision on the
//! CPU.

use std::borrow::Cow;
use std::collections::HashSet;

use graph_diffuser_data::{Dataset, Graph, SeedTree};

use crate::model::ModelConfig;
use crate::recipe::Recipe;
use crate::transformer::MpnnKind;
use crate::virtual_edges::{AdjacencyConfig, EdgeFfnConfig};

use super::{BatchSize, TrainError, training_batches};

/// Memory of the program itself, its thread stacks and unreturned allocator pages.
const PROGRAM_BYTES: f64 = 50e6;
/// Resident bytes per byte in use, because freed memory is returned to the system late.
///
/// This factor and [`PROGRAM_BYTES`] were fitted to peaks of `bench` and of twelve recipes between
/// 0.1 and 3.6 GB. Those are between 23 % below and 24 % above the estimate, and a single recipe
/// varied by a quarter between runs.
const RESIDENT_FACTOR: f64 = 1.25;
/// Values per parameter: weight, gradient, two moments and flattened copies.
const COPIES_OF_PARAMETERS: f64 = 8.0;

/// Size of a batch, as far as its memory depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchShape {
    /// Number of nodes `r`.
    pub nodes: usize,
    /// Number of edges `m`.
    pub edges: usize,
    /// Number of node pairs whose virtual edges are computed; graphs of equal topology may share
    /// them.
    pub distinct_pairs: usize,
}

impl BatchShape {
    /// Returns the size of a batch of `graphs`.
    pub fn of(config: &ModelConfig, graphs: &[&Graph]) -> Self {
        let extra = usize::from(config.head.uses_cls());
        let structures: HashSet<(usize, &[[u32; 2]])> = if shares(config) {
            graphs.iter().map(|graph| (graph.num_nodes, &graph.edges[..])).collect()
        } else {
            HashSet::new()
        };
        let all = |count: &dyn Fn(&Graph) -> usize| {
            graphs.iter().map(|graph| count(graph)).sum::<usize>()
        };
        Self {
            nodes: all(&|graph| graph.num_nodes + extra),
            edges: all(&|graph| graph.edges.len()),
            distinct_pairs: if structures.is_empty() {
                all(&Graph::pairs)
            } else {
                // The sum does not depend on the iteration order of the set.
                structures.into_iter().map(|(nodes, _)| nodes * nodes).sum()
            },
        }
    }
}

/// Returns whether graphs of equal topology share their virtual edges.
fn shares(config: &ModelConfig) -> bool {
    config
        .virtual_edges
        .as_ref()
        .is_some_and(|edges| edges.adjacency == (AdjacencyConfig::Fixed {}))
}

/// Estimates the peak memory of a training step in bytes.
///
/// `sizes_differ` states whether batches have different numbers of node pairs.
pub fn step_bytes(
    config: &ModelConfig,
    parameters: usize,
    shape: &BatchShape,
    sizes_differ: bool,
) -> u64 {
    let (d, layers) = (config.hidden_dim as f64, config.layers as f64);
    let [nodes, edges, distinct] =
        [shape.nodes, shape.edges, shape.distinct_pairs].map(|count| count as f64);
    let (forward, backward) = pair_values(config, distinct, sizes_differ);

    // Queries, keys and values, attention outputs, and the inputs of normalization and linear
    // layers.
    let ffn = config.ffn_ratio as f64;
    let mut per_node = 9.0 + ffn;
    if config.dropout > 0.0 {
        per_node += 2.0 + ffn;
    }
    let (local_node, local_edge) = match config.mpnn.map(|mpnn| mpnn.kind) {
        None => (0.0, 0.0),
        Some(MpnnKind::Gine) => (4.0, 0.0),
        Some(MpnnKind::GatedGcn) => (6.0, 3.5),
    };
    let local = config
        .mpnn
        .map_or(0.0, |mpnn| mpnn.pre_layers as f64 + if mpnn.parallel { layers } else { 0.0 });
    let weighted = config.virtual_edges.is_some() && !shares(config);
    let of_nodes = d * nodes * (layers * per_node + local * local_node);
    let encoded = if config.mpnn.is_some() { 1.0 } else { 0.0 };
    let of_edges = d * edges * (local * local_edge + encoded + if weighted { 3.0 } else { 0.0 });

    // Virtual edges are differentiated last, when the activations of all layers are released.
    let peak = (forward + of_nodes).max(backward) + of_edges;
    (PROGRAM_BYTES + RESIDENT_FACTOR * 4.0 * (peak + COPIES_OF_PARAMETERS * parameters as f64))
        as u64
}

/// Returns the number of values of node pairs while the layers run and while the virtual edges are
/// differentiated.
fn pair_values(config: &ModelConfig, distinct: f64, sizes_differ: bool) -> (f64, f64) {
    let Some(edges) = &config.virtual_edges else { return (0.0, 0.0) };
    let attention = config.attention.as_ref().filter(|attention| attention.scores.use_position());
    let heads = attention.map_or(0.0, |attention| attention.heads as f64);
    let scores = config.layers as f64 * heads;
    let (c, out) = (edges.stack_channels() as f64, edges.channels() as f64);
    // Values that the edge network keeps, and those that its backward pass adds, including the
    // gradients of the scores.
    let (network, backward) = match edges.ffn {
        EdgeFfnConfig::None {} => (c, 2.0 * c + scores),
        // The inputs of its layers are in a buffer that is reused by the next batch; a larger batch
        // allocates another. The backward gradient overwrites the last input, and the gradient of
        // the stack is allocated after those of the scores are released.
        EdgeFfnConfig::Residual { layers, .. } => {
            let (inputs, buffers) =
                (layers.saturating_sub(1) as f64, if sizes_differ { 2.0 } else { 1.0 });
            (
                c + buffers * inputs * (c + 1.0),
                scores.max(c) + if inputs > 0.0 { 0.0 } else { c + 1.0 },
            )
        }
        EdgeFfnConfig::AuthorsRelease { layers, .. } => {
            (3.0 * c + 3.0 * c * layers as f64 + out, 2.5 * out + scores)
        }
        EdgeFfnConfig::AuthorsGrid { layers, .. } => {
            (3.0 * c + (layers as f64 + 2.0) * out, 2.5 * out + scores)
        }
    };
    // Layers read the scores without a copy, and one layer's gradient exists at a time.
    (distinct * (network + scores + heads), distinct * (network + backward))
}

/// Returns the batch with the largest estimated memory, and the estimate in bytes.
pub fn largest_step<'a>(
    config: &ModelConfig,
    parameters: usize,
    dataset: &Dataset,
    batches: impl IntoIterator<Item = &'a [usize]>,
) -> Option<(u64, &'a [usize])> {
    let shape = |indices: &[usize]| {
        let graphs: Vec<Cow<'_, Graph>> =
            indices.iter().map(|&index| dataset.graphs.get(index)).collect();
        BatchShape::of(config, &graphs.iter().map(Cow::as_ref).collect::<Vec<_>>())
    };
    let shapes: Vec<_> = batches.into_iter().map(|indices| (shape(indices), indices)).collect();
    let sizes_differ =
        shapes.windows(2).any(|two| two[0].0.distinct_pairs != two[1].0.distinct_pairs);
    let bytes = shapes
        .iter()
        .map(|(shape, indices)| (step_bytes(config, parameters, shape, sizes_differ), *indices));
    bytes.max_by_key(|(bytes, _)| *bytes)
}

/// Checks that the training steps of the first epoch of a model with `parameters` parameters fit
/// into `available` bytes; `None` skips the check.
///
/// Later epochs have other batches, which may need slightly more memory.
///
/// # Errors
/// Returns an error if a step does not fit, with a batch size that does, if any.
pub fn check_memory(
    recipe: &Recipe,
    dataset: &Dataset,
    parameters: usize,
    available: Option<u64>,
) -> Result<(), TrainError> {
    let Some(available) = available else { return Ok(()) };
    let largest = |size: BatchSize| {
        let window = recipe.train.shuffle_window;
        let batches = training_batches(dataset, size, window, SeedTree::new(recipe.seed), 0);
        let largest =
            largest_step(&recipe.model, parameters, dataset, batches.iter().map(Vec::as_slice));
        largest.map(|(bytes, batch)| (bytes, batch.to_vec())).unwrap_or_default()
    };
    let (needed, batch) = largest(recipe.train.batch());
    if needed <= available {
        return Ok(());
    }
    let halved = std::iter::successors(Some(recipe.train.batch()), |size| size.halved());
    let fits = halved.skip(1).find(|&size| largest(size).0 <= available);
    let candidates = if fits.is_some() { &batch } else { &dataset.splits.train };
    let nodes =
        candidates.iter().map(|&index| dataset.graphs.num_nodes(index)).max().unwrap_or_default();
    Err(TrainError::Memory { graphs: batch.len(), nodes, needed, available, fits })
}

#[cfg(test)]
mod tests {
    use crate::recipe::DataDirs;

    use super::*;

    fn recipe(settings: &[&str]) -> Recipe {
        let small =
            ["data.rows=20", "data.columns=[20]", "data.train=16", "data.valid=1", "data.test=1"];
        let settings: Vec<String> =
            small.iter().chain(settings).map(|&setting| setting.to_owned()).collect();
        Recipe::find("grid-diffuser", &settings).expect("valid recipe")
    }

    fn memory_error(settings: &[&str], available: u64) -> Option<TrainError> {
        let recipe = recipe(settings);
        let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
        check_memory(&recipe, &dataset, 33_073, Some(available)).err()
    }

    #[test]
    fn estimate_grows_with_batch_and_model() {
        let bytes = |settings: &[&str], graphs: usize| {
            let recipe = recipe(settings);
            let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
            let graphs: Vec<Cow<'_, Graph>> = dataset.graphs.iter().take(graphs).collect();
            let graphs: Vec<&Graph> = graphs.iter().map(Cow::as_ref).collect();
            step_bytes(&recipe.model, 1000, &BatchShape::of(&recipe.model, &graphs), false)
        };
        let one = bytes(&[], 4);
        assert!(bytes(&[], 5) > one);
        for more in ["model.hidden_dim=64", "model.layers=12", "model.virtual_edges.num_steps=20"] {
            assert!(bytes(&[more], 4) > one, "{more}");
        }
        // Grids of one shape share their virtual edges with a fixed adjacency.
        assert!(bytes(&["model.virtual_edges.adjacency={kind=\"fixed\"}"], 16) < bytes(&[], 16));
    }

    #[test]
    fn memory_error_suggests_a_batch_size_that_fits() {
        let settings = ["train.batch_size=16"];
        assert!(memory_error(&settings, u64::MAX).is_none());
        let Some(TrainError::Memory { graphs: 16, nodes: 400, needed, fits, .. }) =
            memory_error(&settings, 500_000_000)
        else {
            panic!("16 graphs of 160,000 pairs need more than 0.5 GB");
        };
        let Some(BatchSize { graphs: smaller, max_pairs: None }) = fits else { panic!("{fits:?}") };
        assert!(
            smaller < 16
                && memory_error(&[&format!("train.batch_size={smaller}")], 500_000_000).is_none()
        );
        assert!(needed > 500_000_000);
        let Some(TrainError::Memory { fits: None, .. }) = memory_error(&settings, 50_000_000)
        else {
            panic!("a single graph needs more than 50 MB");
        };
    }
}
