//! Errors of the JSON reader and their hints.

use std::fmt;
use std::path::Path;

use crate::error::{Diagnostic, LocatedError};
use crate::split::Split;

/// Error in a JSON or JSON Lines file of graphs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonlError {
    /// The file cannot be read.
    #[error("failed to read: {0}")]
    Read(std::io::Error),
    /// The gzip stream is corrupt or truncated.
    #[error("gzip data is corrupt or truncated")]
    Gzip(#[source] std::io::Error),
    /// The file contains no graphs.
    #[error("file contains no graphs")]
    Empty,
    /// A graph exceeds the length limit.
    #[error("graph is longer than {limit} bytes")]
    TooLong {
        /// Maximum length in bytes.
        limit: usize,
    },
    /// A graph takes too much memory when it is parsed.
    #[error("graph takes more than {} MiB of memory", limit >> 20)]
    TooMuchMemory {
        /// Maximum in bytes.
        limit: usize,
    },
    /// A graph is not valid UTF-8.
    #[error("invalid UTF-8 at byte {byte} of the graph")]
    NotUtf8 {
        /// Offset of the first invalid byte, counted from zero.
        byte: usize,
    },
    /// A graph is not valid JSON.
    #[error("invalid JSON: {message}")]
    NotJson {
        /// Message of the JSON parser.
        message: String,
        /// `true` if the text contains a bare `NaN` or `Infinity`.
        not_a_number: bool,
    },
    /// The graphs of a list are not separated by commas, or the list is not closed.
    #[error("expected {expected}, found {found}")]
    Separator {
        /// Expected character or value.
        expected: &'static str,
        /// Character found.
        found: String,
    },
    /// An object has an unsupported key.
    #[error("unknown key `{key}`")]
    UnknownKey {
        /// The key.
        key: String,
        /// The most similar supported key, if any is similar.
        nearest: Option<&'static str>,
        /// Supported keys.
        known: &'static [&'static str],
    },
    /// Two keys with the same meaning are given.
    #[error("both `{first}` and `{second}` are given")]
    ConflictingKeys {
        /// A key.
        first: String,
        /// Another key.
        second: String,
    },
    /// A key occurs twice in one object.
    #[error("duplicate key")]
    DuplicateKey,
    /// A graph is not an object.
    #[error("expected a JSON object, found {found}")]
    NotAnObject {
        /// The value that was found.
        found: String,
    },
    /// A value has the wrong type.
    #[error("expected {expected}, found {found}")]
    WrongType {
        /// The expected type.
        expected: &'static str,
        /// The value that was found.
        found: String,
    },
    /// A required key is missing.
    #[error("missing key `{key}`")]
    MissingKey {
        /// The key.
        key: &'static str,
        /// Reason why it is required.
        why: &'static str,
    },
    /// A key that must be present in all graphs or in none is present in some.
    #[error("key `{key}` must be present in all graphs or in none; {other} differs from this one")]
    InconsistentKey {
        /// The key.
        key: &'static str,
        /// First graph that differs from this one, such as `line 1`.
        other: String,
    },
    /// A graph has no nodes.
    #[error("graph has no nodes")]
    NoNodes,
    /// A graph has too many nodes.
    #[error("{claimed} nodes exceed the limit of {limit}")]
    TooManyNodes {
        /// Stated number of nodes.
        claimed: u64,
        /// Maximum number of nodes.
        limit: usize,
    },
    /// A graph without features has too many nodes without an edge.
    #[error(
        "at least {isolated} of {nodes} nodes have no edge, feature or target, the limit is {limit}"
    )]
    TooManyIsolatedNodes {
        /// Stated number of nodes.
        nodes: usize,
        /// Minimum number of nodes without an edge.
        isolated: usize,
        /// Maximum number of such nodes.
        limit: usize,
    },
    /// A node index is out of range.
    #[error("node index {node} is out of range for a graph with {nodes} nodes")]
    NodeOutOfRange {
        /// The index.
        node: i64,
        /// Number of nodes.
        nodes: usize,
    },
    /// An edge refers to a node that does not exist.
    #[error("unknown node {id}")]
    UnknownNode {
        /// The node, as JSON.
        id: String,
    },
    /// Two nodes have the same identifier.
    #[error("duplicate node {id}")]
    DuplicateNode {
        /// The identifier, as JSON.
        id: String,
    },
    /// A node or edge lacks an attribute of the others.
    #[error("missing attribute `{name}`")]
    MissingAttribute {
        /// Name of the attribute.
        name: String,
    },
    /// A node or edge has an attribute that others lack.
    #[error("attribute `{name}` is missing in {other}")]
    ExtraAttribute {
        /// Name of the attribute.
        name: String,
        /// Node, edge or graph without it.
        other: String,
    },
    /// A node belongs to two splits.
    #[error("node {node} is in both the {first} and the {second} split")]
    OverlappingSplits {
        /// Index of the node.
        node: usize,
        /// A split.
        first: Split,
        /// Another split.
        second: Split,
    },
    /// A node split has no node with a label in one of the splits.
    #[error("no node with a label is in the {split} split")]
    EmptyNodeSplit {
        /// The empty split.
        split: Split,
    },
    /// Nodes are split, but the target is not one class per node.
    #[error("nodes are split, but the graph has no node targets")]
    NodeSplitWithoutNodeTargets,
    /// Targets of nodes are real numbers.
    #[error("regression of nodes is not supported")]
    NodeRegression,
    /// A list has the wrong number of rows.
    #[error("found {found} rows for {expected} {what}")]
    RowCount {
        /// `nodes`, `edges` or `targets`.
        what: &'static str,
        /// Number of rows found.
        found: usize,
        /// Number of rows expected.
        expected: usize,
    },
    /// A row has a different number of columns than the first row of the file.
    #[error("expected {expected} columns as in the first row, found {found}")]
    ColumnCount {
        /// Number of columns found.
        found: usize,
        /// Number of columns expected.
        expected: usize,
    },
    /// A number exceeds the range of `f32`.
    #[error("{value} is out of range for a 32-bit float")]
    TooLarge {
        /// The number.
        value: f64,
    },
    /// Strings and numbers are mixed in the features of one file.
    #[error("expected {expected}{}, found {found}", reference(first.as_deref()))]
    MixedFeatures {
        /// Type found.
        found: &'static str,
        /// Type expected.
        expected: &'static str,
        /// Graph that determined the type, such as `line 1`; `None` if the model did.
        first: Option<String>,
    },
    /// The model was trained without these features.
    #[error("the model was trained without these features")]
    UnexpectedFeatures,
    /// A category did not occur in the training data.
    #[error("unknown category `{value}`")]
    UnknownCategory {
        /// The category.
        value: String,
        /// Categories of the training data.
        known: Vec<String>,
    },
    /// A file has more than one target key.
    #[error("both `{first}` and `{second}` are given, but only one kind of target is supported")]
    AmbiguousTarget {
        /// A target key.
        first: String,
        /// Another target key.
        second: String,
    },
    /// Targets of different types are mixed in one file.
    #[error("expected {expected}, found {found}")]
    InconsistentTargets {
        /// Type found.
        found: &'static str,
        /// Type expected.
        expected: &'static str,
    },
    /// No target key is present.
    #[error("no target: none of `target`, `node_targets`, `links` and `y` is given")]
    NoTargets,
}

/// Names the graph that determined a type; empty if a trained model did.
fn reference(first: Option<&str>) -> String {
    first.map_or_else(String::new, |first| format!(" as in {first}"))
}

impl Diagnostic for JsonlError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Gzip(_) => "download or copy the file again; `gzip --test` verifies it".into(),
            Self::Empty => "write one JSON object per line, such as \
                            {\"nodes\": 2, \"edges\": [[0, 1]], \"target\": 0.5}"
                .into(),
            Self::TooLong { .. } => "split it into smaller graphs".into(),
            Self::TooMuchMemory { .. } => "split it into smaller graphs, or write its edges as \
                                           `edge_index`, which takes less memory"
                .into(),
            Self::NotUtf8 { .. } => "save the file as UTF-8, plain or gzip".into(),
            Self::NotJson { not_a_number: true, .. } => {
                "JSON has no NaN or Infinity; use null for a missing target".into()
            }
            Self::NotJson { .. } => "every graph must be one complete JSON object".into(),
            Self::Separator { .. } => {
                "write one graph per line, or a list of graphs separated by commas".into()
            }
            Self::UnknownKey { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            Self::UnknownKey { nearest: None, known, .. } => {
                format!("supported keys: {}", list(known))
            }
            Self::NotAnObject { .. } => "write one JSON object per graph".into(),
            Self::MissingKey { why, .. } => (*why).into(),
            Self::InconsistentKey { key, .. } => {
                format!("add `{key}` to every graph or remove it from all")
            }
            Self::TooManyNodes { .. } => {
                "split it into smaller graphs; cost grows quadratically with the nodes".into()
            }
            Self::TooManyIsolatedNodes { .. } => {
                "check the number of nodes, or add node features".into()
            }
            Self::NodeOutOfRange { node, nodes } if *node == *nodes as i64 => {
                "node indices start at 0; subtract 1 if yours start at 1".into()
            }
            Self::ConflictingKeys { .. } => "remove one of them".into(),
            Self::UnknownNode { .. } => {
                "`source` and `target` of an edge are values of `id` of two nodes".into()
            }
            Self::MissingAttribute { name } | Self::ExtraAttribute { name, .. } => format!(
                "set it everywhere, for example with `nx.set_node_attributes(G, 0.0, \"{name}\")`, \
                 or remove it"
            ),
            Self::OverlappingSplits { .. } => "assign every node to at most one split".into(),
            Self::EmptyNodeSplit { .. } => {
                "give `train_mask`, `val_mask` and `test_mask`, or `node_split`".into()
            }
            Self::NodeSplitWithoutNodeTargets => {
                "give one class per node in `y` or `node_targets`, or remove the node split".into()
            }
            Self::NodeRegression => {
                "write classes as integers or strings; regression is supported for graphs".into()
            }
            Self::RowCount { what, .. } => {
                format!("write one row for each of the {what}, in order")
            }
            Self::MixedFeatures { first: Some(_), .. } => {
                "use only strings (categories) or only numbers in a column; to treat integers as \
                 categories, start the file with \
                 {\"schema\": {\"node_features\": \"categorical\"}}"
                    .into()
            }
            Self::UnexpectedFeatures => "remove the key".into(),
            Self::UnknownCategory { known, .. } => format!("known categories: {}", list(known)),
            Self::AmbiguousTarget { .. } => {
                "set the task in the first line: {\"schema\": {\"task\": \"regression\"}}".into()
            }
            Self::InconsistentTargets { .. } => {
                "set the task in the first line: {\"schema\": {\"task\": \"multiclass\"}}".into()
            }
            Self::NoTargets => {
                "add `target`, `node_targets`, `links` or `y` to every graph; in a node-link graph, \
                 the graph attribute `target` or `y` or the node attribute `y` or `label`"
                    .into()
            },
            _ => return None,
        };
        Some(hint)
    }
}

/// Joins at most twenty quoted names.
fn list<Name: AsRef<str>>(names: &[Name]) -> String {
    let shown: Vec<String> =
        names.iter().take(20).map(|name| format!("`{}`", name.as_ref())).collect();
    let more = names.len().saturating_sub(20);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

/// Position of a value in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// Line of the first character, starting at 1.
    pub(super) line: u64,
    /// Number of bytes before the first character in its line.
    pub(super) column: usize,
    /// Index of the element, if the file is a list.
    pub(super) index: Option<usize>,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(formatter, "element {index}"),
            None => write!(formatter, "line {}", self.line),
        }
    }
}

/// A [`JsonlError`] and the key it belongs to, before the position of the graph is known.
#[derive(Debug)]
pub(super) struct RecordError {
    pub(super) key: Option<String>,
    /// Number of lines between the start of the graph and the error.
    pub(super) lines: u64,
    pub(super) error: JsonlError,
}

impl RecordError {
    pub(super) fn at(key: impl Into<String>, error: JsonlError) -> Self {
        Self { key: Some(key.into()), lines: 0, error }
    }

    pub(super) fn locate(self, path: &Path, position: Position) -> LocatedError {
        let located = LocatedError::new(path, self.error).at_line(position.line + self.lines);
        match (position.index, self.key) {
            (None, None) => located,
            (None, Some(key)) => located.in_column(key),
            (Some(index), None) => located.in_column(format!("[{index}]")),
            (Some(index), Some(key)) => located.in_column(format!("[{index}].{key}")),
        }
    }
}

impl From<JsonlError> for RecordError {
    fn from(error: JsonlError) -> Self {
        Self { key: None, lines: 0, error }
    }
}

/// Location of a value in a graph, for error messages.
#[derive(Debug, Clone)]
pub(super) enum JsonPath {
    /// Value of a key.
    Key(&'static str),
    /// Attribute of the graph in the node-link format.
    GraphAttribute(&'static str),
    /// Values of an attribute of all nodes in the node-link format.
    NodeAttribute(&'static str),
}

impl JsonPath {
    /// Returns the location of an item of a list.
    pub(super) fn item(&self, index: usize) -> String {
        match self {
            Self::Key(key) => format!("{key}[{index}]"),
            Self::GraphAttribute(name) => format!("graph.{name}[{index}]"),
            Self::NodeAttribute(name) => format!("nodes[{index}].{name}"),
        }
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => formatter.write_str(key),
            Self::GraphAttribute(name) => write!(formatter, "graph.{name}"),
            Self::NodeAttribute(name) => write!(formatter, "nodes.{name}"),
        }
    }
}

/// Checks the number of rows of a list.
pub(super) fn check_rows(
    key: impl fmt::Display,
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), RecordError> {
    if found == expected {
        return Ok(());
    }
    Err(RecordError::at(key.to_string(), JsonlError::RowCount { what, found, expected }))
}
