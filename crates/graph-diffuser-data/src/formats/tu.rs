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
use crate::formats::ogb_csv::MAX_GRAPH_NODES;
use crate::graph::{Graph, Targets};
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
    let indicator_path = files.file("graph_indicator");
    let indicator = rows(&indicator_path, Some(1), parse_u32)?.values;
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
    let mut nodes_of = vec![vec![]; graphs];
    let mut local_nodes = Vec::with_capacity(indicator.len());
    for (node, &graph) in indicator.iter().enumerate() {
        let nodes = (graph as usize).checked_sub(1).and_then(|graph| nodes_of.get_mut(graph));
        let Some(nodes) = nodes else {
            let error = TuError::OutOfRange { what: "graph", index: graph, count: graphs };
            return Err(LocatedError::new(&indicator_path, error).at_line(node as u64 + 1));
        };
        local_nodes.push((graph as usize - 1, nodes.len() as u32));
        nodes.push(node);
    }
    for (graph, nodes) in nodes_of.iter().enumerate() {
        if nodes.is_empty() || nodes.len() > MAX_GRAPH_NODES {
            let error = TuError::Nodes { graph: graph + 1, nodes: nodes.len() };
            return Err(LocatedError::new(&indicator_path, error));
        }
    }
    let (edges, edges_of) = read_edges(&files.file("A"), &local_nodes, graphs)?;
    let nodes = FeatureColumns::read(&files, "node", "nodes", indicator.len(), source)?;
    let edge_columns = FeatureColumns::read(&files, "edge", "edges", edges.len(), source)?;
    let mut names = Names {
        node_categories: nodes.names(),
        edge_categories: edge_columns.names(),
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
        edge_features: edge_columns.schema(),
        targets: schema,
        names,
    };
    let listed =
        nodes_of.iter().zip(&edges_of).zip(targets).map(|((of_nodes, of_edges), targets)| Graph {
            num_nodes: of_nodes.len(),
            edges: of_edges.iter().map(|&edge| edges[edge]).collect(),
            node_features: nodes.rows(of_nodes),
            edge_features: edge_columns.rows(of_edges),
            targets,
        });
    let graphs = Graphs::InMemory(listed.collect());
    Ok(Dataset { graphs, schema, splits: Splits::default() })
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
