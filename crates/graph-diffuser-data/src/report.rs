//! Description of a dataset as a reader understood it: targets, ignored columns, split and
//! duplicates.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;

use crate::dataset::Dataset;
use crate::formats::ReadReport;
use crate::formats::smiles_csv::IgnoredColumn;
use crate::graph::{Features, Graph, MISSING_CLASS, Targets};
use crate::split::Split;
use crate::summary::{TargetColumn, TargetSummary, TargetValues, summarize_targets};

/// Number of graphs above which duplicates are not searched.
const MAX_DUPLICATE_SEARCH: usize = 200_000;
/// Maximum number of names in a line of the description.
const MAX_NAMES: usize = 8;
/// Rounds of neighborhood refinement of the structure hash.
const HASH_ROUNDS: usize = 8;

/// Description of a dataset as it was understood.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DatasetReport {
    /// Number of graphs.
    pub graphs: usize,
    /// True if the graphs are molecules.
    pub molecules: bool,
    /// Summary of the targets.
    pub targets: TargetSummary,
    /// Columns of a table that are not targets.
    pub ignored: Vec<IgnoredColumn>,
    /// Rows that were skipped.
    pub skipped: SkippedRows,
    /// Description of the split, such as `random, seed 0`.
    pub split: String,
    /// Number of training, validation and test graphs, or of labeled nodes if nodes are split.
    pub split_sizes: [usize; 3],
    /// True if the nodes of the graphs are split, not the graphs.
    pub splits_nodes: bool,
    /// Duplicate graphs; absent for large datasets and if nodes are split.
    pub duplicates: Option<Duplicates>,
    /// Remarks about the interpretation of the data.
    pub notes: Vec<String>,
}

/// Rows of a file that were skipped.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SkippedRows {
    /// Number of rows.
    pub count: usize,
    /// Error of the first of them.
    pub first: Option<String>,
}

/// Graphs with equal structure and features, in any order of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Duplicates {
    /// Number of graphs that equal an earlier graph.
    pub graphs: usize,
    /// Number of them whose targets differ from those of the first equal graph.
    pub contradicting: usize,
    /// Number of validation and test graphs that equal a graph of an earlier split.
    pub across_splits: usize,
}

impl DatasetReport {
    /// Describes a dataset; `split` is the description of its split.
    pub fn new(dataset: &Dataset, read: ReadReport, molecules: bool, split: String) -> Self {
        let skipped = SkippedRows {
            count: read.skipped.len(),
            first: read.skipped.first().map(ToString::to_string),
        };
        let splits_nodes = read.node_split.is_some();
        let sizes = [Split::Train, Split::Valid, Split::Test].map(|split| {
            let graphs = dataset.split(split);
            if splits_nodes {
                graphs.iter().map(|&graph| labeled_nodes(&dataset.graphs.get(graph))).sum()
            } else {
                graphs.len()
            }
        });
        Self {
            graphs: read.node_split.unwrap_or(dataset.graphs.len()),
            molecules,
            targets: summarize_targets(dataset),
            ignored: read.ignored,
            skipped,
            split,
            split_sizes: sizes,
            splits_nodes,
            duplicates: (!splits_nodes && dataset.graphs.len() <= MAX_DUPLICATE_SEARCH)
                .then(|| Duplicates::find(dataset)),
            notes: read.notes,
        }
    }
}

/// Returns the number of nodes with a class.
fn labeled_nodes(graph: &Graph) -> usize {
    match &graph.targets {
        Targets::NodeClasses(classes) => {
            classes.iter().filter(|&&class| class != MISSING_CLASS).count()
        }
        _ => 0,
    }
}

impl Duplicates {
    /// Searches a dataset for duplicates.
    pub fn find(dataset: &Dataset) -> Self {
        let mut first: HashMap<u64, (Option<Split>, Targets)> = HashMap::new();
        let mut found = Self::default();
        let splits: Vec<(Option<Split>, &[usize])> = [Split::Train, Split::Valid, Split::Test]
            .into_iter()
            .map(|split| (Some(split), dataset.split(split)))
            .collect();
        let all: Vec<usize> = (0..dataset.graphs.len()).collect();
        let parts = if dataset.splits.train.is_empty() { vec![(None, &all[..])] } else { splits };
        for (split, indices) in parts {
            for &index in indices {
                let graph = dataset.graphs.get(index);
                // Without features, small graphs are often equal by chance.
                if graph.node_features == Features::None {
                    return Self::default();
                }
                match first.entry(structure_hash(&graph)) {
                    Entry::Vacant(entry) => {
                        entry.insert((split, graph.targets.clone()));
                    }
                    Entry::Occupied(entry) => {
                        let (earlier, targets) = entry.get();
                        found.graphs += 1;
                        found.contradicting += usize::from(contradict(targets, &graph.targets));
                        found.across_splits += usize::from(*earlier != split);
                    }
                }
            }
        }
        found
    }
}

/// Returns whether a target is observed in both and differs.
fn contradict(left: &Targets, right: &Targets) -> bool {
    match (left, right) {
        (Targets::GraphValues(left), Targets::GraphValues(right)) => left
            .iter()
            .zip(right)
            .any(|(left, right)| !left.is_nan() && !right.is_nan() && left != right),
        _ => left != right,
    }
}

/// Returns a hash of structure and features that does not depend on the order of nodes and edges.
///
/// Every round replaces the hash of a node by that of itself and of its neighbors, as in the
/// Weisfeiler-Leman test, so a few graphs that differ have equal hashes.
fn structure_hash(graph: &Graph) -> u64 {
    fn hash(value: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        hasher.finish()
    }
    let row = |features: &Features, row: usize| {
        let ((columns, categories), (float_columns, floats)) =
            (features.categories(), features.floats());
        let floats = &floats[row * float_columns..(row + 1) * float_columns];
        // Adding 0.0 maps -0.0 to 0.0.
        let floats: Vec<u32> = floats.iter().map(|value| (value + 0.0).to_bits()).collect();
        hash((&categories[row * columns..(row + 1) * columns], floats))
    };
    let edges: Vec<u64> =
        (0..graph.edges.len()).map(|edge| row(&graph.edge_features, edge)).collect();
    let mut nodes: Vec<u64> =
        (0..graph.num_nodes).map(|node| row(&graph.node_features, node)).collect();
    for _ in 0..HASH_ROUNDS {
        // A sum does not depend on the order of the neighbors.
        let mut sums = vec![0_u64; graph.num_nodes];
        for (&[source, target], edge) in graph.edges.iter().zip(&edges) {
            let message = hash((nodes[source as usize], edge));
            sums[target as usize] = sums[target as usize].wrapping_add(message);
        }
        nodes = nodes.iter().zip(&sums).map(|(node, sum)| hash((node, sum))).collect();
    }
    let sum = nodes.iter().fold(0_u64, |sum, node| sum.wrapping_add(*node));
    hash((graph.num_nodes, graph.edges.len(), sum))
}

impl fmt::Display for DatasetReport {
    /// Writes one line per topic, without a final line break.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.molecules { "molecule" } else { "graph" };
        let counted = |count: usize, what: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{} {what}{plural}", thousands(count))
        };
        write!(formatter, "Data        {}", counted(self.graphs, what))?;
        if let SkippedRows { count: count @ 1.., first: Some(first) } = &self.skipped {
            write!(formatter, "; {} skipped, the first: {first}", counted(*count, "row"))?;
        }
        write!(formatter, "\nTargets     {}", targets(&self.targets))?;
        if !self.ignored.is_empty() {
            let names = self.ignored.iter().map(|column| match column.name.as_str() {
                "" => format!("unnamed column ({})", column.reason),
                name => format!("{name} ({})", column.reason),
            });
            write!(formatter, "\nIgnored     {}", list(names))?;
        }
        let [train, valid, test] = self.split_sizes.map(thousands);
        write!(formatter, "\nSplit       {}", self.split)?;
        if self.split_sizes.iter().any(|&size| size > 0) {
            let nodes = if self.splits_nodes { " nodes" } else { "" };
            write!(formatter, ": {train} train, {valid} valid, {test} test{nodes}")?;
        }
        if let Some(Duplicates { graphs: graphs @ 1.., contradicting, across_splits }) =
            self.duplicates
        {
            write!(formatter, "\nDuplicates  {}", counted(graphs, what))?;
            if contradicting > 0 {
                write!(formatter, ", {} with different targets", thousands(contradicting))?;
            }
            if across_splits > 0 {
                write!(formatter, ", {} in more than one split", thousands(across_splits))?;
            }
        }
        for note in &self.notes {
            write!(formatter, "\nNote        {note}")?;
        }
        Ok(())
    }
}

/// Describes the targets, grouped by kind.
fn targets(summary: &TargetSummary) -> String {
    match summary {
        TargetSummary::Columns { columns } => {
            let mut groups: BTreeMap<u8, Vec<String>> = BTreeMap::new();
            for column in columns {
                let (order, text) = target(column);
                groups.entry(order).or_default().push(text);
            }
            let kind = |order: u8| match order {
                0 => "regression",
                1 => "binary",
                _ => "multi-class",
            };
            let groups: Vec<String> = groups
                .into_iter()
                .map(|(order, names)| format!("{} ({})", list(names.into_iter()), kind(order)))
                .collect();
            groups.join("; ")
        }
        TargetSummary::Classes { classes } => format!("node classes ({})", classes.len()),
        TargetSummary::Links { .. } => "links between nodes".to_owned(),
        TargetSummary::Words { .. } => "sub-tokens".to_owned(),
    }
}

/// Describes one target, with a number that orders targets by kind.
fn target(column: &TargetColumn) -> (u8, String) {
    let name = &column.name;
    let missing = match column.missing {
        0 => String::new(),
        missing => {
            let all = missing + column.observed();
            format!(", {:.0} % missing", (100.0 * missing as f64 / all as f64).max(1.0))
        }
    };
    match &column.values {
        TargetValues::Regression { .. } if missing.is_empty() => (0, name.clone()),
        TargetValues::Regression { .. } => (0, format!("{name} [{}]", &missing[2..])),
        TargetValues::Binary { positive, observed } => {
            let percent = 100.0 * *positive as f64 / (*observed).max(1) as f64;
            let digits = usize::from(percent < 10.0);
            (1, format!("{name} [{percent:.digits$} % positive{missing}]"))
        }
        TargetValues::Multiclass { classes } => {
            (2, format!("{name} [{} classes{missing}]", classes.len()))
        }
    }
}

/// Joins at most [`MAX_NAMES`] names.
fn list(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let mut text = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMES {
        text += &format!(" and {} more", names.len() - MAX_NAMES);
    }
    text
}

/// Formats a number with separators between thousands.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
#[cfg(feature = "chem")]
mod tests {
    use super::*;
    use crate::formats::Featurizer;
    use crate::schema::TargetSchema;

    fn molecule(smiles: &str) -> Graph {
        Featurizer::Ogb.featurize_smiles(smiles, &TargetSchema::regression(1)).unwrap()
    }

    #[test]
    fn structure_hash_ignores_the_order_of_atoms_and_distinguishes_molecules() {
        let hash = |smiles: &str| structure_hash(&molecule(smiles));
        assert_eq!(hash("CCO"), hash("OCC"));
        assert_eq!(hash("Cc1ccccc1O"), hash("Oc1ccccc1C"));
        let different =
            ["CCO", "COC", "CC=O", "c1ccccc1", "C1CCCCC1", "CCCCCC", "Cc1ccccc1O", "Cc1cccc(O)c1"];
        for (index, left) in different.iter().enumerate() {
            for right in &different[..index] {
                assert_ne!(hash(left), hash(right), "{left} and {right}");
            }
        }
    }

    #[test]
    fn numbers_have_separators_between_thousands() {
        let texts = [0, 999, 1000, 1_234_567].map(thousands);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }
}
