//! Web explorer: a static page and the JSON API behind it.
//!
//! [`Explorer`] computes the responses; [`server`] serves them over HTTP on localhost; [`export`]
//! embeds them in one HTML file.

pub(crate) mod export;
mod live;
pub(crate) mod page;
pub(crate) mod server;

use std::collections::VecDeque;

use graph_diffuser::explain::{
    AttentionTrace, ExplainError, Explainer, GraphScore, Structure, faithfulness,
};
use graph_diffuser_data::{Graph, Split};
use graph_diffuser_viz::color::{Color, RAMP, category_fill};
use graph_diffuser_viz::figure::{NodeLayout, node_fills};
use serde::{Deserialize, Serialize};

/// Maximum number of listed graphs; longer lists are slow to sort and scroll in the browser.
const MAX_LISTED: usize = 10_000;

/// Maximum number of drawn nodes; the layout of a larger graph takes too long to be interactive.
const MAX_DRAWN_NODES: usize = 256;
/// Maximum number of drawn atoms of a molecule, whose layout is faster.
const MAX_DRAWN_ATOMS: usize = 500;

/// A request of the page.
#[derive(Debug)]
pub(crate) enum ApiRequest {
    /// Run, split, list of graphs and colors.
    Info,
    /// Scores computed so far, from this position on.
    Scores(usize),
    /// Prediction and attention of one graph.
    Trace(TraceRequest),
}

/// Body of a trace request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TraceRequest {
    /// Index of a graph in the dataset.
    pub(crate) graph: Option<usize>,
    /// Molecule to trace instead of a graph of the dataset.
    pub(crate) smiles: Option<String>,
    /// Recolored cells of a grid, as (cell, color).
    pub(crate) colors: Vec<(usize, u32)>,
    /// Query nodes; if empty, the node with the most concentrated attention.
    pub(crate) rows: Vec<usize>,
    /// True if the response includes the node layout.
    pub(crate) layout: bool,
}

/// Response to [`ApiRequest::Info`].
#[derive(Debug, Serialize)]
struct RunInfo {
    run: String,
    recipe: String,
    split: Split,
    /// Number of graphs in the split, of which at most `MAX_LISTED` are listed.
    total: usize,
    /// Index and number of nodes of each listed graph.
    graphs: Vec<(usize, usize)>,
    /// Description of the error shown in the list.
    error: &'static str,
    /// True if the model accepts SMILES.
    molecules: bool,
    /// Letter and fill of each cell color of a grid.
    colors: Vec<(String, String)>,
    /// Color ramp of the attention weights.
    ramp: Vec<String>,
}

/// Response to [`ApiRequest::Scores`], in the order of computation.
#[derive(Debug, Serialize)]
struct ScoreList<'a> {
    scores: &'a [GraphScore],
    /// Number of graphs that will be scored.
    total: usize,
}

/// Response to [`ApiRequest::Trace`].
#[derive(Debug, Serialize)]
pub(crate) struct TraceResponse {
    pub(crate) trace: AttentionTrace,
    /// Query node chosen by the server; absent if the request named rows.
    pub(crate) default_node: Option<usize>,
    /// True if all rows may be requested at once.
    full_trace: bool,
    /// True if the targets are labels of the dataset rather than placeholders.
    has_targets: bool,
    /// Ground-truth cells of each row, if labels count cells.
    ground_truth: Option<Vec<Vec<usize>>>,
    layout: Option<GraphLayout>,
}

/// Coordinates and fills of the drawn nodes.
#[derive(Debug, Serialize)]
struct GraphLayout {
    nodes: Vec<usize>,
    coordinates: Vec<[f64; 2]>,
    /// Fill of each node of the graph.
    fills: Vec<Option<String>>,
}

/// Computes the responses for one run.
pub(crate) struct Explorer<'a> {
    explainer: &'a Explainer<'a>,
    run: String,
    split: Split,
    graphs: Vec<usize>,
    unscored: VecDeque<Vec<usize>>,
    scores: Vec<GraphScore>,
}

impl<'a> Explorer<'a> {
    /// Creates an explorer of the first `limit` graphs of a split.
    pub(crate) fn new(
        explainer: &'a Explainer<'a>,
        run: String,
        split: Split,
        limit: usize,
    ) -> Self {
        let all = explainer.dataset().split(split);
        let graphs = all[..all.len().min(limit).min(MAX_LISTED)].to_vec();
        let unscored = explainer.score_batches(&graphs).into();
        Self { explainer, run, split, graphs, unscored, scores: Vec::new() }
    }

    /// Returns the dataset indices of the listed graphs.
    pub(crate) fn graphs(&self) -> &[usize] {
        &self.graphs
    }

    /// Scores one batch of graphs; returns `false` when all graphs are scored.
    pub(crate) fn score_batch(&mut self) -> bool {
        let Some(graphs) = self.unscored.pop_front() else { return false };
        self.scores.extend(self.explainer.score(&graphs));
        !self.unscored.is_empty()
    }

    /// Returns the response to a request as JSON.
    pub(crate) fn respond(&self, request: &ApiRequest) -> Result<String, ExplainError> {
        let json = match request {
            ApiRequest::Info => serde_json::to_string(&self.info()),
            ApiRequest::Scores(from) => {
                let scores = self.scores.get(*from..).unwrap_or_default();
                serde_json::to_string(&ScoreList { scores, total: self.graphs.len() })
            }
            ApiRequest::Trace(request) => serde_json::to_string(&self.trace(request)?),
        };
        Ok(json.expect("responses are plain data"))
    }

    fn info(&self) -> RunInfo {
        let dataset = self.explainer.dataset();
        let letter = |color: usize| match u8::try_from(color) {
            Ok(index @ 0..26) => char::from(b'A' + index).to_string(),
            _ => color.to_string(),
        };
        let colors = self.explainer.num_colors().filter(|_| !self.explainer.accepts_smiles());
        RunInfo {
            run: self.run.clone(),
            recipe: self.explainer.recipe().name.clone(),
            split: self.split,
            total: dataset.split(self.split).len(),
            graphs: self
                .graphs
                .iter()
                .map(|&index| (index, dataset.graphs.num_nodes(index)))
                .collect(),
            error: self.explainer.error_name(),
            molecules: self.explainer.accepts_smiles(),
            colors: (0..colors.unwrap_or(0).min(64))
                .map(|color| (letter(color), category_fill(color).hex()))
                .collect(),
            ramp: RAMP.into_iter().map(Color::hex).collect(),
        }
    }

    /// Traces the attention of a graph and lays out its nodes.
    pub(crate) fn trace(&self, request: &TraceRequest) -> Result<TraceResponse, ExplainError> {
        let graph = self.graph(request)?;
        let index = request.smiles.is_none().then(|| request.graph.unwrap_or(0));
        let rows = graph.num_nodes + usize::from(self.explainer.has_cls());
        if let Some(&row) = request.rows.iter().find(|&&row| row >= rows) {
            let owner = "the graph".to_owned();
            return Err(ExplainError::OutOfRange {
                what: "node",
                index: row,
                owner,
                last: rows - 1,
            });
        }
        let default_node =
            request.rows.is_empty().then(|| self.explainer.most_focused_node(&graph));
        let full_trace = self.explainer.traces_all_rows(graph.num_nodes);
        // All rows of a large graph would not fit into memory.
        let limit = if full_trace { rows } else { 2 };
        let traced: Vec<usize> =
            request.rows.iter().copied().take(limit).chain(default_node).collect();
        let trace = self.explainer.trace(&graph, index, &traced);
        let ground_truth = faithfulness::ground_truth_cells(&trace, 0).map(|_| {
            trace
                .rows
                .iter()
                .map(|&row| faithfulness::ground_truth_cells(&trace, row).unwrap_or_default())
                .collect()
        });
        let layout = request.layout.then(|| {
            let is_molecule = matches!(trace.graph.structure, Structure::Molecule { .. });
            let NodeLayout { nodes, coordinates } = NodeLayout::new(
                &trace,
                if is_molecule { MAX_DRAWN_ATOMS } else { MAX_DRAWN_NODES },
            );
            let fills = node_fills(&trace).into_iter().map(|fill| fill.map(Color::hex)).collect();
            let round = |value: f64| (value * 1000.0).round() / 1000.0;
            GraphLayout {
                nodes,
                coordinates: coordinates.into_iter().map(|point| point.map(round)).collect(),
                fills,
            }
        });
        let has_targets = request.smiles.is_none();
        Ok(TraceResponse { trace, default_node, full_trace, has_targets, ground_truth, layout })
    }

    fn graph(&self, request: &TraceRequest) -> Result<Graph, ExplainError> {
        if let Some(smiles) = &request.smiles {
            return self.explainer.molecule(smiles);
        }
        let graphs = &self.explainer.dataset().graphs;
        let index = request.graph.unwrap_or(0);
        if index >= graphs.len() {
            let owner = "the dataset".to_owned();
            return Err(ExplainError::OutOfRange {
                what: "graph",
                index,
                owner,
                last: graphs.len().saturating_sub(1),
            });
        }
        if request.colors.is_empty() {
            return Ok(graphs.get(index).into_owned());
        }
        self.explainer.recolored(index, &request.colors)
    }
}
