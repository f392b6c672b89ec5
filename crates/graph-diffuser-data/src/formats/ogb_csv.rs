//! Directories in the raw CSV layout of the Open Graph Benchmark.
//!
//! ```text
//! raw/  num-node-list  num-edge-list   one count per graph
//!       edge                           source,target: node indices within the graph
//!       node-feat  edge-feat           one row per node or edge; optional
//!       graph-label                    one row per graph, one column per task; cells may be empty
//!       node-label                     instead: the class of every node
//!       num-contact-list  contact      instead: node pairs for link prediction
//! split/[name/]  train  valid  test    graph indices
//! ```
//!
//! Every file is `.csv.gz` or `.csv`, without a header. Each file is decompressed and parsed by its
//! own thread, and only a few blocks of rows are in memory at a time. The graphs are written to a
//! cache file, from which later calls read them.
//!
//! ```
//! use graph_diffuser_data::TargetSchema;
//! use graph_diffuser_data::formats::ogb_csv::{self, OgbCsvOptions};
//!
//! let directory = tempfile::tempdir()?;
//! let raw = directory.path().join("raw");
//! std::fs::create_dir(&raw)?;
//! for (name, rows) in [
//!     ("num-node-list", "3\n2\n"),
//!     ("num-edge-list", "2\n1\n"),
//!     ("edge", "0,1\n1,2\n0,1\n"),
//!     ("graph-label", "0.5\n2\n"),
//! ] {
//!     std::fs::write(raw.join(format!("{name}.csv")), rows)?;
//! }
//! let options = OgbCsvOptions { add_reverse_edges: true, ..OgbCsvOptions::default() };
//! let cache = directory.path().join("cache");
//! let dataset = ogb_csv::read(directory.path(), &options, &cache, &mut |_, _| {})?;
//! assert_eq!(dataset.graphs.get(0).edges, [[0, 1], [1, 0], [1, 2], [2, 1]]);
//! assert_eq!(dataset.schema.targets, TargetSchema::regression(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod columns;
mod infer;
mod splits;
mod targets;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{self, Scope};

use columns::MAX_CATEGORIES;
pub(crate) use columns::{ColumnReader, FeatureStream};
pub use error::OgbCsvError;
pub(crate) use splits::read_splits;
use targets::TargetStream;
pub use writer::write;

use crate::dataset::{Dataset, Graphs};
use crate::error::LocatedError;
use crate::graph::Graph;
use crate::io::cache::{self, CacheKey};
use crate::io::numeric_csv::{NumericCsvReader, parse_u32};
use crate::io::progress::{ProgressFn, ProgressMeter};
use crate::schema::{ColumnSchema, FeatureSchema, Names, Schema, TargetSchema};

/// Maximum number of nodes of a graph.
pub(crate) const MAX_GRAPH_NODES: usize = cache::record::MAX_GRAPH_NODES;
/// Maximum number of edge rows of a graph.
pub(crate) const MAX_GRAPH_EDGES: usize = 1 << 26;

/// Part of the cache key; changes whenever the same files would be read as different graphs.
const READER_VERSION: &str = "csv layout 1";

/// Options of [`read`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OgbCsvOptions {
    /// Adds the reverse of each edge row directly after it.
    pub add_reverse_edges: bool,
    /// Schema of the node features; inferred if not set.
    pub node_features: Option<FeatureSchema>,
    /// Schema of the edge features; inferred if not set.
    pub edge_features: Option<FeatureSchema>,
    /// Schema of the targets; inferred if not set.
    pub targets: Option<TargetSchema>,
    /// Directory under `split`; required only if there are several.
    pub split: Option<String>,
}

impl OgbCsvOptions {
    /// Returns options for graphs with a known schema.
    pub(crate) fn with_schema(schema: Schema, add_reverse_edges: bool) -> Self {
        Self {
            add_reverse_edges,
            node_features: Some(schema.node_features),
            edge_features: Some(schema.edge_features),
            targets: Some(schema.targets.clone()),
            split: None,
        }
    }
}

/// Reads a directory in this layout through a cache file in the directory `cache`.
///
/// The split is empty if the directory has none.
///
/// # Errors
/// Returns an error with its location if a file is invalid or the cache cannot be written.
pub fn read(
    directory: &Path,
    options: &OgbCsvOptions,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    let name = directory
        .file_name()
        .map_or_else(|| "graphs".into(), |name| name.to_string_lossy().into_owned());
    read_named(&name, directory, options, cache, progress)
}

/// Reads a directory like [`read`]; `name` is the prefix of the cache file.
pub(crate) fn read_named(
    name: &str,
    directory: &Path,
    options: &OgbCsvOptions,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    let names = ["num-node-list", "num-edge-list", "edge", "node-feat", "edge-feat"];
    let labels = ["graph-label", "node-label", "num-contact-list", "contact"];
    let raw = directory.join("raw");
    let files: Vec<PathBuf> =
        names.iter().chain(&labels).filter_map(|name| csv_file(&raw, name)).collect();
    let inferred = options.node_features.is_none()
        || options.edge_features.is_none()
        || options.targets.is_none();
    let mut meter = ProgressMeter::new(
        files.iter().map(PathBuf::as_path),
        if inferred { 3 } else { 2 },
        progress,
    );
    let OgbCsvOptions { add_reverse_edges, node_features, edge_features, targets, split: _ } =
        options;
    let how = format!(
        "{READER_VERSION} {add_reverse_edges} {node_features:?} {edge_features:?} {targets:?}"
    );
    let key = CacheKey::compute(&how, files.iter().map(PathBuf::as_path), &mut meter)?;
    let cached = cache::open_or_build(cache, name, &key, |writer| {
        let mut graphs = 0_u64;
        stream(directory, options, &meter.bytes_read(), &mut |graph| {
            graphs += 1;
            if graphs.is_multiple_of(64) {
                meter.tick();
            }
            writer.push(&graph)
        })
    })?;
    meter.finish();
    let splits = read_splits(directory, options.split.as_deref(), cached.len())?;
    let splits = splits.unwrap_or_default();
    Ok(Dataset { schema: cached.schema().clone(), graphs: Graphs::Cached(cached), splits })
}

/// Passes every graph to `sink` and returns the schema; `read` is increased by the bytes read.
///
/// # Errors
/// Returns an error with its location if a file is invalid, or the error of `sink`.
pub(crate) fn stream(
    directory: &Path,
    options: &OgbCsvOptions,
    read: &Arc<AtomicU64>,
    sink: &mut dyn FnMut(Graph) -> Result<(), LocatedError>,
) -> Result<Schema, LocatedError> {
    stream_with(directory, options, read, sink, |scope, raw| {
        TargetStream::start(scope, raw, options.targets.clone(), read)
    })
}

/// Passes every graph to `sink` for a trained model, with placeholder targets; files of targets are
/// not needed.
///
/// Features have the number of columns of the schema, but category indices may be larger than its
/// sizes.
///
/// # Errors
/// Returns an error with its location if a file is invalid, or the error of `sink`.
pub(crate) fn stream_unlabeled(
    directory: &Path,
    schema: &Schema,
    add_reverse_edges: bool,
    read: &Arc<AtomicU64>,
    sink: &mut dyn FnMut(Graph) -> Result<(), LocatedError>,
) -> Result<(), LocatedError> {
    let any_category = |features: &FeatureSchema| {
        let any = |column| match column {
            ColumnSchema::Categorical(_) => ColumnSchema::Categorical(MAX_CATEGORIES),
            ColumnSchema::Float => ColumnSchema::Float,
        };
        Some(FeatureSchema::from_columns(features.columns().into_iter().map(any).collect()))
    };
    let options = OgbCsvOptions {
        add_reverse_edges,
        node_features: any_category(&schema.node_features),
        edge_features: any_category(&schema.edge_features),
        targets: Some(schema.targets.clone()),
        split: None,
    };
    let start = |_: &Scope<'_, '_>, _: &Path| Ok(TargetStream::Placeholder(schema.targets.clone()));
    stream_with(directory, &options, read, sink, start).map(|_| ())
}

fn stream_with(
    directory: &Path,
    options: &OgbCsvOptions,
    read: &Arc<AtomicU64>,
    sink: &mut dyn FnMut(Graph) -> Result<(), LocatedError>,
    start_targets: impl for<'scope> FnOnce(
        &'scope Scope<'scope, '_>,
        &Path,
    ) -> Result<TargetStream, LocatedError>,
) -> Result<Schema, LocatedError> {
    let raw = directory.join("raw");
    thread::scope(|scope| {
        let mut counts = Counts::start(scope, &raw, read)?;
        let mut edges = ColumnReader::start(
            scope,
            NumericCsvReader::open(&csv_file_or_default(&raw, "edge"), read)?,
            "num-edge-list",
            Some(2),
            |_, cell| parse_u32(cell),
        )?;
        let mut node_features = features(
            scope,
            &raw,
            "node-feat",
            "num-node-list",
            options.node_features.as_ref(),
            read,
        )?;
        let mut edge_features = features(
            scope,
            &raw,
            "edge-feat",
            "num-edge-list",
            options.edge_features.as_ref(),
            read,
        )?;
        let mut targets = start_targets(scope, &raw)?;
        while let Some((graph, nodes, rows)) = counts.next()? {
            let pairs = edges.pairs(rows, graph, nodes)?;
            let edges = if options.add_reverse_edges { with_reverse_edges(&pairs) } else { pairs };
            sink(Graph {
                num_nodes: nodes,
                edges,
                node_features: node_features.take(nodes, false)?,
                edge_features: edge_features.take(rows, options.add_reverse_edges)?,
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

/// Reader of the node and edge counts of all graphs.
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
            let rows = NumericCsvReader::open(&csv_file_or_default(raw, name), read)?;
            ColumnReader::start(scope, rows, "num-node-list", Some(1), |_, cell| parse_u32(cell))
        };
        Ok(Self { nodes: counts("num-node-list")?, edges: counts("num-edge-list")?, graphs: 0 })
    }

    /// Returns the number of graphs read so far.
    pub(crate) fn graphs(&self) -> usize {
        self.graphs
    }

    /// Returns index, number of nodes and number of edge rows of the next graph.
    pub(crate) fn next(&mut self) -> Result<Option<(usize, usize, usize)>, LocatedError> {
        let graph = self.graphs;
        if self.nodes.is_exhausted()? {
            if graph == 0 {
                return Err(LocatedError::new(self.nodes.path(), OgbCsvError::NoGraphs));
            }
            self.edges.finish()?;
            return Ok(None);
        }
        let nodes = self.nodes.count()?;
        let edges = self.edges.count()?;
        if nodes == 0 {
            return Err(self.nodes.row_error(0, OgbCsvError::NoNodes { graph }));
        }
        if nodes as usize > MAX_GRAPH_NODES {
            return Err(self.nodes.row_error(0, OgbCsvError::TooManyNodes { graph, nodes }));
        }
        if edges as usize > MAX_GRAPH_EDGES {
            return Err(self.edges.row_error(0, OgbCsvError::TooManyEdges { graph, edges }));
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
    let open = || NumericCsvReader::open(&csv_file_or_default(raw, name), read);
    match (schema, csv_file(raw, name)) {
        (Some(FeatureSchema::None), _) | (None, None) => Ok(FeatureStream::None),
        (Some(FeatureSchema::Categorical(sizes)), _) => {
            FeatureStream::categories(scope, open()?, counts, Some(sizes))
        }
        (Some(FeatureSchema::Float(columns)), _) => {
            FeatureStream::floats(scope, open()?, counts, Some(*columns))
        }
        (Some(FeatureSchema::Mixed(columns)), _) => {
            FeatureStream::mixed(scope, open()?, counts, columns)
        }
        (None, Some(path)) if infer::has_floats(&path, read)? => {
            FeatureStream::floats(scope, open()?, counts, None)
        }
        (None, Some(_)) => FeatureStream::categories(scope, open()?, counts, None),
    }
}

/// Adds the reverse of each pair directly after it.
fn with_reverse_edges(pairs: &[[u32; 2]]) -> Vec<[u32; 2]> {
    pairs.iter().flat_map(|&[u, v]| [[u, v], [v, u]]).collect()
}

/// Returns the path of `name.csv.gz` or `name.csv`, if it exists.
pub(crate) fn csv_file(directory: &Path, name: &str) -> Option<PathBuf> {
    ["csv.gz", "csv"]
        .map(|end| directory.join(format!("{name}.{end}")))
        .into_iter()
        .find(|path| path.is_file())
}

/// Returns the path of the file; opening it fails with "file not found" if it does not exist.
pub(crate) fn csv_file_or_default(directory: &Path, name: &str) -> PathBuf {
    csv_file(directory, name).unwrap_or_else(|| directory.join(format!("{name}.csv.gz")))
}

#[cfg(test)]
mod tests;
