//! Grid Histogram Counting: the paper's synthetic task.
//!
//! A grid of coloured nodes with edges between neighbours. The label of a node is how many *other*
//! nodes of its row or column have its colour, so a model must find rows, columns and colours.

use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, FeatureSchema, Graphs, Names, Schema, Splits, TargetSchema};
use crate::graph::{Features, Graph, Targets};
use crate::random::{RandomStream, SeedTree};

/// How the grids are drawn; the default is the paper's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GridHistogram {
    /// Rows of every grid.
    pub rows: usize,
    /// The numbers of columns to draw from.
    pub columns: Vec<usize>,
    /// Number of colours.
    pub colors: usize,
    /// Labels are counted up to one less than this; the paper's model has 10 classes.
    pub classes: usize,
    /// Graphs to learn from.
    pub train: usize,
    /// Graphs to choose the best epoch by.
    pub valid: usize,
    /// Graphs to report.
    pub test: usize,
    /// Draws the grids; apart from the run's seed, so that seeds share one dataset.
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
    /// Why no grid can be drawn, if so.
    pub fn check(&self) -> Option<&'static str> {
        match self {
            Self { rows: 0, .. } => Some("`rows` is 0"),
            Self { columns, .. } if columns.is_empty() || columns.contains(&0) => {
                Some("`columns` is empty or holds a 0")
            }
            Self { colors: 0, .. } => Some("`colours` is 0"),
            Self { classes: 0 | 1, .. } => Some("`classes` is below 2"),
            Self { train, valid, test, .. } if [train, valid, test].contains(&&0) => {
                Some("one of `train`, `valid` and `test` is 0")
            }
            _ if self.colors.max(self.classes) > u32::MAX as usize => {
                Some("`colours` or `classes` is beyond 2³²")
            }
            _ if self.most_nodes() > 1e8 => {
                Some("the grids would have more than 100 million nodes")
            }
            _ => None,
        }
    }

    /// Nodes of all grids, were each as large as can be drawn.
    fn most_nodes(&self) -> f64 {
        let largest =
            self.columns.iter().max().map_or(0.0, |&columns| columns as f64) * self.rows as f64;
        largest * (self.train as f64 + self.valid as f64 + self.test as f64)
    }

    /// Draws all grids: train first, then valid, then test.
    pub fn generate(&self) -> Dataset {
        let seeds = SeedTree::new(self.seed);
        let total = self.train + self.valid + self.test;
        // One stream a grid: a larger dataset starts with the same grids.
        let graphs = (0..total)
            .map(|number| self.draw(&mut seeds.stream_at("grid", number as u64)))
            .collect();
        Dataset {
            graphs: Graphs::Listed(graphs),
            schema: self.schema(),
            splits: Splits {
                train: (0..self.train).collect(),
                valid: (self.train..self.train + self.valid).collect(),
                test: (self.train + self.valid..total).collect(),
            },
        }
    }

    /// What the numbers of the grids mean.
    pub fn schema(&self) -> Schema {
        Schema {
            node_features: FeatureSchema::Categorical(vec![self.colors]),
            edge_features: FeatureSchema::None,
            targets: TargetSchema::NodeMulticlass(self.classes),
            names: Names::default(),
        }
    }

    fn draw(&self, stream: &mut RandomStream) -> Graph {
        let columns = self.columns[stream.below(self.columns.len())];
        let colors: Vec<u32> =
            (0..self.rows * columns).map(|_| stream.below(self.colors) as u32).collect();
        let highest = self.classes as u32 - 1;
        let labels = labels(&colors, columns).into_iter().map(|label| label.min(highest)).collect();
        Graph {
            nodes: colors.len(),
            edges: edges(self.rows, columns),
            node_features: Features::Categorical { columns: 1, values: colors },
            edge_features: Features::None,
            targets: Targets::NodeClasses(labels),
        }
    }
}

/// Edges between neighbours, in both directions, sorted by source and target.
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

/// For each node the number of other nodes of its row or column that share its colour.
pub fn labels(colors: &[u32], columns: usize) -> Vec<u32> {
    let rows = colors.len() / columns;
    let mut labels = Vec::with_capacity(colors.len());
    for (node, &color) in colors.iter().enumerate() {
        let (row, column) = (node / columns, node % columns);
        let in_row = (0..columns).filter(|&other| colors[row * columns + other] == color).count();
        let in_column =
            (0..rows).filter(|&other| colors[other * columns + column] == color).count();
        labels.push((in_row + in_column - 2) as u32); // the node itself stands in both
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_count_the_others_of_row_and_column() {
        // a b a
        // a a b
        assert_eq!(labels(&[0, 1, 0, 0, 0, 1], 3), [2, 0, 1, 2, 1, 0]);
    }

    #[test]
    fn edges_join_neighbours_in_both_directions() {
        assert_eq!(edges(2, 2), [[0, 1], [0, 2], [1, 0], [1, 3], [2, 0], [2, 3], [3, 1], [3, 2]]);
        assert_eq!(edges(10, 13).len(), 2 * (10 * 12 + 9 * 13));
    }

    #[test]
    fn a_generated_dataset_is_sound_and_the_same_each_time() {
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
    fn all_sizes_and_colours_occur() {
        let dataset =
            GridHistogram { train: 200, valid: 1, test: 1, ..GridHistogram::default() }.generate();
        for nodes in [100, 110, 120, 130] {
            let share = dataset.graphs.iter().filter(|graph| graph.nodes == nodes).count();
            assert!((30..=75).contains(&share), "{share} of 202 grids have {nodes} nodes");
        }
        let Features::Categorical { values, .. } = &dataset.graphs.get(0).node_features else {
            panic!("grids are coloured")
        };
        assert!(values.iter().all(|&color| color < 20));
    }

    #[test]
    fn impossible_grids_are_found_before_drawing() {
        let fault = |config: GridHistogram| config.check();
        assert_eq!(fault(GridHistogram::default()), None);
        assert!(fault(GridHistogram { rows: 0, ..GridHistogram::default() }).is_some());
        assert!(fault(GridHistogram { columns: vec![], ..GridHistogram::default() }).is_some());
        assert!(fault(GridHistogram { test: 0, ..GridHistogram::default() }).is_some());
    }
}
