//! A dataset: graphs, what their numbers mean, and which are for what.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::cache::CachedGraphs;
use crate::graph::{Features, Graph, GraphError, Targets};

/// What a column of features may hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureSchema {
    /// No features.
    None,
    /// Category columns, each with its number of categories.
    Categorical(Vec<usize>),
    /// So many columns of real numbers.
    Float(usize),
}

/// What is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetSchema {
    /// One of so many classes for every node.
    NodeMulticlass(usize),
    /// So many real numbers for the graph.
    Regression(usize),
    /// So many yes-or-no labels for the graph.
    Multilabel(usize),
    /// One of so many classes for the graph.
    Multiclass(usize),
    /// Words out of a vocabulary of so many, of which the last two are an unknown word and the end.
    SubTokens(usize),
    /// Which pairs of nodes belong together.
    LinkPrediction,
}

impl TargetSchema {
    /// How many numbers a row of the prediction has; 0 for [`TargetSchema::LinkPrediction`], where it is a vector of the
    /// model's choosing.
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

    /// Targets of a graph of so many nodes of which nothing is known: they fit, and say nothing.
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

/// What the numbers of a dataset are called; a list is empty where they have no names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Names {
    /// Of the values or labels of a graph.
    pub targets: Vec<String>,
    /// Of the classes, or the words of the vocabulary.
    pub classes: Vec<String>,
    /// Of the categories of each column of node features.
    pub node_categories: Vec<Vec<String>>,
    /// Of the categories of each column of edge features.
    pub edge_categories: Vec<Vec<String>>,
}

/// What the numbers of a dataset mean: all that a model has to know of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// What node features mean.
    pub node_features: FeatureSchema,
    /// What edge features mean.
    pub edge_features: FeatureSchema,
    /// What is predicted.
    pub targets: TargetSchema,
    /// What they are called.
    #[serde(default)]
    pub names: Names,
}

impl Schema {
    /// Whether the numbers mean the same, whatever they are called.
    pub fn same_layout(&self, other: &Self) -> bool {
        self.node_features == other.node_features
            && self.edge_features == other.edge_features
            && self.targets == other.targets
    }

    /// The part of a graph that does not fit: `node features`, `edge features` or `targets`.
    pub fn mismatch(&self, graph: &Graph) -> Option<&'static str> {
        if !fits(&graph.node_features, &self.node_features) {
            return Some("node features");
        }
        if !fits(&graph.edge_features, &self.edge_features) {
            return Some("edge features");
        }
        let targets_fit = match (&graph.targets, self.targets) {
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
        (!targets_fit).then_some("targets")
    }
}

/// One part of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// What the model learns from.
    Train,
    /// What the best epoch is chosen by.
    Valid,
    /// What is reported.
    Test,
}

/// Graph numbers of the three parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splits {
    /// What the model learns from.
    pub train: Vec<usize>,
    /// What the best epoch is chosen by.
    pub valid: Vec<usize>,
    /// What is reported.
    pub test: Vec<usize>,
}

/// Graphs by number, wherever they are kept; equal when they hold the same graphs.
#[derive(Debug, Clone)]
pub enum Graphs {
    /// In memory.
    Listed(Vec<Graph>),
    /// In a mapped file.
    Cached(CachedGraphs),
}

impl PartialEq for Graphs {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Graphs {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Listed(graphs) => graphs.len(),
            Self::Cached(graphs) => graphs.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The graph of this number.
    pub fn get(&self, number: usize) -> Cow<'_, Graph> {
        match self {
            Self::Listed(graphs) => Cow::Borrowed(&graphs[number]),
            Self::Cached(graphs) => Cow::Owned(graphs.get(number)),
        }
    }

    /// How many nodes the graph of this number has.
    pub fn nodes(&self, number: usize) -> usize {
        match self {
            Self::Listed(graphs) => graphs[number].nodes,
            Self::Cached(graphs) => graphs.nodes(number),
        }
    }

    /// All of them in order.
    pub fn iter(&self) -> impl Iterator<Item = Cow<'_, Graph>> {
        (0..self.len()).map(|number| self.get(number))
    }
}

/// Graphs, their schema and their split.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// All graphs; elsewhere a graph is named by its place here.
    pub graphs: Graphs,
    /// What their numbers mean.
    pub schema: Schema,
    /// Which graphs are for what.
    pub splits: Splits,
}

/// What can be wrong with a dataset.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// One graph is unusable by itself.
    #[error("graph {graph} cannot be used")]
    Graph {
        /// Its number.
        graph: usize,
        /// What is wrong with it.
        source: GraphError,
    },
    /// A graph does not have the features or targets that the schema promises.
    #[error("graph {graph}: its {part} do not fit the dataset's schema")]
    Schema {
        /// Its number.
        graph: usize,
        /// `node features`, `edge features` or `targets`.
        part: &'static str,
    },
    /// A part of the split is empty or names a graph that does not exist.
    #[error("the {split:?} split is empty or names a graph beyond the {graphs} there are")]
    Split {
        /// Which part.
        split: Split,
        /// How many graphs there are.
        graphs: usize,
    },
}

impl Dataset {
    /// The graph numbers of one part.
    pub fn split(&self, split: Split) -> &[usize] {
        match split {
            Split::Train => &self.splits.train,
            Split::Valid => &self.splits.valid,
            Split::Test => &self.splits.test,
        }
    }

    /// Finds the first graph or split that would fail later.
    ///
    /// # Errors
    /// The first fault found, with the graph's number.
    pub fn check(&self) -> Result<(), DatasetError> {
        // A cached file was checked against its schema when it was opened.
        let is_checked = matches!(&self.graphs, Graphs::Cached(cached) if cached.schema().same_layout(&self.schema));
        let unchecked = if is_checked { 0 } else { self.graphs.len() };
        for (number, graph) in self.graphs.iter().take(unchecked).enumerate() {
            graph.check().map_err(|source| DatasetError::Graph { graph: number, source })?;
            if let Some(part) = self.schema.mismatch(&graph) {
                return Err(DatasetError::Schema { graph: number, part });
            }
        }
        let graphs = self.graphs.len();
        for split in [Split::Train, Split::Valid, Split::Test] {
            let numbers = self.split(split);
            if numbers.is_empty() || numbers.iter().any(|&number| number >= graphs) {
                return Err(DatasetError::Split { split, graphs });
            }
        }
        Ok(())
    }
}

fn fits(features: &Features, schema: &FeatureSchema) -> bool {
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
            graphs: Graphs::Listed(vec![Graph {
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
    fn missing_labels_are_allowed() {
        assert_eq!(one_graph().check(), Ok(()));
    }

    #[test]
    fn a_category_beyond_its_table_is_refused() {
        let mut dataset = one_graph();
        dataset.schema.node_features = FeatureSchema::Categorical(vec![2, 4]);
        assert_eq!(dataset.check(), Err(DatasetError::Schema { graph: 0, part: "node features" }));
    }

    #[test]
    fn a_label_must_be_zero_one_or_missing() {
        let mut dataset = one_graph();
        let Graphs::Listed(graphs) = &mut dataset.graphs else { panic!("the graphs are listed") };
        graphs[0].targets = Targets::GraphValues(vec![0.5, 1.0]);
        assert_eq!(dataset.check(), Err(DatasetError::Schema { graph: 0, part: "targets" }));
    }

    #[test]
    fn a_split_names_graphs_that_exist() {
        let mut dataset = one_graph();
        dataset.splits.test = vec![1];
        assert_eq!(dataset.check(), Err(DatasetError::Split { split: Split::Test, graphs: 1 }));
    }
}
