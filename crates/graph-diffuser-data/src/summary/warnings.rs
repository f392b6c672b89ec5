//! Warnings about datasets that are valid but suspicious.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;

use crate::dataset::Dataset;
use crate::graph::{Graph, MISSING_CLASS, Targets};
use crate::schema::{FeatureSchema, TargetKind, TargetSchema};
use crate::split::Split;
use crate::summary::{FeatureSummary, Summary, TargetSummary};

/// Number of nodes from which a graph counts as large: its virtual edges in 16 channels take 1 GiB.
const LARGE_NODES: usize = 4096;
/// Magnitude of a feature from which its square, of which batch norm computes sums, is close to the
/// largest single-precision number.
const MAX_FEATURE: f64 = 1e15;
/// Number of distinct integers up to which a regression target may be meant as classes.
const FEW_VALUES: usize = 20;

/// A suspicious property of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "warning", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// The dataset cannot be split, which training requires.
    NotSplit {
        /// Reason why it cannot be split.
        reason: String,
    },
    /// A target has the same value in all graphs.
    ConstantTarget {
        /// Name or index of the target.
        target: String,
    },
    /// A target is missing in all graphs.
    UnknownTarget {
        /// Name or index of the target.
        target: String,
    },
    /// A regression target has only a few distinct non-negative integers, which may be classes.
    IntegerTarget {
        /// Name or index of the target.
        target: String,
        /// The distinct values in ascending order.
        values: Vec<u32>,
    },
    /// A class occurs in the validation or test split but not in the training split.
    ClassNotInTrain {
        /// Name or index of the class.
        class: String,
        /// Split in which the class occurs.
        split: Split,
    },
    /// Binary targets have a single class in the validation or test split.
    OneClass {
        /// Number of such targets.
        targets: usize,
        /// Name or index of the first of them.
        target: String,
        /// The split.
        split: Split,
    },
    /// Equal graphs occur in more than one split.
    InTwoSplits {
        /// Number of graphs that are equal to a graph of an earlier split.
        graphs: usize,
        /// Index of the first of them.
        graph: usize,
        /// Index of the equal graph.
        equal: usize,
    },
    /// A feature has the same value everywhere.
    ConstantFeature {
        /// `node` or `edge`.
        part: &'static str,
        /// Index of the column.
        column: usize,
    },
    /// A real-valued feature has values that are so large that computations overflow.
    HugeFeature {
        /// `node` or `edge`.
        part: &'static str,
        /// Index of the column.
        column: usize,
        /// Value with the largest magnitude.
        value: f64,
    },
    /// Graphs with at least 4096 nodes.
    LargeGraphs {
        /// Number of large graphs.
        graphs: usize,
        /// Index of the largest graph.
        graph: usize,
        /// Number of nodes of the largest graph.
        nodes: usize,
    },
    /// At least half of the edges are duplicates, as if reverse edges had been added twice.
    EdgesTwice {
        /// Number of duplicate edges.
        edges: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSplit { reason } => {
                write!(formatter, "the dataset cannot be used for training: {reason}")
            }
            Self::ConstantTarget { target } => {
                write!(formatter, "target `{target}` is constant")
            }
            Self::UnknownTarget { target } => {
                write!(formatter, "target `{target}` is missing in all graphs")
            }
            Self::IntegerTarget { target, values } => {
                let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                write!(
                    formatter,
                    "target `{target}` is a regression target, but its only values are the integers \
                     {}; set the task to `multiclass` if they are classes",
                    values.join(", ")
                )
            }
            Self::ClassNotInTrain { class, split } => {
                write!(
                    formatter,
                    "class {class} occurs in the {split} split but not in the training split"
                )
            }
            Self::OneClass { targets: 1, target, split } => write!(
                formatter,
                "`{target}` has a single class in the {split} split, so its ROC-AUC is undefined \
                 there"
            ),
            Self::OneClass { targets, target, split } => write!(
                formatter,
                "{targets} targets, such as `{target}`, have a single class in the {split} split, \
                 so their ROC-AUC is undefined there"
            ),
            Self::InTwoSplits { graphs, graph, equal } => write!(
                formatter,
                "{graphs} graphs are duplicates of graphs in another split, \
                 such as graph {graph} of graph {equal}"
            ),
            Self::ConstantFeature { part, column } => {
                write!(formatter, "{part} feature {column} is constant")
            }
            Self::HugeFeature { part, column, value } => write!(
                formatter,
                "{part} feature {column} has the value {value:.2e}, which overflows in \
                 single-precision computations; rescale it"
            ),
            Self::LargeGraphs { graphs, graph, nodes } => write!(
                formatter,
                "{graphs} graphs have {LARGE_NODES} or more nodes (graph {graph} has {nodes}); \
                 memory use is quadratic in the number of nodes"
            ),
            Self::EdgesTwice { edges } => {
                write!(
                    formatter,
                    "{edges} edges are duplicates; \
                     set `\"directed\": true` if both directions are listed"
                )
            }
        }
    }
}

/// Returns the warnings about a dataset, in a deterministic order.
pub fn warnings(dataset: &Dataset) -> Vec<Warning> {
    warnings_from_summary(dataset, &Summary::compute(dataset))
}

/// Returns the warnings about a dataset whose summary is already computed.
pub fn warnings_from_summary(dataset: &Dataset, summary: &Summary) -> Vec<Warning> {
    let mut found = Vec::new();
    if let TargetSummary::Columns { columns } = &summary.targets {
        for column in columns {
            let target = column.name.clone();
            if column.observed() == 0 {
                found.push(Warning::UnknownTarget { target });
            } else if column.is_constant() {
                found.push(Warning::ConstantTarget { target });
            }
        }
    }
    if let TargetSummary::Classes { classes } = &summary.targets {
        let occurring: Vec<_> = classes.iter().filter(|(_, count)| *count > 0).collect();
        if let [_] = occurring.as_slice() {
            found.push(Warning::ConstantTarget { target: "node class".into() });
        }
    }
    integer_targets(dataset, &mut found);
    unseen_classes(dataset, &mut found);
    one_class(dataset, &mut found);
    in_two_splits(dataset, &mut found);
    for (part, columns) in [("node", &summary.node_features), ("edge", &summary.edge_features)] {
        for (index, column) in columns.iter().enumerate() {
            let constant = match column {
                FeatureSummary::Categorical { counts, .. } => {
                    counts.iter().filter(|count| **count > 0).count() == 1
                }
                FeatureSummary::Real(stats) => stats.count > 1 && stats.min == stats.max,
            };
            if constant {
                found.push(Warning::ConstantFeature { part, column: index });
            }
            if let FeatureSummary::Real(stats) = column {
                let value = if -stats.min > stats.max { stats.min } else { stats.max };
                if value.abs() > MAX_FEATURE {
                    found.push(Warning::HugeFeature { part, column: index, value });
                }
            }
        }
    }
    let large =
        (0..dataset.graphs.len()).filter(|&graph| dataset.graphs.num_nodes(graph) >= LARGE_NODES);
    if let Some(graph) = large.clone().max_by_key(|&graph| dataset.graphs.num_nodes(graph)) {
        found.push(Warning::LargeGraphs {
            graphs: large.count(),
            graph,
            nodes: dataset.graphs.num_nodes(graph),
        });
    }
    if summary.duplicate_edges > 0
        && 2.0 * summary.duplicate_edges as f64 >= summary.edges.mean * summary.graphs as f64
    {
        found.push(Warning::EdgesTwice { edges: summary.duplicate_edges });
    }
    found
}

fn integer_targets(dataset: &Dataset, found: &mut Vec<Warning>) {
    let kinds = dataset.schema.targets.graph_targets();
    // `None` for a target that is not regression or has another value.
    let mut columns: Vec<Option<BTreeSet<u32>>> = kinds
        .iter()
        .map(|kind| matches!(kind, TargetKind::Regression(_)).then(BTreeSet::new))
        .collect();
    for graph in dataset.graphs.iter() {
        let Targets::GraphValues(values) = &graph.targets else { continue };
        for (column, &value) in columns.iter_mut().zip(values) {
            let Some(seen) = column.as_mut().filter(|_| !value.is_nan()) else { continue };
            if value.fract() == 0.0 && (0.0..1000.0).contains(&value) {
                seen.insert(value as u32);
            }
            if value.fract() != 0.0 || !(0.0..1000.0).contains(&value) || seen.len() > FEW_VALUES {
                *column = None;
            }
        }
    }
    for (index, values) in columns.into_iter().enumerate() {
        if let Some(values) = values.filter(|values| values.len() > 1) {
            let target = dataset.schema.names.target(index, kinds.len());
            found.push(Warning::IntegerTarget { target, values: values.into_iter().collect() });
        }
    }
}

fn unseen_classes(dataset: &Dataset, found: &mut Vec<Warning>) {
    // Pairs of target and class.
    let seen = |split: Split| -> BTreeSet<(usize, u32)> {
        let mut seen = BTreeSet::new();
        for &graph in dataset.split(split) {
            match (&dataset.graphs.get(graph).targets, &dataset.schema.targets) {
                (Targets::NodeClasses(classes), _) => {
                    let observed = classes.iter().filter(|&&class| class != MISSING_CLASS);
                    seen.extend(observed.map(|&class| (0, class)));
                }
                (Targets::GraphValues(values), TargetSchema::Graph(kinds)) => {
                    let observed =
                        values.iter().zip(kinds).enumerate().filter(|(_, (value, kind))| {
                            !value.is_nan() && !matches!(kind, TargetKind::Regression(_))
                        });
                    seen.extend(observed.map(|(target, (&value, _))| (target, value as u32)));
                }
                _ => {}
            }
        }
        seen
    };
    let train = seen(Split::Train);
    if train.is_empty() {
        return;
    }
    for split in [Split::Valid, Split::Test] {
        for &(target, class) in seen(split).difference(&train) {
            let class = dataset.schema.names.class(target, class as usize);
            found.push(Warning::ClassNotInTrain { class, split });
        }
    }
}

fn one_class(dataset: &Dataset, found: &mut Vec<Warning>) {
    let kinds = dataset.schema.targets.graph_targets();
    let is_binary = |target: &usize| kinds[*target] == TargetKind::Binary;
    for split in [Split::Valid, Split::Test] {
        let counts = dataset.label_counts(split);
        let mut single = (0..kinds.len())
            .filter(is_binary)
            .filter(|&target| counts[target].contains(&0) && counts[target] != [0, 0]);
        if let Some(first) = single.next() {
            let target = dataset.schema.names.target(first, kinds.len());
            found.push(Warning::OneClass { targets: 1 + single.count(), target, split });
        }
    }
}

fn in_two_splits(dataset: &Dataset, found: &mut Vec<Warning>) {
    // Without features, small graphs are often equal by chance.
    if dataset.schema.node_features == FeatureSchema::None
        && dataset.schema.edge_features == FeatureSchema::None
    {
        return;
    }
    let mut first: HashMap<u64, (Split, usize)> = HashMap::new();
    let (mut graphs, mut example) = (0, None);
    for split in [Split::Train, Split::Valid, Split::Test] {
        for &index in dataset.split(split) {
            let graph = dataset.graphs.get(index);
            let &mut (earlier, equal) = first.entry(content_hash(&graph)).or_insert((split, index));
            let other = dataset.graphs.get(equal);
            if earlier != split && same_content(&graph, &other) && share_labels(&graph, &other) {
                graphs += 1;
                example = example.or(Some((index, equal)));
            }
        }
    }
    if let Some((graph, equal)) = example {
        found.push(Warning::InTwoSplits { graphs, graph, equal });
    }
}

/// Returns a hash of structure and features, without targets.
fn content_hash(graph: &Graph) -> u64 {
    let mut hasher = DefaultHasher::new();
    (graph.num_nodes, &graph.edges).hash(&mut hasher);
    for features in [&graph.node_features, &graph.edge_features] {
        let ((columns, categories), (float_columns, floats)) =
            (features.categories(), features.floats());
        (columns, categories, float_columns).hash(&mut hasher);
        // Adding 0.0 maps -0.0 to 0.0.
        for value in floats {
            (value + 0.0).to_bits().hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn same_content(left: &Graph, right: &Graph) -> bool {
    left.num_nodes == right.num_nodes
        && left.edges == right.edges
        && left.node_features == right.node_features
        && left.edge_features == right.edge_features
}

/// Returns `false` if no node has a class in both graphs, as in the parts of a graph whose nodes
/// are split.
fn share_labels(left: &Graph, right: &Graph) -> bool {
    match (&left.targets, &right.targets) {
        (Targets::NodeClasses(left), Targets::NodeClasses(right)) => left
            .iter()
            .zip(right)
            .any(|(&left, &right)| left != MISSING_CLASS && right != MISSING_CLASS),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmarks::synthetic_molecules::{NodeCount, SyntheticMolecules};
    use crate::formats::jsonl::{JsonlOptions, read_from};

    fn warning_messages(text: impl Into<Vec<u8>>) -> Vec<String> {
        let reader = std::io::Cursor::new(text.into());
        let read = read_from(std::path::Path::new("x"), reader, &JsonlOptions::default()).unwrap();
        let dataset = read.into_dataset();
        warnings(&dataset).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn valid_dataset_has_no_warnings() {
        let config = SyntheticMolecules {
            nodes: NodeCount::DRUG,
            atoms: 5,
            bonds: 3,
            targets: TargetSchema::multiclass(2),
            graphs: 20,
            seed: 1,
        };
        assert_eq!(warnings(&config.generate()), []);
    }

    #[test]
    fn constant_columns_leakage_and_duplicate_edges_are_reported() {
        let found = warning_messages(
            r#"{"node_features": [[1, 5], [2, 5]], "edges": [[0, 1], [1, 0]], "target": 2, "split": "train"}
               {"node_features": [[3, 5]], "target": 2, "split": "valid"}
               {"node_features": [[3, 5]], "target": 2, "split": "test"}"#,
        );
        let expected = [
            "target `target` is constant",
            "1 graphs are duplicates of graphs in another split, such as graph 2 of graph 1",
            "node feature 1 is constant",
            "2 edges are duplicates; set `\"directed\": true` if both directions are listed",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn features_that_overflow_are_reported() {
        let found = warning_messages(
            r#"{"node_features": [[1.0, -3e38], [2.0, 1e37]], "target": 1.5}
               {"node_features": [[1.5, 0.0]], "target": 2.5}"#,
        );
        let expected = "node feature 1 has the value -3.00e38, which overflows in single-precision \
                        computations; rescale it";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn few_integers_as_regression_target_are_reported() {
        let lines = |targets: [&str; 3]| {
            let line = |target| format!("{{\"nodes\": 1, \"target\": {target}}}\n");
            let text = targets.map(line).concat();
            warning_messages(text)
        };
        assert_eq!(
            lines(["0", "2", "1.0"]),
            [
                "target `target` is a regression target, but its only values are the integers 0, 1, 2; \
                 set the task to `multiclass` if they are classes"
            ]
        );
        assert_eq!(lines(["0", "2", "1.5"]), [""; 0]);
        assert_eq!(lines(["0", "2", "-1"]), [""; 0]);
    }

    #[test]
    fn parts_of_a_node_split_are_not_duplicates() {
        let found = warning_messages(
            r#"{"node_features": [1, 2, 3], "node_targets": ["a", "a", "a"], "node_split": ["train", "valid", "test"]}"#,
        );
        assert_eq!(found, ["target `node class` is constant"]);
    }

    #[test]
    fn single_class_of_a_split_is_reported() {
        let text = |test: u8| {
            let header = r#"{"schema": {"task": "multilabel"}}"#;
            let line = |target: u8, split: &str| {
                format!("{{\"nodes\": 1, \"target\": {target}, \"split\": \"{split}\"}}\n")
            };
            let rows = [(0, "train"), (1, "train"), (0, "valid"), (1, "valid"), (1, "test")];
            let rows = rows.map(|(target, split)| line(target, split)).concat();
            format!("{header}\n{rows}{}", line(test, "test"))
        };
        assert_eq!(warning_messages(text(0)), [""; 0]);
        assert_eq!(
            warning_messages(text(1)),
            ["`target` has a single class in the test split, so its ROC-AUC is undefined there"]
        );
    }

    #[test]
    fn classes_missing_in_training_and_large_graphs_are_reported() {
        let found = warning_messages(
            r#"{"nodes": 5000, "target": "a", "split": "train"}
               {"nodes": 1, "target": "a", "split": "valid"}
               {"nodes": 1, "target": "b", "split": "test"}"#,
        );
        assert_eq!(found[0], "class b occurs in the test split but not in the training split");
        assert_eq!(
            found[1],
            "1 graphs have 4096 or more nodes (graph 0 has 5000); \
             memory use is quadratic in the number of nodes"
        );
    }
}
