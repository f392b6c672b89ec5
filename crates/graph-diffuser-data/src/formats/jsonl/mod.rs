//! Graphs in JSON Lines format: one JSON object per line, plain or gzip.
//!
//! ```text
//! {"edges": [[0, 1], [1, 2]], "node_features": ["C", "C", "O"], "target": 1.5}
//! {"edges": [[0, 1]], "node_features": ["C", "N"], "target": -0.5}
//! ```
//!
//! Strings are categories, numbers are real-valued features, and the first line with features
//! determines the columns of the file. `docs/guide/graphs.md` specifies the format. [`read`] loads
//! all graphs for training; [`GraphStream`] yields one graph at a time for prediction.

mod error;
mod features;
mod lines;
mod record;
mod stream;
mod targets;
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
use crate::graph::{Features, Graph};
use crate::schema::{FeatureSchema, Names, Schema};
use crate::split::{Split, Splits};
use error::RecordError;
use features::{FeatureKind, FeatureReader};
use lines::Lines;
use record::{JsonRecord, Parsed, nearest};
use stream::parse_graph;
use targets::{RawTarget, TargetReader};

/// Options of [`read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonlOptions {
    /// Task; overrides the task of the file, which is inferred from the targets if not declared.
    pub task: Option<JsonlTask>,
    /// Number of errors after which reading stops, at most one per line.
    pub max_errors: usize,
}

impl Default for JsonlOptions {
    fn default() -> Self {
        Self { task: None, max_errors: 20 }
    }
}

/// Contents of a JSON Lines file.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonlFile {
    /// Graphs in file order.
    pub graphs: Vec<Graph>,
    /// `id` of each graph, if given.
    pub ids: Vec<Option<String>>,
    /// Schema of the graphs.
    pub schema: Schema,
    /// Split declared by the lines, if any.
    pub splits: Option<Splits>,
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
}

/// Optional first line, `{"schema": {…}}`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Header {
    node_features: Option<FeatureKind>,
    edge_features: Option<FeatureKind>,
    task: Option<JsonlTask>,
    target_names: Vec<String>,
    directed: Option<bool>,
}

impl Header {
    const KEYS: &[&str] = &["node_features", "edge_features", "task", "target_names", "directed"];

    fn parse(value: &Value) -> Result<Self, RecordError> {
        let Value::Object(map) = value else {
            return Err(RecordError::at("schema", record::wrong_type("an object", value)));
        };
        if let Some(key) = map.keys().find(|key| !Self::KEYS.contains(&key.as_str())) {
            let error =
                JsonlError::UnknownKey { key: key.clone(), nearest: nearest(key, Self::KEYS) };
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
/// Returns the errors found, one per line, up to [`JsonlOptions::max_errors`].
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
    read_lines(Lines::open(path).map_err(|error| vec![error])?, options)
}

/// Reads all graphs from a reader; `name` is the file name used in errors.
///
/// # Errors
/// Returns the errors found, one per line, up to [`JsonlOptions::max_errors`].
pub fn read_from(
    name: &Path,
    reader: impl std::io::Read + Send + 'static,
    options: &JsonlOptions,
) -> Result<JsonlFile, Vec<LocatedError>> {
    read_lines(Lines::new(name, reader).map_err(|error| vec![error])?, options)
}

fn read_lines(lines: Lines, options: &JsonlOptions) -> Result<JsonlFile, Vec<LocatedError>> {
    let path = lines.path.clone();
    let mut reader = JsonlReader::new(options.task);
    let mut errors = Vec::new();
    for (line, text) in lines {
        let read =
            text.map_err(RecordError::from).and_then(|text| reader.line(&text, line, options.task));
        if let Err(record_error) = read {
            errors.push(record_error.locate(&path, line));
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
        shown.map(|(line, record_error)| record_error.locate(&path, line)).collect()
    })
}

/// State of [`read`].
struct JsonlReader {
    graphs: Vec<Graph>,
    ids: Vec<Option<String>>,
    raw_targets: Vec<RawTarget>,
    splits: Vec<Option<Split>>,
    /// Line of each graph.
    lines: Vec<u64>,
    nodes: FeatureReader,
    edges: FeatureReader,
    targets: TargetReader,
    target_names: Vec<String>,
    directed: bool,
}

impl JsonlReader {
    fn new(task: Option<JsonlTask>) -> Self {
        Self {
            graphs: Vec::new(),
            ids: Vec::new(),
            raw_targets: Vec::new(),
            splits: Vec::new(),
            lines: Vec::new(),
            nodes: FeatureReader::new("node_features"),
            edges: FeatureReader::new("edge_features"),
            targets: TargetReader::new(task),
            target_names: Vec::new(),
            directed: false,
        }
    }

    fn line(&mut self, text: &str, line: u64, task: Option<JsonlTask>) -> Result<(), RecordError> {
        let record = match JsonRecord::parse(text)? {
            Parsed::Graph(record) => record,
            Parsed::Header(value) => return self.header(&value, task),
        };
        let id = record.id()?;
        let split = record.split()?;
        if let Some(first) = self.splits.first()
            && first.is_some() != split.is_some()
        {
            return Err(JsonlError::InconsistentKey { key: "split", line: self.lines[0] }.into());
        }
        let graph = parse_graph(&record, line, self.directed, &mut self.nodes, &mut self.edges)?;
        let directed = record.directed(self.directed)?;
        let raw_target = self.targets.read(&record, graph.num_nodes, directed)?;
        self.graphs.push(graph);
        self.ids.push(id);
        self.raw_targets.push(raw_target);
        self.splits.push(split);
        self.lines.push(line);
        Ok(())
    }

    fn header(&mut self, value: &Value, task: Option<JsonlTask>) -> Result<(), RecordError> {
        if !self.lines.is_empty() {
            let found = "a header after the first graph".into();
            return Err(RecordError::at(
                "schema",
                JsonlError::WrongType { expected: "a graph", found },
            ));
        }
        let header = Header::parse(value)?;
        if let Some(kind) = header.node_features {
            self.nodes.declare(kind);
        }
        if let Some(kind) = header.edge_features {
            self.edges.declare(kind);
        }
        self.targets.task = task.or(header.task);
        self.target_names = header.target_names;
        self.directed = header.directed.unwrap_or(false);
        Ok(())
    }

    fn finish(mut self) -> Result<JsonlFile, Vec<(u64, RecordError)>> {
        let (targets, classes, values) = self.targets.finish(self.raw_targets, &self.lines)?;
        let expected = targets.graph_targets().len();
        if !self.target_names.is_empty() && self.target_names.len() != expected {
            let error =
                JsonlError::RowCount { what: "targets", found: self.target_names.len(), expected };
            return Err(vec![(1, RecordError::at("schema.target_names", error))]);
        }
        for (graph, target) in self.graphs.iter_mut().zip(values) {
            graph.targets = target;
        }
        let (node_features, node_categories, node_indices) = self.nodes.finish();
        let (edge_features, edge_categories, edge_indices) = self.edges.finish();
        for graph in &mut self.graphs {
            remap_categories(&mut graph.node_features, &node_features, &node_indices);
            remap_categories(&mut graph.edge_features, &edge_features, &edge_indices);
        }
        let mut splits = Splits::default();
        for (graph, split) in self.splits.iter().enumerate() {
            if let Some(split) = split {
                splits.part_mut(*split).push(graph);
            }
        }
        let has_split = self.splits.first().is_some_and(Option::is_some);
        let classes = if classes.is_empty() { Vec::new() } else { vec![classes] };
        let names = Names { targets: self.target_names, classes, node_categories, edge_categories };
        Ok(JsonlFile {
            graphs: self.graphs,
            ids: self.ids,
            schema: Schema { node_features, edge_features, targets, names },
            splits: has_split.then_some(splits),
        })
    }
}

/// Replaces category indices by those of the sorted names, and gives empty features the type of the
/// schema.
fn remap_categories(features: &mut Features, schema: &FeatureSchema, new_indices: &[Vec<u32>]) {
    match (&mut *features, schema) {
        (Features::Categorical { values, .. }, _) => {
            for (value, column) in values.iter_mut().zip(new_indices.iter().cycle()) {
                *value = column[*value as usize];
            }
        }
        (Features::None, FeatureSchema::Categorical(sizes)) => {
            *features = Features::Categorical { columns: sizes.len(), values: Vec::new() };
        }
        (Features::None, FeatureSchema::Float(columns)) => {
            *features = Features::Float { columns: *columns, values: Vec::new() };
        }
        _ => {}
    }
}
