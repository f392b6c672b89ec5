//! Directories in the format of `TUDataset`: text files over all graphs, with indices starting at
//! 1.
//!
//! ```text
//! X_A                  i, j          edges over all graphs, both directions
//! X_graph_indicator    graph of each node
//! X_graph_labels       class of each graph       (or X_graph_attributes: values to predict)
//! X_node_labels, X_edge_labels, X_node_attributes, X_edge_attributes      optional
//! ```
//!
//! The datasets are small, so the graphs are kept in memory. The format has no split; [`read_fold`]
//! reads the folds of a separate file.

mod columns;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use columns::{FeatureColumns, Table, categorize, parse_i64, read_rows_if_exists, rows};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, Graphs};
use crate::error::{Diagnostic, LocatedError};
use crate::formats::known_categories::KnownCategories;
use crate::formats::ogb_csv::MAX_GRAPH_NODES;
use crate::graph::{Features, Graph, Targets};
use crate::io::numeric_csv::{NumericCsvError, NumericCsvReader, parse_f32, parse_u32};
use crate::schema::{Names, Schema, TargetSchema};
use crate::split::Splits;

/// Source of the features of a dataset that has both labels and attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeFeatureSource {
    /// Labels: categorical features.
    #[default]
    Labels,
    /// Attributes: real-valued features.
    Attributes,
    /// Labels and attributes.
    Both,
}

/// Inconsistency between the files of a TU directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuError {
    /// The directory does not contain exactly one dataset.
    #[error("expected one file `NAME_A.txt`, found {found}")]
    DatasetCount {
        /// Number of files.
        found: usize,
    },
    /// A file has the wrong number of rows.
    #[error("found {found} rows for {expected} {what}")]
    RowCount {
        /// Number of rows found.
        found: usize,
        /// Number of rows expected.
        expected: usize,
        /// `graphs`, `nodes` or `edges`.
        what: &'static str,
    },
    /// An index is out of range.
    #[error("{what} index {index} is out of range 1 to {count}")]
    OutOfRange {
        /// `node` or `graph`.
        what: &'static str,
        /// The index.
        index: u32,
        /// Number of nodes or graphs.
        count: usize,
    },
    /// An edge connects two graphs.
    #[error("edge connects graph {first} with graph {second}")]
    EdgeAcrossGraphs {
        /// Graph of the source node, starting at 1.
        first: usize,
        /// Graph of the target node, starting at 1.
        second: usize,
    },
    /// A graph has no nodes or too many.
    #[error("graph {graph} has {nodes} nodes, expected 1 to {MAX_GRAPH_NODES}")]
    Nodes {
        /// Graph index, starting at 1.
        graph: usize,
        /// Number of nodes.
        nodes: usize,
    },
    /// The fold does not exist.
    #[error("fold {fold} is out of range for {folds} folds")]
    NoFold {
        /// Fold index, starting at 0.
        fold: usize,
        /// Number of folds.
        folds: usize,
    },
    /// A fold contains a graph index that is out of range or a duplicate.
    #[error("graph index {graph} is out of range or a duplicate")]
    InvalidFold {
        /// Graph index, starting at 0.
        graph: usize,
    },
}

impl Diagnostic for TuError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::DatasetCount { .. } => Some("pass the directory of one unpacked dataset".into()),
            Self::OutOfRange { .. } => {
                Some("node and graph indices start at 1 and run over all graphs".into())
            }
            _ => None,
        }
    }
}

/// Reads the directory of one dataset. The split is empty.
///
/// Labels become category indices in ascending order of their values, which are kept as names.
///
/// # Errors
/// Returns an error with its location if a file is invalid.
pub fn read(directory: &Path, source: NodeFeatureSource) -> Result<Dataset, LocatedError> {
    let files = TuFiles::find(directory)?;
    let labels = read_rows_if_exists(&files.file("graph_labels"), Some(1), parse_i64)?;
    let values = if labels.is_some() {
        None
    } else {
        read_rows_if_exists(&files.file("graph_attributes"), None, parse_f32)?
    };
    let graphs = match (&labels, &values) {
        (Some(labels), _) => labels.values.len(),
        (None, Some(values)) => values.values.len() / values.columns,
        (None, None) => {
            return Err(LocatedError::new(&files.file("graph_labels"), NumericCsvError::NotFound));
        }
    };
    let structure = TuStructure::read(&files, Some(graphs))?;
    let nodes = FeatureColumns::read(&files, "node", "nodes", structure.num_nodes, source)?;
    let edges = FeatureColumns::read(&files, "edge", "edges", structure.edges.len(), source)?;
    let mut names = Names {
        node_categories: nodes.names(),
        edge_categories: edges.names(),
        ..Names::default()
    };
    let (targets, schema): (Vec<Targets>, _) = match (labels, values) {
        (Some(labels), _) => {
            let (classes, values) = categorize(&labels.values, 1);
            names.classes = vec![classes[0].iter().map(ToString::to_string).collect()];
            (
                values.into_iter().map(|class| Targets::GraphValues(vec![class as f32])).collect(),
                TargetSchema::multiclass(classes[0].len()),
            )
        }
        (None, values) => {
            let Table { columns, values } = values.unwrap_or(Table { columns: 1, values: vec![] });
            let targets = values
                .chunks_exact(columns)
                .map(|row| Targets::GraphValues(row.to_vec()))
                .collect();
            (targets, TargetSchema::regression(columns))
        }
    };
    let schema = Schema {
        node_features: nodes.schema(),
        edge_features: edges.schema(),
        targets: schema,
        names,
    };
    let graph = |(graph, targets): (usize, Targets)| {
        let (of_nodes, of_edges) = (&structure.nodes_of[graph], &structure.edges_of[graph]);
        structure.graph(graph, nodes.rows(of_nodes), edges.rows(of_edges), targets)
    };
    let graphs = Graphs::InMemory(targets.into_iter().enumerate().map(graph).collect());
    Ok(Dataset { graphs, schema, splits: Splits::default() })
}

/// Reads graphs for a trained model; they have placeholder targets, and files of targets are not
/// needed.
///
/// Labels are mapped to categories by name; a graph with an unknown label is an error of its own.
///
/// # Errors
/// Returns an error with its location if a file is invalid or does not have the columns of the
/// schema.
pub(crate) fn read_unlabeled(
    directory: &Path,
    schema: &Schema,
) -> Result<Vec<Result<Graph, LocatedError>>, LocatedError> {
    let files = TuFiles::find(directory)?;
    let structure = TuStructure::read(&files, None)?;
    let (num_nodes, num_edges) = (structure.num_nodes, structure.edges.len());
    let Schema { node_features, edge_features, names, targets } = schema;
    let nodes = FeatureColumns::read_as(&files, "node", "nodes", num_nodes, node_features)?;
    let edges = FeatureColumns::read_as(&files, "edge", "edges", num_edges, edge_features)?;
    let node_categories = KnownCategories::new(node_features, &names.node_categories);
    let edge_categories = KnownCategories::new(edge_features, &names.edge_categories);
    let graph = |graph: usize| {
        let (of_nodes, of_edges) = (&structure.nodes_of[graph], &structure.edges_of[graph]);
        let node_features = nodes.rows_as(&node_categories, of_nodes)?;
        let edge_features = edges.rows_as(&edge_categories, of_edges)?;
        Ok(structure.graph(
            graph,
            node_features,
            edge_features,
            targets.placeholder(of_nodes.len()),
        ))
    };
    Ok((0..structure.nodes_of.len()).map(graph).collect())
}

/// Reads a fold of `<name>_train.index`, `<name>_val.index` and `<name>_test.index`, which have one
/// fold per line; fold and graph indices start at 0.
///
/// # Errors
/// Returns an error if a file is invalid, the fold does not exist, or a graph index is out of range
/// or a duplicate.
pub fn read_fold(
    directory: &Path,
    name: &str,
    fold: usize,
    graphs: usize,
) -> Result<Splits, LocatedError> {
    let mut assigned = vec![false; graphs];
    let mut part = |part: &str| {
        let path = directory.join(format!("{name}_{part}.index"));
        let mut lines = NumericCsvReader::open(&path, &Arc::default())?;
        let mut row = vec![];
        for line in 0..=fold {
            row.clear();
            if lines.next_row(&mut row, |_, cell| parse_u32(cell))?.is_none() {
                return Err(LocatedError::new(&path, TuError::NoFold { fold, folds: line }));
            }
        }
        let indices: Vec<usize> = row.into_iter().map(|index| index as usize).collect();
        for &graph in &indices {
            if assigned.get(graph) != Some(&false) {
                return Err(lines.line_error(TuError::InvalidFold { graph }));
            }
            assigned[graph] = true;
        }
        Ok(indices)
    };
    Ok(Splits { train: part("train")?, valid: part("val")?, test: part("test")? })
}

/// Directory and common file name prefix of a dataset.
struct TuFiles {
    directory: PathBuf,
    prefix: String,
}

impl TuFiles {
    fn find(directory: &Path) -> Result<Self, LocatedError> {
        let entries = std::fs::read_dir(directory)
            .map_err(|error| LocatedError::new(directory, NumericCsvError::Read(error)))?;
        let prefix = |name: String| name.strip_suffix("_A.txt").map(String::from);
        let mut prefixes: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter_map(prefix)
            .collect();
        match (prefixes.pop(), prefixes.len()) {
            (Some(prefix), 0) => Ok(Self { directory: directory.to_owned(), prefix }),
            (last, others) => Err(LocatedError::new(
                directory,
                TuError::DatasetCount { found: others + usize::from(last.is_some()) },
            )),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{}_{name}.txt", self.prefix))
    }
}

/// Nodes and edges of all graphs.
struct TuStructure {
    /// Number of nodes of all graphs.
    num_nodes: usize,
    /// Nodes of each graph.
    nodes_of: Vec<Vec<usize>>,
    /// Edges with node indices within their graphs.
    edges: Vec<[u32; 2]>,
    /// Edges of each graph.
    edges_of: Vec<Vec<usize>>,
}

impl TuStructure {
    /// Reads nodes and edges of the given number of graphs, or of all that the nodes refer to.
    fn read(files: &TuFiles, graphs: Option<usize>) -> Result<Self, LocatedError> {
        let path = files.file("graph_indicator");
        let indicator = rows(&path, Some(1), parse_u32)?.values;
        // Every graph has a node, so there cannot be more graphs than nodes.
        let graphs = graphs.unwrap_or_else(|| {
            indicator.iter().map(|&graph| graph as usize).max().unwrap_or(0).min(indicator.len())
        });
        let mut nodes_of = vec![vec![]; graphs];
        let mut local_nodes = Vec::with_capacity(indicator.len());
        for (node, &graph) in indicator.iter().enumerate() {
            let nodes = (graph as usize).checked_sub(1).and_then(|graph| nodes_of.get_mut(graph));
            let Some(nodes) = nodes else {
                let error = TuError::OutOfRange { what: "graph", index: graph, count: graphs };
                return Err(LocatedError::new(&path, error).at_line(node as u64 + 1));
            };
            local_nodes.push((graph as usize - 1, nodes.len() as u32));
            nodes.push(node);
        }
        for (graph, nodes) in nodes_of.iter().enumerate() {
            if nodes.is_empty() || nodes.len() > MAX_GRAPH_NODES {
                let error = TuError::Nodes { graph: graph + 1, nodes: nodes.len() };
                return Err(LocatedError::new(&path, error));
            }
        }
        let (edges, edges_of) = read_edges(&files.file("A"), &local_nodes, graphs)?;
        Ok(Self { num_nodes: indicator.len(), nodes_of, edges, edges_of })
    }

    fn graph(
        &self,
        graph: usize,
        node_features: Features,
        edge_features: Features,
        targets: Targets,
    ) -> Graph {
        let edges = self.edges_of[graph].iter().map(|&edge| self.edges[edge]).collect();
        let num_nodes = self.nodes_of[graph].len();
        Graph { num_nodes, edges, node_features, edge_features, targets }
    }
}

/// Edges with node indices within their graphs, and the edge indices of each graph.
type Edges = (Vec<[u32; 2]>, Vec<Vec<usize>>);

fn read_edges(
    path: &Path,
    local_nodes: &[(usize, u32)],
    graphs: usize,
) -> Result<Edges, LocatedError> {
    let node_indices = rows(path, Some(2), parse_u32)?.values;
    let mut edges = Vec::with_capacity(node_indices.len() / 2);
    let mut edges_of = vec![vec![]; graphs];
    for (row, pair) in node_indices.chunks_exact(2).enumerate() {
        let find = |index: u32| {
            (index as usize).checked_sub(1).and_then(|node| local_nodes.get(node)).ok_or_else(
                || {
                    let error =
                        TuError::OutOfRange { what: "node", index, count: local_nodes.len() };
                    LocatedError::new(path, error).at_line(row as u64 + 1)
                },
            )
        };
        let (&(first, source), &(second, target)) = (find(pair[0])?, find(pair[1])?);
        if first != second {
            let error = TuError::EdgeAcrossGraphs { first: first + 1, second: second + 1 };
            return Err(LocatedError::new(path, error).at_line(row as u64 + 1));
        }
        edges_of[first].push(row);
        edges.push([source, target]);
    }
    Ok((edges, edges_of))
}

#[cfg(test)]
mod tests;
