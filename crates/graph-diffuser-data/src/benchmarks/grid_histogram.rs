//! Grid histogram counting, the synthetic task of the paper.
//!
//! Each graph is a grid of colored nodes with edges between neighbors. The label of a node is the
//! number of *other* nodes of the same color in its row or column. The model receives no row or
//! column labels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, Graphs};
use crate::graph::{Features, Graph, Targets};
use crate::random::{RandomStream, SeedTree};
use crate::schema::{FeatureSchema, Names, Schema, TargetSchema};
use crate::split::Splits;

/// Configuration of the grid histogram dataset; the default is that of the paper.
///
/// ```
/// use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;
///
/// let config = GridHistogram { train: 8, valid: 1, test: 1, ..GridHistogram::default() };
/// assert_eq!(config.generate().graphs.len(), 10);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GridHistogram {
    /// Number of rows of every grid.
    pub rows: usize,
    /// Possible numbers of columns; each grid samples one.
    pub columns: Vec<usize>,
    /// Number of colors.
    pub colors: usize,
    /// Number of classes; larger counts are clipped to the last class. The paper uses 10.
    pub classes: usize,
    /// Number of training graphs.
    pub train: usize,
    /// Number of validation graphs.
    pub valid: usize,
    /// Number of test graphs.
    pub test: usize,
    /// Seed of the dataset, independent of the seed of a run.
    pub seed: u64,
}

impl Default for GridHistogram {
    fn default() -> Self {
        Self {
            rows: 10,
            columns: vec![10, 11, 12, 13],
            colors: 20,
            classes: 10,
            train: 8000,
            valid: 1000,
            test: 1000,
            seed: 0,
        }
    }
}

impl GridHistogram {
    /// Returns the reason why the configuration is invalid, if it is.
    pub fn check(&self) -> Option<&'static str> {
        match self {
            Self { rows: 0, .. } => Some("`rows` must be at least 1"),
            Self { columns, .. } if columns.is_empty() || columns.contains(&0) => {
                Some("`columns` must be a non-empty list of positive numbers")
            }
            Self { colors: 0, .. } => Some("`colors` must be at least 1"),
            Self { classes: 0 | 1, .. } => Some("`classes` must be at least 2"),
            Self { train, valid, test, .. } if [train, valid, test].contains(&&0) => {
                Some("`train`, `valid` and `test` must be at least 1")
            }
            _ if self.colors.max(self.classes) > 1 << 24 => {
                Some("`colors` and `classes` must be at most 16,777,216")
            }
            _ if self.max_total_nodes() > 1e8 => {
                Some("the dataset must not exceed 100 million nodes")
            }
            _ => None,
        }
    }

    /// Returns the maximum total number of nodes of all grids.
    fn max_total_nodes(&self) -> f64 {
        let largest =
            self.columns.iter().max().map_or(0.0, |&columns| columns as f64) * self.rows as f64;
        largest * (self.train as f64 + self.valid as f64 + self.test as f64)
    }

    /// Generates all grids, in the order train, valid, test.
    pub fn generate(&self) -> Dataset {
        let seeds = SeedTree::new(self.seed);
        let total = self.train + self.valid + self.test;
        // One stream per grid, so that a larger dataset starts with the same grids.
        let graphs = (0..total)
            .map(|index| self.sample(&mut seeds.stream_at("grid", index as u64)))
            .collect();
        Dataset {
            graphs: Graphs::InMemory(graphs),
            schema: self.schema(),
            splits: Splits {
                train: (0..self.train).collect(),
                valid: (self.train..self.train + self.valid).collect(),
                test: (self.train + self.valid..total).collect(),
            },
        }
    }

    /// Returns the schema of the dataset.
    pub fn schema(&self) -> Schema {
        Schema {
            node_features: FeatureSchema::Categorical(vec![self.colors]),
            edge_features: FeatureSchema::None,
            targets: TargetSchema::NodeMulticlass(self.classes),
            names: Names::default(),
        }
    }

    fn sample(&self, stream: &mut RandomStream) -> Graph {
        let columns = self.columns[stream.below(self.columns.len())];
        let colors: Vec<u32> =
            (0..self.rows * columns).map(|_| stream.below(self.colors) as u32).collect();
        let last_class = self.classes as u32 - 1;
        let labels =
            labels(&colors, columns).into_iter().map(|label| label.min(last_class)).collect();
        Graph {
            num_nodes: colors.len(),
            edges: edges(self.rows, columns),
            node_features: Features::Categorical { columns: 1, values: colors },
            edge_features: Features::None,
            targets: Targets::NodeClasses(labels),
        }
    }
}

/// Returns the edges between grid neighbors, in both directions, sorted by source and target.
pub fn edges(rows: usize, columns: usize) -> Vec<[u32; 2]> {
    let mut edges = Vec::with_capacity(4 * rows * columns);
    for row in 0..rows {
        for column in 0..columns {
            let node = row * columns + column;
            let mut connect = |neighbor: usize| edges.push([node as u32, neighbor as u32]);
            if row > 0 {
                connect(node - columns);
            }
            if column > 0 {
                connect(node - 1);
            }
            if column + 1 < columns {
                connect(node + 1);
            }
            if row + 1 < rows {
                connect(node + columns);
            }
        }
    }
    edges
}

/// Returns for each node the number of other nodes of the same color in its row or column.
pub fn labels(colors: &[u32], columns: usize) -> Vec<u32> {
    let rows = colors.len() / columns;
    let mut labels = Vec::with_capacity(colors.len());
    for (node, &color) in colors.iter().enumerate() {
        let (row, column) = (node / columns, node % columns);
        let in_row = (0..columns).filter(|&other| colors[row * columns + other] == color).count();
        let in_column =
            (0..rows).filter(|&other| colors[other * columns + column] == color).count();
        labels.push((in_row + in_column - 2) as u32); // the node itself is counted in both
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_count_other_nodes_of_row_and_column() {
        // a b a
        // a a b
        assert_eq!(labels(&[0, 1, 0, 0, 0, 1], 3), [2, 0, 1, 2, 1, 0]);
    }

    #[test]
    fn edges_connect_neighbors_in_both_directions() {
        assert_eq!(edges(2, 2), [[0, 1], [0, 2], [1, 0], [1, 3], [2, 0], [2, 3], [3, 1], [3, 2]]);
        assert_eq!(edges(10, 13).len(), 2 * (10 * 12 + 9 * 13));
    }

    #[test]
    fn generated_dataset_is_valid_and_deterministic() {
        let config = GridHistogram { train: 20, valid: 5, test: 5, ..GridHistogram::default() };
        let dataset = config.generate();
        assert_eq!(dataset.check(), Ok(()));
        assert_eq!(dataset, config.generate());
        assert_ne!(dataset, GridHistogram { seed: 1, ..config.clone() }.generate());
        let longer = GridHistogram { train: 40, ..config }.generate();
        assert!(
            dataset
                .graphs
                .iter()
                .zip(longer.graphs.iter())
                .take(20)
                .all(|(left, right)| left == right)
        );
    }

    #[test]
    fn all_sizes_occur_and_colors_are_in_range() {
        let dataset =
            GridHistogram { train: 200, valid: 1, test: 1, ..GridHistogram::default() }.generate();
        for nodes in [100, 110, 120, 130] {
            let count = dataset.graphs.iter().filter(|graph| graph.num_nodes == nodes).count();
            assert!((30..=75).contains(&count), "{count} of 202 grids have {nodes} nodes");
        }
        let Features::Categorical { values, .. } = &dataset.graphs.get(0).node_features else {
            panic!("expected categorical node features")
        };
        assert!(values.iter().all(|&color| color < 20));
    }

    #[test]
    fn invalid_configurations_are_rejected() {
        let default = GridHistogram::default();
        assert_eq!(default.check(), None);
        assert!(GridHistogram { rows: 0, ..default.clone() }.check().is_some());
        assert!(GridHistogram { columns: vec![], ..default.clone() }.check().is_some());
        assert!(GridHistogram { test: 0, ..default }.check().is_some());
    }
}
