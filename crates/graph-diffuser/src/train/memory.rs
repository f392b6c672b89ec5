//! How much memory a training step takes, said before it is taken.
//!
//! Counted is what operations keep for the backward pass, a pair, a node and an edge at a time. The numbers
//! were read off an allocator that counts; what single precision on the CPU keeps is what they are.

use std::borrow::Cow;
use std::collections::HashSet;

use graph_diffuser_data::{Dataset, Graph, SeedTree};

use crate::model::ModelConfig;
use crate::recipe::Recipe;
use crate::transformer::MpnnKind;
use crate::virtual_edges::{AdjacencyConfig, EdgeFfnConfig};

use super::{BatchSize, TrainError, training_batches};

/// The program itself, the stacks of its threads and what its allocator never gives back.
const PROGRAM_BYTES: f64 = 50e6;
/// Memory held for each byte in use: freed memory goes back to the system late. It and the program were fitted to
/// peaks of `bench` and of twelve recipes, 0.1 to 3.6 GB: those are between 23 % below and 24 % above what is said,
/// and one recipe alone varied by a quarter from run to run.
const HELD: f64 = 1.25;
/// Numbers a parameter: itself, its gradient, two moments, and copies as one vector on the way.
const COPIES_OF_PARAMETERS: f64 = 8.0;

/// What the memory of a step depends on, beside the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchShape {
    /// Nodes, `r`.
    pub nodes: usize,
    /// Edges, `m`.
    pub edges: usize,
    /// Pairs whose virtual edges are computed: fewer where graphs share them.
    pub distinct_pairs: usize,
}

impl BatchShape {
    /// Of these graphs in one batch.
    pub fn of(config: &ModelConfig, graphs: &[&Graph]) -> Self {
        let extra = usize::from(config.head.uses_cls());
        let structures: HashSet<(usize, &[[u32; 2]])> = if shares(config) {
            graphs.iter().map(|graph| (graph.nodes, &graph.edges[..])).collect()
        } else {
            HashSet::new()
        };
        let all = |count: &dyn Fn(&Graph) -> usize| {
            graphs.iter().map(|graph| count(graph)).sum::<usize>()
        };
        Self {
            nodes: all(&|graph| graph.nodes + extra),
            edges: all(&|graph| graph.edges.len()),
            distinct_pairs: if structures.is_empty() {
                all(&Graph::pairs)
            } else {
                // A sum does not mind the order of a set.
                structures.into_iter().map(|(nodes, _)| nodes * nodes).sum()
            },
        }
    }
}

/// Whether graphs of one structure share their virtual edges.
fn shares(config: &ModelConfig) -> bool {
    config
        .virtual_edges
        .as_ref()
        .is_some_and(|edges| edges.adjacency == (AdjacencyConfig::Fixed {}))
}

/// About how many bytes the program holds at the peak of a training step.
///
/// `sizes_differ` is whether other batches have other numbers of pairs.
pub fn step_bytes(
    config: &ModelConfig,
    parameters: usize,
    shape: &BatchShape,
    sizes_differ: bool,
) -> u64 {
    let (d, layers) = (config.hidden_dim as f64, config.layers as f64);
    let [nodes, edges, distinct] =
        [shape.nodes, shape.edges, shape.distinct_pairs].map(|count| count as f64);
    let (kept, while_backward) = pair_numbers(config, distinct, sizes_differ);

    // Queries, keys and values, what attention gathered, and the inputs of norms and linear maps.
    let ffn = config.ffn_ratio as f64;
    let mut a_node = 9.0 + ffn;
    if config.dropout > 0.0 {
        a_node += 2.0 + ffn;
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
    let of_nodes = d * nodes * (layers * a_node + local * local_node);
    let encoded = if config.mpnn.is_some() { 1.0 } else { 0.0 };
    let of_edges = d * edges * (local * local_edge + encoded + if weighted { 3.0 } else { 0.0 });

    // The last thing differentiated are the virtual edges, when all of the layers is done with.
    let peak = (kept + of_nodes).max(while_backward) + of_edges;
    (PROGRAM_BYTES + HELD * 4.0 * (peak + COPIES_OF_PARAMETERS * parameters as f64)) as u64
}

/// Numbers that pairs take while layers run and while the virtual edges are differentiated.
fn pair_numbers(config: &ModelConfig, distinct: f64, sizes_differ: bool) -> (f64, f64) {
    let Some(edges) = &config.virtual_edges else { return (0.0, 0.0) };
    let attention = config.attention.as_ref().filter(|attention| attention.scores.use_position());
    let heads = attention.map_or(0.0, |attention| attention.heads as f64);
    let scores = config.layers as f64 * heads;
    let (c, out) = (edges.stack_channels() as f64, edges.channels() as f64);
    // Of the network: what it keeps, and what its backward adds, the gradients of the scores included.
    let (network, backward) = match edges.ffn {
        EdgeFfnConfig::None {} => (c, 2.0 * c + scores),
        // The inputs of its layers are in memory that is kept for the next batch; one that needs more takes other.
        // The gradient on its way down takes the place of the last of them, and that of the stack is made when those
        // of the scores are gone.
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
    // Layers read scores where they are, and one layer's gradient is there while that layer is differentiated.
    (distinct * (network + scores + heads), distinct * (network + backward))
}

/// The batch that takes most, and what it takes.
pub fn largest_step<'a>(
    config: &ModelConfig,
    parameters: usize,
    dataset: &Dataset,
    batches: impl IntoIterator<Item = &'a [usize]>,
) -> Option<(u64, &'a [usize])> {
    let shape = |numbers: &[usize]| {
        let graphs: Vec<Cow<'_, Graph>> =
            numbers.iter().map(|&number| dataset.graphs.get(number)).collect();
        BatchShape::of(config, &graphs.iter().map(Cow::as_ref).collect::<Vec<_>>())
    };
    let shapes: Vec<_> = batches.into_iter().map(|numbers| (shape(numbers), numbers)).collect();
    let differ = shapes.windows(2).any(|two| two[0].0.distinct_pairs != two[1].0.distinct_pairs);
    let bytes = shapes
        .iter()
        .map(|(shape, numbers)| (step_bytes(config, parameters, shape, differ), *numbers));
    bytes.max_by_key(|(bytes, _)| *bytes)
}

/// Memory that the system can still give, where it says so.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Finds whether a step of the first epoch fits into `available` bytes; without that all do.
///
/// Later epochs shuffle otherwise, so it can be a little more then.
///
/// # Errors
/// Where it does not, with what would.
pub fn check_memory(
    recipe: &Recipe,
    dataset: &Dataset,
    available: Option<u64>,
) -> Result<(), TrainError> {
    let Some(available) = available else { return Ok(()) };
    let parameters =
        recipe.parameters_by_part(&dataset.schema).iter().map(|(_, count)| count).sum();
    let largest = |size: BatchSize| {
        let batches = training_batches(dataset, size, SeedTree::new(recipe.seed), 0);
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
    let in_question = if fits.is_some() { &batch } else { &dataset.splits.train };
    let nodes =
        in_question.iter().map(|&number| dataset.graphs.nodes(number)).max().unwrap_or_default();
    Err(TrainError::Memory { graphs: batch.len(), nodes, needed, available, fits })
}

/// Bytes as people read them.
pub(super) fn readable(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes >= 1e9 => format!("{:.1} GB", bytes / 1e9),
        bytes => format!("{:.0} MB", (bytes / 1e6).ceil()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(settings: &[&str]) -> Recipe {
        let small =
            ["data.rows=20", "data.columns=[20]", "data.train=16", "data.valid=1", "data.test=1"];
        let settings: Vec<String> =
            small.iter().chain(settings).map(|&setting| setting.to_owned()).collect();
        Recipe::find("grid-diffuser", &settings).expect("a sound recipe")
    }

    fn fault(settings: &[&str], available: u64) -> Option<TrainError> {
        let recipe = recipe(settings);
        check_memory(&recipe, &recipe.dataset().expect("it is drawn"), Some(available)).err()
    }

    #[test]
    fn more_of_anything_takes_more() {
        let bytes = |settings: &[&str], graphs: usize| {
            let recipe = recipe(settings);
            let dataset = recipe.dataset().expect("it is drawn");
            let graphs: Vec<Cow<'_, Graph>> = dataset.graphs.iter().take(graphs).collect();
            let graphs: Vec<&Graph> = graphs.iter().map(Cow::as_ref).collect();
            step_bytes(&recipe.model, 1000, &BatchShape::of(&recipe.model, &graphs), false)
        };
        let one = bytes(&[], 4);
        assert!(bytes(&[], 5) > one);
        for more in ["model.hidden_dim=64", "model.layers=12", "model.virtual_edges.num_steps=20"] {
            assert!(bytes(&[more], 4) > one, "{more}");
        }
        // Grids of one shape share their virtual edges when edges weigh the same.
        assert!(bytes(&["model.virtual_edges.adjacency={kind=\"fixed\"}"], 16) < bytes(&[], 16));
    }

    #[test]
    fn a_smaller_batch_is_named_where_it_fits_and_only_there() {
        let settings = ["train.batch_size=16"];
        assert!(fault(&settings, u64::MAX).is_none());
        let Some(TrainError::Memory { graphs: 16, nodes: 400, needed, fits, .. }) =
            fault(&settings, 500_000_000)
        else {
            panic!("sixteen graphs of 160,000 pairs take more than 0.5 GB");
        };
        let Some(BatchSize { graphs: fewer, max_pairs: None }) = fits else { panic!("{fits:?}") };
        assert!(
            fewer < 16 && fault(&[&format!("train.batch_size={fewer}")], 500_000_000).is_none()
        );
        assert!(needed > 500_000_000);
        let Some(TrainError::Memory { fits: None, .. }) = fault(&settings, 50_000_000) else {
            panic!("one graph alone takes more than 50 MB");
        };
    }
}
