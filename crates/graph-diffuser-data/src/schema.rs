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

/// Kind of one graph-level target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// Real value.
    Regression(Standardization),
    /// Binary label, 0 or 1.
    Binary,
    /// One of several classes, with their number.
    Multiclass(usize),
}

impl TargetKind {
    /// Returns the number of model outputs of the target.
    pub fn outputs(self) -> usize {
        match self {
            Self::Regression(_) | Self::Binary => 1,
            Self::Multiclass(classes) => classes,
        }
    }

    /// Returns whether `value` is a valid value of the target; NaN is a missing value.
    pub fn accepts(self, value: f32) -> bool {
        value.is_nan()
            || match self {
                Self::Regression(_) => true,
                Self::Binary => value == 0.0 || value == 1.0,
                Self::Multiclass(classes) => {
                    value >= 0.0 && value.fract() == 0.0 && (value as usize) < classes
                }
            }
    }

    /// Returns whether both are of the same kind, ignoring the standardization.
    fn same_layout(self, other: Self) -> bool {
        matches!((self, other), (Self::Regression(_), Self::Regression(_))) || self == other
    }
}

/// Mean and standard deviation by which a model standardizes a regression target.
///
/// ```
/// use graph_diffuser_data::Standardization;
///
/// let scaling = Standardization::of([410.0, 430.0, f32::NAN]);
/// assert_eq!((scaling.mean, scaling.std), (420.0, 10.0));
/// assert_eq!(scaling.apply(430.0), 1.0);
/// assert_eq!(scaling.invert(1.0), 430.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standardization {
    /// Mean of the training targets.
    pub mean: f64,
    /// Population standard deviation of the training targets.
    pub std: f64,
}

impl Standardization {
    /// Leaves targets unchanged.
    pub const IDENTITY: Self = Self { mean: 0.0, std: 1.0 };

    /// Computes the statistics of the values that are not NaN; without at least two distinct ones
    /// the standard deviation is 1.
    pub fn of(values: impl IntoIterator<Item = f32>) -> Self {
        let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
        for value in values.into_iter().map(f64::from).filter(|value| !value.is_nan()) {
            // Welford's algorithm: accurate even if the mean is large and the deviation small.
            count += 1.0;
            let delta = value - mean;
            mean += delta / count;
            squares += delta * (value - mean);
        }
        let std = if squares > 0.0 { f64::sqrt(squares / count) } else { 1.0 };
        Self { mean, std }
    }

    /// Standardizes a target.
    pub fn apply(self, value: f32) -> f32 {
        if self == Self::IDENTITY {
            return value;
        }
        ((f64::from(value) - self.mean) / self.std) as f32
    }

    /// Converts a model output to the units of the target.
    pub fn invert(self, output: f32) -> f32 {
        if self == Self::IDENTITY {
            return output;
        }
        (f64::from(output) * self.std + self.mean) as f32
    }
}

impl Default for Standardization {
    fn default() -> Self {
        Self::IDENTITY
    }
}

/// Schema of the prediction targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetSchema {
    /// Graph-level targets of any combination of kinds.
    Graph(Vec<TargetKind>),
    /// Multi-class classification of nodes, with the number of classes.
    NodeMulticlass(usize),
    /// Sub-token prediction for graphs, with the size of the vocabulary; its last two entries are
    /// the unknown token and the end token.
    SubTokens(usize),
    /// Link prediction between the nodes of a graph.
    LinkPrediction,
}

impl TargetSchema {
    /// Returns the schema of `count` regression targets that are not standardized.
    pub fn regression(count: usize) -> Self {
        Self::Graph(vec![TargetKind::Regression(Standardization::IDENTITY); count])
    }

    /// Returns the schema of `count` binary labels.
    pub fn binary(count: usize) -> Self {
        Self::Graph(vec![TargetKind::Binary; count])
    }

    /// Returns the schema of one multi-class target.
    pub fn multiclass(classes: usize) -> Self {
        Self::Graph(vec![TargetKind::Multiclass(classes)])
    }

    /// Returns the kinds of the graph-level targets; empty for other tasks.
    pub fn graph_targets(&self) -> &[TargetKind] {
        match self {
            Self::Graph(kinds) => kinds,
            Self::NodeMulticlass(_) | Self::SubTokens(_) | Self::LinkPrediction => &[],
        }
    }

    /// Returns the number of outputs per prediction.
    ///
    /// It is 0 for [`TargetSchema::LinkPrediction`], where the model chooses the dimension of its
    /// node embeddings.
    pub fn outputs(&self) -> usize {
        match self {
            Self::Graph(kinds) => kinds.iter().map(|kind| kind.outputs()).sum(),
            Self::NodeMulticlass(count) | Self::SubTokens(count) => *count,
            Self::LinkPrediction => 0,
        }
    }

    /// Returns placeholder targets for an unlabeled graph with `nodes` nodes.
    ///
    /// They match the schema: missing values for graph-level and node targets, and empty lists
    /// otherwise.
    pub fn placeholder(&self, nodes: usize) -> Targets {
        match self {
            Self::Graph(kinds) => Targets::GraphValues(vec![f32::NAN; kinds.len()]),
            Self::NodeMulticlass(_) => Targets::NodeClasses(vec![MISSING_CLASS; nodes]),
            Self::SubTokens(_) => Targets::SubTokens(Vec::new()),
            Self::LinkPrediction => Targets::Links(Vec::new()),
        }
    }

    /// Returns whether both describe the same targets, ignoring their standardization.
    pub fn same_layout(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Graph(left), Self::Graph(right)) => {
                left.len() == right.len()
                    && left.iter().zip(right).all(|(left, right)| left.same_layout(*right))
            }
            _ => self == other,
        }
    }
}

/// Names of targets, classes and categories; a list is empty if there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Names {
    /// Names of the graph-level targets.
    pub targets: Vec<String>,
    /// Names of the classes of each graph-level target, empty for regression targets and 0/1
    /// labels. The names of node classes or sub-tokens are the only list.
    pub classes: Vec<Vec<String>>,
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

impl Names {
    /// Returns the name of a graph-level target; without one `target`, followed by its index if
    /// there are several of `count`.
    pub fn target(&self, index: usize, count: usize) -> String {
        self.targets.get(index).cloned().unwrap_or_else(|| {
            if count > 1 { format!("target_{index}") } else { "target".to_owned() }
        })
    }

    /// Returns the class names of a graph-level target, or of the nodes or sub-tokens if `target`
    /// is 0; empty if there are none.
    pub fn classes(&self, target: usize) -> &[String] {
        self.classes.get(target).map_or(&[], Vec::as_slice)
    }

    /// Returns the name of a class, or its index if it has none.
    pub fn class(&self, target: usize, class: usize) -> String {
        self.classes(target).get(class).cloned().unwrap_or_else(|| class.to_string())
    }
}

impl Schema {
    /// Returns `true` if features and targets are equal, ignoring names and standardization.
    pub fn same_layout(&self, other: &Self) -> bool {
        self.node_features == other.node_features
            && self.edge_features == other.edge_features
            && self.targets.same_layout(&other.targets)
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
        let targets_match = match (&graph.targets, &self.targets) {
            (Targets::GraphValues(values), TargetSchema::Graph(kinds)) => {
                values.len() == kinds.len()
                    && values.iter().zip(kinds).all(|(&value, kind)| kind.accepts(value))
            }
            (Targets::NodeClasses(classes), TargetSchema::NodeMulticlass(count)) => {
                classes.iter().all(|&class| (class as usize) < *count || class == MISSING_CLASS)
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
