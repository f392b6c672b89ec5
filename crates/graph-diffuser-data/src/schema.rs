//! Schema of a dataset: types and sizes of features and targets, and their names.

use serde::{Deserialize, Serialize};

use crate::graph::{Features, Graph, Targets};

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
