//! A graph in a form common to all formats, before its features and targets are parsed.

use serde_json::Value;

use super::error::{JsonPath, JsonlError, RecordError};
use super::record::{JsonRecord, wrong_type};
use super::splits::SplitValues;

/// Maximum number of nodes of a graph.
const MAX_NODES: usize = 1 << 24;

/// Maximum number of nodes of a graph that have neither features nor targets nor edges, so that the
/// memory of a graph is bounded by the length of its text.
const MAX_ISOLATED_NODES: usize = 10_000;

/// Nodes and edges of a graph, and the values of its features, targets and splits.
#[derive(Debug)]
pub(super) struct GraphObject {
    pub(super) num_nodes: usize,
    /// Edges as listed.
    pub(super) pairs: Vec<[u32; 2]>,
    /// `directed`, if given.
    pub(super) directed: Option<bool>,
    /// `true` if the edges are an `edge_index`, which lists both directions of undirected edges.
    pub(super) is_edge_index: bool,
    pub(super) node_features: Option<FeatureTable>,
    pub(super) edge_features: Option<FeatureTable>,
    pub(super) targets: Vec<TargetValue>,
    pub(super) splits: SplitValues,
}

/// Rows of node or edge features.
#[derive(Debug)]
pub(super) struct FeatureTable {
    /// Key of the rows.
    pub(super) key: &'static str,
    /// One list or single value per node or edge.
    pub(super) rows: Vec<Value>,
    /// Names of the columns; empty if they have none.
    pub(super) columns: Vec<String>,
    /// Source of the last column, if it is an edge weight.
    pub(super) weights: Option<WeightSource>,
    /// If `true`, columns of small integers are categories.
    pub(super) has_integer_categories: bool,
}

/// Source of edge weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WeightSource {
    /// Third element of each edge.
    Edges,
    /// Key `edge_weight`.
    EdgeWeight,
}

/// Kind of a target, which may depend on all graphs of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetKey {
    /// `target`: values or class of the graph.
    Graph,
    /// `node_targets`: class of each node.
    Nodes,
    /// `links`: node pairs.
    Links,
    /// `y`: target of the graph or class of each node.
    Y,
}

impl TargetKey {
    /// Returns the error for a graph without this key.
    pub(super) fn missing(self, why: &'static str) -> JsonlError {
        let key = match self {
            Self::Graph => "target",
            Self::Nodes => "node_targets",
            Self::Links => "links",
            Self::Y => "y",
        };
        JsonlError::MissingKey { key, why }
    }
}

/// A target and its location.
#[derive(Debug)]
pub(super) struct TargetValue {
    pub(super) key: TargetKey,
    pub(super) path: JsonPath,
    pub(super) value: Value,
}

impl FeatureTable {
    /// Creates a table from a list of rows.
    pub(super) fn from_list(key: &'static str, value: Value) -> Result<Self, RecordError> {
        let Value::Array(rows) = value else {
            return Err(RecordError::at(key, wrong_type("a list of rows", &value)));
        };
        let has_integer_categories = key == "x" || key == "edge_attr";
        Ok(Self { key, rows, columns: Vec::new(), weights: None, has_integer_categories })
    }

    /// Returns the location of a cell.
    pub(super) fn cell_path(&self, row: usize, column: usize) -> String {
        let key = self.key;
        let is_last = || cells(&self.rows[row]).len() == column + 1;
        match (self.columns.get(column), self.weights) {
            (Some(name), _) => format!("{key}[{row}].{name}"),
            (None, Some(WeightSource::Edges)) if is_last() => format!("edges[{row}][2]"),
            (None, Some(WeightSource::EdgeWeight)) if is_last() => format!("edge_weight[{row}]"),
            (None, _) if self.rows[row].is_array() => format!("{key}[{row}][{column}]"),
            (None, _) => format!("{key}[{row}]"),
        }
    }

    /// Appends one weight per row as the last column.
    pub(super) fn add_weights(&mut self, weights: Vec<Value>, source: WeightSource) {
        for (row, weight) in self.rows.iter_mut().zip(weights) {
            match row {
                Value::Array(cells) => cells.push(weight),
                cell => *cell = Value::Array(vec![cell.take(), weight]),
            }
        }
        self.weights = Some(source);
    }
}

/// Returns the cells of a row; a row with one cell may be a plain value.
pub(super) fn cells(row: &Value) -> &[Value] {
    match row {
        Value::Array(cells) => cells,
        cell => std::slice::from_ref(cell),
    }
}

impl GraphObject {
    /// Returns whether edges are directed; `default` is that of the header.
    pub(super) fn is_directed(&self, default: Option<bool>) -> bool {
        self.directed.or(default).unwrap_or(self.is_edge_index)
    }
}

pub(super) fn directed(record: &mut JsonRecord) -> Result<Option<bool>, RecordError> {
    match record.take("directed") {
        None => Ok(None),
        Some(Value::Bool(directed)) => Ok(Some(directed)),
        Some(other) => Err(RecordError::at("directed", wrong_type("true or false", &other))),
    }
}

pub(super) fn check_num_nodes(key: &'static str, nodes: u64) -> Result<usize, RecordError> {
    if nodes == 0 {
        return Err(JsonlError::NoNodes.into());
    }
    if nodes > MAX_NODES as u64 {
        let error = JsonlError::TooManyNodes { claimed: nodes, limit: MAX_NODES };
        return Err(RecordError::at(key, error));
    }
    Ok(nodes as usize)
}

/// Checks the number of nodes of a graph without features and targets of nodes.
pub(super) fn check_isolated_nodes(nodes: usize, pairs: usize) -> Result<(), RecordError> {
    let isolated = nodes.saturating_sub(2 * pairs);
    if isolated > MAX_ISOLATED_NODES {
        let limit = MAX_ISOLATED_NODES;
        return Err(JsonlError::TooManyIsolatedNodes { nodes, isolated, limit }.into());
    }
    Ok(())
}

/// Returns the number of directed edges for a pair: 2 if undirected, 1 if directed or a self-loop.
pub(super) fn edge_copies(pair: [u32; 2], directed: bool) -> usize {
    if directed || pair[0] == pair[1] { 1 } else { 2 }
}

/// Expands pairs to directed edges; an undirected pair is followed by its reverse.
pub(super) fn with_reverse_edges(pairs: &[[u32; 2]], directed: bool) -> Vec<[u32; 2]> {
    let mut edges = Vec::with_capacity(pairs.len() * if directed { 1 } else { 2 });
    for &[source, target] in pairs {
        edges.push([source, target]);
        if edge_copies([source, target], directed) == 2 {
            edges.push([target, source]);
        }
    }
    edges
}
