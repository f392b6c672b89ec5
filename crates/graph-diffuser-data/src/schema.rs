//! Schema of a dataset: types and sizes of features and targets, and their names.

use serde::{Deserialize, Serialize};

use crate::graph::{Features, Graph, MISSING_CLASS, Targets};

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
    /// Categorical and float columns in the order of the input, at least one of each.
    Mixed(Vec<ColumnSchema>),
}

/// Schema of one feature column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnSchema {
    /// Categorical column, with the number of categories.
    Categorical(usize),
    /// Float column.
    Float,
}

impl FeatureSchema {
    /// Creates the schema of features with the given columns.
    ///
    /// ```
    /// use graph_diffuser_data::{ColumnSchema, FeatureSchema};
    ///
    /// let floats = FeatureSchema::from_columns(vec![ColumnSchema::Float; 2]);
    /// assert_eq!(floats, FeatureSchema::Float(2));
    /// ```
    pub fn from_columns(columns: Vec<ColumnSchema>) -> Self {
        let mixed = Self::Mixed(columns);
        match (mixed.category_sizes(), mixed.num_floats()) {
            (sizes, 0) if sizes.is_empty() => Self::None,
            (sizes, 0) => Self::Categorical(sizes),
            (sizes, count) if sizes.is_empty() => Self::Float(count),
            _ => mixed,
        }
    }

    /// Returns the number of categories of each categorical column.
    pub fn category_sizes(&self) -> Vec<usize> {
        match self {
            Self::None | Self::Float(_) => Vec::new(),
            Self::Categorical(sizes) => sizes.clone(),
            Self::Mixed(columns) => columns
                .iter()
                .filter_map(|column| match column {
                    ColumnSchema::Categorical(size) => Some(*size),
                    ColumnSchema::Float => None,
                })
                .collect(),
        }
    }

    /// Returns the number of float columns.
    pub fn num_floats(&self) -> usize {
        match self {
            Self::None | Self::Categorical(_) => 0,
            Self::Float(count) => *count,
            Self::Mixed(columns) => {
                columns.iter().filter(|column| **column == ColumnSchema::Float).count()
            }
        }
    }

    /// Returns all columns in the order of the input.
    pub fn columns(&self) -> Vec<ColumnSchema> {
        match self {
            Self::None => Vec::new(),
            Self::Categorical(sizes) => {
                sizes.iter().map(|&size| ColumnSchema::Categorical(size)).collect()
            }
            Self::Float(count) => vec![ColumnSchema::Float; *count],
            Self::Mixed(columns) => columns.clone(),
        }
    }
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
    /// They match the schema: missing values for regression, multi-label and node targets, class 0
    /// for graph classes, and empty lists otherwise.
    pub fn placeholder(self, nodes: usize) -> Targets {
        match self {
            Self::NodeMulticlass(_) => Targets::NodeClasses(vec![MISSING_CLASS; nodes]),
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
    /// Names of the categories of each categorical node feature column.
    pub node_categories: Vec<Vec<String>>,
    /// Names of the categories of each categorical edge feature column.
    pub edge_categories: Vec<Vec<String>>,
    /// Names of the node feature columns, such as the attributes of a NetworkX graph.
    pub node_columns: Vec<String>,
    /// Names of the edge feature columns.
    pub edge_columns: Vec<String>,
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
                classes.iter().all(|&class| (class as usize) < count || class == MISSING_CLASS)
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
    let sizes = schema.category_sizes();
    let (columns, categories) = features.categories();
    columns == sizes.len()
        && features.floats().0 == schema.num_floats()
        && categories
            .iter()
            .zip(sizes.iter().cycle())
            .all(|(&category, &size)| (category as usize) < size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_schema_keeps_the_column_order_in_json() {
        use ColumnSchema::{Categorical, Float};
        let schema = FeatureSchema::from_columns(vec![Float, Categorical(4), Float]);
        assert_eq!((schema.category_sizes(), schema.num_floats()), (vec![4], 2));
        let json = serde_json::to_string(&schema).unwrap();
        assert_eq!(json, r#"{"mixed":["float",{"categorical":4},"float"]}"#);
        assert_eq!(serde_json::from_str::<FeatureSchema>(&json).unwrap(), schema);
    }

    #[test]
    fn mixed_features_match_by_sizes_and_number_of_floats() {
        use ColumnSchema::{Categorical, Float};
        let schema = FeatureSchema::from_columns(vec![Categorical(2), Float]);
        let features = |category| Features::from_tables(1, vec![category], 1, vec![0.5]);
        assert!(matches_schema(&features(1), &schema));
        assert!(!matches_schema(&features(2), &schema));
        assert!(!matches_schema(&Features::from_tables(1, vec![0], 2, vec![0.5; 2]), &schema));
        assert!(!matches_schema(&Features::None, &schema));
    }

    #[test]
    fn missing_node_classes_match_the_schema() {
        let schema = Schema {
            node_features: FeatureSchema::None,
            edge_features: FeatureSchema::None,
            targets: TargetSchema::NodeMulticlass(2),
            names: Names::default(),
        };
        let graph = |classes| Graph {
            num_nodes: 2,
            edges: vec![],
            node_features: Features::None,
            edge_features: Features::None,
            targets: Targets::NodeClasses(classes),
        };
        assert_eq!(schema.mismatch(&graph(vec![1, MISSING_CLASS])), None);
        assert_eq!(schema.mismatch(&graph(vec![1, 2])), Some("targets"));
    }
}
