//! A graph: nodes, directed edges, features and targets.

use crate::error::Diagnostic;

/// Features of the nodes or edges of a graph, in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub enum Features {
    /// No features.
    None,
    /// Category indices.
    Categorical {
        /// Number of features per node or edge.
        columns: usize,
        /// Category indices, row by row.
        values: Vec<u32>,
    },
    /// Float features.
    Float {
        /// Number of features per node or edge.
        columns: usize,
        /// Values, row by row.
        values: Vec<f32>,
    },
    /// Category indices and float features; each kind keeps the column order of the schema.
    Mixed {
        /// Number of categorical features per node or edge.
        categorical_columns: usize,
        /// Category indices, row by row.
        categories: Vec<u32>,
        /// Number of float features per node or edge.
        float_columns: usize,
        /// Float features, row by row.
        floats: Vec<f32>,
    },
}

impl Features {
    /// Creates features from a table of categories and a table of floats, either of which may have
    /// no columns.
    ///
    /// ```
    /// use graph_diffuser_data::Features;
    ///
    /// let features = Features::from_tables(1, vec![2, 0], 0, vec![]);
    /// assert_eq!(features, Features::Categorical { columns: 1, values: vec![2, 0] });
    /// ```
    pub fn from_tables(
        categorical_columns: usize,
        categories: Vec<u32>,
        float_columns: usize,
        floats: Vec<f32>,
    ) -> Self {
        match (categorical_columns, float_columns) {
            (0, 0) => Self::None,
            (columns, 0) => Self::Categorical { columns, values: categories },
            (0, columns) => Self::Float { columns, values: floats },
            _ => Self::Mixed { categorical_columns, categories, float_columns, floats },
        }
    }

    /// Returns the number of categorical columns and the category indices, row by row.
    pub fn categories(&self) -> (usize, &[u32]) {
        match self {
            Self::None | Self::Float { .. } => (0, &[]),
            Self::Categorical { columns, values } => (*columns, values),
            Self::Mixed { categorical_columns, categories, .. } => {
                (*categorical_columns, categories)
            }
        }
    }

    /// Returns the number of float columns and the float features, row by row.
    pub fn floats(&self) -> (usize, &[f32]) {
        match self {
            Self::None | Self::Categorical { .. } => (0, &[]),
            Self::Float { columns, values } => (*columns, values),
            Self::Mixed { float_columns, floats, .. } => (*float_columns, floats),
        }
    }

    /// Returns `true` if there is one complete row for each of `rows` nodes or edges.
    fn has_rows(&self, rows: usize) -> bool {
        let is_table = |columns: usize, length: usize| {
            columns > 0 && rows.checked_mul(columns) == Some(length)
        };
        match self {
            Self::None => true,
            Self::Categorical { columns, values } => is_table(*columns, values.len()),
            Self::Float { columns, values } => is_table(*columns, values.len()),
            Self::Mixed { categorical_columns, categories, float_columns, floats } => {
                is_table(*categorical_columns, categories.len())
                    && is_table(*float_columns, floats.len())
            }
        }
    }
}

/// Class of a node without a label in [`Targets::NodeClasses`].
pub const MISSING_CLASS: u32 = u32::MAX;

/// Prediction targets of a graph.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// One class per node; [`MISSING_CLASS`] for nodes without a label, which contribute neither to
    /// the loss nor to the metrics.
    NodeClasses(Vec<u32>),
    /// Graph-level targets: regression values, 0/1 labels and class indices; NaN if missing.
    GraphValues(Vec<f32>),
    /// Sub-token sequence of the graph, as vocabulary indices and not truncated; indices beyond the
    /// vocabulary are unknown tokens.
    SubTokens(Vec<u32>),
    /// Linked node pairs; pairs of a symmetric relation are listed in both directions.
    Links(Vec<[u32; 2]>),
}

/// A graph with directed edges; an undirected edge is stored in both directions.
///
/// ```
/// use graph_diffuser_data::{Features, Graph, Targets};
///
/// // Carbon monoxide: two atoms and one bond.
/// let graph = Graph {
///     num_nodes: 2,
///     edges: vec![[0, 1], [1, 0]],
///     node_features: Features::Categorical { columns: 1, values: vec![6, 8] },
///     edge_features: Features::None,
///     targets: Targets::GraphValues(vec![0.112]),
/// };
/// assert_eq!(graph.check(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// Number of nodes.
    pub num_nodes: usize,
    /// Edges as `[source, target]`.
    pub edges: Vec<[u32; 2]>,
    /// Node features, one row per node.
    pub node_features: Features,
    /// Edge features, one row per directed edge.
    pub edge_features: Features,
    /// Prediction targets.
    pub targets: Targets,
}

/// Errors of [`Graph::check`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The graph has no nodes.
    #[error("the graph has no nodes")]
    NoNodes,
    /// An edge refers to a node that does not exist.
    #[error(
        "edge {edge} from node {source_node} to node {target_node} is out of range for {nodes} nodes"
    )]
    EdgeOutOfRange {
        /// Index of the edge.
        edge: usize,
        /// Source node.
        source_node: u32,
        /// Target node.
        target_node: u32,
        /// Number of nodes of the graph.
        nodes: usize,
    },
    /// A target link refers to a node that does not exist.
    #[error(
        "link {pair} between node {source_node} and node {target_node} is out of range for {nodes} nodes"
    )]
    LinkOutOfRange {
        /// Index of the link.
        pair: usize,
        /// First node.
        source_node: u32,
        /// Second node.
        target_node: u32,
        /// Number of nodes of the graph.
        nodes: usize,
    },
    /// The number of feature or target rows differs from the number of nodes or edges.
    #[error("{what} {part} do not have {expected} rows, one per {what}")]
    Rows {
        /// `node` or `edge`.
        what: &'static str,
        /// `features` or `targets`.
        part: &'static str,
        /// Expected number of rows.
        expected: usize,
    },
    /// A float feature is NaN or infinite.
    #[error("features of {what} {row} are not finite")]
    NotFinite {
        /// `node` or `edge`.
        what: &'static str,
        /// Index of the node or edge.
        row: usize,
    },
}

impl Diagnostic for GraphError {}

impl Graph {
    /// Checks node indices, the number of feature and target rows, and that features are finite.
    ///
    /// # Errors
    /// Returns the first error found.
    pub fn check(&self) -> Result<(), GraphError> {
        if self.num_nodes == 0 {
            return Err(GraphError::NoNodes);
        }
        for (edge, &[source_node, target_node]) in self.edges.iter().enumerate() {
            if source_node.max(target_node) as usize >= self.num_nodes {
                let nodes = self.num_nodes;
                return Err(GraphError::EdgeOutOfRange { edge, source_node, target_node, nodes });
            }
        }
        check_features(&self.node_features, "node", self.num_nodes)?;
        check_features(&self.edge_features, "edge", self.edges.len())?;
        match &self.targets {
            Targets::NodeClasses(classes) if classes.len() != self.num_nodes => {
                Err(GraphError::Rows { what: "node", part: "targets", expected: self.num_nodes })
            }
            Targets::Links(pairs) => {
                let out_of_range =
                    |pair: &[u32; 2]| pair[0].max(pair[1]) as usize >= self.num_nodes;
                pairs.iter().position(out_of_range).map_or(Ok(()), |pair| {
                    let [source_node, target_node] = pairs[pair];
                    Err(GraphError::LinkOutOfRange {
                        pair,
                        source_node,
                        target_node,
                        nodes: self.num_nodes,
                    })
                })
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of ordered node pairs, `n²`; memory and run time grow with it.
    pub fn pairs(&self) -> usize {
        self.num_nodes * self.num_nodes
    }
}

fn check_features(
    features: &Features,
    what: &'static str,
    expected: usize,
) -> Result<(), GraphError> {
    if !features.has_rows(expected) {
        return Err(GraphError::Rows { what, part: "features", expected });
    }
    let (columns, values) = features.floats();
    match values.iter().position(|value| !value.is_finite()) {
        Some(position) => Err(GraphError::NotFinite { what, row: position / columns }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> Graph {
        Graph {
            num_nodes: 3,
            edges: vec![[0, 1], [1, 0], [1, 2], [2, 1]],
            node_features: Features::Categorical { columns: 1, values: vec![0, 1, 0] },
            edge_features: Features::None,
            targets: Targets::NodeClasses(vec![1, 0, 1]),
        }
    }

    #[test]
    fn valid_graph_passes_check() {
        assert_eq!(path().check(), Ok(()));
    }

    #[test]
    fn each_error_has_its_own_message() {
        let error = |change: fn(&mut Graph)| {
            let mut graph = path();
            change(&mut graph);
            graph.check().expect_err("the graph is invalid").to_string()
        };
        assert_eq!(error(|graph| graph.num_nodes = 0), "the graph has no nodes");
        assert_eq!(
            error(|graph| graph.edges[2] = [1, 3]),
            "edge 2 from node 1 to node 3 is out of range for 3 nodes"
        );
        assert_eq!(
            error(|graph| graph.node_features =
                Features::Categorical { columns: 2, values: vec![0; 3] }),
            "node features do not have 3 rows, one per node"
        );
        assert_eq!(
            error(|graph| graph.edge_features =
                Features::Float { columns: 1, values: vec![1.0, 2.0, f32::NAN, 0.0] }),
            "features of edge 2 are not finite"
        );
        assert_eq!(
            error(
                |graph| graph.node_features = Features::from_tables(1, vec![0; 3], 2, vec![0.5; 3])
            ),
            "node features do not have 3 rows, one per node"
        );
        assert_eq!(
            error(|graph| graph.node_features = Features::from_tables(
                1,
                vec![0; 3],
                2,
                vec![0.5, 0.5, f32::INFINITY, 0.5, 0.5, 0.5]
            )),
            "features of node 1 are not finite"
        );
        assert_eq!(
            error(|graph| graph.targets = Targets::NodeClasses(vec![0])),
            "node targets do not have 3 rows, one per node"
        );
        assert_eq!(
            error(|graph| graph.targets = Targets::Links(vec![[0, 2], [4, 1]])),
            "link 1 between node 4 and node 1 is out of range for 3 nodes"
        );
    }
}
