//! A `TUDataset` folder: all graphs of a set as one, numbered from 1, in a few text files.
//!
//! ```text
//! X_A                  i, j          edges over all graphs, both directions
//! X_graph_indicator    graph of each node
//! X_graph_labels       class of each graph       (or X_graph_attributes: values to predict)
//! X_node_labels, X_edge_labels, X_node_attributes, X_edge_attributes      where there are any
//! ```
//!
//! These sets are small, so the graphs are kept in memory. There is no split among the files: see [`read_fold`].

mod columns;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use columns::{Column, Table, numbered, rows, rows_if_any, signed};

use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, Graphs, Names, Schema, Splits, TargetSchema};
use crate::error::{Diagnostic, LocatedError};
use crate::graph::{Graph, Targets};
use crate::numeric_csv::{NumericCsvError, NumericCsvReader, real, whole};
use crate::ogb_csv::LARGEST_NODES;

/// What features are taken from, where a set has both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeFeatureSource {
    /// Categories.
    #[default]
    Labels,
    /// Real numbers.
    Attributes,
}

/// What can be wrong between the files of a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuError {
    /// There is not exactly one set in the folder.
    #[error("the folder holds {found} files `…_A.txt` instead of one")]
    Sets {
        /// How many there are.
        found: usize,
    },
    /// Two files do not have the same number of rows.
    #[error("there are {found} rows, but {expected} {what}")]
    NumericCsvReader {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
        /// `graphs`, `nodes` or `edges`.
        what: &'static str,
    },
    /// A number names nothing.
    #[error("{what} {number} does not exist: there are {count}, numbered from 1")]
    OutOfRange {
        /// `node` or `graph`.
        what: &'static str,
        /// What stands there.
        number: u32,
        /// How many there are.
        count: usize,
    },
    /// An edge joins two graphs.
    #[error("the edge joins a node of graph {first} with one of graph {second}")]
    AcrossGraphs {
        /// Graph of its source, counted from 1.
        first: usize,
        /// Graph of its target.
        second: usize,
    },
    /// A graph has no nodes, or more than are allowed.
    #[error("graph {graph} has {nodes} nodes instead of 1 to {LARGEST_NODES}")]
    Nodes {
        /// Its number, counted from 1.
        graph: usize,
        /// How many there are.
        nodes: usize,
    },
    /// There are fewer folds than that.
    #[error("there are {folds} folds, one a line; fold {fold} is not among them")]
    NoFold {
        /// What was asked for, counted from 0.
        fold: usize,
        /// How many there are.
        folds: usize,
    },
    /// A fold names a graph that does not exist or has it twice.
    #[error("graph {graph} does not exist or stands in the fold twice")]
    Fold {
        /// Which, counted from 0.
        graph: usize,
    },
}

impl Diagnostic for TuError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Sets { .. } => Some("name the folder of one set, unpacked".into()),
            Self::OutOfRange { .. } => {
                Some("nodes and graphs are numbered from 1, over all graphs".into())
            }
            _ => None,
        }
    }
}

/// Reads the folder of one set. The split is empty, to be filled by the caller.
///
/// Labels become category numbers in the order of their values, which are kept as names.
///
/// # Errors
/// What is wrong with the files, with its place.
pub fn read(directory: &Path, preferred: NodeFeatureSource) -> Result<Dataset, LocatedError> {
    let folder = Folder::find(directory)?;
    let indicator_path = folder.file("graph_indicator");
    let indicator = rows(&indicator_path, Some(1), whole)?.values;
    let labels = rows_if_any(&folder.file("graph_labels"), Some(1), signed)?;
    let values = if labels.is_some() {
        None
    } else {
        rows_if_any(&folder.file("graph_attributes"), None, real)?
    };
    let graphs = match (&labels, &values) {
        (Some(labels), _) => labels.values.len(),
        (None, Some(values)) => values.values.len() / values.columns,
        (None, None) => {
            return Err(LocatedError::new(&folder.file("graph_labels"), NumericCsvError::NotFound));
        }
    };
    let mut nodes_of = vec![vec![]; graphs];
    let mut places = Vec::with_capacity(indicator.len());
    for (node, &graph) in indicator.iter().enumerate() {
        let of = (graph as usize).checked_sub(1).and_then(|graph| nodes_of.get_mut(graph));
        let Some(of) = of else {
            let fault = TuError::OutOfRange { what: "graph", number: graph, count: graphs };
            return Err(LocatedError::new(&indicator_path, fault).at_line(node as u64 + 1));
        };
        places.push((graph as usize - 1, of.len() as u32));
        of.push(node);
    }
    for (graph, nodes) in nodes_of.iter().enumerate() {
        if nodes.is_empty() || nodes.len() > LARGEST_NODES {
            let fault = TuError::Nodes { graph: graph + 1, nodes: nodes.len() };
            return Err(LocatedError::new(&indicator_path, fault));
        }
    }
    let (edges, edges_of) = read_edges(&folder.file("A"), &places, graphs)?;
    let nodes = Column::read(&folder, "node", "nodes", indicator.len(), preferred)?;
    let joins = Column::read(&folder, "edge", "edges", edges.len(), preferred)?;
    let mut names = Names {
        node_categories: nodes.names(),
        edge_categories: joins.names(),
        ..Names::default()
    };
    let (targets, schema): (Vec<Targets>, _) = match (labels, values) {
        (Some(labels), _) => {
            let (classes, values) = numbered(&labels.values, 1);
            names.classes = classes[0].iter().map(ToString::to_string).collect();
            (
                values.into_iter().map(Targets::GraphClass).collect(),
                TargetSchema::Multiclass(classes[0].len()),
            )
        }
        (None, values) => {
            let Table { columns, values } = values.unwrap_or(Table { columns: 1, values: vec![] });
            let targets = values
                .chunks_exact(columns)
                .map(|row| Targets::GraphValues(row.to_vec()))
                .collect();
            (targets, TargetSchema::Regression(columns))
        }
    };
    let schema = Schema {
        node_features: nodes.schema(),
        edge_features: joins.schema(),
        targets: schema,
        names,
    };
    let listed =
        nodes_of.iter().zip(&edges_of).zip(targets).map(|((of_nodes, of_edges), targets)| Graph {
            nodes: of_nodes.len(),
            edges: of_edges.iter().map(|&edge| edges[edge]).collect(),
            node_features: nodes.rows(of_nodes),
            edge_features: joins.rows(of_edges),
            targets,
        });
    let graphs = Graphs::Listed(listed.collect());
    Ok(Dataset { graphs, schema, splits: Splits { train: vec![], valid: vec![], test: vec![] } })
}

/// Reads one fold, counted from 0, of `<name>_train.index`, `<name>_val.index` and `<name>_test.index`: one fold a
/// line, graphs numbered from 0.
///
/// # Errors
/// When a file is wrong, has no such fold, or names one of the graphs twice or one beyond them.
pub fn read_fold(
    directory: &Path,
    name: &str,
    fold: usize,
    graphs: usize,
) -> Result<Splits, LocatedError> {
    let mut taken = vec![false; graphs];
    let mut part = |part: &str| {
        let path = directory.join(format!("{name}_{part}.index"));
        let mut lines = NumericCsvReader::open(&path, &Arc::default())?;
        let mut numbers = vec![];
        for line in 0..=fold {
            numbers.clear();
            if lines.next_row(&mut numbers, |_, cell| whole(cell))?.is_none() {
                return Err(LocatedError::new(&path, TuError::NoFold { fold, folds: line }));
            }
        }
        let numbers: Vec<usize> = numbers.into_iter().map(|number| number as usize).collect();
        for &graph in &numbers {
            if taken.get(graph) != Some(&false) {
                return Err(lines.problem(TuError::Fold { graph }));
            }
            taken[graph] = true;
        }
        Ok(numbers)
    };
    Ok(Splits { train: part("train")?, valid: part("val")?, test: part("test")? })
}

/// Where the files are and what their names begin with.
struct Folder {
    directory: PathBuf,
    prefix: String,
}

impl Folder {
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
                TuError::Sets { found: others + usize::from(last.is_some()) },
            )),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{}_{name}.txt", self.prefix))
    }
}

/// The edges with node numbers local to their graphs, and which of them each graph has.
type Edges = (Vec<[u32; 2]>, Vec<Vec<usize>>);

fn read_edges(path: &Path, places: &[(usize, u32)], graphs: usize) -> Result<Edges, LocatedError> {
    let ends = rows(path, Some(2), whole)?.values;
    let mut edges = Vec::with_capacity(ends.len() / 2);
    let mut edges_of = vec![vec![]; graphs];
    for (row, pair) in ends.chunks_exact(2).enumerate() {
        let place = |number: u32| {
            (number as usize).checked_sub(1).and_then(|node| places.get(node)).ok_or_else(|| {
                let fault = TuError::OutOfRange { what: "node", number, count: places.len() };
                LocatedError::new(path, fault).at_line(row as u64 + 1)
            })
        };
        let (&(first, source), &(second, target)) = (place(pair[0])?, place(pair[1])?);
        if first != second {
            let fault = TuError::AcrossGraphs { first: first + 1, second: second + 1 };
            return Err(LocatedError::new(path, fault).at_line(row as u64 + 1));
        }
        edges_of[first].push(row);
        edges.push([source, target]);
    }
    Ok((edges, edges_of))
}

#[cfg(test)]
mod tests;
