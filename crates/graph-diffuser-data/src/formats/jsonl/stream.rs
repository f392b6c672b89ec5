//! Streams the graphs of a JSON Lines file, encoded with the schema of a trained model.

use std::io::Read;
use std::path::Path;

use super::Header;
use super::error::RecordError;
use super::features::FeatureReader;
use super::lines::Lines;
use super::record::{JsonRecord, Parsed, edge_copies, pairs, with_reverse_edges};
use crate::error::LocatedError;
use crate::graph::Graph;
use crate::schema::{Schema, TargetSchema};

/// A line and its graph.
#[derive(Debug)]
pub struct StreamedGraph {
    /// Line number, counted from one.
    pub line: u64,
    /// Text of the line; empty if it is not UTF-8.
    pub raw: String,
    /// `id` of the graph, if given.
    pub id: Option<String>,
    /// Graph with placeholder targets, or an error if the line is invalid.
    pub graph: Result<Graph, LocatedError>,
}

/// Iterator over the graphs of a JSON Lines file for inference; holds one graph at a time.
///
/// Features are encoded as in the training data. An invalid line yields an error and reading
/// continues with the next line. Target keys are ignored.
pub struct GraphStream {
    lines: Lines,
    nodes: FeatureReader,
    edges: FeatureReader,
    targets: TargetSchema,
    directed: bool,
}

impl GraphStream {
    /// Reads from a reader, such as stdin; `name` is the file name used in errors.
    ///
    /// # Errors
    /// Returns an error if the first bytes cannot be read.
    pub fn new(
        name: &Path,
        reader: impl Read + Send + 'static,
        schema: &Schema,
    ) -> Result<Self, LocatedError> {
        Ok(Self::from_lines(Lines::new(name, reader)?, schema))
    }

    fn from_lines(lines: Lines, schema: &Schema) -> Self {
        Self {
            lines,
            nodes: FeatureReader::from_schema(
                "node_features",
                &schema.node_features,
                &schema.names.node_categories,
            ),
            edges: FeatureReader::from_schema(
                "edge_features",
                &schema.edge_features,
                &schema.names.edge_categories,
            ),
            targets: schema.targets.clone(),
            directed: false,
        }
    }

    fn graph(&mut self, record: &JsonRecord, line: u64) -> Result<Graph, RecordError> {
        parse_graph(record, line, self.directed, &mut self.nodes, &mut self.edges).map(
            |mut graph| {
                graph.targets = self.targets.placeholder(graph.num_nodes);
                graph
            },
        )
    }
}

impl Iterator for GraphStream {
    type Item = StreamedGraph;

    fn next(&mut self) -> Option<StreamedGraph> {
        loop {
            let (line, text) = self.lines.next()?;
            let (raw, text) = match text {
                Ok(text) => (text, Ok(())),
                Err(error) => (String::new(), Err(RecordError::from(error))),
            };
            let parsed =
                text.and_then(|()| JsonRecord::parse(&raw)).and_then(|parsed| match parsed {
                    Parsed::Header(value) => Header::parse(&value).map(|header| {
                        self.directed = header.directed.unwrap_or(false);
                        None
                    }),
                    Parsed::Graph(record) => {
                        let id = record.id()?;
                        Ok(Some((id, self.graph(&record, line))))
                    }
                });
            let (id, graph) = match parsed {
                Ok(None) => continue,
                Ok(Some((id, graph))) => (id, graph),
                Err(record_error) => (None, Err(record_error)),
            };
            let graph = graph.map_err(|record_error| record_error.locate(&self.lines.path, line));
            return Some(StreamedGraph { line, raw, id, graph });
        }
    }
}

/// Parses nodes, edges and features of a line; the targets are placeholders.
pub(super) fn parse_graph(
    record: &JsonRecord,
    line: u64,
    directed: bool,
    node_reader: &mut FeatureReader,
    edge_reader: &mut FeatureReader,
) -> Result<Graph, RecordError> {
    let nodes = record.nodes()?;
    let directed = record.directed(directed)?;
    let edge_pairs =
        record.get("edges").map_or(Ok(Vec::new()), |value| pairs(value, "edges", nodes))?;
    let node_features =
        node_reader.read(record.get("node_features"), line, "nodes", nodes, |_| 1)?;
    let num_copies = |row: usize| edge_copies(edge_pairs[row], directed);
    let edge_features = edge_reader.read(
        record.get("edge_features"),
        line,
        "edges",
        edge_pairs.len(),
        num_copies,
    )?;
    let targets = TargetSchema::LinkPrediction.placeholder(nodes);
    Ok(Graph {
        num_nodes: nodes,
        edges: with_reverse_edges(&edge_pairs, directed),
        node_features,
        edge_features,
        targets,
    })
}
