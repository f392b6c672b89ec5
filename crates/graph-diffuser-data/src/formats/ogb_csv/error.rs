//! Errors of the OGB CSV reader.

use super::{MAX_GRAPH_EDGES, MAX_GRAPH_NODES};
use crate::error::Diagnostic;

/// Inconsistency between the files of a directory in the OGB CSV layout.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OgbCsvError {
    /// There are no graphs.
    #[error("no graphs")]
    NoGraphs,
    /// A graph has no nodes.
    #[error("graph {graph} has no nodes")]
    NoNodes {
        /// Index of the graph.
        graph: usize,
    },
    /// A graph has too many nodes.
    #[error("graph {graph} has {nodes} nodes, the maximum is {MAX_GRAPH_NODES}")]
    TooManyNodes {
        /// Index of the graph.
        graph: usize,
        /// Stated number of nodes.
        nodes: u32,
    },
    /// A graph has too many edges.
    #[error("graph {graph} has {edges} edges, the maximum is {MAX_GRAPH_EDGES}")]
    TooManyEdges {
        /// Index of the graph.
        graph: usize,
        /// Stated number of edges.
        edges: u32,
    },
    /// A file has fewer rows than another file requires.
    #[error("found only {found} rows, fewer than `{counts}` requires")]
    TooFewRows {
        /// Number of rows found.
        found: u64,
        /// Name of the file that determines the number of rows.
        counts: &'static str,
    },
    /// A file has more rows than another file requires.
    #[error("found more rows than the {expected} that `{counts}` requires")]
    TooManyRows {
        /// Number of rows expected.
        expected: u64,
        /// Name of the file that determines the number of rows.
        counts: &'static str,
    },
    /// A node index is out of range.
    #[error("node index {node} is out of range: graph {graph} has {nodes} nodes")]
    NodeOutOfRange {
        /// Node index.
        node: u32,
        /// Index of the graph.
        graph: usize,
        /// Number of nodes.
        nodes: usize,
    },
    /// There is no target file.
    #[error("no targets: none of `graph-label`, `node-label` and `contact` exists")]
    NoTargets,
    /// Sub-token targets are supported for ogbg-code2 only.
    #[error("sub-token targets are supported for ogbg-code2 only")]
    UnsupportedSubTokens,
    /// A split contains a graph index that is out of range.
    #[error("graph index {graph} is out of range for {graphs} graphs")]
    SplitOutOfRange {
        /// Graph index.
        graph: u32,
        /// Number of graphs.
        graphs: usize,
    },
    /// A graph occurs twice in the splits.
    #[error("graph {graph} is already in `{first}`")]
    DuplicateInSplit {
        /// Graph index.
        graph: usize,
        /// Split in which the graph occurs first.
        first: &'static str,
    },
    /// There are several splits and none is selected.
    #[error("found several splits: {}", names.join(", "))]
    AmbiguousSplit {
        /// Names of the splits.
        names: Vec<String>,
    },
    /// The dataset has no split, but its vocabulary depends on the training split.
    #[error("no split; the vocabulary is built from the training split")]
    NoSplit,
}

impl Diagnostic for OgbCsvError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoGraphs => Some("write the number of nodes of each graph, one per line".into()),
            Self::NoNodes { .. } => Some("remove graphs without nodes from all files".into()),
            Self::TooManyNodes { .. } | Self::TooManyEdges { .. } => {
                Some("write one count per graph, one per line".into())
            }
            Self::TooFewRows { counts, .. } | Self::TooManyRows { counts, .. } => {
                Some(format!("check that this file and `{counts}` belong to the same dataset"))
            }
            Self::NodeOutOfRange { .. } => Some("node indices start at 0 in every graph".into()),
            Self::NoTargets => Some(
                "write `raw/graph-label.csv` with one row per graph and one column per task".into(),
            ),
            Self::SplitOutOfRange { .. } => Some("graph indices start at 0".into()),
            Self::DuplicateInSplit { .. } => Some("list every graph in one split only".into()),
            Self::AmbiguousSplit { .. } => Some("keep one directory under `split`".into()),
            Self::NoSplit => Some(
                "write `split/train.csv`, `valid.csv` and `test.csv` with one graph index per line"
                    .into(),
            ),
            Self::UnsupportedSubTokens => None,
        }
    }
}
