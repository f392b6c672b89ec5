//! One graph: nodes, directed edges, features and what is to be predicted.

/// Features of the nodes or of the edges of one graph, row after row.
#[derive(Debug, Clone, PartialEq)]
pub enum Features {
    /// Nothing is known but the structure.
    None,
    /// `columns` category numbers a row.
    Categorical {
        /// How many numbers a row has.
        columns: usize,
        /// Row after row.
        values: Vec<u32>,
    },
    /// `columns` real numbers a row.
    Float {
        /// How many numbers a row has.
        columns: usize,
        /// Row after row.
        values: Vec<f32>,
    },
}

impl Features {
    /// Number of rows, where there are columns to count by.
    fn rows(&self) -> Option<usize> {
        let (columns, length) = match self {
            Self::None => return None,
            Self::Categorical { columns, values } => (*columns, values.len()),
            Self::Float { columns, values } => (*columns, values.len()),
        };
        // A length that is no multiple of the columns can match no number of rows.
        (columns > 0 && length.is_multiple_of(columns))
            .then(|| length / columns)
            .or(Some(usize::MAX))
    }
}

/// What is to be predicted for one graph.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// A class for every node.
    NodeClasses(Vec<u32>),
    /// Numbers for the graph; NaN where a value is missing.
    GraphValues(Vec<f32>),
    /// One class for the graph.
    GraphClass(u32),
    /// Words for the graph, by number, in order and uncut; numbers beyond the vocabulary are words that
    /// it does not have.
    SubTokens(Vec<u32>),
    /// Pairs of nodes that belong together, each in both directions where the relation has none.
    Links(Vec<[u32; 2]>),
}

/// A graph with directed edges; an undirected edge stands in both directions.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// Number of nodes.
    pub nodes: usize,
    /// Edges as (source, target).
    pub edges: Vec<[u32; 2]>,
    /// One row a node.
    pub node_features: Features,
    /// One row an edge.
    pub edge_features: Features,
    /// What is to be predicted.
    pub targets: Targets,
}

/// What can be wrong with a graph.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// There is nothing to predict from.
    #[error("the graph has no nodes")]
    NoNodes,
    /// An end of an edge is not a node.
    #[error(
        "edge {edge} goes from node {source_node} to node {target_node}, but the graph has {nodes} nodes"
    )]
    EdgeOutOfRange {
        /// Position in the edge list.
        edge: usize,
        /// Where it starts.
        source_node: u32,
        /// Where it ends.
        target_node: u32,
        /// How many nodes there are.
        nodes: usize,
    },
    /// An end of a pair to be predicted is not a node.
    #[error(
        "target pair {pair} joins node {source_node} and node {target_node}, but the graph has {nodes} nodes"
    )]
    LinkOutOfRange {
        /// Position in the list of pairs.
        pair: usize,
        /// Its first node.
        source_node: u32,
        /// Its second node.
        target_node: u32,
        /// How many nodes there are.
        nodes: usize,
    },
    /// Features or targets do not fit the number of nodes or edges.
    #[error("there are {expected} {what}, but their {part} do not fill as many rows")]
    Rows {
        /// `nodes` or `edges`.
        what: &'static str,
        /// `features` or `targets`.
        part: &'static str,
        /// How many rows there should be.
        expected: usize,
    },
    /// A float feature is NaN or infinite.
    #[error("{what} feature row {row} holds a number that is not finite")]
    NotFinite {
        /// `node` or `edge`.
        what: &'static str,
        /// Which node or edge.
        row: usize,
    },
}

impl Graph {
    /// Finds the first thing that would make the graph unusable.
    ///
    /// # Errors
    /// The first fault found, with its place.
    pub fn check(&self) -> Result<(), GraphError> {
        if self.nodes == 0 {
            return Err(GraphError::NoNodes);
        }
        for (edge, &[source_node, target_node]) in self.edges.iter().enumerate() {
            if source_node.max(target_node) as usize >= self.nodes {
                let nodes = self.nodes;
                return Err(GraphError::EdgeOutOfRange { edge, source_node, target_node, nodes });
            }
        }
        check_features(&self.node_features, "nodes", "node", self.nodes)?;
        check_features(&self.edge_features, "edges", "edge", self.edges.len())?;
        match &self.targets {
            Targets::NodeClasses(classes) if classes.len() != self.nodes => {
                Err(GraphError::Rows { what: "nodes", part: "targets", expected: self.nodes })
            }
            Targets::Links(pairs) => {
                let beyond = |pair: &[u32; 2]| pair[0].max(pair[1]) as usize >= self.nodes;
                pairs.iter().position(beyond).map_or(Ok(()), |pair| {
                    let [source_node, target_node] = pairs[pair];
                    Err(GraphError::LinkOutOfRange {
                        pair,
                        source_node,
                        target_node,
                        nodes: self.nodes,
                    })
                })
            }
            _ => Ok(()),
        }
    }

    /// Number of ordered pairs of nodes: what a graph costs.
    pub fn pairs(&self) -> usize {
        self.nodes * self.nodes
    }
}

fn check_features(
    features: &Features,
    plural: &'static str,
    what: &'static str,
    expected: usize,
) -> Result<(), GraphError> {
    if features.rows().is_some_and(|rows| rows != expected) {
        return Err(GraphError::Rows { what: plural, part: "features", expected });
    }
    if let Features::Float { columns, values } = features
        && let Some(place) = values.iter().position(|value| !value.is_finite())
    {
        return Err(GraphError::NotFinite { what, row: place / columns });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> Graph {
        Graph {
            nodes: 3,
            edges: vec![[0, 1], [1, 0], [1, 2], [2, 1]],
            node_features: Features::Categorical { columns: 1, values: vec![0, 1, 0] },
            edge_features: Features::None,
            targets: Targets::NodeClasses(vec![1, 0, 1]),
        }
    }

    #[test]
    fn a_sound_graph_passes() {
        assert_eq!(path().check(), Ok(()));
    }

    #[test]
    fn every_fault_is_named() {
        let faulty = |change: fn(&mut Graph)| {
            let mut graph = path();
            change(&mut graph);
            graph.check().expect_err("the change made the graph unusable").to_string()
        };
        assert_eq!(faulty(|graph| graph.nodes = 0), "the graph has no nodes");
        assert_eq!(
            faulty(|graph| graph.edges[2] = [1, 3]),
            "edge 2 goes from node 1 to node 3, but the graph has 3 nodes"
        );
        assert_eq!(
            faulty(|graph| graph.node_features =
                Features::Categorical { columns: 2, values: vec![0; 3] }),
            "there are 3 nodes, but their features do not fill as many rows"
        );
        assert_eq!(
            faulty(|graph| graph.edge_features =
                Features::Float { columns: 1, values: vec![1.0, 2.0, f32::NAN, 0.0] }),
            "edge feature row 2 holds a number that is not finite"
        );
        assert_eq!(
            faulty(|graph| graph.targets = Targets::NodeClasses(vec![0])),
            "there are 3 nodes, but their targets do not fill as many rows"
        );
        assert_eq!(
            faulty(|graph| graph.targets = Targets::Links(vec![[0, 2], [4, 1]])),
            "target pair 1 joins node 4 and node 1, but the graph has 3 nodes"
        );
    }
}
