//! Attention of one graph as plain data.

use graph_diffuser_data::{Features, Graph, Schema};
use serde::{Deserialize, Serialize};

use crate::ops::ScoreCombination;

use super::atoms;
use super::structure::Structure;

/// Matrix as a vector of rows, which serializes as nested lists.
pub type NestedMatrix = Vec<Vec<f32>>;

/// Attention, edge weights and random walks of a model on one graph.
///
/// Fields with rows have one row per query node of [`AttentionTrace::rows`], in that order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionTrace {
    /// Format name and version, [`AttentionTrace::FORMAT`].
    pub format: String,
    /// Name of the recipe.
    pub recipe: String,
    /// Traced graph.
    pub graph: TracedGraph,
    /// Query nodes in ascending order. The number of nodes denotes the CLS node.
    pub rows: Vec<usize>,
    /// True if the last column of every row is a CLS node.
    pub cls: bool,
    /// Combination of position and content scores; absent if the model has only one of them.
    pub combine: Option<ScoreCombination>,
    /// Attention of each layer.
    pub layers: Vec<LayerAttention>,
    /// Weight of each edge in the row-normalized adjacency `A` (Eq. 4–5); absent without virtual
    /// edges.
    pub edge_weights: Option<Vec<f32>>,
    /// Random-walk distributions after 0 to `k` steps (Eq. 1), `[rows][k + 1][n]`, without the CLS
    /// row; absent without virtual edges.
    pub walks: Option<Vec<NestedMatrix>>,
    /// Prediction and target.
    pub outcome: PredictionAndTarget,
}

/// Graph of an [`AttentionTrace`], with labels and structure for drawing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedGraph {
    /// Index in the dataset; absent for a molecule given as SMILES.
    pub index: Option<usize>,
    /// Number of nodes `n`.
    pub nodes: usize,
    /// Edges as (source, target).
    pub edges: Vec<[u32; 2]>,
    /// Features of each node, category indices or values; empty if there are none.
    pub node_features: NestedMatrix,
    /// Features of each edge; empty if there are none.
    pub edge_features: NestedMatrix,
    /// Label of each node in figures: element, category name or letter, or node index.
    pub labels: Vec<String>,
    /// Kind of structure.
    pub structure: Structure,
}

impl TracedGraph {
    /// Describes a graph; `index` is its position in the dataset.
    pub fn new(graph: &Graph, index: Option<usize>, schema: &Schema) -> Self {
        Self {
            index,
            nodes: graph.num_nodes,
            edges: graph.edges.clone(),
            node_features: feature_rows(&graph.node_features),
            edge_features: feature_rows(&graph.edge_features),
            labels: atoms::labels(graph, schema),
            structure: atoms::structure(graph, schema),
        }
    }

    /// Returns a name for messages, such as `graph 3`.
    pub fn name(&self) -> String {
        self.index.map_or("the molecule".to_owned(), |index| format!("graph {index}"))
    }
}

/// Attention of one layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerAttention {
    /// Attention of each head.
    pub heads: Vec<HeadAttention>,
    /// Elementwise mean over heads.
    pub mean: HeadAttention,
}

/// Attention weights of one head, one column per node; a CLS node is the last column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadAttention {
    /// `σ(position)`, or the softmax of the position scores if they are added to content (Eq. 6).
    pub position: Option<NestedMatrix>,
    /// Softmax of the content scores (Eq. 7).
    pub content: Option<NestedMatrix>,
    /// Attention weights: the normalized product of both (Eq. 8). Rows sum to one.
    pub attention: NestedMatrix,
}

/// Prediction and target of a graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PredictionAndTarget {
    /// One class per node.
    NodeClasses {
        /// Class probabilities of each node.
        probabilities: NestedMatrix,
        /// Most likely class of each node.
        predicted: Vec<u32>,
        /// True class of each node; `None` if missing.
        targets: Vec<Option<u32>>,
        /// Class names; empty if unknown.
        names: Vec<String>,
    },
    /// Graph-level targets.
    Graph {
        /// Prediction and value of each target.
        targets: Vec<TracedTarget>,
    },
    /// Sub-token sequence, as vocabulary indices.
    SubTokens {
        /// Most likely token of each position, up to the end-of-sequence token.
        predicted: Vec<u32>,
        /// True tokens.
        targets: Vec<u32>,
        /// Vocabulary; empty if unknown.
        names: Vec<String>,
    },
    /// Links between nodes.
    Links {
        /// Link probabilities to every node, one row per query node except the CLS node.
        probabilities: NestedMatrix,
        /// True links.
        targets: Vec<[u32; 2]>,
    },
}

/// Prediction and value of one graph-level target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TracedTarget {
    /// Regression target.
    Regression {
        /// Name of the target.
        name: String,
        /// Predicted value.
        predicted: f32,
        /// True value; `None` if missing.
        target: Option<f32>,
    },
    /// Binary target.
    Binary {
        /// Name of the target.
        name: String,
        /// Probability of the positive class.
        probability: f32,
        /// True label, 0 or 1; `None` if missing.
        target: Option<u32>,
        /// Names of the negative and the positive class; empty for 0/1 labels.
        classes: Vec<String>,
    },
    /// Multi-class target.
    Multiclass {
        /// Name of the target.
        name: String,
        /// Probability of each class.
        probabilities: Vec<f32>,
        /// Most likely class.
        predicted: u32,
        /// True class; `None` if missing.
        target: Option<u32>,
        /// Class names; empty if unknown.
        classes: Vec<String>,
    },
}

impl TracedTarget {
    /// Returns the name of the target.
    pub fn name(&self) -> &str {
        let (Self::Regression { name, .. }
        | Self::Binary { name, .. }
        | Self::Multiclass { name, .. }) = self;
        name
    }

    /// Returns whether the true value is known.
    pub fn is_observed(&self) -> bool {
        match self {
            Self::Regression { target, .. } => target.is_some(),
            Self::Binary { target, .. } | Self::Multiclass { target, .. } => target.is_some(),
        }
    }

    /// Returns the absolute error (regression) or one minus the probability of the true class;
    /// `None` if the true value is missing.
    pub fn error(&self) -> Option<f64> {
        match self {
            Self::Regression { predicted, target, .. } => {
                target.map(|target| f64::from((predicted - target).abs()))
            }
            Self::Binary { probability, target, .. } => {
                target.map(|target| (f64::from(*probability) - f64::from(target)).abs())
            }
            Self::Multiclass { probabilities, target, .. } => {
                target.map(|target| 1.0 - f64::from(probabilities[target as usize]))
            }
        }
    }
}

impl AttentionTrace {
    /// Name and version of the format.
    pub const FORMAT: &str = "graph-diffuser attention trace 1";

    /// Serializes the trace as JSON on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data serializes")
    }

    /// Returns the row of a query node.
    pub fn row_of(&self, node: usize) -> Option<usize> {
        self.rows.iter().position(|&row| row == node)
    }

    /// Returns one head of a layer, or the mean of its heads.
    pub fn head(&self, layer: usize, head: Option<usize>) -> &HeadAttention {
        let layer = &self.layers[layer];
        head.map_or(&layer.mean, |head| &layer.heads[head])
    }
}

impl LayerAttention {
    /// Creates a layer from its heads and computes their mean.
    pub fn new(heads: Vec<HeadAttention>) -> Self {
        let mean = HeadAttention {
            position: mean(heads.iter().filter_map(|head| head.position.as_ref())),
            content: mean(heads.iter().filter_map(|head| head.content.as_ref())),
            attention: mean(heads.iter().map(|head| &head.attention)).unwrap_or_default(),
        };
        Self { heads, mean }
    }
}

fn feature_rows(features: &Features) -> NestedMatrix {
    match features {
        Features::None => vec![],
        Features::Categorical { columns, values } => values
            .chunks(*columns)
            .map(|row| row.iter().map(|&value| value as f32).collect())
            .collect(),
        Features::Float { columns, values } => {
            values.chunks(*columns).map(<[f32]>::to_vec).collect()
        }
        Features::Mixed { categorical_columns, categories, float_columns, floats } => categories
            .chunks(*categorical_columns)
            .zip(floats.chunks(*float_columns))
            .map(|(categories, floats)| {
                let categories = categories.iter().map(|&category| category as f32);
                categories.chain(floats.iter().copied()).collect()
            })
            .collect(),
    }
}

/// Returns the elementwise mean, or `None` of an empty iterator.
fn mean<'a>(matrices: impl Iterator<Item = &'a NestedMatrix>) -> Option<NestedMatrix> {
    let matrices: Vec<&NestedMatrix> = matrices.collect();
    let first = matrices.first()?;
    let entry = |row: usize, column: usize| {
        matrices.iter().map(|matrix| matrix[row][column]).sum::<f32>() / matrices.len() as f32
    };
    let row = |row: usize| (0..first[row].len()).map(|column| entry(row, column)).collect();
    Some((0..first.len()).map(row).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const SMALL_GRID: &str = include_str!("../../tests/fixtures/small_grid_trace.json");

    /// Returns the trace of a colored 2 x 3 grid with synthetic weights, one layer and two heads.
    pub(in super::super) fn small_grid() -> AttentionTrace {
        serde_json::from_str(SMALL_GRID).unwrap()
    }

    #[test]
    fn json_format_is_stable() {
        assert_eq!(small_grid().to_json(), SMALL_GRID.trim_end());
    }

    #[test]
    fn mean_over_heads_is_elementwise() {
        let head =
            |attention: NestedMatrix, content| HeadAttention { position: None, content, attention };
        let layer = LayerAttention::new(vec![
            head(vec![vec![0.0, 1.0]], Some(vec![vec![0.5, 0.5]])),
            head(vec![vec![0.5, 0.5]], Some(vec![vec![1.0, 0.0]])),
        ]);
        assert_eq!(layer.mean, head(vec![vec![0.25, 0.75]], Some(vec![vec![0.75, 0.25]])));
    }
}
