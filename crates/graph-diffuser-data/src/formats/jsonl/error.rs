//! Errors of the JSON Lines reader and their hints.

use std::path::Path;

use crate::error::{Diagnostic, LocatedError};

/// Error in a JSON Lines file of graphs.
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
    /// A line exceeds the length limit.
    #[error("line is longer than {limit} bytes")]
    LineTooLong {
        /// Maximum length in bytes.
        limit: usize,
    },
    /// A line is not valid UTF-8.
    #[error("invalid UTF-8 at byte {byte} of the line")]
    NotUtf8 {
        /// Offset of the first invalid byte, counted from zero.
        byte: usize,
    },
    /// A line is not valid JSON.
    #[error("invalid JSON: {message}")]
    NotJson {
        /// Message of the JSON parser.
        message: String,
        /// `true` if the line contains a bare `NaN` or `Infinity`.
        not_a_number: bool,
    },
    /// An object has an unsupported key.
    #[error("unknown key `{key}`")]
    UnknownKey {
        /// The key.
        key: String,
        /// The most similar supported key, if any is similar.
        nearest: Option<&'static str>,
    },
    /// A key occurs twice in one object.
    #[error("duplicate key")]
    DuplicateKey,
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
    /// A key that must be present in all lines or in none is present in some.
    #[error(
        "key `{key}` must be present in all lines or in none; line {line} differs from this one"
    )]
    InconsistentKey {
        /// The key.
        key: &'static str,
        /// First line that differs from this one.
        line: u64,
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
    /// A node index is out of range.
    #[error("node index {node} is out of range for a graph with {nodes} nodes")]
    NodeOutOfRange {
        /// The index.
        node: i64,
        /// Number of nodes.
        nodes: usize,
    },
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
    #[error("expected {expected}{}, found {found}", reference(*line))]
    MixedFeatures {
        /// Type found.
        found: &'static str,
        /// Type expected.
        expected: &'static str,
        /// Line that determined the type; 0 if the model did.
        line: u64,
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
        first: &'static str,
        /// Another target key.
        second: &'static str,
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
    #[error("no target: none of `target`, `node_targets` and `links` is given")]
    NoTargets,
}

/// Names the line that determined a type; empty for line 0 (type from a trained model).
fn reference(line: u64) -> String {
    if line == 0 { String::new() } else { format!(" as in line {line}") }
}

impl Diagnostic for JsonlError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Gzip(_) => "download or copy the file again; `gzip --test` verifies it".into(),
            Self::Empty => "write one JSON object per line, such as \
                            {\"nodes\": 2, \"edges\": [[0, 1]], \"target\": 0.5}"
                .into(),
            Self::LineTooLong { .. } => {
                "write one graph per line instead of one large JSON array".into()
            }
            Self::NotUtf8 { .. } => "save the file as UTF-8, plain or gzip".into(),
            Self::NotJson { not_a_number: true, .. } => {
                "JSON has no NaN or Infinity; use null for a missing target".into()
            }
            Self::NotJson { .. } => "every line must be one complete JSON object".into(),
            Self::UnknownKey { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            Self::UnknownKey { nearest: None, .. } => {
                format!("supported keys: {}", list(super::record::KEYS))
            }
            Self::WrongType { expected: super::record::OBJECT, found }
                if found.contains("array") =>
            {
                "write one JSON object per line; `jq -c '.[]'` converts an array".into()
            }
            Self::MissingKey { why, .. } => (*why).into(),
            Self::InconsistentKey { key, .. } => {
                format!("add `{key}` to every line or remove it from all")
            }
            Self::TooManyNodes { .. } => {
                "split it into smaller graphs; cost grows quadratically with the nodes".into()
            }
            Self::NodeOutOfRange { node, nodes } if *node == *nodes as i64 => {
                "node indices start at 0; subtract 1 if yours start at 1".into()
            }
            Self::RowCount { what, .. } => {
                format!("write one row for each of the {what}, in order")
            }
            Self::MixedFeatures { line, .. } if *line > 0 => {
                "use only strings (categories) or only numbers; to treat integers as categories, \
                 start the file with {\"schema\": {\"node_features\": \"categorical\"}}"
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
            Self::NoTargets => "add `target`, `node_targets` or `links` to every line".into(),
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

/// A [`JsonlError`] and the key it belongs to, before the line is known.
#[derive(Debug)]
pub(super) struct RecordError {
    pub(super) key: Option<String>,
    pub(super) error: JsonlError,
}

impl RecordError {
    pub(super) fn at(key: impl Into<String>, error: JsonlError) -> Self {
        Self { key: Some(key.into()), error }
    }

    pub(super) fn locate(self, path: &Path, line: u64) -> LocatedError {
        let located = LocatedError::new(path, self.error).at_line(line);
        match self.key {
            Some(key) => located.in_column(key),
            None => located,
        }
    }
}

impl From<JsonlError> for RecordError {
    fn from(error: JsonlError) -> Self {
        Self { key: None, error }
    }
}
