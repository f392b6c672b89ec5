//! What can be wrong with a line of JSON, and what to do about it.

use std::path::Path;

use crate::error::{Diagnostic, LocatedError};

/// What can be wrong with a file of JSON lines.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonlError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(std::io::Error),
    /// The compressed file ends too early or is damaged.
    #[error("the compressed file is damaged or ends too early")]
    Gzip(#[source] std::io::Error),
    /// There is no graph in it.
    #[error("there is no graph in it")]
    Empty,
    /// A line is longer than can be read.
    #[error("the line is longer than {limit} bytes")]
    LineTooLong {
        /// The longest allowed.
        limit: usize,
    },
    /// A line is not text.
    #[error("byte {byte} of the line is not UTF-8 text")]
    NotUtf8 {
        /// The first byte that is not, counted from zero.
        byte: usize,
    },
    /// A line is not JSON.
    #[error("not JSON: {message}")]
    NotJson {
        /// What the parser says.
        message: String,
        /// Whether the line holds NaN or an infinity as a word.
        not_a_number: bool,
    },
    /// A key that has no meaning here.
    #[error("unknown key `{key}`")]
    UnknownKey {
        /// The key.
        key: String,
        /// The known key nearest to it, if any is near.
        nearest: Option<&'static str>,
    },
    /// A key stands twice in one object.
    #[error("the key stands twice")]
    DuplicateKey,
    /// A value is of another kind.
    #[error("expected {expected}, found {found}")]
    WrongType {
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A key that the line cannot do without.
    #[error("the key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: &'static str,
        /// Why it is needed.
        why: &'static str,
    },
    /// A key that must be in all lines or in none.
    #[error(
        "the key `{key}` is in some lines and not in others; line {line} is the first of the other kind"
    )]
    SometimesMissing {
        /// The key.
        key: &'static str,
        /// The first line that has it where this one has not, or the other way round.
        line: u64,
    },
    /// There is nothing to predict from.
    #[error("the graph has no nodes")]
    NoNodes,
    /// More nodes than any model could take.
    #[error("{claimed} nodes are more than the {limit} that a graph may have")]
    TooManyNodes {
        /// How many the line says there are.
        claimed: u64,
        /// The most allowed.
        limit: usize,
    },
    /// A node number that the graph does not have.
    #[error("there is no node {node}: the graph has {nodes} nodes, numbered from 0")]
    NoSuchNode {
        /// The number.
        node: i64,
        /// How many there are.
        nodes: usize,
    },
    /// A list has the wrong length.
    #[error("{found} rows, but there are {expected} {what}")]
    Rows {
        /// `nodes` or `edges`.
        what: &'static str,
        /// How many rows there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A row has another number of columns than the others of the file.
    #[error("{found} columns, but {expected} elsewhere in the file")]
    Ragged {
        /// How many it has.
        found: usize,
        /// How many the others have.
        expected: usize,
    },
    /// A number that a 32-bit float cannot hold.
    #[error("{value} is too large")]
    TooLarge {
        /// The number.
        value: f64,
    },
    /// Strings and numbers in features of one kind.
    #[error("{found} among {expected} (by line {line})")]
    MixedFeatures {
        /// What is here.
        found: &'static str,
        /// What the others are.
        expected: &'static str,
        /// The line that decided; 1 where the header did.
        line: u64,
    },
    /// A model was not trained with such features.
    #[error("the model knows no such features")]
    NotUsed,
    /// A category that the model has not met in training.
    #[error("unknown category `{value}`")]
    UnknownCategory {
        /// The category.
        value: String,
        /// Those that it has met.
        known: Vec<String>,
    },
    /// More than one kind of thing to predict.
    #[error("both `{first}` and `{second}` are to be predicted")]
    TwoTargets {
        /// A key with targets.
        first: &'static str,
        /// Another.
        second: &'static str,
    },
    /// Targets of one file that do not go together.
    #[error("{found} where the targets are {expected}")]
    MixedTargets {
        /// What is here.
        found: &'static str,
        /// What the others are.
        expected: &'static str,
    },
    /// There is nothing to learn.
    #[error("no line says what is to be predicted")]
    NoTargets,
}

impl Diagnostic for JsonlError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Gzip(_) => "copy or download it again; `gzip --test` checks it".into(),
            Self::Empty => {
                "write one JSON object a line, such as {\"edges\": [[0, 1]], \"nodes\": 2, \"target\": 0.5}".into()
            }
            Self::LineTooLong { .. } => {
                "one graph stands on one line; a file that is one large JSON list has to be split into lines".into()
            }
            Self::NotUtf8 { .. } => "save the file as UTF-8; compressed files must be gzip".into(),
            Self::NotJson { not_a_number: true, .. } => {
                "JSON has no NaN or Infinity; write null for a missing target and leave out such features".into()
            }
            Self::NotJson { .. } => "every line must be one complete JSON object".into(),
            Self::UnknownKey { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            Self::UnknownKey { nearest: None, .. } => format!("the keys are {}", list(super::record::KEYS)),
            Self::MissingKey { why, .. } => (*why).into(),
            Self::SometimesMissing { key, .. } => format!("write `{key}` in every line or in none"),
            Self::TooManyNodes { .. } => "split it into smaller graphs: cost grows with the square of the nodes".into(),
            Self::NoSuchNode { node, nodes } if *node == *nodes as i64 => {
                "nodes are numbered from 0; subtract 1 if yours begin at 1".into()
            }
            Self::Rows { what, .. } => format!("write one row for each of the {what}, in their order"),
            Self::MixedFeatures { .. } => {
                "features are all strings (categories) or all numbers; to read whole numbers as categories begin the \
                 file with {\"schema\": {\"node_features\": \"categorical\"}}"
                    .into()
            }
            Self::NotUsed => "leave the key out".into(),
            Self::UnknownCategory { known, .. } => format!("the model was trained with {}", list(known)),
            Self::TwoTargets { .. } => {
                "say which with a task, in the first line: {\"schema\": {\"task\": \"graph_values\"}}".into()
            }
            Self::MixedTargets { .. } => {
                "state the task in the first line, such as {\"schema\": {\"task\": \"graph_classes\"}}".into()
            }
            Self::NoTargets => "write `target`, `node_targets` or `links` in every line".into(),
            _ => return None,
        };
        Some(hint)
    }
}

/// At most twenty names.
fn list<Name: AsRef<str>>(names: &[Name]) -> String {
    let shown: Vec<String> =
        names.iter().take(20).map(|name| format!("`{}`", name.as_ref())).collect();
    let more = names.len().saturating_sub(20);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

/// A fault and its key, not yet with its line.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) key: Option<String>,
    pub(super) fault: JsonlError,
}

impl Refused {
    pub(super) fn at(key: impl Into<String>, fault: JsonlError) -> Self {
        Self { key: Some(key.into()), fault }
    }

    pub(super) fn problem(self, path: &Path, line: u64) -> LocatedError {
        let problem = LocatedError::new(path, self.fault).at_line(line);
        match self.key {
            Some(key) => problem.in_column(key),
            None => problem,
        }
    }
}

impl From<JsonlError> for Refused {
    fn from(fault: JsonlError) -> Self {
        Self { key: None, fault }
    }
}
