//! Graphs in JSON, plain or gzip: one object per line, a list of objects, or a single object.
//!
//! ```text
//! {"edges": [[0, 1], [1, 2]], "node_features": ["C", "C", "O"], "target": 1.5}
//! {"edge_index": [[0, 1], [1, 0]], "x": [[0.5], [1.0]], "y": 1.5}
//! {"nodes": [{"id": "a"}, {"id": "b"}], "edges": [{"source": "a", "target": "b"}], "y": 1.5}
//! ```
//!
//! A graph has the keys of this crate, those of PyTorch Geometric, or the node-link format of
//! NetworkX. A column of strings is categorical and a column of numbers real-valued; the first
//! graph with features determines the columns of the file. `docs/guide/graphs.md` specifies the
//! formats. [`read`] loads all graphs for training; [`GraphStream`] yields one graph at a time for
//! prediction.
//!
//! A graph whose nodes are split, by masks or `node_split`, becomes one graph per split with the
//! same nodes and edges; the classes of nodes outside of the split are missing.

mod error;

mod bounded_value;
mod categories;
mod record;
mod splits;
mod texts;

mod object;

mod keys;
mod node_link;

mod features;
mod targets;

mod stream;

#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

pub use error::JsonlError;
pub use stream::{GraphStream, StreamedGraph};
pub use targets::JsonlTask;

use crate::dataset::{Dataset, Graphs};
use crate::error::LocatedError;
use crate::graph::{Features, Graph, MISSING_CLASS, Targets};
use crate::schema::{Names, Schema};
use crate::split::{Split, Splits};
use error::{Position, RecordError};
use features::{DeclaredKinds, FeatureReader};
use object::GraphObject;
use record::{JsonRecord, Parsed, unknown_key, wrong_type};
use splits::SplitAssignment;
use stream::parse_graph;
use targets::{RawTarget, TargetReader};
use texts::JsonTexts;

/// Splits in the order of the graphs that a graph with a node split becomes.
const SPLITS: [Split; 3] = [Split::Train, Split::Valid, Split::Test];

/// Options of [`read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonlOptions {
    /// Task; overrides the task of the file, which is inferred from the targets if not declared.
    pub task: Option<JsonlTask>,
    /// Number of errors after which reading stops, at most one per graph.
    pub max_errors: usize,
}

impl Default for JsonlOptions {
    fn default() -> Self {
        Self { task: None, max_errors: 20 }
    }
}

/// Contents of a JSON or JSON Lines file.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonlFile {
    /// Graphs in file order; with a node split, one per split.
    pub graphs: Vec<Graph>,
    /// `id` of each graph, if given.
    pub ids: Vec<Option<String>>,
    /// Schema of the graphs.
    pub schema: Schema,
    /// Split declared in the file, if any.
    pub splits: Option<Splits>,
    /// Number of graphs in the file, if their nodes are split, not the graphs.
    pub node_split: Option<usize>,
}

impl JsonlFile {
    /// Converts to a dataset with the split of the file, or with empty splits if it has none.
    pub fn into_dataset(self) -> Dataset {
        Dataset {
            graphs: Graphs::InMemory(self.graphs),
            schema: self.schema,
            splits: self.splits.unwrap_or_default(),
        }
    }

    /// Returns whether the file is a single graph with classes of nodes and without a split.
    pub fn needs_node_split(&self) -> bool {
        self.splits.is_none()
            && matches!(&self.graphs[..], [Graph { targets: Targets::NodeClasses(_), .. }])
    }

    /// Splits the nodes of a single graph; `split` receives the classes of the labeled nodes and
    /// returns positions among them.
    ///
    /// # Errors
    /// Returns the error of `split`.
    ///
    /// # Panics
    /// Panics if the file [does not need a node split](Self::needs_node_split).
    pub fn split_nodes<E>(
        &mut self,
        split: impl FnOnce(&[u32]) -> Result<Splits, E>,
    ) -> Result<(), E> {
        let Targets::NodeClasses(classes) = &self.graphs[0].targets else {
            panic!("only a graph with classes of nodes can be split");
        };
        let labeled: Vec<usize> =
            (0..classes.len()).filter(|&node| classes[node] != MISSING_CLASS).collect();
        let mut positions =
            split(&labeled.iter().map(|&node| classes[node]).collect::<Vec<u32>>())?;
        let mut nodes = vec![None; classes.len()];
        for part in SPLITS {
            for &position in positions.part_mut(part).iter() {
                nodes[labeled[position]] = Some(part);
            }
        }
        let mut splits = Splits::default();
        let mut graphs = Vec::new();
        for (part, graph) in node_split_graphs(&self.graphs[0], &nodes) {
            splits.part_mut(part).push(graphs.len());
            graphs.push(graph);
        }
        self.ids = vec![self.ids[0].clone(); graphs.len()];
        self.graphs = graphs;
        self.splits = Some(splits);
        self.node_split = Some(1);
        Ok(())
    }
}

/// Optional first object, `{"schema": {…}}`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Header {
    node_features: Option<DeclaredKinds>,
    edge_features: Option<DeclaredKinds>,
    task: Option<JsonlTask>,
    target_names: Vec<String>,
    directed: Option<bool>,
}

impl Header {
    const KEYS: &[&str] = &["node_features", "edge_features", "task", "target_names", "directed"];

    fn parse(value: &Value) -> Result<Self, RecordError> {
        let Value::Object(map) = value else {
            return Err(RecordError::at("schema", wrong_type("an object", value)));
        };
        if let Some(key) = map.keys().find(|key| !Self::KEYS.contains(&key.as_str())) {
            let error = unknown_key(key.clone(), Self::KEYS);
            return Err(RecordError::at(format!("schema.{key}"), error));
        }
        Self::deserialize(value).map_err(|error| {
            let error = JsonlError::NotJson { message: error.to_string(), not_a_number: false };
            RecordError::at("schema", error)
        })
    }
}

/// Reads all graphs of a file and infers their schema.
///
/// # Errors
/// Returns the errors found, one per graph, up to [`JsonlOptions::max_errors`].
///
/// # Examples
/// ```
/// use graph_diffuser_data::TargetSchema;
/// use graph_diffuser_data::formats::jsonl::{self, JsonlOptions};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("graphs.jsonl");
/// std::fs::write(&path, r#"{"nodes": 3, "edges": [[0, 1], [1, 2]], "target": 1.5}"#)?;
/// let file = jsonl::read(&path, &JsonlOptions::default()).expect("the file is valid");
/// assert_eq!(file.graphs[0].edges, [[0, 1], [1, 0], [1, 2], [2, 1]]);
/// assert_eq!(file.schema.targets, TargetSchema::regression(1));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read(path: &Path, options: &JsonlOptions) -> Result<JsonlFile, Vec<LocatedError>> {
    read_texts(JsonTexts::open(path).map_err(|error| vec![error])?, options)
}

/// Reads all graphs from a reader; `name` is the file name used in errors.
///
/// # Errors
/// Returns the errors found, one per graph, up to [`JsonlOptions::max_errors`].
pub fn read_from(
    name: &Path,
    reader: impl std::io::Read + Send + 'static,
    options: &JsonlOptions,
) -> Result<JsonlFile, Vec<LocatedError>> {
    read_texts(JsonTexts::new(name, reader).map_err(|error| vec![error])?, options)
}

fn read_texts(texts: JsonTexts, options: &JsonlOptions) -> Result<JsonlFile, Vec<LocatedError>> {
    let path = texts.path.clone();
    let mut reader = JsonlReader::new(options.task);
    let mut errors = Vec::new();
    for (position, text) in texts {
        let read = text
            .map_err(RecordError::from)
            .and_then(|text| reader.add(&text, position, options.task));
        if let Err(record_error) = read {
            errors.push(record_error.locate(&path, position));
            if errors.len() >= options.max_errors.max(1) {
                return Err(errors);
            }
        }
    }
    if errors.is_empty() && reader.graphs.is_empty() {
        errors.push(LocatedError::new(&path, JsonlError::Empty));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    reader.finish().map_err(|errors| {
        let shown = errors.into_iter().take(options.max_errors.max(1));
        shown.map(|(position, record_error)| record_error.locate(&path, position)).collect()
    })
}

/// Converts a record in any of the formats.
fn graph_object(record: JsonRecord) -> Result<GraphObject, RecordError> {
    if record.is_node_link() { node_link::convert(record) } else { keys::convert(record) }
}

/// State of [`read`].
struct JsonlReader {
    graphs: Vec<Graph>,
    ids: Vec<Option<String>>,
    raw_targets: Vec<RawTarget>,
    splits: Vec<SplitAssignment>,
    positions: Vec<Position>,
    nodes: FeatureReader,
    edges: FeatureReader,
    targets: TargetReader,
    target_names: Vec<String>,
    directed: Option<bool>,
}

impl JsonlReader {
    fn new(task: Option<JsonlTask>) -> Self {
        Self {
            graphs: Vec::new(),
            ids: Vec::new(),
            raw_targets: Vec::new(),
            splits: Vec::new(),
            positions: Vec::new(),
            nodes: FeatureReader::new("node_features"),
            edges: FeatureReader::new("edge_features"),
            targets: TargetReader::new(task),
            target_names: Vec::new(),
            directed: None,
        }
    }

    /// Adds the graph of a text, or reads the header.
    fn add(
        &mut self,
        text: &str,
        position: Position,
        task: Option<JsonlTask>,
    ) -> Result<(), RecordError> {
        let record = match JsonRecord::parse(text, position)? {
            Parsed::Graph(record) => record,
            Parsed::Header(value) => return self.header(&value, task),
        };
        let id = record.id()?;
        let object = graph_object(record)?;
        let split = object.splits.parse(object.num_nodes)?;
        if let Some(first) = self.splits.first()
            && std::mem::discriminant(first) != std::mem::discriminant(&split)
        {
            let key = if split == SplitAssignment::None { first.key() } else { split.key() };
            let other = self.positions[0].to_string();
            return Err(JsonlError::InconsistentKey { key, other }.into());
        }
        let graph =
            parse_graph(&object, position, self.directed, &mut self.nodes, &mut self.edges)?;
        let has_node_split = matches!(split, SplitAssignment::Nodes(_));
        let is_directed = object.is_directed(self.directed);
        let raw_target =
            self.targets.read(object.targets, graph.num_nodes, is_directed, has_node_split)?;
        self.graphs.push(graph);
        self.ids.push(id);
        self.raw_targets.push(raw_target);
        self.splits.push(split);
        self.positions.push(position);
        Ok(())
    }

    fn header(&mut self, value: &Value, task: Option<JsonlTask>) -> Result<(), RecordError> {
        if !self.positions.is_empty() {
            let found = "a header after the first graph".into();
            return Err(RecordError::at(
                "schema",
                JsonlError::WrongType { expected: "a graph", found },
            ));
        }
        let header = Header::parse(value)?;
        if let Some(kinds) = header.node_features {
            self.nodes.declare(kinds);
        }
        if let Some(kinds) = header.edge_features {
            self.edges.declare(kinds);
        }
        self.targets.task = task.or(header.task);
        self.target_names = header.target_names;
        self.directed = header.directed;
        Ok(())
    }

    fn finish(mut self) -> Result<JsonlFile, Vec<(Position, RecordError)>> {
        let first = self.positions[0];
        let (targets, classes, values) = self.targets.finish(self.raw_targets, &self.positions)?;
        let expected = targets.graph_targets().len();
        if !self.target_names.is_empty() && self.target_names.len() != expected {
            let error =
                JsonlError::RowCount { what: "targets", found: self.target_names.len(), expected };
            let header = Position { line: 1, column: 0, index: first.index.map(|_| 0) };
            return Err(vec![(header, RecordError::at("schema.target_names", error))]);
        }
        let (nodes, edges) = (self.nodes.finish(), self.edges.finish());
        for (graph, target) in self.graphs.iter_mut().zip(values) {
            graph.targets = target;
            let take = |features: &mut Features| std::mem::replace(features, Features::None);
            graph.node_features = nodes.encode(take(&mut graph.node_features));
            graph.edge_features = edges.encode(take(&mut graph.edge_features));
        }
        let has_node_split = matches!(self.splits[0], SplitAssignment::Nodes(_));
        let num_graphs = self.graphs.len();
        if has_node_split {
            (self.graphs, self.ids, self.splits) =
                split_nodes(self.graphs, &self.ids, &self.splits, &self.positions)?;
        }
        let mut splits = Splits::default();
        for (graph, split) in self.splits.iter().enumerate() {
            if let SplitAssignment::Graph(split) = split {
                splits.part_mut(*split).push(graph);
            }
        }
        if has_node_split
            && let Some(&split) = SPLITS.iter().find(|&&split| splits.part_mut(split).is_empty())
        {
            return Err(vec![(first, JsonlError::EmptyNodeSplit { split }.into())]);
        }
        let has_split = !matches!(self.splits[0], SplitAssignment::None);
        let schema = Schema {
            node_features: nodes.schema(),
            edge_features: edges.schema(),
            targets,
            names: Names {
                targets: self.target_names,
                classes: if classes.is_empty() { Vec::new() } else { vec![classes] },
                node_categories: nodes.categories,
                edge_categories: edges.categories,
                node_columns: nodes.column_names,
                edge_columns: edges.column_names,
            },
        };
        Ok(JsonlFile {
            graphs: self.graphs,
            ids: self.ids,
            schema,
            splits: has_split.then_some(splits),
            node_split: has_node_split.then_some(num_graphs),
        })
    }
}

/// Graphs with their identifiers and splits.
type SplitGraphs = (Vec<Graph>, Vec<Option<String>>, Vec<SplitAssignment>);

/// Copies every graph once per split, with the classes of the nodes of the split.
fn split_nodes(
    graphs: Vec<Graph>,
    ids: &[Option<String>],
    assignments: &[SplitAssignment],
    positions: &[Position],
) -> Result<SplitGraphs, Vec<(Position, RecordError)>> {
    let mut parts: SplitGraphs = (Vec::new(), Vec::new(), Vec::new());
    for (index, graph) in graphs.into_iter().enumerate() {
        let (Targets::NodeClasses(_), SplitAssignment::Nodes(nodes)) =
            (&graph.targets, &assignments[index])
        else {
            let error = JsonlError::NodeSplitWithoutNodeTargets;
            return Err(vec![(positions[index], error.into())]);
        };
        for (split, graph) in node_split_graphs(&graph, nodes) {
            parts.0.push(graph);
            parts.1.push(ids[index].clone());
            parts.2.push(SplitAssignment::Graph(split));
        }
    }
    Ok(parts)
}

/// Copies a graph once per split, with the classes of the nodes of the split. A split without
/// classes has no graph.
fn node_split_graphs(graph: &Graph, nodes: &[Option<Split>]) -> Vec<(Split, Graph)> {
    let Targets::NodeClasses(classes) = &graph.targets else { return Vec::new() };
    let copy = |split: Split| {
        let class_in_split = |(&class, node): (&u32, &Option<Split>)| {
            if *node == Some(split) { class } else { MISSING_CLASS }
        };
        let classes: Vec<u32> = classes.iter().zip(nodes).map(class_in_split).collect();
        let is_labeled = classes.iter().any(|&class| class != MISSING_CLASS);
        is_labeled
            .then(|| (split, Graph { targets: Targets::NodeClasses(classes), ..graph.clone() }))
    };
    SPLITS.into_iter().filter_map(copy).collect()
}
