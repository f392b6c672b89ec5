//! Summary statistics of a dataset: sizes, features, targets and structure.

mod warnings;

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;

use crate::dataset::Dataset;
use crate::graph::{Features, Graph, MISSING_CLASS, Targets};
use crate::schema::{ColumnSchema, FeatureSchema, TargetKind, TargetSchema};
use crate::split::Split;

pub use warnings::{Warning, warnings, warnings_from_summary};

/// Summary statistics of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Number of graphs.
    pub graphs: usize,
    /// Number of training graphs.
    pub train: usize,
    /// Number of validation graphs.
    pub valid: usize,
    /// Number of test graphs.
    pub test: usize,
    /// Number of nodes per graph.
    pub nodes: SummaryStats,
    /// Number of directed edges per graph.
    pub edges: SummaryStats,
    /// Number of ordered node pairs per graph.
    pub pairs: SummaryStats,
    /// Node features, column by column.
    pub node_features: Vec<FeatureSummary>,
    /// Edge features, column by column.
    pub edge_features: Vec<FeatureSummary>,
    /// Names of the node feature columns; empty if they have none.
    pub node_columns: Vec<String>,
    /// Names of the edge feature columns; empty if they have none.
    pub edge_columns: Vec<String>,
    /// Targets.
    pub targets: TargetSummary,
    /// Number of nodes without an edge to another node.
    pub isolated_nodes: usize,
    /// Number of edges from a node to itself.
    pub self_loops: usize,
    /// Number of edges that repeat an earlier edge of the same graph.
    pub duplicate_edges: usize,
    /// Number of graphs with more than one connected component.
    pub disconnected_graphs: usize,
}

/// Count, range, mean and standard deviation of a set of values; all zero for an empty set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SummaryStats {
    /// Number of values.
    pub count: u64,
    /// Minimum.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Maximum.
    pub max: f64,
    /// Population standard deviation.
    pub std: f64,
}

impl SummaryStats {
    /// Computes the statistics of `values`.
    fn from_values(values: impl IntoIterator<Item = f64>) -> Self {
        let mut stats = Self::default();
        let mut squares = 0.0;
        for value in values {
            stats.count += 1;
            if stats.count == 1 {
                (stats.min, stats.max) = (value, value);
            }
            stats.min = stats.min.min(value);
            stats.max = stats.max.max(value);
            // Welford's algorithm: accurate even if the mean is large and the deviation small.
            let delta = value - stats.mean;
            stats.mean += delta / stats.count as f64;
            squares += delta * (value - stats.mean);
        }
        stats.std = (squares / (stats.count.max(1)) as f64).sqrt();
        stats
    }
}

/// Summary of one feature column.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FeatureSummary {
    /// Categorical column.
    Categorical {
        /// Number of categories in the schema.
        size: usize,
        /// Number of occurrences of each category.
        counts: Vec<u64>,
    },
    /// Float column.
    Real(SummaryStats),
}

/// Summary of the targets.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TargetSummary {
    /// Graph-level targets.
    Columns {
        /// One entry per target.
        columns: Vec<TargetColumn>,
    },
    /// Classes of nodes, without missing ones.
    Classes {
        /// Name and number of occurrences of each class.
        classes: Vec<(String, u64)>,
    },
    /// Link prediction.
    Links {
        /// Number of links per graph.
        links: SummaryStats,
    },
    /// Sub-token prediction.
    Words {
        /// Number of sub-tokens per graph.
        words: SummaryStats,
    },
}

/// Summary of one graph-level target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetColumn {
    /// Name of the target.
    pub name: String,
    /// Number of graphs without a value.
    pub missing: u64,
    /// Kind of the target and its values that are not missing.
    #[serde(flatten)]
    pub values: TargetValues,
}

/// Values of a graph-level target, by its kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "target_kind", rename_all = "snake_case")]
pub enum TargetValues {
    /// Regression target.
    Regression {
        /// Statistics of the values.
        stats: SummaryStats,
    },
    /// Binary label.
    Binary {
        /// Number of graphs with the positive label.
        positive: u64,
        /// Number of graphs with a label.
        observed: u64,
    },
    /// Multi-class target.
    Multiclass {
        /// Name and number of occurrences of each class.
        classes: Vec<(String, u64)>,
    },
}

impl TargetColumn {
    /// Returns the number of graphs with a value.
    pub fn observed(&self) -> u64 {
        match &self.values {
            TargetValues::Regression { stats } => stats.count,
            TargetValues::Binary { observed, .. } => *observed,
            TargetValues::Multiclass { classes } => classes.iter().map(|(_, count)| count).sum(),
        }
    }

    /// Returns whether all graphs with a value have the same one.
    pub fn is_constant(&self) -> bool {
        self.observed() > 1
            && match &self.values {
                TargetValues::Regression { stats } => stats.min == stats.max,
                TargetValues::Binary { positive, observed } => {
                    *positive == 0 || positive == observed
                }
                TargetValues::Multiclass { classes } => {
                    classes.iter().filter(|(_, count)| *count > 0).count() == 1
                }
            }
    }
}

impl Summary {
    /// Computes the summary of a dataset.
    pub fn compute(dataset: &Dataset) -> Self {
        let stats = |count: fn(&Graph) -> usize| {
            SummaryStats::from_values(dataset.graphs.iter().map(|graph| count(&graph) as f64))
        };
        let mut structure = StructureCounts::default();
        for graph in dataset.graphs.iter() {
            structure.add(&graph);
        }
        Self {
            graphs: dataset.graphs.len(),
            train: dataset.split(Split::Train).len(),
            valid: dataset.split(Split::Valid).len(),
            test: dataset.split(Split::Test).len(),
            nodes: stats(|graph| graph.num_nodes),
            edges: stats(|graph| graph.edges.len()),
            pairs: stats(Graph::pairs),
            node_features: columns(dataset, &dataset.schema.node_features, |graph| {
                &graph.node_features
            }),
            edge_features: columns(dataset, &dataset.schema.edge_features, |graph| {
                &graph.edge_features
            }),
            node_columns: dataset.schema.names.node_columns.clone(),
            edge_columns: dataset.schema.names.edge_columns.clone(),
            targets: summarize_targets(dataset),
            isolated_nodes: structure.isolated,
            self_loops: structure.loops,
            duplicate_edges: structure.duplicates,
            disconnected_graphs: structure.disconnected,
        }
    }
}

#[derive(Default)]
struct StructureCounts {
    isolated: usize,
    loops: usize,
    duplicates: usize,
    disconnected: usize,
}

impl StructureCounts {
    fn add(&mut self, graph: &Graph) {
        let mut seen = HashSet::with_capacity(graph.edges.len());
        let mut connected = vec![false; graph.num_nodes];
        // Union-find over the edges, with path halving.
        let mut parent: Vec<usize> = (0..graph.num_nodes).collect();
        let mut components = graph.num_nodes;
        for &edge in &graph.edges {
            self.duplicates += usize::from(!seen.insert(edge));
            let [source, target] = edge.map(|node| node as usize);
            if source == target {
                self.loops += 1;
                continue;
            }
            (connected[source], connected[target]) = (true, true);
            let (first, second) = (root(&mut parent, source), root(&mut parent, target));
            components -= usize::from(first != second);
            parent[first] = second;
        }
        self.isolated += connected.iter().filter(|connected| !**connected).count();
        self.disconnected += usize::from(components > 1);
    }
}

fn root(parent: &mut [usize], mut node: usize) -> usize {
    while parent[node] != node {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    node
}

fn columns(
    dataset: &Dataset,
    schema: &FeatureSchema,
    of: fn(&Graph) -> &Features,
) -> Vec<FeatureSummary> {
    let sizes = schema.category_sizes();
    let mut counts: Vec<Vec<u64>> = sizes.iter().map(|&size| vec![0; size]).collect();
    if !sizes.is_empty() {
        for graph in dataset.graphs.iter() {
            let (columns, categories) = of(&graph).categories();
            for (position, &category) in categories.iter().enumerate() {
                counts[position % columns][category as usize] += 1;
            }
        }
    }
    let mut counts = counts.into_iter();
    let mut floats = 0..schema.num_floats();
    let summary = |column: ColumnSchema| match column {
        ColumnSchema::Categorical(size) => {
            FeatureSummary::Categorical { size, counts: counts.next().unwrap_or_default() }
        }
        ColumnSchema::Float => {
            let column = floats.next().unwrap_or_default();
            let values = dataset.graphs.iter().flat_map(|graph| {
                let (columns, values) = of(&graph).floats();
                let column = values.iter().skip(column).step_by(columns.max(1));
                column.map(|&value| f64::from(value)).collect::<Vec<_>>()
            });
            FeatureSummary::Real(SummaryStats::from_values(values))
        }
    };
    schema.columns().into_iter().map(summary).collect()
}

/// Computes the summary of the targets of a dataset.
pub fn summarize_targets(dataset: &Dataset) -> TargetSummary {
    match &dataset.schema.targets {
        TargetSchema::Graph(kinds) => {
            let columns = kinds.iter().enumerate();
            TargetSummary::Columns {
                columns: columns
                    .map(|(column, kind)| target_column(dataset, column, *kind))
                    .collect(),
            }
        }
        TargetSchema::NodeMulticlass(count) => {
            let mut counts = vec![0; *count];
            for graph in dataset.graphs.iter() {
                if let Targets::NodeClasses(classes) = &graph.targets {
                    for &class in classes.iter().filter(|&&class| class != MISSING_CLASS) {
                        counts[class as usize] += 1;
                    }
                }
            }
            TargetSummary::Classes { classes: named(dataset, 0, counts) }
        }
        TargetSchema::SubTokens(_) => TargetSummary::Words { words: lengths(dataset) },
        TargetSchema::LinkPrediction => TargetSummary::Links { links: lengths(dataset) },
    }
}

fn target_column(dataset: &Dataset, column: usize, kind: TargetKind) -> TargetColumn {
    let all = || {
        dataset.graphs.iter().filter_map(|graph| match &graph.targets {
            Targets::GraphValues(values) => values.get(column).copied(),
            _ => None,
        })
    };
    let observed = || all().filter(|value| !value.is_nan());
    let values = match kind {
        TargetKind::Regression(_) => {
            TargetValues::Regression { stats: SummaryStats::from_values(observed().map(f64::from)) }
        }
        TargetKind::Binary => TargetValues::Binary {
            positive: observed().filter(|&value| value == 1.0).count() as u64,
            observed: observed().count() as u64,
        },
        TargetKind::Multiclass(count) => {
            let mut counts = vec![0; count];
            observed().for_each(|class| counts[class as usize] += 1);
            TargetValues::Multiclass { classes: named(dataset, column, counts) }
        }
    };
    TargetColumn {
        name: dataset.schema.names.target(column, dataset.schema.targets.graph_targets().len()),
        missing: all().filter(|value| value.is_nan()).count() as u64,
        values,
    }
}

fn named(dataset: &Dataset, target: usize, counts: Vec<u64>) -> Vec<(String, u64)> {
    let names = &dataset.schema.names;
    let counts = counts.into_iter().enumerate();
    counts.map(|(class, count)| (names.class(target, class), count)).collect()
}

fn lengths(dataset: &Dataset) -> SummaryStats {
    SummaryStats::from_values(dataset.graphs.iter().map(|graph| match &graph.targets {
        Targets::SubTokens(tokens) => tokens.len() as f64,
        Targets::Links(pairs) => pairs.len() as f64,
        _ => 0.0,
    }))
}

/// Maximum number of columns or classes that are printed.
const MAX_SHOWN: usize = 40;

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { graphs, train, valid, test, .. } = self;
        writeln!(formatter, "graphs      {graphs}: {train} train, {valid} valid, {test} test")?;
        writeln!(formatter, "{:<22} {:>12} {:>12} {:>12} {:>12}", "", "min", "mean", "max", "std")?;
        for (label, stats) in
            [("nodes", &self.nodes), ("edges", &self.edges), ("pairs", &self.pairs)]
        {
            write_stats(formatter, label, stats)?;
        }
        for (part, names, columns) in [
            ("node feature", &self.node_columns, &self.node_features),
            ("edge feature", &self.edge_columns, &self.edge_features),
        ] {
            for (index, column) in columns.iter().enumerate().take(MAX_SHOWN) {
                let name = names.get(index).cloned().unwrap_or_else(|| index.to_string());
                let label = format!("{part} {name}");
                match column {
                    FeatureSummary::Real(stats) => write_stats(formatter, &label, stats)?,
                    FeatureSummary::Categorical { size, counts } => {
                        let seen = counts.iter().filter(|count| **count > 0).count();
                        writeln!(formatter, "{label:<22} {seen} of {size} categories occur")?;
                    }
                }
            }
            write_omitted(formatter, columns.len())?;
        }
        self.write_targets(formatter)?;
        writeln!(
            formatter,
            "{} isolated nodes, {} self-loops, {} duplicate edges, {} disconnected graphs",
            self.isolated_nodes, self.self_loops, self.duplicate_edges, self.disconnected_graphs
        )
    }
}

impl Summary {
    fn write_targets(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.targets {
            TargetSummary::Columns { columns } => {
                for column in columns.iter().take(MAX_SHOWN) {
                    let label = format!("target {}", column.name);
                    match &column.values {
                        TargetValues::Regression { stats } => {
                            write_stats(formatter, &label, stats)?;
                        }
                        TargetValues::Binary { positive, observed } => {
                            writeln!(formatter, "{label:<22} {positive} of {observed} positive")?;
                        }
                        TargetValues::Multiclass { classes } => {
                            writeln!(formatter, "{label:<22} {} classes", classes.len())?;
                            write_classes(formatter, classes)?;
                        }
                    }
                    if column.missing > 0 {
                        writeln!(formatter, "{:<22} {} missing", "", column.missing)?;
                    }
                }
                write_omitted(formatter, columns.len())
            }
            TargetSummary::Classes { classes } => write_classes(formatter, classes),
            TargetSummary::Links { links } => write_stats(formatter, "links", links),
            TargetSummary::Words { words } => write_stats(formatter, "sub-tokens", words),
        }
    }
}

fn write_stats(
    formatter: &mut fmt::Formatter<'_>,
    label: &str,
    stats: &SummaryStats,
) -> fmt::Result {
    let SummaryStats { min, mean, max, std, .. } = stats;
    writeln!(
        formatter,
        "{label:<22} {:>12} {:>12} {:>12} {:>12}",
        short(*min),
        short(*mean),
        short(*max),
        short(*std)
    )
}

fn write_classes(formatter: &mut fmt::Formatter<'_>, classes: &[(String, u64)]) -> fmt::Result {
    let all = classes.iter().map(|(_, count)| count).sum::<u64>().max(1) as f64;
    for (name, count) in classes.iter().take(MAX_SHOWN) {
        let label = format!("class {name}");
        let percent = 100.0 * *count as f64 / all;
        writeln!(formatter, "{label:<22} {count:>12} {percent:>11.1}%")?;
    }
    write_omitted(formatter, classes.len())
}

fn write_omitted(formatter: &mut fmt::Formatter<'_>, count: usize) -> fmt::Result {
    if count > MAX_SHOWN {
        writeln!(formatter, "{:<22} and {} more", "", count - MAX_SHOWN)
    } else {
        Ok(())
    }
}

/// Formats integers without decimals, very large and small values in scientific notation, and
/// others with three decimals.
fn short(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e12 {
        format!("{value:.0}")
    } else if value.abs() >= 1e6 || value.abs() < 1e-3 {
        format!("{value:.3e}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::jsonl::{JsonlOptions, read_from};

    fn dataset(text: &'static str) -> Dataset {
        let read = read_from(std::path::Path::new("x"), text.as_bytes(), &JsonlOptions::default())
            .unwrap();
        read.into_dataset()
    }

    const TEXT: &str = r#"{"edges": [[0, 1], [0, 1], [2, 2]], "node_features": ["a", "b", "a"], "edge_features": [1, 2, 3], "target": 1.5, "split": "train"}
{"edges": [], "node_features": ["a"], "target": -0.5, "split": "valid"}
{"edges": [], "node_features": ["a"], "target": null, "split": "test"}"#;

    #[test]
    fn summary_counts_features_targets_and_structure() {
        let summary = Summary::compute(&dataset(TEXT));
        assert_eq!((summary.train, summary.valid, summary.test), (1, 1, 1));
        assert_eq!((summary.nodes.min, summary.nodes.max, summary.pairs.max), (1.0, 3.0, 9.0));
        // Node 2 only has a self-loop; the other two are the only nodes of their graphs.
        assert_eq!((summary.isolated_nodes, summary.self_loops), (3, 1));
        // Edge 0-1 is listed twice and stored in both directions.
        assert_eq!((summary.duplicate_edges, summary.disconnected_graphs), (2, 1));
        assert_eq!(
            summary.node_features,
            [FeatureSummary::Categorical { size: 2, counts: vec![4, 1] }]
        );
        // 1, 1, 2, 2, 3: mean 1.8, standard deviation √0.56.
        let FeatureSummary::Real(stats) = &summary.edge_features[0] else {
            panic!("expected a float column")
        };
        assert!((stats.mean - 1.8).abs() < 1e-12 && (stats.std - 0.56_f64.sqrt()).abs() < 1e-12);
        let TargetSummary::Columns { columns } = &summary.targets else {
            panic!("expected regression targets")
        };
        let TargetValues::Regression { stats } = &columns[0].values else {
            panic!("expected a regression target")
        };
        assert_eq!((columns[0].missing, stats.mean, stats.std), (1, 0.5, 1.0));
        assert!(serde_json::to_string(&summary).is_ok());
    }

    #[test]
    fn mixed_columns_are_summarized_in_file_order() {
        let summary = Summary::compute(&dataset(
            "{\"node_features\": [[0.5, \"a\"], [1.5, \"b\"]], \"target\": 1}",
        ));
        let FeatureSummary::Real(stats) = &summary.node_features[0] else {
            panic!("expected a float column")
        };
        assert_eq!((stats.min, stats.max), (0.5, 1.5));
        assert_eq!(
            summary.node_features[1],
            FeatureSummary::Categorical { size: 2, counts: vec![1, 1] }
        );
    }

    #[test]
    fn missing_node_classes_are_not_counted() {
        let summary = Summary::compute(&dataset(
            "{\"nodes\": 4, \"node_targets\": [\"a\", null, \"b\", \"a\"]}",
        ));
        let classes = vec![("a".to_owned(), 2), ("b".to_owned(), 1)];
        assert_eq!(summary.targets, TargetSummary::Classes { classes });
    }

    #[test]
    fn display_lists_splits_features_and_structure() {
        let table = Summary::compute(&dataset(TEXT)).to_string();
        assert!(table.contains("graphs      3: 1 train, 1 valid, 1 test"), "{table}");
        assert!(table.contains("node feature 0         2 of 2 categories occur"), "{table}");
        assert!(
            table.contains(
                "3 isolated nodes, 1 self-loops, 2 duplicate edges, 1 disconnected graphs"
            ),
            "{table}"
        );
    }
}
