//! Datasets: graphs, their schema, and their train, validation and test splits.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::graph::{Features, Graph, GraphError, Targets};
use crate::io::cache::CachedGraphs;

/// Schema of node or edge features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureSchema {
    /// No features.
    None,
    /// Categorical columns, with the number of categories of each.
    Categorical(Vec<usize>),
    /// Number of float columns.
    Float(usize),
}

/// Schema of the prediction targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetSchema {
    /// Multi-class classification of nodes, with the number of classes.
    NodeMulticlass(usize),
    /// Regression of graphs, with the number of targets.
    Regression(usize),
    /// Binary or multi-label classification of graphs, with the number of labels.
    Multilabel(usize),
    /// Multi-class classification of graphs, with the number of classes.
    Multiclass(usize),
    /// Sub-token prediction for graphs, with the size of the vocabulary; its last two entries are
    /// the unknown token and the end token.
    SubTokens(usize),
    /// Link prediction between the nodes of a graph.
    LinkPrediction,
}

impl TargetSchema {
    /// Returns the number of outputs per prediction.
    ///
    /// It is 0 for [`TargetSchema::LinkPrediction`], where the model chooses the dimension of its
    /// node embeddings.
    pub fn outputs(self) -> usize {
        match self {
            Self::NodeMulticlass(count)
            | Self::Regression(count)
            | Self::Multilabel(count)
            | Self::Multiclass(count)
            | Self::SubTokens(count) => count,
            Self::LinkPrediction => 0,
        }
    }

    /// Returns placeholder targets for an unlabeled graph with `nodes` nodes.
    ///
    /// They match the schema: missing values for regression and multi-label targets, class 0 for
    /// classes, and empty lists otherwise.
    pub fn placeholder(self, nodes: usize) -> Targets {
        match self {
            Self::NodeMulticlass(_) => Targets::NodeClasses(vec![0; nodes]),
            Self::Regression(count) | Self::Multilabel(count) => {
                Targets::GraphValues(vec![f32::NAN; count])
            }
            Self::Multiclass(_) => Targets::GraphClass(0),
            Self::SubTokens(_) => Targets::SubTokens(Vec::new()),
            Self::LinkPrediction => Targets::Links(Vec::new()),
        }
    }
}

/// Names of targets, classes and categories; a list is empty if there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Names {
    /// Names of the regression targets or labels.
    pub targets: Vec<String>,
    /// Names of the classes, or the sub-tokens of the vocabulary.
    pub classes: Vec<String>,
    /// Names of the categories of each node feature column.
    pub node_categories: Vec<Vec<String>>,
    /// Names of the categories of each edge feature column.
    pub edge_categories: Vec<Vec<String>>,
}

/// Features and targets of a dataset; determines the inputs and outputs of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// Schema of the node features.
    pub node_features: FeatureSchema,
    /// Schema of the edge features.
    pub edge_features: FeatureSchema,
    /// Schema of the targets.
    pub targets: TargetSchema,
    /// Names of targets, classes and categories.
    #[serde(default)]
    pub names: Names,
}

impl Schema {
    /// Returns `true` if features and targets are equal, ignoring names.
    pub fn same_layout(&self, other: &Self) -> bool {
        self.node_features == other.node_features
            && self.edge_features == other.edge_features
            && self.targets == other.targets
    }

    /// Returns the first part of a graph that does not match the schema: `node features`,
    /// `edge features` or `targets`.
    pub fn mismatch(&self, graph: &Graph) -> Option<&'static str> {
        if !matches_schema(&graph.node_features, &self.node_features) {
            return Some("node features");
        }
        if !matches_schema(&graph.edge_features, &self.edge_features) {
            return Some("edge features");
        }
        let targets_match = match (&graph.targets, self.targets) {
            (Targets::NodeClasses(classes), TargetSchema::NodeMulticlass(count)) => {
                classes.iter().all(|&class| (class as usize) < count)
            }
            (Targets::GraphValues(values), TargetSchema::Regression(count)) => {
                values.len() == count
            }
            (Targets::GraphValues(values), TargetSchema::Multilabel(count)) => {
                values.len() == count
                    && values.iter().all(|value| value.is_nan() || *value == 0.0 || *value == 1.0)
            }
            (Targets::GraphClass(class), TargetSchema::Multiclass(count)) => {
                (*class as usize) < count
            }
            (Targets::SubTokens(_), TargetSchema::SubTokens(_))
            | (Targets::Links(_), TargetSchema::LinkPrediction) => true,
            _ => false,
        };
        (!targets_match).then_some("targets")
    }
}

/// A split of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Training split.
    Train,
    /// Validation split, used for model selection.
    Valid,
    /// Test split.
    Test,
}

impl fmt::Display for Split {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Train => "training",
            Self::Valid => "validation",
            Self::Test => "test",
        })
    }
}

/// Graph indices of the three splits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splits {
    /// Indices of the training graphs.
    pub train: Vec<usize>,
    /// Indices of the validation graphs, used for model selection.
    pub valid: Vec<usize>,
    /// Indices of the test graphs.
    pub test: Vec<usize>,
}

/// The graphs of a dataset, in memory or in a file.
///
/// Two values are equal if they hold the same graphs.
#[derive(Debug, Clone)]
pub enum Graphs {
    /// In memory.
    InMemory(Vec<Graph>),
    /// In a memory-mapped cache file.
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
    /// Panics if `index` is out of bounds.
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
    pub fn nodes(&self, index: usize) -> usize {
        match self {
            Self::InMemory(graphs) => graphs[index].nodes,
            Self::Cached(graphs) => graphs.nodes(index),
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
/// let edge = |class| Graph {
///     nodes: 2,
///     edges: vec![[0, 1], [1, 0]],
///     node_features: Features::Categorical { columns: 1, values: vec![0, 3] },
///     edge_features: Features::None,
///     targets: Targets::GraphClass(class),
/// };
/// let dataset = Dataset {
///     graphs: Graphs::InMemory(vec![edge(0), edge(1), edge(0)]),
///     schema: Schema {
///         node_features: FeatureSchema::Categorical(vec![4]),
///         edge_features: FeatureSchema::None,
///         targets: TargetSchema::Multiclass(2),
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
    /// A split is empty or contains an index that is out of range.
    #[error("{split} split is empty or has an index out of range for {graphs} graphs")]
    Split {
        /// The invalid split.
        split: Split,
        /// Number of graphs in the dataset.
        graphs: usize,
    },
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
            if indices.is_empty() || indices.iter().any(|&index| index >= graphs) {
                return Err(DatasetError::Split { split, graphs });
            }
        }
        Ok(())
    }
}

fn matches_schema(features: &Features, schema: &FeatureSchema) -> bool {
    match (features, schema) {
        (Features::None, FeatureSchema::None) => true,
        (Features::Categorical { columns, values }, FeatureSchema::Categorical(sizes)) => {
            *columns == sizes.len()
                && values
                    .iter()
                    .zip(sizes.iter().cycle())
                    .all(|(&value, &size)| (value as usize) < size)
        }
        (Features::Float { columns, .. }, FeatureSchema::Float(expected)) => columns == expected,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_graph() -> Dataset {
        Dataset {
            graphs: Graphs::InMemory(vec![Graph {
                nodes: 1,
                edges: vec![],
                node_features: Features::Categorical { columns: 2, values: vec![1, 4] },
                edge_features: Features::None,
                targets: Targets::GraphValues(vec![0.0, f32::NAN]),
            }]),
            schema: Schema {
                node_features: FeatureSchema::Categorical(vec![2, 5]),
                edge_features: FeatureSchema::None,
                targets: TargetSchema::Multilabel(2),
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
    fn split_index_out_of_range_is_rejected() {
        let mut dataset = one_graph();
        dataset.splits.test = vec![1];
        assert_eq!(dataset.check(), Err(DatasetError::Split { split: Split::Test, graphs: 1 }));
    }
}
