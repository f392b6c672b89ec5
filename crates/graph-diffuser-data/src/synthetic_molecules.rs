//! Graphs shaped like molecules, for benchmarks and tests that need no files.
//!
//! A random tree of bounded degree whose nodes attach to recent ones, plus a few small rings.

use crate::dataset::{Dataset, FeatureSchema, Graphs, Names, Schema, Splits, TargetSchema};
use crate::graph::{Features, Graph, Targets};
use crate::random::{RandomStream, SeedTree};

/// How the graphs are drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct SyntheticMolecules {
    /// Mean number of nodes, its deviation, and the bounds it is clipped to.
    pub nodes: NodeCount,
    /// Node categories.
    pub atoms: usize,
    /// Edge categories.
    pub bonds: usize,
    /// What is predicted; the values are noise.
    pub targets: TargetSchema,
    /// Graphs in each of train, valid and test.
    pub graphs: usize,
    /// Draws the graphs.
    pub seed: u64,
}

/// A clipped normal distribution of graph sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeCount {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Never fewer.
    pub least: usize,
    /// Never more.
    pub most: usize,
}

impl NodeCount {
    /// Drug-like molecules without hydrogens, as in ZINC.
    pub const DRUG: Self = Self { mean: 23.0, deviation: 4.5, least: 9, most: 37 };
    /// Peptides, as in the long-range benchmark.
    pub const PEPTIDE: Self = Self { mean: 150.0, deviation: 85.0, least: 8, most: 444 };

    fn draw(self, stream: &mut RandomStream) -> usize {
        let drawn = (self.mean + self.deviation * stream.normal()).round();
        drawn.clamp(self.least as f64, self.most as f64) as usize
    }
}

impl SyntheticMolecules {
    /// Draws all graphs.
    pub fn generate(&self) -> Dataset {
        let seeds = SeedTree::new(self.seed);
        let numbers = |part: usize| (part * self.graphs..(part + 1) * self.graphs).collect();
        Dataset {
            graphs: Graphs::Listed(
                (0..3 * self.graphs)
                    .map(|number| self.draw(&mut seeds.stream_at("molecule", number as u64)))
                    .collect(),
            ),
            schema: Schema {
                node_features: FeatureSchema::Categorical(vec![self.atoms]),
                edge_features: FeatureSchema::Categorical(vec![self.bonds]),
                targets: self.targets,
                names: Names::default(),
            },
            splits: Splits { train: numbers(0), valid: numbers(1), test: numbers(2) },
        }
    }

    fn draw(&self, stream: &mut RandomStream) -> Graph {
        let nodes = self.nodes.draw(stream);
        let mut bonds = tree(nodes, stream);
        close_rings(nodes, &mut bonds, stream);
        let mut edges = Vec::with_capacity(2 * bonds.len());
        let mut kinds = Vec::with_capacity(2 * bonds.len());
        for [first, second] in bonds {
            let kind = stream.below(self.bonds) as u32;
            edges.extend([[first, second], [second, first]]);
            kinds.extend([kind, kind]);
        }
        let atoms = (0..nodes).map(|_| stream.below(self.atoms) as u32).collect();
        let targets = match self.targets {
            TargetSchema::NodeMulticlass(classes) => {
                Targets::NodeClasses((0..nodes).map(|_| stream.below(classes) as u32).collect())
            }
            TargetSchema::Regression(count) => {
                Targets::GraphValues((0..count).map(|_| stream.normal() as f32).collect())
            }
            TargetSchema::Multilabel(count) => {
                Targets::GraphValues((0..count).map(|_| stream.below(2) as f32).collect())
            }
            TargetSchema::Multiclass(classes) => Targets::GraphClass(stream.below(classes) as u32),
            TargetSchema::SubTokens(vocabulary) => {
                let words = 1 + stream.below(4);
                Targets::SubTokens(
                    (0..words).map(|_| stream.below(vocabulary - 2) as u32).collect(),
                )
            }
            TargetSchema::LinkPrediction => {
                let mut end = || stream.below(nodes) as u32;
                let pairs = (0..nodes / 4).map(|_| [end(), end()]);
                Targets::Links(
                    pairs.flat_map(|[first, second]| [[first, second], [second, first]]).collect(),
                )
            }
        };
        Graph {
            nodes,
            edges,
            node_features: Features::Categorical { columns: 1, values: atoms },
            edge_features: Features::Categorical { columns: 1, values: kinds },
            targets,
        }
    }
}

/// Each node hangs on one of the four before it that has fewer than three neighbours.
fn tree(nodes: usize, stream: &mut RandomStream) -> Vec<[u32; 2]> {
    let mut degree = vec![0; nodes];
    let mut bonds = Vec::with_capacity(nodes);
    for node in 1..nodes {
        let free: Vec<usize> =
            (node.saturating_sub(4)..node).filter(|&other| degree[other] < 3).collect();
        let parent = if free.is_empty() { node - 1 } else { free[stream.below(free.len())] };
        bonds.push([parent as u32, node as u32]);
        degree[parent] += 1;
        degree[node] += 1;
    }
    bonds
}

/// One ring in eight nodes, of about five to seven members.
fn close_rings(nodes: usize, bonds: &mut Vec<[u32; 2]>, stream: &mut RandomStream) {
    for _ in 0..(nodes / 8).max(1) {
        let first = stream.below(nodes.saturating_sub(6).max(1));
        let second = (first + 4 + stream.below(3)).min(nodes - 1);
        let bond = [first as u32, second as u32];
        if first != second && !bonds.contains(&bond) {
            bonds.push(bond);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn molecules_are_sound_connected_and_of_the_asked_size() {
        let config = SyntheticMolecules {
            nodes: NodeCount::DRUG,
            atoms: 28,
            bonds: 4,
            targets: TargetSchema::Regression(1),
            graphs: 100,
            seed: 0,
        };
        let dataset = config.generate();
        assert_eq!(dataset.check(), Ok(()));
        let mean = dataset.graphs.iter().map(|graph| graph.nodes).sum::<usize>() as f64 / 300.0;
        assert!((mean - 23.0).abs() < 1.5, "mean size {mean}");
        for graph in dataset.graphs.iter() {
            let mut reached = vec![false; graph.nodes];
            reached[0] = true;
            for _ in 0..graph.nodes {
                for &[source, target] in &graph.edges {
                    reached[target as usize] |= reached[source as usize];
                }
            }
            assert!(reached.into_iter().all(|node| node));
        }
    }
}
