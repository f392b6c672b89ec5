//! Web explorer: a static page and the JSON API behind it.
//!
//! [`Explorer`] computes the responses; [`server`] serves them over HTTP on localhost; [`export`]
//! embeds them in one HTML file.

mod api_error;
pub(crate) mod page;
pub(crate) mod export;
mod live;
pub(crate) mod server;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use graph_diffuser::explain::{
    AttentionTrace, ExplainError, Explainer, GraphScore, Structure, TargetScore, faithfulness,
};
use graph_diffuser::nn::CancelFlag;
use graph_diffuser::run::RunError;
use graph_diffuser_data::formats::RowLabels;
use graph_diffuser_data::{CacheModifiedError, Graph, Split, TargetSchema};
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
    /// Scores computed so far, from a position on; of one target, if requested.
    Scores { from: usize, target: Option<usize> },
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
    /// Name of the run or of the pretrained model.
    run: String,
    recipe: String,
    split: Split,
    /// True if the run is not finished, so that its learning curves may still grow.
    is_unfinished: bool,
    /// Names of the targets of a graph; empty for other tasks.
    targets: Vec<String>,
    /// Number of graphs in the split, of which at most `MAX_LISTED` are listed.
    total: usize,
    /// Index, number of nodes, identifier and SMILES of each listed graph.
    graphs: Vec<(usize, usize, Option<String>, Option<String>)>,
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
    scores: Vec<ListedScore<'a>>,
    /// Number of graphs that will be scored.
    total: usize,
}

/// Score of a graph in the list.
#[derive(Debug, Serialize)]
struct ListedScore<'a> {
    #[serde(flatten)]
    score: GraphScore,
    /// Scores of all targets, in an exported file.
    #[serde(skip_serializing_if = "Option::is_none")]
    targets: Option<&'a [TargetScore]>,
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
    /// Identifier of the row, if the file has one.
    id: Option<String>,
    /// SMILES of the molecule, if known.
    smiles: Option<String>,
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
    explainer: &'a Explainer,
    rows: &'a RowLabels,
    run: String,
    split: Split,
    is_unfinished: bool,
    graphs: Vec<usize>,
    unscored: Mutex<VecDeque<Vec<usize>>>,
    scores: Mutex<Vec<GraphScore>>,
}

impl<'a> Explorer<'a> {
    /// Creates an explorer of the first `limit` graphs of a split.
    pub(crate) fn new(
        explainer: &'a Explainer,
        rows: &'a RowLabels,
        run: String,
        split: Split,
        limit: usize,
    ) -> Self {
        let all = explainer.dataset().split(split);
        let graphs = all[..all.len().min(limit).min(MAX_LISTED)].to_vec();
        let unscored = Mutex::new(explainer.score_batches(&graphs).into());
        let scores = Mutex::default();
        Self { explainer, rows, run, split, is_unfinished: false, graphs, unscored, scores }
    }

    /// Links the page to the live view of an unfinished run.
    pub(crate) fn with_live_link(self, is_unfinished: bool) -> Self {
        Self { is_unfinished, ..self }
    }

    /// Returns the dataset indices of the listed graphs.
    pub(crate) fn graphs(&self) -> &[usize] {
        &self.graphs
    }

    /// Scores one batch of graphs; returns `false` when all graphs are scored.
    pub(crate) fn score_batch(&self) -> bool {
        let batch = self.unscored.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(graphs) = batch else { return false };
        let found = self.explainer.score(&graphs);
        self.scores.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
        true
    }

    /// Returns the response to a request as JSON; traces are computed until `cancel` is set.
    pub(crate) fn respond(
        &self,
        request: &ApiRequest,
        cancel: &CancelFlag,
    ) -> Result<String, ExplainError> {
        CacheModifiedError::catch(|| self.response(request, cancel)).map_err(RunError::from)?
    }

    fn response(&self, request: &ApiRequest, cancel: &CancelFlag) -> Result<String, ExplainError> {
        let json = match request {
            ApiRequest::Info => serde_json::to_string(&self.info()),
            ApiRequest::Scores { from, target } => {
                let scores = self.scores.lock().unwrap_or_else(PoisonError::into_inner);
                let scores = scores.get(*from..).unwrap_or_default().iter();
                let scores = scores
                    .map(|score| ListedScore { score: of_target(score, *target), targets: None });
                let list = ScoreList { scores: scores.collect(), total: self.graphs.len() };
                serde_json::to_string(&list)
            }
            ApiRequest::Trace(request) => serde_json::to_string(&self.trace(request, cancel)?),
        };
        Ok(json.expect("responses are plain data"))
    }

    /// Returns all scores with those of the individual targets, for an exported file.
    pub(crate) fn scores_of_all_targets(&self) -> String {
        let scores = self.scores.lock().unwrap_or_else(PoisonError::into_inner);
        let scores = scores.iter().map(|score| ListedScore {
            score: of_target(score, None),
            targets: Some(&score.targets[..]).filter(|targets| !targets.is_empty()),
        });
        let list = ScoreList { scores: scores.collect(), total: self.graphs.len() };
        serde_json::to_string(&list).expect("scores are plain data")
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
            is_unfinished: self.is_unfinished,
            total: dataset.split(self.split).len(),
            targets: match &dataset.schema.targets {
                TargetSchema::Graph(kinds) => (0..kinds.len())
                    .map(|target| dataset.schema.names.target(target, kinds.len()))
                    .collect(),
                _ => vec![],
            },
            graphs: self
                .graphs
                .iter()
                .map(|&index| {
                    let [id, smiles] = [self.rows.id(index), self.rows.smiles(index)];
                    let nodes = dataset.graphs.num_nodes(index);
                    (index, nodes, id.map(str::to_owned), smiles.map(str::to_owned))
                })
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
    pub(crate) fn trace(
        &self,
        request: &TraceRequest,
        cancel: &CancelFlag,
    ) -> Result<TraceResponse, ExplainError> {
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
        let trace = self.explainer.trace_until(&graph, index, &traced, cancel)?;
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
            let fills =
                node_fills(&trace.graph).into_iter().map(|fill| fill.map(Color::hex)).collect();
            let round = |value: f64| (value * 1000.0).round() / 1000.0;
            GraphLayout {
                nodes,
                coordinates: coordinates.into_iter().map(|point| point.map(round)).collect(),
                fills,
            }
        });
        let label = |label: Option<&str>| label.map(str::to_owned);
        Ok(TraceResponse {
            trace,
            default_node,
            full_trace,
            has_targets: request.smiles.is_none(),
            id: label(index.and_then(|index| self.rows.id(index))),
            smiles: label(match index {
                Some(index) => self.rows.smiles(index),
                None => request.smiles.as_deref(),
            }),
            ground_truth,
            layout,
        })
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

/// Returns the score of one target of a graph, or of the graph.
fn of_target(score: &GraphScore, target: Option<usize>) -> GraphScore {
    let (predicted, truth, error) = match target.and_then(|target| score.targets.get(target)) {
        Some(score) => (&score.predicted, &score.truth, score.error),
        None => (&score.predicted, &score.truth, score.error),
    };
    GraphScore {
        index: score.index,
        predicted: predicted.clone(),
        truth: truth.clone(),
        error,
        target: target.filter(|&target| target < score.targets.len()).or(score.target),
        targets: vec![],
    }
}
