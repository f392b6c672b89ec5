//! Streams the graphs of a JSON file, encoded with the schema of a trained model.

use std::io::Read;
use std::path::Path;

use super::error::{Position, RecordError};
use super::features::FeatureReader;
use super::object::{GraphObject, edge_copies, with_reverse_edges};
use super::record::{JsonRecord, Parsed};
use super::texts::JsonTexts;
use super::{Header, graph_object};
use crate::error::LocatedError;
use crate::graph::Graph;
use crate::schema::{Schema, TargetSchema};

/// The text of a graph and the graph.
#[derive(Debug)]
pub struct StreamedGraph {
    /// Line number, counted from one.
    pub line: u64,
    /// Text of the graph on one line; empty if it is not UTF-8.
    pub raw: String,
    /// `id` of the graph, if given.
    pub id: Option<String>,
    /// Graph with placeholder targets, or an error if the text is invalid.
    pub graph: Result<Graph, LocatedError>,
}

/// Iterator over the graphs of a JSON or JSON Lines file for inference; holds one graph at a time.
///
/// Features are encoded as in the training data. An invalid graph yields an error and reading
/// continues with the next graph. Targets and splits are ignored.
pub struct GraphStream {
    texts: JsonTexts,
    nodes: FeatureReader,
    edges: FeatureReader,
    targets: TargetSchema,
    directed: Option<bool>,
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
        let names = &schema.names;
        Ok(Self {
            texts: JsonTexts::new(name, reader)?,
            nodes: FeatureReader::from_schema(
                "node_features",
                &schema.node_features,
                &names.node_categories,
                &names.node_columns,
            ),
            edges: FeatureReader::from_schema(
                "edge_features",
                &schema.edge_features,
                &names.edge_categories,
                &names.edge_columns,
            ),
            targets: schema.targets.clone(),
            directed: None,
        })
    }

    fn graph(&mut self, record: JsonRecord, position: Position) -> Result<Graph, RecordError> {
        let object = graph_object(record)?;
        let mut graph =
            parse_graph(&object, position, self.directed, &mut self.nodes, &mut self.edges)?;
        graph.targets = self.targets.placeholder(graph.num_nodes);
        Ok(graph)
    }
}

impl Iterator for GraphStream {
    type Item = StreamedGraph;

    fn next(&mut self) -> Option<StreamedGraph> {
        loop {
            let (position, text) = self.texts.next()?;
            let (raw, text) = match text {
                Ok(text) => (text, Ok(())),
                Err(error) => (String::new(), Err(RecordError::from(error))),
            };
            let parsed =
                text.and_then(|()| JsonRecord::parse(&raw, position)).and_then(
                    |parsed| match parsed {
                        Parsed::Header(value) => Header::parse(&value).map(|header| {
                            self.directed = header.directed;
                            None
                        }),
                        Parsed::Graph(record) => {
                            let id = record.id()?;
                            Ok(Some((id, self.graph(record, position))))
                        }
                    },
                );
            let (id, graph) = match parsed {
                Ok(None) => continue,
                Ok(Some((id, graph))) => (id, graph),
                Err(record_error) => (None, Err(record_error)),
            };
            let graph =
                graph.map_err(|record_error| record_error.locate(&self.texts.path, position));
            // A line break in JSON is whitespace, because strings cannot contain one.
            let raw = if raw.contains('\n') { raw.replace(['\n', '\r'], " ") } else { raw };
            return Some(StreamedGraph { line: position.line, raw, id, graph });
        }
    }
}

/// Parses edges and features of a graph; the targets are placeholders.
pub(super) fn parse_graph(
    object: &GraphObject,
    position: Position,
    directed: Option<bool>,
    node_reader: &mut FeatureReader,
    edge_reader: &mut FeatureReader,
) -> Result<Graph, RecordError> {
    let GraphObject { num_nodes, pairs, .. } = object;
    let directed = object.is_directed(directed);
    let node_features =
        node_reader.read(object.node_features.as_ref(), position, "nodes", *num_nodes, |_| 1)?;
    let num_copies = |row: usize| edge_copies(pairs[row], directed);
    let edge_features = edge_reader.read(
        object.edge_features.as_ref(),
        position,
        "edges",
        pairs.len(),
        num_copies,
    )?;
    Ok(Graph {
        num_nodes: *num_nodes,
        edges: with_reverse_edges(pairs, directed),
        node_features,
        edge_features,
        targets: TargetSchema::LinkPrediction.placeholder(*num_nodes),
    })
}
