//! Content fingerprint of a dataset.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::dataset::Dataset;
use crate::graph::{Features, Graph, Targets};
use crate::split::Split;

/// Prefix of the hashed bytes; changes with their format.
const FORMAT: &[u8] = b"graph-diffuser dataset 1";

impl Dataset {
    /// Computes the SHA-256 of all graphs with features and targets, and of the splits, in order,
    /// as `sha256:` and 64 hexadecimal digits.
    ///
    /// Equal fingerprints mean that two runs used the same data in the same order. File formats,
    /// names and the standardization of targets do not matter.
    pub fn fingerprint(&self) -> String {
        let mut hash = Hash(Sha256::new());
        hash.0.update(FORMAT);
        hash.length(self.graphs.len());
        for graph in self.graphs.iter() {
            hash.graph(&graph);
        }
        for split in [Split::Train, Split::Valid, Split::Test] {
            let indices = self.split(split);
            hash.length(indices.len());
            for &index in indices {
                hash.length(index);
            }
        }
        let digest = hash.0.finalize();
        digest.iter().fold("sha256:".to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

struct Hash(Sha256);

impl Hash {
    fn length(&mut self, length: usize) {
        self.0.update((length as u64).to_le_bytes());
    }

    fn integers<'a>(&mut self, values: impl ExactSizeIterator<Item = &'a u32>) {
        self.length(values.len());
        let bytes: Vec<u8> = values.flat_map(|value| value.to_le_bytes()).collect();
        self.0.update(bytes);
    }

    fn floats(&mut self, values: &[f32]) {
        // All NaN are missing values, and zero has no sign.
        let bits = |value: &f32| if value.is_nan() { f32::NAN } else { value + 0.0 }.to_bits();
        self.integers(values.iter().map(bits).collect::<Vec<u32>>().iter());
    }

    fn graph(&mut self, graph: &Graph) {
        self.length(graph.num_nodes);
        self.integers(graph.edges.as_flattened().iter());
        for features in [&graph.node_features, &graph.edge_features] {
            self.features(features);
        }
        match &graph.targets {
            Targets::NodeClasses(classes) => {
                self.0.update([0]);
                self.integers(classes.iter());
            }
            Targets::GraphValues(values) => {
                self.0.update([1]);
                self.floats(values);
            }
            Targets::SubTokens(tokens) => {
                self.0.update([2]);
                self.integers(tokens.iter());
            }
            Targets::Links(pairs) => {
                self.0.update([3]);
                self.integers(pairs.as_flattened().iter());
            }
        }
    }

    fn features(&mut self, features: &Features) {
        let (columns, categories) = features.categories();
        self.length(columns);
        self.integers(categories.iter());
        let (columns, floats) = features.floats();
        self.length(columns);
        self.floats(floats);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Graphs;
    use crate::schema::{FeatureSchema, Names, Schema, TargetSchema};
    use crate::split::Splits;

    fn dataset() -> Dataset {
        let graph = |value: f32| Graph {
            num_nodes: 2,
            edges: vec![[0, 1], [1, 0]],
            node_features: Features::Categorical { columns: 1, values: vec![0, 1] },
            edge_features: Features::Float { columns: 1, values: vec![0.5, 0.0] },
            targets: Targets::GraphValues(vec![value]),
        };
        Dataset {
            graphs: Graphs::InMemory(vec![graph(0.25), graph(f32::NAN)]),
            schema: Schema {
                node_features: FeatureSchema::Categorical(vec![2]),
                edge_features: FeatureSchema::Float(1),
                targets: TargetSchema::regression(1),
                names: Names::default(),
            },
            splits: Splits { train: vec![0], valid: vec![1], test: vec![1] },
        }
    }

    #[test]
    fn fingerprint_changes_with_every_part_of_the_data() {
        let original = dataset().fingerprint();
        assert!(original.starts_with("sha256:") && original.len() == 71, "{original}");
        let graphs: [fn(&mut Vec<Graph>); 6] = [
            |graphs| graphs.swap(0, 1),
            |graphs| graphs[0].edges[0] = [0, 0],
            |graphs| {
                graphs[0].node_features = Features::Categorical { columns: 2, values: vec![0, 1] }
            },
            |graphs| graphs[0].edge_features = Features::None,
            |graphs| graphs[1].targets = Targets::GraphValues(vec![0.0]),
            |graphs| graphs[1].targets = Targets::SubTokens(vec![f32::NAN.to_bits()]),
        ];
        for change in graphs {
            let mut changed = dataset();
            let Graphs::InMemory(graphs) = &mut changed.graphs else { panic!("in memory") };
            change(graphs);
            assert_ne!(changed.fingerprint(), original);
        }
        let mut changed = dataset();
        changed.splits.valid = vec![0];
        assert_ne!(changed.fingerprint(), original);
    }

    #[test]
    fn sign_of_zero_names_and_standardization_do_not_matter() {
        let mut same = dataset();
        let Graphs::InMemory(graphs) = &mut same.graphs else { panic!("in memory") };
        graphs[0].edge_features = Features::Float { columns: 1, values: vec![0.5, -0.0] };
        graphs[1].targets = Targets::GraphValues(vec![-f32::NAN]);
        same.schema.names.targets = vec!["y".into()];
        same.standardize_targets();
        assert_eq!(same.fingerprint(), dataset().fingerprint());
    }
}
