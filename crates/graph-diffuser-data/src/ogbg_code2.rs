//! ogbg-code2: the syntax tree of a Python method, from which the words of its name are to be predicted.
//!
//! Nodes carry their type, their attribute and their depth. Edges are the tree, the tree reversed, then the way from
//! each attributed node to the next in depth-first order, and that reversed; an edge carries its kind (tree 0, way 1)
//! and its direction (forward 0, reversed 1).

mod vocabulary;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use crate::cache::{self, CacheKey};
use crate::dataset::{Dataset, FeatureSchema, Graphs, Names, Schema, TargetSchema};
use crate::error::{Diagnostic, LocatedError};
use crate::graph::{Features, Graph, Targets};
use crate::numeric_csv::{self, NumericCsvError, NumericCsvReader, whole};
use crate::ogb_csv::{
    ColumnReader, Counts, FeatureStream, OgbCsvError, csv_file, needed, read_splits,
};
use crate::progress::{ProgressFn, ProgressMeter};
use vocabulary::{Labels, Vocabulary};

/// Depths are told apart up to here.
pub const DEEPEST: u32 = 20;
/// Where GPS cuts graphs.
pub const GPS_LARGEST: usize = 1000;
/// Name of the word for all that is not in the vocabulary.
pub const UNKNOWN: &str = "__UNK__";
/// Name of the word that ends a name.
pub const END: &str = "__EOS__";

const READER: &str = "ogbg-code2 1";

/// How to take the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code2 {
    /// Words of the vocabulary, without the unknown word and the end; fewer when the training labels have fewer.
    pub vocab_size: usize,
    /// Nodes after which a graph is cut; all are kept when not said.
    pub max_nodes: Option<usize>,
}

impl Default for Code2 {
    fn default() -> Self {
        Self { vocab_size: 5000, max_nodes: None }
    }
}

/// What can be wrong with a table of names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// The table cannot be read.
    #[error("the table of names cannot be read")]
    Csv(#[source] csv::Error),
    /// A row does not say its own number.
    #[error("row {expected} should begin with its number")]
    Number {
        /// The number it should begin with.
        expected: usize,
    },
}

impl Diagnostic for MappingError {
    fn hint(&self) -> Option<String> {
        Some("a header line, then rows `0,name`, `1,name` and so on".into())
    }
}

/// What the numbers of the official set mean, with so many words: 98 types, 10,030 attributes, depths up to
/// [`DEEPEST`]; two kinds of edges in two directions.
pub fn schema(vocab_size: usize) -> Schema {
    Schema {
        node_features: FeatureSchema::Categorical(vec![98, 10_030, DEEPEST as usize + 1]),
        edge_features: FeatureSchema::Categorical(vec![2, 2]),
        targets: TargetSchema::SubTokens(vocab_size + 2),
        names: Names::default(),
    }
}

impl Code2 {
    /// Reads the directory that holds `raw/`, `split/` and `mapping/`, through a cached file in the directory `cache`.
    ///
    /// The vocabulary is that of the training labels, in `schema.names.classes`. A word that it lacks has a number of
    /// its own beyond it, so that sets of words can be compared by their numbers.
    ///
    /// # Errors
    /// What is wrong with the files, with its place, and what keeps the cache from being written.
    pub fn read(
        &self,
        directory: &Path,
        cache: &Path,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, LocatedError> {
        let (raw, mapping) = (directory.join("raw"), directory.join("mapping"));
        let names = ["num-node-list", "num-edge-list", "edge", "node-feat", "graph-label"];
        let columns = ["node_is_attributed", "node_dfs_order", "node_depth"];
        let tables = ["typeidx2type", "attridx2attr"];
        let mut files: Vec<PathBuf> =
            names.iter().chain(&columns).filter_map(|name| csv_file(&raw, name)).collect();
        files.extend(tables.iter().filter_map(|name| csv_file(&mapping, name)));
        let mut meter = ProgressMeter::new(files.iter().map(PathBuf::as_path), 2, progress);
        let read = meter.read();
        let labels = Labels::read(&needed(&raw, "graph-label"), &read)?;
        let splits = read_splits(directory, None, labels.len())?
            .ok_or_else(|| LocatedError::new(&directory.join("split"), OgbCsvError::NoSplit))?;
        let vocabulary = Vocabulary::of(&labels, &splits.train, self.vocab_size);
        // The training part decides the vocabulary, and with it the numbers that are stored.
        let how = format!("{READER} {self:?} {:?}", vocabulary.words);
        let key = CacheKey::of(&how, files.iter().map(PathBuf::as_path), &mut meter)?;
        let cached = cache::open_or_build(cache, "ogbg-code2", &key, |writer| {
            let mut graphs = 0_u64;
            self.stream(directory, &labels, &vocabulary, &read, &mut |graph| {
                graphs += 1;
                if graphs.is_multiple_of(64) {
                    meter.tick();
                }
                writer.push(&graph)
            })
        })?;
        meter.finish();
        Ok(Dataset { schema: cached.schema().clone(), graphs: Graphs::Cached(cached), splits })
    }

    fn stream(
        &self,
        directory: &Path,
        labels: &Labels,
        vocabulary: &Vocabulary,
        read: &Arc<AtomicU64>,
        sink: &mut dyn FnMut(Graph) -> Result<(), LocatedError>,
    ) -> Result<Schema, LocatedError> {
        let (raw, mapping) = (directory.join("raw"), directory.join("mapping"));
        let types = table(&mapping, "typeidx2type", read)?;
        let attributes = table(&mapping, "attridx2attr", read)?;
        let sizes = [types.len(), attributes.len()];
        let known = (!types.is_empty() && !attributes.is_empty()).then_some(sizes.as_slice());
        thread::scope(|scope| {
            let column = |name, size: u32| {
                let cell = move |_, bytes: &[u8]| match whole(bytes)? {
                    value if value < size => Ok(value),
                    value => Err(NumericCsvError::OutOfTable { value, size: size as usize }),
                };
                Ok(ColumnReader::start(
                    scope,
                    NumericCsvReader::open(&needed(&raw, name), read)?,
                    "num-node-list",
                    Some(1),
                    cell,
                ))
            };
            let mut counts = Counts::start(scope, &raw, read)?;
            let edge_rows = NumericCsvReader::open(&needed(&raw, "edge"), read)?;
            let mut edges =
                ColumnReader::start(scope, edge_rows, "num-edge-list", Some(2), |_, cell| {
                    whole(cell)
                });
            let node_rows = NumericCsvReader::open(&needed(&raw, "node-feat"), read)?;
            let mut nodes_read =
                FeatureStream::categories(scope, node_rows, "num-node-list", known)?;
            let mut attributed = column("node_is_attributed", 2)?;
            let mut order = column("node_dfs_order", u32::MAX)?;
            let mut depth = column("node_depth", u32::MAX)?;
            while let Some((graph, nodes, rows)) = counts.next()? {
                let mut tree = Tree {
                    nodes,
                    edges: edges.pairs(rows, graph, nodes)?,
                    features: nodes_read.take(nodes, false)?,
                    ..Tree::default()
                };
                attributed.take(nodes, &mut tree.attributed)?;
                order.take(nodes, &mut tree.order)?;
                depth.take(nodes, &mut tree.depth)?;
                if graph >= labels.len() {
                    let fault = OgbCsvError::TooFewRows {
                        found: labels.len() as u64,
                        counts: "num-node-list",
                    };
                    return Err(LocatedError::new(&needed(&raw, "graph-label"), fault));
                }
                let words = labels
                    .words_of(graph)
                    .iter()
                    .map(|&word| vocabulary.numbers[word as usize])
                    .collect();
                sink(tree.cut(self.max_nodes).into_graph(Targets::SubTokens(words)))?;
            }
            edges.finish()?;
            nodes_read.finish()?;
            attributed.finish()?;
            order.finish()?;
            depth.finish()?;
            let graphs = counts.graphs();
            if labels.len() > graphs {
                let fault =
                    OgbCsvError::TooManyRows { promised: graphs as u64, counts: "num-node-list" };
                return Err(LocatedError::new(&needed(&raw, "graph-label"), fault)
                    .at_line(graphs as u64 + 1));
            }
            let FeatureSchema::Categorical(mut sizes) = nodes_read.schema() else {
                return Err(LocatedError::new(
                    &needed(&raw, "node-feat"),
                    NumericCsvError::MissingValue,
                ));
            };
            sizes.push(DEEPEST as usize + 1);
            let named = known.is_some();
            let text = |words: [&str; 2]| words.map(String::from).to_vec();
            Ok(Schema {
                node_features: FeatureSchema::Categorical(sizes),
                edge_features: FeatureSchema::Categorical(vec![2, 2]),
                targets: TargetSchema::SubTokens(vocabulary.words.len()),
                names: Names {
                    classes: vocabulary.words.clone(),
                    node_categories: if named { vec![types, attributes, vec![]] } else { vec![] },
                    edge_categories: vec![
                        text(["tree", "next token"]),
                        text(["forward", "reversed"]),
                    ],
                    ..Names::default()
                },
            })
        })
    }
}

/// A syntax tree as it is stored.
#[derive(Debug, Clone)]
struct Tree {
    nodes: usize,
    edges: Vec<[u32; 2]>,
    features: Features,
    attributed: Vec<u32>,
    order: Vec<u32>,
    depth: Vec<u32>,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: 0,
            edges: vec![],
            features: Features::None,
            attributed: vec![],
            order: vec![],
            depth: vec![],
        }
    }
}

impl Tree {
    /// The first nodes alone, with the edges between them.
    fn cut(mut self, max_nodes: Option<usize>) -> Self {
        let Some(largest) = max_nodes.filter(|&largest| largest < self.nodes) else { return self };
        self.nodes = largest;
        self.edges.retain(|edge| (edge[0].max(edge[1]) as usize) < largest);
        if let Features::Categorical { columns, values } = &mut self.features {
            values.truncate(largest * *columns);
        }
        for column in [&mut self.attributed, &mut self.order, &mut self.depth] {
            column.truncate(largest);
        }
        self
    }

    /// Depth joins the features, and the ways between attributed nodes join the edges.
    fn into_graph(self, targets: Targets) -> Graph {
        let mut attributed: Vec<u32> =
            (0..self.nodes as u32).filter(|&node| self.attributed[node as usize] == 1).collect();
        attributed.sort_by_key(|&node| self.order[node as usize]);
        let ways: Vec<[u32; 2]> = attributed.windows(2).map(|pair| [pair[0], pair[1]]).collect();
        let mut edges = vec![];
        let mut kinds = vec![];
        for (kind, part) in [(0, &self.edges), (1, &ways)] {
            edges.extend_from_slice(part);
            edges.extend(part.iter().map(|&[u, v]| [v, u]));
            kinds.extend([kind, 0].repeat(part.len()));
            kinds.extend([kind, 1].repeat(part.len()));
        }
        let node_features = match self.features {
            Features::Categorical { columns, values } => {
                let rows = values.chunks_exact(columns).zip(&self.depth);
                let values = rows
                    .flat_map(|(row, &depth)| row.iter().copied().chain([depth.min(DEEPEST)]))
                    .collect();
                Features::Categorical { columns: columns + 1, values }
            }
            other => other,
        };
        let edge_features = Features::Categorical { columns: 2, values: kinds };
        Graph { nodes: self.nodes, edges, node_features, edge_features, targets }
    }
}

/// Names by number; none when there is no such file.
fn table(mapping: &Path, name: &str, read: &Arc<AtomicU64>) -> Result<Vec<String>, LocatedError> {
    let Some(path) = csv_file(mapping, name) else { return Ok(vec![]) };
    let mut names = vec![];
    let reader = numeric_csv::open(&path, read)?;
    for record in csv::ReaderBuilder::new().flexible(true).from_reader(reader).into_records() {
        let record = record.map_err(|error| LocatedError::new(&path, MappingError::Csv(error)))?;
        let expected = names.len();
        if record.get(0).and_then(|number| number.trim().parse().ok()) != Some(expected) {
            let line = record.position().map_or(0, csv::Position::line);
            return Err(LocatedError::new(&path, MappingError::Number { expected }).at_line(line));
        }
        names.push(record.get(1).unwrap_or_default().to_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
