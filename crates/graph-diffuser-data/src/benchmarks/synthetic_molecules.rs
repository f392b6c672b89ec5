//! Random molecule-like graphs, for benchmarks and tests without data files.
//!
//! Each graph is a random tree of bounded degree, in which nodes attach to recent ones, with a few
//! small rings.

use crate::dataset::{Dataset, Graphs};
use crate::graph::{Features, Graph, Targets};
use crate::random::{RandomStream, SeedTree};
use crate::schema::{FeatureSchema, Names, Schema, TargetKind, TargetSchema};
use crate::split::Splits;

/// Configuration of a dataset of random molecule-like graphs.
#[derive(Debug, Clone, PartialEq)]
pub struct SyntheticMolecules {
    /// Distribution of the number of nodes.
    pub nodes: NodeCount,
    /// Number of node categories.
    pub atoms: usize,
    /// Number of edge categories.
    pub bonds: usize,
    /// Schema of the targets, whose values are random.
    pub targets: TargetSchema,
    /// Number of graphs in each of the train, validation and test splits.
    pub graphs: usize,
    /// Seed of the dataset.
    pub seed: u64,
}

/// Clipped normal distribution of the number of nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeCount {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
    /// Minimum.
    pub min: usize,
    /// Maximum.
    pub max: usize,
}

impl NodeCount {
    /// Drug-like molecules without hydrogen atoms, as in ZINC.
    pub const DRUG: Self = Self { mean: 23.0, std: 4.5, min: 9, max: 37 };
    /// Peptides, as in the Long Range Graph Benchmark.
    pub const PEPTIDE: Self = Self { mean: 150.0, std: 85.0, min: 8, max: 444 };

    fn sample(self, stream: &mut RandomStream) -> usize {
        let sample = (self.mean + self.std * stream.normal()).round();
        sample.clamp(self.min as f64, self.max as f64) as usize
    }
}

impl SyntheticMolecules {
    /// Generates all graphs.
    pub fn generate(&self) -> Dataset {
        let seeds = SeedTree::new(self.seed);
        let indices = |part: usize| (part * self.graphs..(part + 1) * self.graphs).collect();
        Dataset {
            graphs: Graphs::InMemory(
                (0..3 * self.graphs)
                    .map(|index| self.sample(&mut seeds.stream_at("molecule", index as u64)))
                    .collect(),
            ),
            schema: Schema {
                node_features: FeatureSchema::Categorical(vec![self.atoms]),
                edge_features: FeatureSchema::Categorical(vec![self.bonds]),
                targets: self.targets.clone(),
                names: Names::default(),
            },
            splits: Splits { train: indices(0), valid: indices(1), test: indices(2) },
        }
    }

    fn sample(&self, stream: &mut RandomStream) -> Graph {
        let nodes = self.nodes.sample(stream);
        let mut bonds = random_tree(nodes, stream);
        close_rings(nodes, &mut bonds, stream);
        let mut edges = Vec::with_capacity(2 * bonds.len());
        let mut bond_types = Vec::with_capacity(2 * bonds.len());
        for [first, second] in bonds {
            let bond_type = stream.below(self.bonds) as u32;
            edges.extend([[first, second], [second, first]]);
            bond_types.extend([bond_type, bond_type]);
        }
        let atoms = (0..nodes).map(|_| stream.below(self.atoms) as u32).collect();
        let targets = match &self.targets {
            TargetSchema::Graph(kinds) => {
                let sample = |kind: &TargetKind| match *kind {
                    TargetKind::Regression(_) => stream.normal() as f32,
                    TargetKind::Binary => stream.below(2) as f32,
                    TargetKind::Multiclass(classes) => stream.below(classes) as f32,
                };
                Targets::GraphValues(kinds.iter().map(sample).collect())
            }
            TargetSchema::NodeMulticlass(classes) => {
                Targets::NodeClasses((0..nodes).map(|_| stream.below(*classes) as u32).collect())
            }
            TargetSchema::SubTokens(vocabulary) => {
                let tokens = 1 + stream.below(4);
                Targets::SubTokens(
                    (0..tokens).map(|_| stream.below(vocabulary - 2) as u32).collect(),
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
            num_nodes: nodes,
            edges,
            node_features: Features::Categorical { columns: 1, values: atoms },
            edge_features: Features::Categorical { columns: 1, values: bond_types },
            targets,
        }
    }
}

/// Connects each node to one of the four nodes before it that has fewer than three neighbors.
fn random_tree(nodes: usize, stream: &mut RandomStream) -> Vec<[u32; 2]> {
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

/// Closes one ring per eight nodes, of about five to seven nodes.
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
    fn molecules_are_valid_connected_and_of_the_configured_size() {
        let config = SyntheticMolecules {
            nodes: NodeCount::DRUG,
            atoms: 28,
            bonds: 4,
            targets: TargetSchema::regression(1),
            graphs: 100,
            seed: 0,
        };
        let dataset = config.generate();
        assert_eq!(dataset.check(), Ok(()));
        let mean = dataset.graphs.iter().map(|graph| graph.num_nodes).sum::<usize>() as f64 / 300.0;
        assert!((mean - 23.0).abs() < 1.5, "mean size {mean}");
        for graph in dataset.graphs.iter() {
            let mut reached = vec![false; graph.num_nodes];
            reached[0] = true;
            for _ in 0..graph.num_nodes {
                for &[source, target] in &graph.edges {
                    reached[target as usize] |= reached[source as usize];
                }
            }
            assert!(reached.into_iter().all(|node| node));
        }
    }
}
