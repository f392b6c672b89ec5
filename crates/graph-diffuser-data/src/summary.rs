//! What is in a dataset: counts, ranges and classes.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;

use crate::dataset::{Dataset, FeatureSchema, Split, TargetSchema};
use crate::graph::{Features, Graph, Targets};

/// What is in a dataset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// How many graphs.
    pub graphs: usize,
    /// How many of them are for training.
    pub train: usize,
    /// How many choose the best epoch.
    pub valid: usize,
    /// How many are reported on.
    pub test: usize,
    /// Nodes of a graph.
    pub nodes: Moments,
    /// Directed edges of a graph.
    pub edges: Moments,
    /// Ordered pairs of nodes of a graph: what it costs.
    pub pairs: Moments,
    /// Node features, column by column.
    pub node_features: Vec<Column>,
    /// Edge features, column by column.
    pub edge_features: Vec<Column>,
    /// What is predicted.
    pub targets: TargetSummary,
    /// Nodes without an edge to another node.
    pub isolated_nodes: usize,
    /// Edges from a node to itself.
    pub self_loops: usize,
    /// Edges that stand in the graph once more.
    pub duplicate_edges: usize,
    /// Graphs of more than one piece.
    pub disconnected_graphs: usize,
}

/// Range, mean and deviation of numbers; all zero where there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Moments {
    /// How many numbers.
    pub count: u64,
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The greatest.
    pub max: f64,
    /// The deviation, over all of them.
    pub sd: f64,
}

impl Moments {
    /// Of these numbers.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut moments = Self::default();
        let mut squares = 0.0;
        for value in values {
            moments.count += 1;
            if moments.count == 1 {
                (moments.min, moments.max) = (value, value);
            }
            moments.min = moments.min.min(value);
            moments.max = moments.max.max(value);
            // Welford: exact enough where the mean is large and the deviation small.
            let off = value - moments.mean;
            moments.mean += off / moments.count as f64;
            squares += off * (value - moments.mean);
        }
        moments.sd = (squares / (moments.count.max(1)) as f64).sqrt();
        moments
    }
}

/// One column of features.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Column {
    /// Categories.
    Categorical {
        /// How many there can be.
        size: usize,
        /// How often each occurs.
        counts: Vec<u64>,
    },
    /// Real numbers.
    Real(Moments),
}

/// What is predicted.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TargetSummary {
    /// Real numbers or labels of graphs.
    Columns {
        /// One a target.
        columns: Vec<TargetColumn>,
    },
    /// Classes of graphs or of nodes.
    Classes {
        /// Name and how many have it.
        classes: Vec<(String, u64)>,
    },
    /// Pairs of nodes.
    Links {
        /// Of a graph.
        links: Moments,
    },
    /// Words of a graph.
    Words {
        /// Of a graph.
        words: Moments,
    },
}

/// One number or label of every graph.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetColumn {
    /// Its name, or its number.
    pub name: String,
    /// How many graphs have none.
    pub missing: u64,
    /// How many have a one, where it is a label.
    pub positive: Option<u64>,
    /// Those that have one.
    pub known: Moments,
}

impl Summary {
    /// Counts everything, in two passes over the graphs.
    pub fn of(dataset: &Dataset) -> Self {
        let moments = |count: fn(&Graph) -> usize| {
            Moments::of(dataset.graphs.iter().map(|graph| count(&graph) as f64))
        };
        let mut shape = Shape::default();
        for graph in dataset.graphs.iter() {
            shape.add(&graph);
        }
        Self {
            graphs: dataset.graphs.len(),
            train: dataset.split(Split::Train).len(),
            valid: dataset.split(Split::Valid).len(),
            test: dataset.split(Split::Test).len(),
            nodes: moments(|graph| graph.nodes),
            edges: moments(|graph| graph.edges.len()),
            pairs: moments(Graph::pairs),
            node_features: columns(dataset, &dataset.schema.node_features, |graph| {
                &graph.node_features
            }),
            edge_features: columns(dataset, &dataset.schema.edge_features, |graph| {
                &graph.edge_features
            }),
            targets: targets(dataset),
            isolated_nodes: shape.isolated,
            self_loops: shape.loops,
            duplicate_edges: shape.duplicates,
            disconnected_graphs: shape.disconnected,
        }
    }
}

#[derive(Default)]
struct Shape {
    isolated: usize,
    loops: usize,
    duplicates: usize,
    disconnected: usize,
}

impl Shape {
    fn add(&mut self, graph: &Graph) {
        let mut seen = HashSet::with_capacity(graph.edges.len());
        let mut joined = vec![false; graph.nodes];
        // Union of the ends of every edge, with the paths halved.
        let mut parent: Vec<usize> = (0..graph.nodes).collect();
        let mut pieces = graph.nodes;
        for &edge in &graph.edges {
            self.duplicates += usize::from(!seen.insert(edge));
            let [source, target] = edge.map(|node| node as usize);
            if source == target {
                self.loops += 1;
                continue;
            }
            (joined[source], joined[target]) = (true, true);
            let (first, second) = (root(&mut parent, source), root(&mut parent, target));
            pieces -= usize::from(first != second);
            parent[first] = second;
        }
        self.isolated += joined.iter().filter(|joined| !**joined).count();
        self.disconnected += usize::from(pieces > 1);
    }
}

fn root(parent: &mut [usize], mut node: usize) -> usize {
    while parent[node] != node {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    node
}

fn columns(dataset: &Dataset, schema: &FeatureSchema, of: fn(&Graph) -> &Features) -> Vec<Column> {
    match schema {
        FeatureSchema::None => Vec::new(),
        FeatureSchema::Categorical(sizes) => {
            let mut counts: Vec<Vec<u64>> = sizes.iter().map(|&size| vec![0; size]).collect();
            for graph in dataset.graphs.iter() {
                if let Features::Categorical { columns, values } = of(&graph) {
                    for (place, &value) in values.iter().enumerate() {
                        counts[place % columns][value as usize] += 1;
                    }
                }
            }
            sizes
                .iter()
                .zip(counts)
                .map(|(&size, counts)| Column::Categorical { size, counts })
                .collect()
        }
        FeatureSchema::Float(count) => (0..*count)
            .map(|column| {
                let values = dataset.graphs.iter().flat_map(|graph| match of(&graph) {
                    Features::Float { columns, values } => values
                        .iter()
                        .skip(column)
                        .step_by(*columns)
                        .map(|&value| f64::from(value))
                        .collect(),
                    _ => Vec::new(),
                });
                Column::Real(Moments::of(values))
            })
            .collect(),
    }
}

fn targets(dataset: &Dataset) -> TargetSummary {
    let names = &dataset.schema.names;
    let classes = |count: usize| {
        let mut counts = vec![0; count];
        for graph in dataset.graphs.iter() {
            match &graph.targets {
                Targets::NodeClasses(classes) => {
                    classes.iter().for_each(|&class| counts[class as usize] += 1)
                }
                Targets::GraphClass(class) => counts[*class as usize] += 1,
                _ => {}
            }
        }
        let named = counts
            .into_iter()
            .enumerate()
            .map(|(class, count)| (name(&names.classes, class), count));
        TargetSummary::Classes { classes: named.collect() }
    };
    match dataset.schema.targets {
        TargetSchema::NodeMulticlass(count) | TargetSchema::Multiclass(count) => classes(count),
        TargetSchema::Regression(count) | TargetSchema::Multilabel(count) => {
            let labels = matches!(dataset.schema.targets, TargetSchema::Multilabel(_));
            let column = |column: usize| {
                let all = || {
                    dataset.graphs.iter().filter_map(move |graph| match &graph.targets {
                        Targets::GraphValues(values) => {
                            values.get(column).map(|&value| f64::from(value))
                        }
                        _ => None,
                    })
                };
                let missing = all().filter(|value| value.is_nan()).count() as u64;
                let positive = labels.then(|| all().filter(|&value| value == 1.0).count() as u64);
                let known = Moments::of(all().filter(|value| !value.is_nan()));
                TargetColumn { name: name(&names.targets, column), missing, positive, known }
            };
            TargetSummary::Columns { columns: (0..count).map(column).collect() }
        }
        TargetSchema::SubTokens(_) => TargetSummary::Words { words: lengths(dataset) },
        TargetSchema::LinkPrediction => TargetSummary::Links { links: lengths(dataset) },
    }
}

fn lengths(dataset: &Dataset) -> Moments {
    Moments::of(dataset.graphs.iter().map(|graph| match &graph.targets {
        Targets::SubTokens(words) => words.len() as f64,
        Targets::Links(pairs) => pairs.len() as f64,
        _ => 0.0,
    }))
}

/// A name, or the number where there is none.
pub(crate) fn name(names: &[String], number: usize) -> String {
    names.get(number).cloned().unwrap_or_else(|| number.to_string())
}

/// How many columns or classes are printed.
const SHOWN: usize = 40;

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { graphs, train, valid, test, .. } = self;
        writeln!(formatter, "graphs      {graphs}: {train} train, {valid} valid, {test} test")?;
        writeln!(formatter, "{:<22} {:>12} {:>12} {:>12} {:>12}", "", "min", "mean", "max", "sd")?;
        for (what, moments) in
            [("nodes", &self.nodes), ("edges", &self.edges), ("pairs", &self.pairs)]
        {
            write_moments(formatter, what, moments)?;
        }
        for (part, columns) in
            [("node feature", &self.node_features), ("edge feature", &self.edge_features)]
        {
            for (place, column) in columns.iter().enumerate().take(SHOWN) {
                match column {
                    Column::Real(moments) => {
                        write_moments(formatter, &format!("{part} {place}"), moments)?
                    }
                    Column::Categorical { size, counts } => {
                        let seen = counts.iter().filter(|count| **count > 0).count();
                        let what = format!("{part} {place}");
                        writeln!(formatter, "{what:<22} {seen} of {size} categories occur")?;
                    }
                }
            }
            write_left_out(formatter, columns.len())?;
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
                for column in columns.iter().take(SHOWN) {
                    let what = format!("target {}", column.name);
                    match column.positive {
                        Some(positive) => {
                            let (known, missing) = (column.known.count, column.missing);
                            writeln!(
                                formatter,
                                "{what:<22} {positive} of {known} positive, {missing} missing"
                            )?;
                        }
                        None => write_moments(formatter, &what, &column.known)?,
                    }
                    if column.positive.is_none() && column.missing > 0 {
                        writeln!(formatter, "{:<22} {} missing", "", column.missing)?;
                    }
                }
                write_left_out(formatter, columns.len())
            }
            TargetSummary::Classes { classes } => {
                let all = classes.iter().map(|(_, count)| count).sum::<u64>().max(1) as f64;
                for (name, count) in classes.iter().take(SHOWN) {
                    let what = format!("class {name}");
                    writeln!(
                        formatter,
                        "{what:<22} {count:>12} {:>11.1}%",
                        100.0 * *count as f64 / all
                    )?;
                }
                write_left_out(formatter, classes.len())
            }
            TargetSummary::Links { links } => write_moments(formatter, "links", links),
            TargetSummary::Words { words } => write_moments(formatter, "words", words),
        }
    }
}

fn write_moments(formatter: &mut fmt::Formatter<'_>, what: &str, moments: &Moments) -> fmt::Result {
    let Moments { min, mean, max, sd, .. } = moments;
    writeln!(
        formatter,
        "{what:<22} {:>12} {:>12} {:>12} {:>12}",
        short(*min),
        short(*mean),
        short(*max),
        short(*sd)
    )
}

fn write_left_out(formatter: &mut fmt::Formatter<'_>, count: usize) -> fmt::Result {
    if count > SHOWN {
        writeln!(formatter, "{:<22} and {} more", "", count - SHOWN)
    } else {
        Ok(())
    }
}

/// Whole numbers whole, others with four digits.
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
    use crate::jsonl::{JsonlOptions, read_from};

    fn dataset(text: &'static str) -> Dataset {
        let read = read_from(std::path::Path::new("x"), text.as_bytes(), &JsonlOptions::default())
            .unwrap();
        read.into_dataset(|_| unreachable!("the text states its split"))
    }

    const TEXT: &str = r#"{"edges": [[0, 1], [0, 1], [2, 2]], "node_features": ["a", "b", "a"], "edge_features": [1, 2, 3], "target": 1.5, "split": "train"}
{"edges": [], "node_features": ["a"], "target": -0.5, "split": "valid"}
{"edges": [], "node_features": ["a"], "target": null, "split": "test"}"#;

    #[test]
    fn everything_is_counted() {
        let summary = Summary::of(&dataset(TEXT));
        assert_eq!((summary.train, summary.valid, summary.test), (1, 1, 1));
        assert_eq!((summary.nodes.min, summary.nodes.max, summary.pairs.max), (1.0, 3.0, 9.0));
        // Node 2 has a loop alone; the other two are the only nodes of their graphs.
        assert_eq!((summary.isolated_nodes, summary.self_loops), (3, 1));
        // 0-1 stands twice in both directions.
        assert_eq!((summary.duplicate_edges, summary.disconnected_graphs), (2, 1));
        assert_eq!(summary.node_features, [Column::Categorical { size: 2, counts: vec![4, 1] }]);
        // 1, 1, 2, 2, 3: mean 1.8, deviation √0.56.
        let Column::Real(moments) = &summary.edge_features[0] else { panic!("numbers are real") };
        assert!((moments.mean - 1.8).abs() < 1e-12 && (moments.sd - 0.56_f64.sqrt()).abs() < 1e-12);
        let TargetSummary::Columns { columns } = &summary.targets else {
            panic!("numbers are columns")
        };
        assert_eq!((columns[0].missing, columns[0].known.mean, columns[0].known.sd), (1, 0.5, 1.0));
        assert!(serde_json::to_string(&summary).is_ok());
    }

    #[test]
    fn the_table_says_it_in_words() {
        let table = Summary::of(&dataset(TEXT)).to_string();
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
