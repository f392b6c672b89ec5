//! The attention of one graph as plain data.

use serde::{Deserialize, Serialize};

use crate::ops::Combine;

use super::npz;

/// Rows of numbers, as nested lists.
pub type Matrix = Vec<Vec<f32>>;

/// What a model looked at when it predicted one graph.
///
/// Everything with rows has one for each of [`AttentionTrace::rows`], in that order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionTrace {
    /// [`AttentionTrace::FORMAT`].
    pub format: String,
    /// Name of the recipe.
    pub recipe: String,
    /// The graph itself.
    pub graph: TracedGraph,
    /// Nodes whose attention is here. The number of nodes stands for the CLS node.
    pub rows: Vec<usize>,
    /// Whether a CLS node stands behind the nodes, as the last column of every row.
    pub cls: bool,
    /// How position and content are combined, where there are both.
    pub combine: Option<Combine>,
    /// From the first layer to the last.
    pub layers: Vec<LayerAttention>,
    /// Weight of each edge of the graph, rows of A (Eq. 4–5); absent without virtual edges.
    pub edge_weights: Option<Vec<f32>>,
    /// Walks of 0 to `k` steps (Eq. 1): for each row, for each step, one number a node. The CLS node has none.
    pub walks: Option<Vec<Matrix>>,
    /// What was predicted, and what is true.
    pub outcome: PredictionAndTarget,
}

/// A graph with what is needed to read and draw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedGraph {
    /// Its number in the dataset; a molecule that somebody typed has none.
    pub number: Option<usize>,
    /// How many nodes it has.
    pub nodes: usize,
    /// Edges as (source, target).
    pub edges: Vec<[u32; 2]>,
    /// Features of each node: numbers of categories, or values; empty where there are none.
    pub node_features: Matrix,
    /// The same of each edge.
    pub edge_features: Matrix,
    /// What stands on a node in a picture: an element, a category, a letter for a colour, a number.
    pub labels: Vec<String>,
    /// What kind of structure it is.
    pub structure: Structure,
}

impl TracedGraph {
    /// What a sentence calls it.
    pub fn name(&self) -> String {
        self.number.map_or("the molecule".to_owned(), |number| format!("graph {number}"))
    }
}

/// What kind of structure a graph is, as far as drawing goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Structure {
    /// Nodes row after row.
    Grid {
        /// How many rows.
        rows: usize,
        /// How many columns.
        columns: usize,
    },
    /// Atoms and bonds.
    Molecule {
        /// Lines of each edge: 1, 2, 3, or 4 for an aromatic bond.
        bonds: Vec<u8>,
    },
    /// Anything else.
    Other {},
}

/// Attention of one layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerAttention {
    /// Each head.
    pub heads: Vec<HeadAttention>,
    /// The average of the heads, part by part.
    pub mean: HeadAttention,
}

/// What one head attends to: one number for each row and node, the CLS node last where there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadAttention {
    /// `σ(position)`, or its softmax where position is added to content (Eq. 6).
    pub position: Option<Matrix>,
    /// Softmax of the content scores (Eq. 7).
    pub content: Option<Matrix>,
    /// What the nodes gather by: the normalised product (Eq. 8). Rows sum to one.
    pub attention: Matrix,
}

/// What was predicted, and what is true.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PredictionAndTarget {
    /// A class for every node.
    NodeClasses {
        /// Probability of each class, for every node of the graph.
        probabilities: Matrix,
        /// The likeliest class of each node.
        predicted: Vec<u32>,
        /// The true class of each node.
        targets: Vec<u32>,
        /// Names of the classes, where they have any.
        names: Vec<String>,
    },
    /// Numbers for the graph.
    GraphValues {
        /// One a target.
        predicted: Vec<f32>,
        /// The true ones, where they are known.
        targets: Vec<Option<f32>>,
        /// Names of the targets, where they have any.
        names: Vec<String>,
    },
    /// Yes or no for every label of the graph.
    GraphLabels {
        /// Probability of each label.
        probabilities: Vec<f32>,
        /// One, zero, or not known.
        targets: Vec<Option<f32>>,
        /// Names of the labels, where they have any.
        names: Vec<String>,
    },
    /// One class for the graph.
    GraphClass {
        /// Probability of each class.
        probabilities: Vec<f32>,
        /// The likeliest.
        predicted: u32,
        /// The true one, where it is known.
        target: Option<u32>,
        /// Names of the classes, where they have any.
        names: Vec<String>,
    },
    /// Words by number.
    Words {
        /// The likeliest word of each position, the end and what follows left out.
        predicted: Vec<u32>,
        /// The true words.
        targets: Vec<u32>,
        /// The vocabulary, where it is known.
        names: Vec<String>,
    },
    /// Pairs of nodes that belong together.
    Links {
        /// For each row that is a node of the graph, the probability of a link to every node.
        probabilities: Matrix,
        /// The true pairs.
        targets: Vec<[u32; 2]>,
    },
}

impl AttentionTrace {
    /// Says what the data is, and in which version.
    pub const FORMAT: &str = "graph-diffuser attention trace 1";

    /// As JSON on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data serialises")
    }

    /// As a file of arrays that `numpy.load` reads.
    pub fn to_npz(&self) -> Vec<u8> {
        npz::npz(self)
    }

    /// Place of a node among the rows.
    pub fn row_of(&self, node: usize) -> Option<usize> {
        self.rows.iter().position(|&row| row == node)
    }

    /// One head of a layer, or the average of its heads.
    pub fn head(&self, layer: usize, head: Option<usize>) -> &HeadAttention {
        let layer = &self.layers[layer];
        head.map_or(&layer.mean, |head| &layer.heads[head])
    }
}

impl LayerAttention {
    /// With the average of the heads.
    pub(super) fn new(heads: Vec<HeadAttention>) -> Self {
        let mean = HeadAttention {
            position: mean(heads.iter().filter_map(|head| head.position.as_ref())),
            content: mean(heads.iter().filter_map(|head| head.content.as_ref())),
            attention: mean(heads.iter().map(|head| &head.attention)).unwrap_or_default(),
        };
        Self { heads, mean }
    }
}

/// Entry by entry; nothing of nothing.
fn mean<'a>(matrices: impl Iterator<Item = &'a Matrix>) -> Option<Matrix> {
    let matrices: Vec<&Matrix> = matrices.collect();
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

    /// A coloured 2 x 3 grid whose nodes attend by made-up weights; two heads, one layer.
    pub(in super::super) fn small_grid() -> AttentionTrace {
        let (rows, columns) = (2, 3);
        let colors = [0_u32, 1, 0, 0, 1, 1];
        let nodes = rows * columns;
        let row_and_column =
            |i: usize, j: usize| i / columns == j / columns || i % columns == j % columns;
        let matrix = |of: &dyn Fn(usize, usize) -> f32| -> Matrix {
            (0..nodes).map(|i| (0..nodes).map(|j| of(i, j)).collect()).collect()
        };
        let normalised = |matrix: Matrix| -> Matrix {
            let row = |row: Vec<f32>| {
                let sum: f32 = row.iter().sum();
                row.into_iter().map(|value| value / sum).collect()
            };
            matrix.into_iter().map(row).collect()
        };
        let head = |sharp: f32| {
            let position = matrix(&|i, j| if row_and_column(i, j) { 0.9 } else { 0.9 / sharp });
            let content =
                normalised(matrix(&|i, j| if colors[i] == colors[j] { sharp } else { 1.0 }));
            let attention = normalised(matrix(&|i, j| position[i][j] * content[i][j]));
            HeadAttention { position: Some(position), content: Some(content), attention }
        };
        let edges = graph_diffuser_data::grid_histogram::edges(rows, columns);
        let one_hot =
            |class: u32| (0..3).map(|other| if other == class { 0.8 } else { 0.1 }).collect();
        let targets = vec![2, 1, 1, 1, 2, 1];
        AttentionTrace {
            format: AttentionTrace::FORMAT.to_owned(),
            recipe: "small".into(),
            graph: TracedGraph {
                number: Some(7),
                nodes,
                node_features: colors.iter().map(|&color| vec![color as f32]).collect(),
                edge_features: vec![],
                labels: colors.iter().map(|&color| ["A", "B"][color as usize].to_owned()).collect(),
                structure: Structure::Grid { rows, columns },
                edges: edges.clone(),
            },
            rows: (0..nodes).collect(),
            cls: false,
            combine: Some(Combine::Gate),
            layers: vec![LayerAttention::new(vec![head(10.0), head(2.0)])],
            edge_weights: Some(
                edges
                    .iter()
                    .map(|edge| if edge[0] == 1 || edge[0] == 4 { 1.0 / 3.0 } else { 0.5 })
                    .collect(),
            ),
            walks: None,
            outcome: PredictionAndTarget::NodeClasses {
                probabilities: targets.iter().map(|&class| one_hot(class)).collect(),
                predicted: targets.clone(),
                targets,
                names: vec![],
            },
        }
    }

    #[test]
    fn a_trace_is_the_same_after_json() {
        let trace = small_grid();
        assert_eq!(serde_json::from_str::<AttentionTrace>(&trace.to_json()).unwrap(), trace);
    }

    #[test]
    fn the_mean_is_taken_part_by_part() {
        let head =
            |attention: Matrix, content| HeadAttention { position: None, content, attention };
        let layer = LayerAttention::new(vec![
            head(vec![vec![0.0, 1.0]], Some(vec![vec![0.5, 0.5]])),
            head(vec![vec![0.5, 0.5]], Some(vec![vec![1.0, 0.0]])),
        ]);
        assert_eq!(layer.mean, head(vec![vec![0.25, 0.75]], Some(vec![vec![0.75, 0.25]])));
    }
}
