//! ogbg-code2: abstract syntax trees of Python methods with the sub-tokens of the method name as
//! target.
//!
//! Node features are type, attribute and depth. The edges are the tree edges, their reverses, the
//! next-token edges between consecutive attributed nodes in depth-first order, and their reverses.
//! Edge features are the kind (tree 0, next token 1) and the direction (forward 0, reverse 1).

mod vocabulary;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use crate::dataset::{Dataset, Graphs};
use crate::error::{Diagnostic, LocatedError};
use crate::formats::ogb_csv::{
    ColumnReader, Counts, FeatureStream, OgbCsvError, csv_file, csv_file_or_default, read_splits,
};
use crate::graph::{Features, Graph, Targets};
use crate::io::cache::{self, CacheKey};
use crate::io::csv_records::{CsvRecords, TableRecord, open_text};
use crate::io::numeric_csv::{NumericCsvError, NumericCsvReader, parse_u32};
use crate::io::progress::{ProgressFn, ProgressMeter};
use crate::schema::{FeatureSchema, Names, Schema, TargetSchema};
use vocabulary::{TokenLabels, Vocabulary};

/// Maximum depth; larger depths are clamped.
const MAX_DEPTH: u32 = 20;
/// Number of nodes after which GPS truncates graphs.
pub const GPS_MAX_NODES: usize = 1000;
/// Token for all sub-tokens outside the vocabulary.
const UNKNOWN_TOKEN: &str = "__UNK__";
/// Token that ends a sequence.
const END_TOKEN: &str = "__EOS__";

const READER_VERSION: &str = "ogbg-code2 1";

/// Options of the ogbg-code2 reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code2Options {
    /// Maximum vocabulary size, without the unknown and end tokens.
    pub vocab_size: usize,
    /// Number of nodes after which a graph is truncated, if set.
    pub max_nodes: Option<usize>,
}

impl Default for Code2Options {
    fn default() -> Self {
        Self { vocab_size: 5000, max_nodes: None }
    }
}

/// Error in a mapping file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum MappingError {
    /// The indices are not consecutive.
    #[error("expected row {expected} to start with its index")]
    Index {
        /// The expected index.
        expected: usize,
    },
}

impl Diagnostic for MappingError {
    fn hint(&self) -> Option<String> {
        Some("the file needs a header, followed by rows `0,name`, `1,name`, …".into())
    }
}

/// Returns the schema of the official dataset: 98 types, 10,030 attributes and depths up to
/// 20; two kinds of edges in two directions; `vocab_size` sub-tokens and the two special
/// tokens.
pub fn schema(vocab_size: usize) -> Schema {
    Schema {
        node_features: FeatureSchema::Categorical(vec![98, 10_030, MAX_DEPTH as usize + 1]),
        edge_features: FeatureSchema::Categorical(vec![2, 2]),
        targets: TargetSchema::SubTokens(vocab_size + 2),
        names: Names::default(),
    }
}

impl Code2Options {
    /// Reads the directory with `raw/`, `split/` and `mapping/` through a cache file in the
    /// directory `cache`.
    ///
    /// The vocabulary, in `schema.names.classes`, consists of the most frequent sub-tokens of the
    /// training labels. Every other sub-token has a unique index beyond the vocabulary, so that
    /// sets of sub-tokens can be compared by index.
    ///
    /// # Errors
    /// Returns an error with its location if a file is invalid or the cache cannot be written.
    pub fn read(
        &self,
        directory: &Path,
        cache: &Path,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, LocatedError> {
        let (raw, mapping) = (directory.join("raw"), directory.join("mapping"));
        let names = ["num-node-list", "num-edge-list", "edge", "node-feat", "graph-label"];
        let columns = ["node_is_attributed", "node_dfs_order", "node_depth"];
        let mappings = ["typeidx2type", "attridx2attr"];
        let mut files: Vec<PathBuf> =
            names.iter().chain(&columns).filter_map(|name| csv_file(&raw, name)).collect();
        files.extend(mappings.iter().filter_map(|name| csv_file(&mapping, name)));
        let mut meter = ProgressMeter::new(files.iter().map(PathBuf::as_path), 2, progress);
        let read = meter.bytes_read();
        let labels = TokenLabels::read(&csv_file_or_default(&raw, "graph-label"), &read)?;
        let splits = read_splits(directory, None, labels.len())?
            .ok_or_else(|| LocatedError::new(&directory.join("split"), OgbCsvError::NoSplit))?;
        let vocabulary = Vocabulary::build(&labels, &splits.train, self.vocab_size);
        // The stored indices depend on the vocabulary and so on the training split.
        let how = format!("{READER_VERSION} {self:?} {:?}", vocabulary.tokens);
        let key = CacheKey::compute(&how, files.iter().map(PathBuf::as_path), &mut meter)?;
        let cached = cache::open_or_build(cache, "ogbg-code2", &key, |writer| {
            let mut graphs = 0_u64;
            self.stream(directory, &labels, &vocabulary, &read, &mut |graph| {
                graphs += 1;
                if graphs.is_multiple_of(64) {
                    meter.tick();
                }
                writer.push(&graph)
            })
        })?;
        meter.finish();
        Ok(Dataset { schema: cached.schema().clone(), graphs: Graphs::Cached(cached), splits })
    }

    fn stream(
        &self,
        directory: &Path,
        labels: &TokenLabels,
        vocabulary: &Vocabulary,
        read: &Arc<AtomicU64>,
        sink: &mut dyn FnMut(Graph) -> Result<(), LocatedError>,
    ) -> Result<Schema, LocatedError> {
        let (raw, mapping) = (directory.join("raw"), directory.join("mapping"));
        let types = read_mapping(&mapping, "typeidx2type", read)?;
        let attributes = read_mapping(&mapping, "attridx2attr", read)?;
        let sizes = [types.len(), attributes.len()];
        let known = (!types.is_empty() && !attributes.is_empty()).then_some(sizes.as_slice());
        thread::scope(|scope| {
            let column = |name, size: u32| {
                let cell = move |_, bytes: &[u8]| match parse_u32(bytes)? {
                    value if value < size => Ok(value),
                    value => {
                        Err(NumericCsvError::CategoryOutOfRange { value, size: size as usize })
                    }
                };
                ColumnReader::start(
                    scope,
                    NumericCsvReader::open(&csv_file_or_default(&raw, name), read)?,
                    "num-node-list",
                    Some(1),
                    cell,
                )
            };
            let mut counts = Counts::start(scope, &raw, read)?;
            let edge_rows = NumericCsvReader::open(&csv_file_or_default(&raw, "edge"), read)?;
            let mut edges =
                ColumnReader::start(scope, edge_rows, "num-edge-list", Some(2), |_, cell| {
                    parse_u32(cell)
                })?;
            let node_rows = NumericCsvReader::open(&csv_file_or_default(&raw, "node-feat"), read)?;
            let mut nodes_read =
                FeatureStream::categories(scope, node_rows, "num-node-list", known)?;
            let mut attributed = column("node_is_attributed", 2)?;
            let mut order = column("node_dfs_order", u32::MAX)?;
            let mut depth = column("node_depth", u32::MAX)?;
            while let Some((graph, nodes, rows)) = counts.next()? {
                let mut tree = SyntaxTree {
                    num_nodes: nodes,
                    edges: edges.pairs(rows, graph, nodes)?,
                    features: nodes_read.take(nodes, false)?,
                    ..SyntaxTree::default()
                };
                attributed.take(nodes, &mut tree.attributed)?;
                order.take(nodes, &mut tree.order)?;
                depth.take(nodes, &mut tree.depth)?;
                if graph >= labels.len() {
                    let error = OgbCsvError::TooFewRows {
                        found: labels.len() as u64,
                        counts: "num-node-list",
                    };
                    return Err(LocatedError::new(
                        &csv_file_or_default(&raw, "graph-label"),
                        error,
                    ));
                }
                let tokens = labels
                    .tokens_of(graph)
                    .iter()
                    .map(|&token| vocabulary.indices[token as usize])
                    .collect();
                sink(tree.truncate(self.max_nodes).into_graph(Targets::SubTokens(tokens)))?;
            }
            edges.finish()?;
            nodes_read.finish()?;
            attributed.finish()?;
            order.finish()?;
            depth.finish()?;
            let graphs = counts.graphs();
            if labels.len() > graphs {
                let error =
                    OgbCsvError::TooManyRows { expected: graphs as u64, counts: "num-node-list" };
                return Err(LocatedError::new(&csv_file_or_default(&raw, "graph-label"), error)
                    .at_line(graphs as u64 + 1));
            }
            let FeatureSchema::Categorical(mut sizes) = nodes_read.schema() else {
                return Err(LocatedError::new(
                    &csv_file_or_default(&raw, "node-feat"),
                    NumericCsvError::MissingValue,
                ));
            };
            sizes.push(MAX_DEPTH as usize + 1);
            let has_names = known.is_some();
            let strings = |names: [&str; 2]| names.map(String::from).to_vec();
            Ok(Schema {
                node_features: FeatureSchema::Categorical(sizes),
                edge_features: FeatureSchema::Categorical(vec![2, 2]),
                targets: TargetSchema::SubTokens(vocabulary.tokens.len()),
                names: Names {
                    classes: vec![vocabulary.tokens.clone()],
                    node_categories: if has_names {
                        vec![types, attributes, vec![]]
                    } else {
                        vec![]
                    },
                    edge_categories: vec![
                        strings(["tree", "next token"]),
                        strings(["forward", "reversed"]),
                    ],
                    ..Names::default()
                },
            })
        })
    }
}

/// A syntax tree as stored in the files.
#[derive(Debug, Clone)]
struct SyntaxTree {
    num_nodes: usize,
    edges: Vec<[u32; 2]>,
    features: Features,
    attributed: Vec<u32>,
    order: Vec<u32>,
    depth: Vec<u32>,
}

impl Default for SyntaxTree {
    fn default() -> Self {
        Self {
            num_nodes: 0,
            edges: vec![],
            features: Features::None,
            attributed: vec![],
            order: vec![],
            depth: vec![],
        }
    }
}

impl SyntaxTree {
    /// Keeps the first `max_nodes` nodes and the edges between them.
    fn truncate(mut self, max_nodes: Option<usize>) -> Self {
        let Some(max_nodes) = max_nodes.filter(|&max_nodes| max_nodes < self.num_nodes) else {
            return self;
        };
        self.num_nodes = max_nodes;
        self.edges.retain(|edge| (edge[0].max(edge[1]) as usize) < max_nodes);
        if let Features::Categorical { columns, values } = &mut self.features {
            values.truncate(max_nodes * *columns);
        }
        for column in [&mut self.attributed, &mut self.order, &mut self.depth] {
            column.truncate(max_nodes);
        }
        self
    }

    /// Adds the depth to the node features and the next-token and reverse edges to the edges.
    fn into_graph(self, targets: Targets) -> Graph {
        let mut attributed: Vec<u32> = (0..self.num_nodes as u32)
            .filter(|&node| self.attributed[node as usize] == 1)
            .collect();
        attributed.sort_by_key(|&node| self.order[node as usize]);
        let next_token: Vec<[u32; 2]> =
            attributed.windows(2).map(|pair| [pair[0], pair[1]]).collect();
        let mut edges = vec![];
        let mut edge_values = vec![];
        for (kind, part) in [(0, &self.edges), (1, &next_token)] {
            edges.extend_from_slice(part);
            edges.extend(part.iter().map(|&[u, v]| [v, u]));
            edge_values.extend([kind, 0].repeat(part.len()));
            edge_values.extend([kind, 1].repeat(part.len()));
        }
        let node_features = match self.features {
            Features::Categorical { columns, values } => {
                let rows = values.chunks_exact(columns).zip(&self.depth);
                let values = rows
                    .flat_map(|(row, &depth)| row.iter().copied().chain([depth.min(MAX_DEPTH)]))
                    .collect();
                Features::Categorical { columns: columns + 1, values }
            }
            other => other,
        };
        let edge_features = Features::Categorical { columns: 2, values: edge_values };
        Graph { num_nodes: self.num_nodes, edges, node_features, edge_features, targets }
    }
}

/// Reads the names by index; empty if there is no such file.
fn read_mapping(
    mapping: &Path,
    name: &str,
    read: &Arc<AtomicU64>,
) -> Result<Vec<String>, LocatedError> {
    let Some(path) = csv_file(mapping, name) else { return Ok(vec![]) };
    let mut names = vec![];
    for record in CsvRecords::new(&path, open_text(&path, read)?, Some(b','))? {
        let TableRecord { line, fields, .. } = record?;
        let expected = names.len();
        let mut fields = fields.into_iter();
        if fields.next().and_then(|index| index.trim().parse().ok()) != Some(expected) {
            return Err(LocatedError::new(&path, MappingError::Index { expected }).at_line(line));
        }
        names.push(fields.next().unwrap_or_default());
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
