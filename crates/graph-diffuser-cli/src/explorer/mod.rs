//! The web explorer: a page of static files inside the program, and what it asks.
//!
//! [`Explorer`] answers questions from the library and knows no network; [`server`] takes them over HTTP on this
//! machine alone; [`export`] answers them beforehand, in one file.

pub(crate) mod export;
pub(crate) mod page;
pub(crate) mod server;

use std::collections::VecDeque;

use graph_diffuser::explain::figure::{self, Placed};
use graph_diffuser::explain::{
    AttentionTrace, ExplainError, Explainer, GraphScore, Structure, faithfulness,
};
use graph_diffuser_data::{Graph, Split};
use serde::{Deserialize, Serialize};

/// Most graphs that are listed: more would only be slow to sort and to scroll.
const LISTED: usize = 10_000;

/// Most nodes of a graph that are drawn; beyond it, setting them in their places takes longer than people wait.
const DRAWN: usize = 256;
/// The same of a molecule, whose places are found faster.
const DRAWN_ATOMS: usize = 500;

/// What the page can ask.
#[derive(Debug)]
pub(crate) enum Question {
    /// What there is to see.
    Introduction,
    /// Scores, from a place in their order on.
    EvalMetrics(usize),
    /// What the model looks at in one graph.
    Trace(TraceQuestion),
}

/// A graph, and whose rows of it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TraceQuestion {
    /// A graph of the dataset by its number.
    pub(crate) graph: Option<usize>,
    /// Or a molecule.
    pub(crate) smiles: Option<String>,
    /// Cells of a grid with their new colours.
    pub(crate) colors: Vec<(usize, u32)>,
    /// Nodes whose attention is asked for; the one with most to tell where none is named.
    pub(crate) rows: Vec<usize>,
    /// Whether the page has no places of the nodes yet.
    pub(crate) places: bool,
}

/// What the page shows before any graph.
#[derive(Debug, Serialize)]
struct Introduction {
    run: String,
    recipe: String,
    split: Split,
    /// How many graphs the split has; not more than `LISTED` are listed.
    total: usize,
    /// Number and size of each.
    graphs: Vec<(usize, usize)>,
    /// What errors are.
    error: &'static str,
    molecules: bool,
    /// Letter and tint of each colour that a cell can have.
    colors: Vec<(String, String)>,
    ramp: Vec<String>,
}

/// Scores of some graphs in the order in which they were computed.
#[derive(Debug, Serialize)]
struct EvalMetrics<'a> {
    scores: &'a [GraphScore],
    all: usize,
}

/// A trace with what is needed to draw it.
#[derive(Debug, Serialize)]
pub(crate) struct Drawn {
    pub(crate) trace: AttentionTrace,
    /// The node with most to tell, where no other was asked for.
    pub(crate) telling: Option<usize>,
    /// Whether all rows may be asked for at once.
    whole: bool,
    /// Whether its targets are true, or stand for nothing.
    known: bool,
    /// For each row the nodes that its label counts, where labels count anything.
    counted: Option<Vec<Vec<usize>>>,
    drawing: Option<Drawing>,
}

#[derive(Debug, Serialize)]
struct Drawing {
    nodes: Vec<usize>,
    places: Vec<[f64; 2]>,
    /// A tint for each node of the graph.
    fills: Vec<Option<String>>,
}

/// Answers from one run.
pub(crate) struct Explorer<'a> {
    explainer: &'a Explainer<'a>,
    run: String,
    split: Split,
    numbers: Vec<usize>,
    to_score: VecDeque<Vec<usize>>,
    scores: Vec<GraphScore>,
}

impl<'a> Explorer<'a> {
    /// Explores the first graphs of a split, `most` at most.
    pub(crate) fn new(
        explainer: &'a Explainer<'a>,
        run: String,
        split: Split,
        most: usize,
    ) -> Self {
        let all = explainer.dataset().split(split);
        let numbers = all[..all.len().min(most).min(LISTED)].to_vec();
        let to_score = explainer.score_batches(&numbers).into();
        Self { explainer, run, split, numbers, to_score, scores: Vec::new() }
    }

    /// The graphs that are listed.
    pub(crate) fn numbers(&self) -> &[usize] {
        &self.numbers
    }

    /// Scores some more graphs; false when all are.
    pub(crate) fn score_some(&mut self) -> bool {
        let Some(numbers) = self.to_score.pop_front() else { return false };
        self.scores.extend(self.explainer.score(&numbers));
        !self.to_score.is_empty()
    }

    /// An answer as JSON.
    pub(crate) fn answer(&self, question: &Question) -> Result<String, ExplainError> {
        let json = match question {
            Question::Introduction => serde_json::to_string(&self.introduction()),
            Question::EvalMetrics(from) => {
                let scores = self.scores.get(*from..).unwrap_or_default();
                serde_json::to_string(&EvalMetrics { scores, all: self.numbers.len() })
            }
            Question::Trace(question) => serde_json::to_string(&self.draw(question)?),
        };
        Ok(json.expect("plain data serialises"))
    }

    fn introduction(&self) -> Introduction {
        let dataset = self.explainer.dataset();
        let letter = |color: usize| match u8::try_from(color) {
            Ok(place @ 0..26) => char::from(b'A' + place).to_string(),
            _ => color.to_string(),
        };
        let colors = self.explainer.colors().filter(|_| !self.explainer.reads_molecules());
        Introduction {
            run: self.run.clone(),
            recipe: self.explainer.recipe().name.clone(),
            split: self.split,
            total: dataset.split(self.split).len(),
            graphs: self
                .numbers
                .iter()
                .map(|&number| (number, dataset.graphs.nodes(number)))
                .collect(),
            error: self.explainer.error_name(),
            molecules: self.explainer.reads_molecules(),
            colors: (0..colors.unwrap_or(0).min(64))
                .map(|color| (letter(color), hex(figure::category_fill(color))))
                .collect(),
            ramp: figure::RAMP.into_iter().map(hex).collect(),
        }
    }

    /// Traces a graph and sets its nodes in their places.
    pub(crate) fn draw(&self, question: &TraceQuestion) -> Result<Drawn, ExplainError> {
        let graph = self.graph(question)?;
        let number = question.smiles.is_none().then(|| question.graph.unwrap_or(0));
        let rows = graph.nodes + usize::from(self.explainer.has_cls());
        if let Some(&row) = question.rows.iter().find(|&&row| row >= rows) {
            let whose = "the graph".to_owned();
            return Err(ExplainError::OutOfRange {
                what: "node",
                number: row,
                whose,
                last: rows - 1,
            });
        }
        let telling = question.rows.is_empty().then(|| self.explainer.most_focused_node(&graph));
        let whole = self.explainer.is_traced_whole(graph.nodes);
        // Rows of a large graph are asked for a few at a time; all of them would fit in no memory.
        let most = if whole { rows } else { 2 };
        let traced: Vec<usize> = question.rows.iter().copied().take(most).chain(telling).collect();
        let trace = self.explainer.trace(&graph, number, &traced);
        let counted = faithfulness::counted(&trace, 0).map(|_| {
            trace
                .rows
                .iter()
                .map(|&row| faithfulness::counted(&trace, row).unwrap_or_default())
                .collect()
        });
        let drawing = question.places.then(|| {
            let is_molecule = matches!(trace.graph.structure, Structure::Molecule { .. });
            let Placed { nodes, places } =
                Placed::of(&trace, if is_molecule { DRAWN_ATOMS } else { DRAWN });
            let fills = figure::fills(&trace).into_iter().map(|fill| fill.map(hex)).collect();
            let round = |number: f64| (number * 1000.0).round() / 1000.0;
            Drawing {
                nodes,
                places: places.into_iter().map(|place| place.map(round)).collect(),
                fills,
            }
        });
        Ok(Drawn { telling, whole, known: question.smiles.is_none(), counted, drawing, trace })
    }

    fn graph(&self, question: &TraceQuestion) -> Result<Graph, ExplainError> {
        if let Some(smiles) = &question.smiles {
            return self.explainer.molecule(smiles);
        }
        let graphs = &self.explainer.dataset().graphs;
        let number = question.graph.unwrap_or(0);
        if number >= graphs.len() {
            let whose = "the dataset".to_owned();
            return Err(ExplainError::OutOfRange {
                what: "graph",
                number,
                whose,
                last: graphs.len().saturating_sub(1),
            });
        }
        if question.colors.is_empty() {
            return Ok(graphs.get(number).into_owned());
        }
        self.explainer.recolored(number, &question.colors)
    }
}

fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
