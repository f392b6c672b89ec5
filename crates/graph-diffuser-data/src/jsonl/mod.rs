//! Graphs of your own: one JSON object a line, plain or gzip.
//!
//! ```text
//! {"edges": [[0, 1], [1, 2]], "node_features": ["C", "C", "O"], "target": 1.5}
//! {"edges": [[0, 1]], "node_features": ["C", "N"], "target": -0.5}
//! ```
//!
//! Strings are categories, numbers are real, and the first line that has features decides what all others must be
//! like. The whole format is in `docs/json-lines.md`. [`read`] holds all graphs, for training; [`GraphStream`] holds
//! one at a time, for prediction.

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
pub use features::FeatureKind;
pub use lines::MAX_LINE_BYTES;
pub use record::MAX_NODES;
pub use stream::{GraphStream, StreamedGraph};
pub use targets::JsonlTask;

use crate::dataset::{Dataset, FeatureSchema, Graphs, Names, Schema, Split, Splits};
use crate::error::LocatedError;
use crate::graph::{Features, Graph};
use error::Refused;
use features::FeatureReader;
use lines::Lines;
use record::{CsvRecord, Parsed, nearest};
use stream::structure;
use targets::{TargetReader, Written};

/// How a file is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonlOptions {
    /// What is predicted, where the file does not say it or says otherwise.
    pub task: Option<JsonlTask>,
    /// How many problems are collected before reading stops; one a line.
    pub problems: usize,
}

impl Default for JsonlOptions {
    fn default() -> Self {
        Self { task: None, problems: 20 }
    }
}

/// All graphs of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonlFile {
    /// In the order of the lines.
    pub graphs: Vec<Graph>,
    /// The name of each, where it has one.
    pub ids: Vec<Option<String>>,
    /// What the numbers mean.
    pub schema: Schema,
    /// The split that the lines state, if they do.
    pub splits: Option<Splits>,
}

impl JsonlFile {
    /// A dataset with the split of the file, or with this one where the file states none.
    pub fn into_dataset(self, otherwise: impl FnOnce(&Self) -> Splits) -> Dataset {
        let splits = self.splits.clone().unwrap_or_else(|| otherwise(&self));
        Dataset { graphs: Graphs::Listed(self.graphs), schema: self.schema, splits }
    }
}

/// What the first line may say of all others: `{"schema": {…}}`.
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

    fn parse(value: &Value) -> Result<Self, Refused> {
        let Value::Object(map) = value else {
            return Err(Refused::at("schema", record::wrong("an object", value)));
        };
        if let Some(key) = map.keys().find(|key| !Self::KEYS.contains(&key.as_str())) {
            let fault =
                JsonlError::UnknownKey { key: key.clone(), nearest: nearest(key, Self::KEYS) };
            return Err(Refused::at(format!("schema.{key}"), fault));
        }
        Self::deserialize(value).map_err(|error| {
            let fault = JsonlError::NotJson { message: error.to_string(), not_a_number: false };
            Refused::at("schema", fault)
        })
    }
}

/// Reads all graphs and what they mean.
///
/// # Errors
/// All problems found, one a line, up to the limit of `options`.
pub fn read(path: &Path, options: &JsonlOptions) -> Result<JsonlFile, Vec<LocatedError>> {
    read_lines(Lines::open(path).map_err(|problem| vec![problem])?, options)
}

/// [`read`] from anywhere; `name` is what problems call it.
///
/// # Errors
/// All problems found, one a line, up to the limit of `options`.
pub fn read_from(
    name: &Path,
    reader: impl std::io::Read + Send + 'static,
    options: &JsonlOptions,
) -> Result<JsonlFile, Vec<LocatedError>> {
    read_lines(Lines::new(name, reader).map_err(|problem| vec![problem])?, options)
}

fn read_lines(lines: Lines, options: &JsonlOptions) -> Result<JsonlFile, Vec<LocatedError>> {
    let path = lines.path.clone();
    let mut reading = Reading::new(options.task);
    let mut problems = Vec::new();
    for (line, text) in lines {
        let read =
            text.map_err(Refused::from).and_then(|text| reading.line(&text, line, options.task));
        if let Err(refused) = read {
            problems.push(refused.problem(&path, line));
            if problems.len() >= options.problems.max(1) {
                return Err(problems);
            }
        }
    }
    if problems.is_empty() && reading.graphs.is_empty() {
        problems.push(LocatedError::new(&path, JsonlError::Empty));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    reading.finish().map_err(|faults| {
        let shown = faults.into_iter().take(options.problems.max(1));
        shown.map(|(line, refused)| refused.problem(&path, line)).collect()
    })
}

/// What is known part of the way through a file.
struct Reading {
    graphs: Vec<Graph>,
    ids: Vec<Option<String>>,
    written: Vec<Written>,
    splits: Vec<Option<Split>>,
    /// Where each graph stands.
    lines: Vec<u64>,
    nodes: FeatureReader,
    edges: FeatureReader,
    targets: TargetReader,
    target_names: Vec<String>,
    directed: bool,
}

impl Reading {
    fn new(task: Option<JsonlTask>) -> Self {
        Self {
            graphs: Vec::new(),
            ids: Vec::new(),
            written: Vec::new(),
            splits: Vec::new(),
            lines: Vec::new(),
            nodes: FeatureReader::new("node_features"),
            edges: FeatureReader::new("edge_features"),
            targets: TargetReader::new(task),
            target_names: Vec::new(),
            directed: false,
        }
    }

    fn line(&mut self, text: &str, line: u64, task: Option<JsonlTask>) -> Result<(), Refused> {
        let record = match CsvRecord::parse(text)? {
            Parsed::Graph(record) => record,
            Parsed::Header(value) => return self.header(&value, task),
        };
        let id = record.id()?;
        let split = record.split()?;
        if let Some(first) = self.splits.first()
            && first.is_some() != split.is_some()
        {
            return Err(JsonlError::SometimesMissing { key: "split", line: self.lines[0] }.into());
        }
        let graph = structure(&record, line, self.directed, &mut self.nodes, &mut self.edges)?;
        let directed = record.directed(self.directed)?;
        let written = self.targets.read(&record, graph.nodes, directed)?;
        self.graphs.push(graph);
        self.ids.push(id);
        self.written.push(written);
        self.splits.push(split);
        self.lines.push(line);
        Ok(())
    }

    fn header(&mut self, value: &Value, task: Option<JsonlTask>) -> Result<(), Refused> {
        if !self.lines.is_empty() {
            let found = "a header behind the first graph".into();
            return Err(Refused::at(
                "schema",
                JsonlError::WrongType { expected: "a graph", found },
            ));
        }
        let header = Header::parse(value)?;
        if let Some(kind) = header.node_features {
            self.nodes.state(kind);
        }
        if let Some(kind) = header.edge_features {
            self.edges.state(kind);
        }
        self.targets.task = task.or(header.task);
        self.target_names = header.target_names;
        self.directed = header.directed.unwrap_or(false);
        Ok(())
    }

    fn finish(mut self) -> Result<JsonlFile, Vec<(u64, Refused)>> {
        let (targets, classes, all) = self.targets.finish(self.written, &self.lines)?;
        if !self.target_names.is_empty() && self.target_names.len() != targets.outputs() {
            let expected = targets.outputs();
            let fault =
                JsonlError::Rows { what: "targets", found: self.target_names.len(), expected };
            return Err(vec![(1, Refused::at("schema.target_names", fault))]);
        }
        for (graph, target) in self.graphs.iter_mut().zip(all) {
            graph.targets = target;
        }
        let (node_features, node_categories, node_numbers) = self.nodes.finish();
        let (edge_features, edge_categories, edge_numbers) = self.edges.finish();
        for graph in &mut self.graphs {
            renumber(&mut graph.node_features, &node_features, &node_numbers);
            renumber(&mut graph.edge_features, &edge_features, &edge_numbers);
        }
        let mut splits = Splits { train: Vec::new(), valid: Vec::new(), test: Vec::new() };
        for (number, split) in self.splits.iter().enumerate() {
            match split {
                Some(Split::Train) => splits.train.push(number),
                Some(Split::Valid) => splits.valid.push(number),
                Some(Split::Test) => splits.test.push(number),
                None => {}
            }
        }
        let stated = self.splits.first().is_some_and(Option::is_some);
        let names = Names { targets: self.target_names, classes, node_categories, edge_categories };
        Ok(JsonlFile {
            graphs: self.graphs,
            ids: self.ids,
            schema: Schema { node_features, edge_features, targets, names },
            splits: stated.then_some(splits),
        })
    }
}

/// Gives categories their place among the sorted names, and a table without rows the kind of the others.
fn renumber(features: &mut Features, schema: &FeatureSchema, numbers: &[Vec<u32>]) {
    match (&mut *features, schema) {
        (Features::Categorical { values, .. }, _) => {
            for (value, numbers) in values.iter_mut().zip(numbers.iter().cycle()) {
                *value = numbers[*value as usize];
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
