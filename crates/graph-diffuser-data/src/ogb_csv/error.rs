//! What can be wrong between the files of the layout.

use super::{LARGEST_EDGES, LARGEST_NODES};
use crate::error::Diagnostic;

/// What can be wrong with a file in view of the others, or with the directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OgbCsvError {
    /// No graph is counted.
    #[error("there are no graphs")]
    NoGraphs,
    /// A graph has nothing to predict from.
    #[error("graph {graph} has no nodes")]
    NoNodes {
        /// Its number.
        graph: usize,
    },
    /// More nodes are claimed than attention between all of them could ever be computed for.
    #[error("graph {graph} has {nodes} nodes, more than {LARGEST_NODES}")]
    TooManyNodes {
        /// Its number.
        graph: usize,
        /// What is claimed.
        nodes: u32,
    },
    /// More edges are claimed than a graph may have.
    #[error("graph {graph} has {edges} edges, more than {LARGEST_EDGES}")]
    TooManyEdges {
        /// Its number.
        graph: usize,
        /// What is claimed.
        edges: u32,
    },
    /// The file ends before all counted rows were there.
    #[error("there are only {found} rows, but `{counts}` promises more")]
    TooFewRows {
        /// How many there are.
        found: u64,
        /// The file that counts them.
        counts: &'static str,
    },
    /// The file goes on after all counted rows.
    #[error("there are more than the {promised} rows that `{counts}` promises")]
    TooManyRows {
        /// How many there should be.
        promised: u64,
        /// The file that counts them.
        counts: &'static str,
    },
    /// An end of an edge or pair is not a node.
    #[error("node {node} does not exist: graph {graph} has {nodes} nodes, numbered from 0")]
    NodeOutOfRange {
        /// What stands there.
        node: u32,
        /// The number of the graph.
        graph: usize,
        /// How many nodes there are.
        nodes: usize,
    },
    /// Nothing says what is to be predicted.
    #[error(
        "there is nothing to predict: neither `graph-label`, `node-label` nor `contact` is there"
    )]
    NoTargets,
    /// Words are asked for, which only one dataset has.
    #[error("words are read by the reader of ogbg-code2 alone")]
    Words,
    /// A part of the split names a graph that does not exist.
    #[error("graph {graph} does not exist: there are {graphs}, numbered from 0")]
    SplitOutOfRange {
        /// What stands there.
        graph: u32,
        /// How many there are.
        graphs: usize,
    },
    /// A graph stands in the split twice.
    #[error("graph {graph} already stands in `{first}`")]
    SplitTwice {
        /// Which.
        graph: usize,
        /// The part that had it first.
        first: &'static str,
    },
    /// There are several splits and none was chosen.
    #[error("there are several splits: {}", kinds.join(", "))]
    SeveralSplits {
        /// Their names.
        kinds: Vec<String>,
    },
    /// The data has no split, though reading it depends on one.
    #[error("there is no split, and the vocabulary is that of its training part")]
    NoSplit,
}

impl Diagnostic for OgbCsvError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoGraphs => Some("write one line a graph: how many nodes it has".into()),
            Self::NoNodes { .. } => Some("leave out graphs without nodes, in all files".into()),
            Self::TooManyNodes { .. } | Self::TooManyEdges { .. } => Some(
                "write one line a graph; a single number for all of them is not a count".into(),
            ),
            Self::TooFewRows { counts, .. } | Self::TooManyRows { counts, .. } => Some(format!(
                "both files must be of the same data: the numbers in `{counts}` add up to the rows here"
            )),
            Self::NodeOutOfRange { .. } => Some("number the nodes of each graph from 0".into()),
            Self::NoTargets => {
                Some("write `raw/graph-label.csv`: one row a graph, one column a task".into())
            }
            Self::SplitOutOfRange { .. } => Some("number the graphs from 0".into()),
            Self::SplitTwice { .. } => Some("let every graph be in one part only".into()),
            Self::SeveralSplits { .. } => {
                Some("keep one folder under `split`, or name the one to use".into())
            }
            Self::NoSplit => Some(
                "write `split/train.csv`, `valid.csv` and `test.csv`: one graph number a line"
                    .into(),
            ),
            Self::Words => None,
        }
    }
}
