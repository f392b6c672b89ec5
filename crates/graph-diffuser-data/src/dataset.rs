//! Datasets: graphs, their schema, and their train, validation and test splits.

use std::borrow::Cow;

use crate::error::Diagnostic;
use crate::graph::{Graph, GraphError, Targets};
use crate::io::cache::CachedGraphs;
use crate::schema::{Schema, Standardization, TargetKind, TargetSchema};
use crate::split::{Split, Splits};

/// The graphs of a dataset, in memory or in a file.
///
/// Two values are equal if they hold the same graphs.
#[derive(Debug, Clone)]
pub enum Graphs {
    /// In memory.
    InMemory(Vec<Graph>),
    /// In a cache file.
    Cached(CachedGraphs),
}

impl PartialEq for Graphs {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Graphs {
    /// Returns the number of graphs.
    pub fn len(&self) -> usize {
        match self {
            Self::InMemory(graphs) => graphs.len(),
            Self::Cached(graphs) => graphs.len(),
        }
    }

    /// Returns `true` if there are no graphs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the graph at `index`.
    ///
    /// # Panics
    /// Panics if `index` is out of bounds, and unwinds with a
    /// [`CacheModifiedError`](crate::CacheModifiedError) if another program has modified the cache
    /// file.
    pub fn get(&self, index: usize) -> Cow<'_, Graph> {
        match self {
            Self::InMemory(graphs) => Cow::Borrowed(&graphs[index]),
            Self::Cached(graphs) => Cow::Owned(graphs.get(index)),
        }
    }

    /// Returns the number of nodes of the graph at `index`.
    ///
    /// # Panics
    /// Panics if `index` is out of bounds.
    pub fn num_nodes(&self, index: usize) -> usize {
        match self {
            Self::InMemory(graphs) => graphs[index].num_nodes,
            Self::Cached(graphs) => graphs.num_nodes(index),
        }
    }

    /// Iterates over all graphs in order.
    pub fn iter(&self) -> impl Iterator<Item = Cow<'_, Graph>> {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// Graphs with their schema and splits.
///
/// ```
/// use graph_diffuser_data::{
///     Dataset, FeatureSchema, Features, Graph, Graphs, Names, Schema, Splits, TargetSchema,
///     Targets,
/// };
///
/// let edge = |class: f32| Graph {
///     num_nodes: 2,
///     edges: vec![[0, 1], [1, 0]],
///     node_features: Features::Categorical { columns: 1, values: vec![0, 3] },
///     edge_features: Features::None,
///     targets: Targets::GraphValues(vec![class]),
/// };
/// let dataset = Dataset {
///     graphs: Graphs::InMemory(vec![edge(0.0), edge(1.0), edge(0.0)]),
///     schema: Schema {
///         node_features: FeatureSchema::Categorical(vec![4]),
///         edge_features: FeatureSchema::None,
///         targets: TargetSchema::multiclass(2),
///         names: Names::default(),
///     },
///     splits: Splits { train: vec![0], valid: vec![1], test: vec![2] },
/// };
/// assert_eq!(dataset.check(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// All graphs; graph indices refer to this order.
    pub graphs: Graphs,
    /// Schema of features and targets.
    pub schema: Schema,
    /// Graph indices of the splits.
    pub splits: Splits,
}

/// Errors of [`Dataset::check`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// A graph is invalid.
    #[error("graph {graph} is invalid")]
    Graph {
        /// Index of the graph.
        graph: usize,
        /// Underlying error.
        source: GraphError,
    },
    /// Features or targets of a graph do not match the schema.
    #[error("{part} of graph {graph} do not match the dataset schema")]
    Schema {
        /// Index of the graph.
        graph: usize,
        /// `node features`, `edge features` or `targets`.
        part: &'static str,
    },
    /// A split is empty.
    #[error("{split} split is empty")]
    EmptySplit {
        /// The empty split.
        split: Split,
    },
    /// A split contains an index that is out of range.
    #[error("{split} split: graph index {index} is out of range for {graphs} graphs")]
    SplitIndex {
        /// The invalid split.
        split: Split,
        /// The invalid index.
        index: usize,
        /// Number of graphs in the dataset.
        graphs: usize,
    },
}

impl Diagnostic for DatasetError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::EmptySplit { split } => Some(format!(
                "assign at least one graph to `{split}`, or omit the split for a random one"
            )),
            _ => None,
        }
    }
}

impl Dataset {
    /// Returns the graph indices of a split.
    pub fn split(&self, split: Split) -> &[usize] {
        match split {
            Split::Train => &self.splits.train,
            Split::Valid => &self.splits.valid,
            Split::Test => &self.splits.test,
        }
    }

    /// Counts the zeros and ones of each graph-level target in a split.
    pub fn label_counts(&self, split: Split) -> Vec<[usize; 2]> {
        let mut counts = vec![[0; 2]; self.schema.targets.graph_targets().len()];
        for &graph in self.split(split) {
            let Targets::GraphValues(values) = &self.graphs.get(graph).targets else { continue };
            for (counts, &value) in counts.iter_mut().zip(values) {
                if value == 0.0 || value == 1.0 {
                    counts[value as usize] += 1;
                }
            }
        }
        counts
    }

    /// Returns the split that contains a graph, if any.
    pub fn split_of(&self, graph: usize) -> Option<Split> {
        let splits = [Split::Train, Split::Valid, Split::Test];
        splits.into_iter().find(|&split| self.split(split).contains(&graph))
    }

    /// Sets the standardization of all regression targets to the statistics of the training split.
    pub fn standardize_targets(&mut self) {
        let mut kinds = self.schema.targets.graph_targets().to_vec();
        for (target, kind) in kinds.iter_mut().enumerate() {
            if let TargetKind::Regression(standardization) = kind {
                let values =
                    self.splits.train.iter().map(|&graph| match &self.graphs.get(graph).targets {
                        Targets::GraphValues(values) => values[target],
                        _ => f32::NAN,
                    });
                *standardization = Standardization::of(values);
            }
        }
        if let TargetSchema::Graph(current) = &mut self.schema.targets {
            *current = kinds;
        }
    }

    /// Checks that all graphs are valid and match the schema, and that all splits are usable.
    ///
    /// # Errors
    /// Returns the first error found.
    pub fn check(&self) -> Result<(), DatasetError> {
        // A cache file was validated against its schema when it was opened.
        let is_checked = match &self.graphs {
            Graphs::Cached(cached) => cached.schema().same_layout(&self.schema),
            Graphs::InMemory(_) => false,
        };
        let unchecked = if is_checked { 0 } else { self.graphs.len() };
        for (index, graph) in self.graphs.iter().take(unchecked).enumerate() {
            graph.check().map_err(|source| DatasetError::Graph { graph: index, source })?;
            if let Some(part) = self.schema.mismatch(&graph) {
                return Err(DatasetError::Schema { graph: index, part });
            }
        }
        let graphs = self.graphs.len();
        for split in [Split::Train, Split::Valid, Split::Test] {
            let indices = self.split(split);
            if indices.is_empty() {
                return Err(DatasetError::EmptySplit { split });
            }
            if let Some(&index) = indices.iter().find(|&&index| index >= graphs) {
                return Err(DatasetError::SplitIndex { split, index, graphs });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Features;
    use crate::schema::{FeatureSchema, Names};

    fn one_graph() -> Dataset {
        Dataset {
            graphs: Graphs::InMemory(vec![Graph {
                num_nodes: 1,
                edges: vec![],
                node_features: Features::Categorical { columns: 2, values: vec![1, 4] },
                edge_features: Features::None,
                targets: Targets::GraphValues(vec![0.0, f32::NAN]),
            }]),
            schema: Schema {
                node_features: FeatureSchema::Categorical(vec![2, 5]),
                edge_features: FeatureSchema::None,
                targets: TargetSchema::binary(2),
                names: Names::default(),
            },
            splits: Splits { train: vec![0], valid: vec![0], test: vec![0] },
        }
    }

    #[test]
    fn missing_labels_pass_check() {
        assert_eq!(one_graph().check(), Ok(()));
    }

    #[test]
    fn regression_targets_are_standardized_by_the_training_split() {
        let mut dataset = one_graph();
        let Graphs::InMemory(graphs) = &mut dataset.graphs else {
            panic!("expected graphs in memory")
        };
        for values in [[1.0, 0.0], [5.0, 1.0], [100.0, 1.0]] {
            let targets = Targets::GraphValues(values.to_vec());
            graphs.push(Graph { targets, ..graphs[0].clone() });
        }
        let regression = TargetKind::Regression(Standardization::IDENTITY);
        dataset.schema.targets = TargetSchema::Graph(vec![regression, TargetKind::Binary]);
        dataset.splits.train = vec![1, 2];
        dataset.standardize_targets();
        let standardized = TargetKind::Regression(Standardization { mean: 3.0, std: 2.0 });
        assert_eq!(dataset.schema.targets.graph_targets(), [standardized, TargetKind::Binary]);
    }

    #[test]
    fn category_out_of_range_is_rejected() {
        let mut dataset = one_graph();
        dataset.schema.node_features = FeatureSchema::Categorical(vec![2, 4]);
        assert_eq!(dataset.check(), Err(DatasetError::Schema { graph: 0, part: "node features" }));
    }

    #[test]
    fn label_other_than_0_1_or_missing_is_rejected() {
        let mut dataset = one_graph();
        let Graphs::InMemory(graphs) = &mut dataset.graphs else {
            panic!("expected graphs in memory")
        };
        graphs[0].targets = Targets::GraphValues(vec![0.5, 1.0]);
        assert_eq!(dataset.check(), Err(DatasetError::Schema { graph: 0, part: "targets" }));
    }

    #[test]
    fn empty_splits_and_indices_out_of_range_are_rejected() {
        let mut dataset = one_graph();
        dataset.splits.test = vec![0, 1];
        let error = DatasetError::SplitIndex { split: Split::Test, index: 1, graphs: 1 };
        assert_eq!(dataset.check(), Err(error));
        dataset.splits.test = vec![];
        assert_eq!(dataset.check(), Err(DatasetError::EmptySplit { split: Split::Test }));
    }
}
