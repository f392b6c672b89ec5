//! The raw csv layout of the Open Graph Benchmark, read graph after graph.
//!
//! ```text
//! raw/  num-node-list  num-edge-list      one count a graph
//!       edge                              source,target: node numbers local to the graph
//!       node-feat  edge-feat              one row a node, an edge; may be missing
//!       graph-label                       one row a graph, one column a task; empty or nan is missing
//!       node-label                        instead: the class of every node
//!       num-contact-list  contact         instead: pairs of nodes that belong together
//! split/[kind/]  train  valid  test       graph numbers
//! ```
//!
//! Every file is `.csv.gz` or `.csv`, without a header. Each is decompressed and parsed by a thread of its own, and
//! only a few blocks of rows are held at a time, so data of any size can be read. The graphs go into a
//! [cached file](crate::cache) from which they are read ever after.
//!
//! ```
//! use graph_diffuser_data::TargetSchema;
//! use graph_diffuser_data::ogb_csv::{self, OgbCsvOptions};
//!
//! let directory = tempfile::tempdir()?;
//! let raw = directory.path().join("raw");
//! std::fs::create_dir(&raw)?;
//! for (name, rows) in
//!     [("num-node-list", "3\n2\n"), ("num-edge-list", "2\n1\n"), ("edge", "0,1\n1,2\n0,1\n"), ("graph-label", "0.5\n2\n")]
//! {
//!     std::fs::write(raw.join(format!("{name}.csv")), rows)?;
//! }
//! let layout = OgbCsvOptions { add_reverse_edges: true, ..OgbCsvOptions::default() };
//! let dataset = ogb_csv::read(directory.path(), &layout, &directory.path().join("cache"), &mut |_, _| {})?;
//! assert_eq!(dataset.graphs.get(0).edges, [[0, 1], [1, 0], [1, 2], [2, 1]]);
//! assert_eq!(dataset.schema.targets, TargetSchema::GraphValues(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod splits;
mod stream;
mod survey;
mod targets;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{self, Scope};

pub use error::OgbCsvError;
pub use splits::read_splits;
pub(crate) use stream::{ColumnReader, FeatureStream};
use targets::TargetStream;

use crate::cache::{self, CacheKey};
use crate::dataset::{Dataset, FeatureSchema, Graphs, Names, Schema, Splits, TargetSchema};
use crate::error::LocatedError;
use crate::graph::Graph;
use crate::numeric_csv::{NumericCsvReader, whole};
use crate::progress::{ProgressFn, ProgressMeter};

/// Most nodes of a graph.
pub const LARGEST_NODES: usize = cache::record::LARGEST_NODES;
/// Most edge rows of a graph.
pub const LARGEST_EDGES: usize = 1 << 26;

/// Changes when the same files would be read as other graphs.
const READER: &str = "csv layout 1";

/// How to take the files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OgbCsvOptions {
    /// Whether each edge row stands for both directions; it is then followed at once by its reverse.
    pub add_reverse_edges: bool,
    /// What node features mean; taken from the data when not said.
    pub node_features: Option<FeatureSchema>,
    /// What edge features mean; taken from the data when not said.
    pub edge_features: Option<FeatureSchema>,
    /// What is predicted; taken from the data when not said.
    pub targets: Option<TargetSchema>,
    /// Which folder under `split` to use; needed only when there are several.
    pub split: Option<String>,
}

/// Reads a directory of this layout, through a file of cached graphs in the directory `cache`.
///
/// Data without a split gets an empty one, to be filled by the caller.
///
/// # Errors
/// What is wrong with the files, with its place, and what keeps the cache from being written.
pub fn read(
    directory: &Path,
    layout: &OgbCsvOptions,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    let name = directory
        .file_name()
        .map_or_else(|| "graphs".into(), |name| name.to_string_lossy().into_owned());
    read_named(&name, directory, layout, cache, progress)
}

/// The same, with the name that the cached file begins with.
pub(crate) fn read_named(
    name: &str,
    directory: &Path,
    layout: &OgbCsvOptions,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    let names = ["num-node-list", "num-edge-list", "edge", "node-feat", "edge-feat"];
    let labels = ["graph-label", "node-label", "num-contact-list", "contact"];
    let raw = directory.join("raw");
    let files: Vec<PathBuf> =
        names.iter().chain(&labels).filter_map(|name| csv_file(&raw, name)).collect();
    let inferred = layout.node_features.is_none()
        || layout.edge_features.is_none()
        || layout.targets.is_none();
    let mut meter = ProgressMeter::new(
        files.iter().map(PathBuf::as_path),
        if inferred { 3 } else { 2 },
        progress,
    );
    let OgbCsvOptions { add_reverse_edges, node_features, edge_features, targets, split: _ } =
        layout;
    let how =
        format!("{READER} {add_reverse_edges} {node_features:?} {edge_features:?} {targets:?}");
    let key = CacheKey::of(&how, files.iter().map(PathBuf::as_path), &mut meter)?;
    let cached = cache::open_or_build(cache, name, &key, |writer| {
        let mut graphs = 0_u64;
        stream(directory, layout, &meter.read(), &mut |graph| {
            graphs += 1;
            if graphs.is_multiple_of(64) {
                meter.tick();
            }
            writer.push(&graph)
        })
    })?;
    meter.finish();
    let splits = read_splits(directory, layout.split.as_deref(), cached.len())?;
    let splits = splits.unwrap_or(Splits { train: vec![], valid: vec![], test: vec![] });
    Ok(Dataset { schema: cached.schema().clone(), graphs: Graphs::Cached(cached), splits })
}

/// Hands over graph after graph and returns what their numbers mean; `read` grows by the bytes taken from disk.
///
/// # Errors
/// What is wrong with the files, with its place, and whatever `sink` says.
pub fn stream(
    directory: &Path,
    layout: &OgbCsvOptions,
    read: &Arc<AtomicU64>,
    sink: &mut dyn FnMut(Graph) -> Result<(), LocatedError>,
) -> Result<Schema, LocatedError> {
    let raw = directory.join("raw");
    thread::scope(|scope| {
        let mut counts = Counts::start(scope, &raw, read)?;
        let mut edges = ColumnReader::start(
            scope,
            NumericCsvReader::open(&needed(&raw, "edge"), read)?,
            "num-edge-list",
            Some(2),
            |_, cell| whole(cell),
        );
        let mut node_features = features(
            scope,
            &raw,
            "node-feat",
            "num-node-list",
            layout.node_features.as_ref(),
            read,
        )?;
        let mut edge_features = features(
            scope,
            &raw,
            "edge-feat",
            "num-edge-list",
            layout.edge_features.as_ref(),
            read,
        )?;
        let mut targets = TargetStream::start(scope, &raw, layout.targets, read)?;
        while let Some((graph, nodes, rows)) = counts.next()? {
            let pairs = edges.pairs(rows, graph, nodes)?;
            let edges = if layout.add_reverse_edges { both_directions(&pairs) } else { pairs };
            sink(Graph {
                nodes,
                edges,
                node_features: node_features.take(nodes, false)?,
                edge_features: edge_features.take(rows, layout.add_reverse_edges)?,
                targets: targets.take(graph, nodes)?,
            })?;
        }
        edges.finish()?;
        node_features.finish()?;
        edge_features.finish()?;
        let targets = targets.finish()?;
        Ok(Schema {
            node_features: node_features.schema(),
            edge_features: edge_features.schema(),
            targets,
            names: Names::default(),
        })
    })
}

/// How many nodes and edge rows each graph has.
pub(crate) struct Counts {
    nodes: ColumnReader<u32>,
    edges: ColumnReader<u32>,
    graphs: usize,
}

impl Counts {
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        raw: &Path,
        read: &Arc<AtomicU64>,
    ) -> Result<Self, LocatedError> {
        let counts = |name| {
            let rows = NumericCsvReader::open(&needed(raw, name), read)?;
            Ok(ColumnReader::start(scope, rows, "num-node-list", Some(1), |_, cell| whole(cell)))
        };
        Ok(Self { nodes: counts("num-node-list")?, edges: counts("num-edge-list")?, graphs: 0 })
    }

    /// How many graphs were counted so far.
    pub(crate) fn graphs(&self) -> usize {
        self.graphs
    }

    /// Number, nodes and edge rows of the next graph.
    pub(crate) fn next(&mut self) -> Result<Option<(usize, usize, usize)>, LocatedError> {
        let graph = self.graphs;
        if self.nodes.is_over()? {
            if graph == 0 {
                return Err(LocatedError::new(self.nodes.path(), OgbCsvError::NoGraphs));
            }
            self.edges.finish()?;
            return Ok(None);
        }
        let nodes = self.nodes.count()?;
        let edges = self.edges.count()?;
        if nodes == 0 {
            return Err(self.nodes.problem(0, OgbCsvError::NoNodes { graph }));
        }
        if nodes as usize > LARGEST_NODES {
            return Err(self.nodes.problem(0, OgbCsvError::TooManyNodes { graph, nodes }));
        }
        if edges as usize > LARGEST_EDGES {
            return Err(self.edges.problem(0, OgbCsvError::TooManyEdges { graph, edges }));
        }
        self.graphs += 1;
        Ok(Some((graph, nodes as usize, edges as usize)))
    }
}

fn features<'scope>(
    scope: &'scope Scope<'scope, '_>,
    raw: &Path,
    name: &str,
    counts: &'static str,
    schema: Option<&FeatureSchema>,
    read: &Arc<AtomicU64>,
) -> Result<FeatureStream, LocatedError> {
    let open = || NumericCsvReader::open(&needed(raw, name), read);
    match (schema, csv_file(raw, name)) {
        (Some(FeatureSchema::None), _) | (None, None) => Ok(FeatureStream::None),
        (Some(FeatureSchema::Categorical(sizes)), _) => {
            FeatureStream::categories(scope, open()?, counts, Some(sizes))
        }
        (Some(FeatureSchema::Float(columns)), _) => {
            FeatureStream::reals(scope, open()?, counts, Some(*columns))
        }
        (None, Some(path)) if survey::holds_reals(&path, read)? => {
            FeatureStream::reals(scope, open()?, counts, None)
        }
        (None, Some(_)) => FeatureStream::categories(scope, open()?, counts, None),
    }
}

/// Each pair followed at once by its reverse.
fn both_directions(pairs: &[[u32; 2]]) -> Vec<[u32; 2]> {
    pairs.iter().flat_map(|&[u, v]| [[u, v], [v, u]]).collect()
}

/// The file of this name, compressed or plain.
pub(crate) fn csv_file(directory: &Path, name: &str) -> Option<PathBuf> {
    ["csv.gz", "csv"]
        .map(|end| directory.join(format!("{name}.{end}")))
        .into_iter()
        .find(|path| path.is_file())
}

/// The same, where opening says that it is missing.
pub(crate) fn needed(directory: &Path, name: &str) -> PathBuf {
    csv_file(directory, name).unwrap_or_else(|| directory.join(format!("{name}.csv.gz")))
}

#[cfg(test)]
mod tests;
