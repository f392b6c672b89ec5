//! Graphs one after another, for a model that is already trained.

use std::io::Read;
use std::path::Path;

use super::Header;
use super::error::Refused;
use super::features::FeatureReader;
use super::lines::Lines;
use super::record::{CsvRecord, Parsed, both_ways, copies, pairs};
use crate::dataset::{Schema, TargetSchema};
use crate::error::LocatedError;
use crate::graph::Graph;

/// A line and the graph on it.
#[derive(Debug)]
pub struct StreamedGraph {
    /// The number of the line, from one.
    pub line: u64,
    /// The line itself; empty where it is not text.
    pub raw: String,
    /// The name in the line, if it has one.
    pub id: Option<String>,
    /// The graph, with targets that say nothing, or what is wrong with it.
    pub graph: Result<Graph, LocatedError>,
}

/// Reads graphs as the features of a trained model need them, holding one at a time.
///
/// A line that cannot be used is a problem of its own, and reading goes on behind it. Target keys are not read.
pub struct GraphStream {
    lines: Lines,
    nodes: FeatureReader,
    edges: FeatureReader,
    targets: TargetSchema,
    directed: bool,
}

impl GraphStream {
    /// Opens a file, plain or gzip.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path, schema: &Schema) -> Result<Self, LocatedError> {
        Ok(Self::with(Lines::open(path)?, schema))
    }

    /// Reads from anywhere, such as standard input; `name` is what problems call it.
    ///
    /// # Errors
    /// If the first bytes cannot be read.
    pub fn new(
        name: &Path,
        reader: impl Read + Send + 'static,
        schema: &Schema,
    ) -> Result<Self, LocatedError> {
        Ok(Self::with(Lines::new(name, reader)?, schema))
    }

    fn with(lines: Lines, schema: &Schema) -> Self {
        Self {
            lines,
            nodes: FeatureReader::of(
                "node_features",
                &schema.node_features,
                &schema.names.node_categories,
            ),
            edges: FeatureReader::of(
                "edge_features",
                &schema.edge_features,
                &schema.names.edge_categories,
            ),
            targets: schema.targets,
            directed: false,
        }
    }

    fn graph(&mut self, record: &CsvRecord, line: u64) -> Result<Graph, Refused> {
        structure(record, line, self.directed, &mut self.nodes, &mut self.edges).map(|mut graph| {
            graph.targets = self.targets.placeholder(graph.nodes);
            graph
        })
    }
}

impl Iterator for GraphStream {
    type Item = StreamedGraph;

    fn next(&mut self) -> Option<StreamedGraph> {
        loop {
            let (line, text) = self.lines.next()?;
            let (raw, text) = match text {
                Ok(text) => (text, Ok(())),
                Err(fault) => (String::new(), Err(Refused::from(fault))),
            };
            let parsed =
                text.and_then(|()| CsvRecord::parse(&raw)).and_then(|parsed| match parsed {
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
                Err(refused) => (None, Err(refused)),
            };
            let graph = graph.map_err(|refused| refused.problem(&self.lines.path, line));
            return Some(StreamedGraph { line, raw, id, graph });
        }
    }
}

/// Nodes, edges and features of one line; the targets say nothing yet.
pub(super) fn structure(
    record: &CsvRecord,
    line: u64,
    directed: bool,
    node_reader: &mut FeatureReader,
    edge_reader: &mut FeatureReader,
) -> Result<Graph, Refused> {
    let nodes = record.nodes()?;
    let directed = record.directed(directed)?;
    let written =
        record.get("edges").map_or(Ok(Vec::new()), |value| pairs(value, "edges", nodes))?;
    let node_features =
        node_reader.read(record.get("node_features"), line, "nodes", nodes, |_| 1)?;
    let times = |row: usize| copies(written[row], directed);
    let edge_features =
        edge_reader.read(record.get("edge_features"), line, "edges", written.len(), times)?;
    let targets = TargetSchema::LinkPrediction.placeholder(nodes);
    Ok(Graph { nodes, edges: both_ways(&written, directed), node_features, edge_features, targets })
}
