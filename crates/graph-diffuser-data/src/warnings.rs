//! What is allowed in a dataset and yet looks like a mistake.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;

use crate::dataset::{Dataset, FeatureSchema, Split, TargetSchema};
use crate::graph::{Features, Graph, Targets};
use crate::summary::{Column, Summary, TargetSummary, name};

/// From here on a graph is called large: its pairs in 16 channels take a gibibyte.
pub const LARGE_NODES: usize = 4096;

/// Something suspicious.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "warning", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// A target that is always the same.
    ConstantTarget {
        /// Its name or number.
        target: String,
    },
    /// A target that no graph has.
    UnknownTarget {
        /// Its name or number.
        target: String,
    },
    /// A class that is tested but was never learnt.
    ClassNotInTrain {
        /// Its name or number.
        class: String,
        /// Where it occurs.
        split: Split,
    },
    /// Graphs that are in two parts.
    InTwoSplits {
        /// How many graphs have an equal in an earlier part.
        graphs: usize,
        /// The first of them.
        graph: usize,
        /// Its equal.
        equal: usize,
    },
    /// A column that says nothing.
    ConstantFeature {
        /// `node` or `edge`.
        part: &'static str,
        /// Which column.
        column: usize,
    },
    /// Graphs that will take much memory.
    LargeGraphs {
        /// How many.
        graphs: usize,
        /// The largest.
        graph: usize,
        /// Its nodes.
        nodes: usize,
    },
    /// Every edge twice: both directions were written and then added once more.
    EdgesTwice {
        /// How many edges are copies.
        edges: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConstantTarget { target } => {
                write!(formatter, "target {target} is the same in all graphs")
            }
            Self::UnknownTarget { target } => {
                write!(formatter, "target {target} is missing in all graphs")
            }
            Self::ClassNotInTrain { class, split } => {
                write!(formatter, "class {class} occurs in {split:?} and never in Train")
            }
            Self::InTwoSplits { graphs, graph, equal } => write!(
                formatter,
                "{graphs} graphs equal one of another split; graph {graph} is the same as graph {equal}"
            ),
            Self::ConstantFeature { part, column } => {
                write!(formatter, "{part} feature {column} is the same everywhere")
            }
            Self::LargeGraphs { graphs, graph, nodes } => write!(
                formatter,
                "{graphs} graphs have {LARGE_NODES} nodes or more, graph {graph} has {nodes}: memory grows with the square"
            ),
            Self::EdgesTwice { edges } => {
                write!(
                    formatter,
                    "{edges} edges are copies; if both directions are written, say `\"directed\": true`"
                )
            }
        }
    }
}

/// All that looks like a mistake, the same for the same dataset.
pub fn warnings(dataset: &Dataset) -> Vec<Warning> {
    warnings_of(dataset, &Summary::of(dataset))
}

/// [`warnings`] where the summary is at hand.
pub fn warnings_of(dataset: &Dataset, summary: &Summary) -> Vec<Warning> {
    let mut found = Vec::new();
    if let TargetSummary::Columns { columns } = &summary.targets {
        for column in columns {
            let target = column.name.clone();
            match column.known.count {
                0 => found.push(Warning::UnknownTarget { target }),
                2.. if column.known.min == column.known.max => {
                    found.push(Warning::ConstantTarget { target })
                }
                _ => {}
            }
        }
    }
    if let TargetSummary::Classes { classes } = &summary.targets {
        let occurring: Vec<_> = classes.iter().filter(|(_, count)| *count > 0).collect();
        if let [(class, _)] = occurring.as_slice() {
            found.push(Warning::ConstantTarget { target: format!("class {class}") });
        }
    }
    unseen_classes(dataset, &mut found);
    in_two_splits(dataset, &mut found);
    for (part, columns) in [("node", &summary.node_features), ("edge", &summary.edge_features)] {
        for (place, column) in columns.iter().enumerate() {
            let constant = match column {
                Column::Categorical { counts, .. } => {
                    counts.iter().filter(|count| **count > 0).count() == 1
                }
                Column::Real(moments) => moments.count > 1 && moments.min == moments.max,
            };
            if constant {
                found.push(Warning::ConstantFeature { part, column: place });
            }
        }
    }
    let large =
        (0..dataset.graphs.len()).filter(|&graph| dataset.graphs.nodes(graph) >= LARGE_NODES);
    if let Some(graph) = large.clone().max_by_key(|&graph| dataset.graphs.nodes(graph)) {
        found.push(Warning::LargeGraphs {
            graphs: large.count(),
            graph,
            nodes: dataset.graphs.nodes(graph),
        });
    }
    if summary.duplicate_edges > 0
        && 2.0 * summary.duplicate_edges as f64 >= summary.edges.mean * summary.graphs as f64
    {
        found.push(Warning::EdgesTwice { edges: summary.duplicate_edges });
    }
    found
}

fn unseen_classes(dataset: &Dataset, found: &mut Vec<Warning>) {
    let (TargetSchema::NodeMulticlass(count) | TargetSchema::Multiclass(count)) =
        dataset.schema.targets
    else {
        return;
    };
    let seen = |split| {
        let mut seen = vec![false; count];
        for &graph in dataset.split(split) {
            match &dataset.graphs.get(graph).targets {
                Targets::NodeClasses(classes) => {
                    classes.iter().for_each(|&class| seen[class as usize] = true)
                }
                Targets::GraphClass(class) => seen[*class as usize] = true,
                _ => {}
            }
        }
        seen
    };
    let train = seen(Split::Train);
    for split in [Split::Valid, Split::Test] {
        for (class, seen) in seen(split).into_iter().enumerate() {
            if seen && !train[class] {
                found.push(Warning::ClassNotInTrain {
                    class: name(&dataset.schema.names.classes, class),
                    split,
                });
            }
        }
    }
}

fn in_two_splits(dataset: &Dataset, found: &mut Vec<Warning>) {
    // Without features small graphs are equal by chance.
    if dataset.schema.node_features == FeatureSchema::None
        && dataset.schema.edge_features == FeatureSchema::None
    {
        return;
    }
    let mut first: HashMap<u64, (Split, usize)> = HashMap::new();
    let (mut graphs, mut example) = (0, None);
    for split in [Split::Train, Split::Valid, Split::Test] {
        for &number in dataset.split(split) {
            let graph = dataset.graphs.get(number);
            let &mut (earlier, equal) = first.entry(content(&graph)).or_insert((split, number));
            if earlier != split && same(&graph, &dataset.graphs.get(equal)) {
                graphs += 1;
                example = example.or(Some((number, equal)));
            }
        }
    }
    if let Some((graph, equal)) = example {
        found.push(Warning::InTwoSplits { graphs, graph, equal });
    }
}

/// A number that equal graphs share, whatever their targets.
fn content(graph: &Graph) -> u64 {
    let mut hasher = DefaultHasher::new();
    (graph.nodes, &graph.edges).hash(&mut hasher);
    for features in [&graph.node_features, &graph.edge_features] {
        match features {
            Features::None => 0.hash(&mut hasher),
            Features::Categorical { columns, values } => (1, columns, values).hash(&mut hasher),
            Features::Float { columns, values } => {
                (2, columns).hash(&mut hasher);
                // Zero has two sign bits and one value.
                for value in values {
                    (value + 0.0).to_bits().hash(&mut hasher);
                }
            }
        }
    }
    hasher.finish()
}

fn same(left: &Graph, right: &Graph) -> bool {
    left.nodes == right.nodes
        && left.edges == right.edges
        && left.node_features == right.node_features
        && left.edge_features == right.edge_features
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonl::{JsonlOptions, read_from};
    use crate::synthetic_molecules::{NodeCount, SyntheticMolecules};

    fn warned(text: &'static str) -> Vec<String> {
        let read = read_from(std::path::Path::new("x"), text.as_bytes(), &JsonlOptions::default())
            .unwrap();
        let dataset = read.into_dataset(|_| unreachable!("the text states its split"));
        warnings(&dataset).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sound_dataset_gives_no_warning() {
        let drawn = SyntheticMolecules {
            nodes: NodeCount::DRUG,
            atoms: 5,
            bonds: 3,
            targets: TargetSchema::Multiclass(2),
            graphs: 20,
            seed: 1,
        };
        assert_eq!(warnings(&drawn.generate()), []);
    }

    #[test]
    fn constant_targets_features_and_leaks_are_seen() {
        let found = warned(
            r#"{"node_features": [[1, 5], [2, 5]], "edges": [[0, 1], [1, 0]], "target": 2, "split": "train"}
               {"node_features": [[3, 5]], "target": 2, "split": "valid"}
               {"node_features": [[3, 5]], "target": 2, "split": "test"}"#,
        );
        let expected = [
            "target 0 is the same in all graphs",
            "1 graphs equal one of another split; graph 2 is the same as graph 1",
            "node feature 1 is the same everywhere",
            "2 edges are copies; if both directions are written, say `\"directed\": true`",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_class_that_was_never_learnt_and_large_graphs_are_seen() {
        let found = warned(
            r#"{"nodes": 5000, "target": "a", "split": "train"}
               {"nodes": 1, "target": "a", "split": "valid"}
               {"nodes": 1, "target": "b", "split": "test"}"#,
        );
        assert_eq!(found[0], "class b occurs in Test and never in Train");
        assert_eq!(
            found[1],
            "1 graphs have 4096 nodes or more, graph 0 has 5000: memory grows with the square"
        );
    }
}
