//! Attention figures in the style of the paper's Figure 2, for any graph.
//!
//! Panels show the graph, then position × content = attention of one query node. Node labels keep
//! figures readable in grayscale; a thick ring marks the query node.

use std::collections::BTreeMap;

use graph_diffuser::explain::faithfulness::ground_truth_cells;
use graph_diffuser::explain::summary::{format_value, headline, truncate};
use graph_diffuser::explain::{AttentionTrace, Structure};

use crate::canvas::{Canvas, Point, TextStyle};
use crate::color::INK;
use crate::layout;

use super::nodes::{NodeLayout, top_attended};
use super::panel::{PANEL_LEGEND, PANEL_TITLE, Panel};

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 28.0;
/// Width of a panel.
pub(super) const PANEL: f64 = (WIDTH - 3.0 * MARGIN) / 2.0;
/// Top of the first row of panels.
const TOP: f64 = 96.0;
/// Maximum number of nodes in a figure; of larger graphs the most attended nodes are drawn.
const MAX_DRAWN_NODES: usize = 500;

/// Selection of the attention shown in a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FigureView {
    /// Query node; must be one of the rows of the trace.
    pub node: usize,
    /// Layer index.
    pub layer: usize,
    /// Head index; `None` selects the mean of all heads.
    pub head: Option<usize>,
}

/// Draws the attention of one query node.
///
/// # Panics
/// Panics if `view.node` is not one of the rows of the trace.
pub fn draw_attention(trace: &AttentionTrace, view: FigureView) -> Canvas {
    let row = trace.row_of(view.node).expect("the query node is one of the traced rows");
    let head = trace.head(view.layer, view.head);
    let position = head.position.as_ref().map(|matrix| &matrix[row][..]);
    let content = head.content.as_ref().map(|matrix| &matrix[row][..]);
    let attention = &head.attention[row][..];
    let figure = AttentionFigure::new(trace, view, attention);
    let self_weight = |weights: &[f32]| format!("self weight {}", format_value(weights[view.node]));
    let mut panels = vec![Panel {
        title: "Graph",
        note: figure.graph_note(),
        weights: None,
        marks_ground_truth: true,
    }];
    let mut add = |title, note, weights, marks_ground_truth| {
        panels.push(Panel { title, note, weights: Some(weights), marks_ground_truth });
    };
    if let Some(position) = position {
        add("Position", self_weight(position), position, false);
        if let Some(content) = content {
            add("× Content", self_weight(content), content, false);
        }
    }
    let title = if position.is_some() { "= Attention" } else { "Attention (content only)" };
    add(title, figure.attention_note(attention), attention, true);
    figure.draw(&panels)
}

/// Layout shared by all panels of a figure.
pub(super) struct AttentionFigure<'a> {
    pub(super) trace: &'a AttentionTrace,
    pub(super) view: FigureView,
    /// Drawn nodes, including the CLS node.
    pub(super) shown: Vec<usize>,
    /// Coordinates of the drawn nodes within a panel.
    pub(super) coordinates: Vec<Point>,
    pub(super) radius: f64,
    /// Height of the nodes of a panel.
    pub(super) height: f64,
    pub(super) edges: Vec<UndirectedEdge>,
    /// Ground-truth cells of the query node; empty if labels do not count cells.
    pub(super) ground_truth: Vec<usize>,
}

/// Drawn pair of neighbors.
pub(super) struct UndirectedEdge {
    /// Positions of both ends in [`AttentionFigure::shown`].
    pub(super) ends: [usize; 2],
    /// Mean weight of both directions.
    pub(super) weight: f32,
    pub(super) bond: u8,
    /// Source and target if there is no edge in the other direction.
    pub(super) direction: Option<[usize; 2]>,
}

impl<'a> AttentionFigure<'a> {
    fn new(trace: &'a AttentionTrace, view: FigureView, attention: &[f32]) -> Self {
        let nodes = trace.graph.nodes;
        let shown = if nodes > MAX_DRAWN_NODES {
            top_attended(nodes, MAX_DRAWN_NODES, &[view.node], attention)
        } else {
            (0..nodes).collect()
        };
        let NodeLayout { nodes: shown, coordinates } = NodeLayout::with_nodes(trace, shown);
        // Fill the panel, up to 56 units per edge length.
        let (low, high) = layout::bounds(&coordinates);
        let (across, down) = (high[0] - low[0] + 1.0, high[1] - low[1] + 1.0);
        let scale = (PANEL / across).min(460.0 / down).min(56.0);
        let height = (down * scale).max(150.0);
        let coordinates: Vec<Point> = coordinates
            .iter()
            .map(|point| {
                let x = (point[0] - f64::midpoint(low[0], high[0])) * scale + PANEL / 2.0;
                [x, (point[1] - f64::midpoint(low[1], high[1])) * scale + height / 2.0]
            })
            .collect();
        let nearest = nearest_distance(&coordinates).unwrap_or(scale);
        Self {
            trace,
            view,
            radius: (0.4 * nearest).clamp(3.0, 19.0),
            height,
            edges: undirected_edges(trace, &shown),
            ground_truth: ground_truth_cells(trace, view.node).unwrap_or_default(),
            shown,
            coordinates,
        }
    }

    /// Returns the note of the graph panel: number of nodes and range of edge weights.
    fn graph_note(&self) -> String {
        let graph = &self.trace.graph;
        let drawn = if self.shown.len() < graph.nodes {
            format!("{} of {} nodes (highest attention); ", self.shown.len(), graph.nodes)
        } else {
            format!("{} nodes; ", graph.nodes)
        };
        match self.weight_range() {
            Some([low, high]) if high - low > 1e-4 => {
                format!(
                    "{drawn}edge weight range {} to {} (line width)",
                    format_value(low),
                    format_value(high)
                )
            }
            Some(_) => format!("{drawn}uniform edge weights"),
            None => format!("{drawn}no edge weights"),
        }
    }

    /// Returns the note of the attention panel: the four most attended nodes and the
    /// self-attention weight.
    fn attention_note(&self, attention: &[f32]) -> String {
        let mut order: Vec<usize> =
            (0..attention.len()).filter(|&node| node != self.view.node).collect();
        order.sort_by(|&left, &right| {
            attention[right].total_cmp(&attention[left]).then(left.cmp(&right))
        });
        let entry = |&node: &usize| format!("{} {:.0}%", self.name(node), 100.0 * attention[node]);
        let top: Vec<String> = order.iter().take(4).map(entry).collect();
        let own = 100.0 * attention[self.view.node];
        format!("top {}; self-attention weight {own:.0}%", top.join(", "))
    }

    /// Returns index and label of a node, such as `23 (C)`.
    fn name(&self, node: usize) -> String {
        match self.trace.graph.labels.get(node) {
            None => "CLS".to_owned(),
            Some(label) if *label == node.to_string() => label.clone(),
            Some(label) => format!("{node} ({})", truncate(label, 8)),
        }
    }

    /// Returns the lowest and the highest edge weight; `None` without edge weights.
    pub(super) fn weight_range(&self) -> Option<[f32; 2]> {
        self.trace.edge_weights.as_ref()?;
        let weights = self.edges.iter().map(|edge| edge.weight);
        let [low, high] = weights
            .fold([f32::INFINITY, 0.0], |[low, high], weight| [low.min(weight), high.max(weight)]);
        low.is_finite().then_some([low, high])
    }

    /// Draws headline and panels.
    fn draw(&self, panels: &[Panel<'_>]) -> Canvas {
        let Self { trace, view, .. } = self;
        let row_height = PANEL_TITLE + self.height + PANEL_LEGEND;
        let rows = panels.len().div_ceil(2);
        let headline = headline(trace, view.node);
        let heads = trace.layers[view.layer].heads.len();
        let head = match view.head {
            Some(head) => format!("head {head} (of 0-{})", heads - 1),
            None => format!("mean of {heads} heads"),
        };
        let source = format!("{}, {}", trace.recipe, trace.graph.name());
        let height = TOP + rows as f64 * row_height + 8.0;
        let mut canvas = Canvas::new(WIDTH, height, format!("{source}, {headline}"));
        let subtitle = format!(
            "{source}, query node {}, layer {} (of 0-{}), {head}",
            self.name(view.node),
            view.layer,
            trace.layers.len() - 1
        );
        let width = WIDTH - 2.0 * MARGIN;
        let large = TextStyle::new(27.0, INK).bold().fit(&headline, width);
        canvas.text([MARGIN, 42.0], headline, large);
        let small = TextStyle::new(18.0, INK).fit(&subtitle, width);
        canvas.text([MARGIN, 72.0], subtitle, small);
        for (index, panel) in panels.iter().enumerate() {
            let left = MARGIN + (index % 2) as f64 * (PANEL + MARGIN);
            let top = TOP + (index / 2) as f64 * row_height;
            panel.draw(self, &mut canvas, [left, top]);
        }
        canvas
    }
}

/// Returns the pairs of neighbors among the nodes `shown`.
fn undirected_edges(trace: &AttentionTrace, shown: &[usize]) -> Vec<UndirectedEdge> {
    let graph = &trace.graph;
    let bond = |edge: usize| match &graph.structure {
        Structure::Molecule { bonds } => bonds.get(edge).copied().unwrap_or(1),
        Structure::Grid { .. } | Structure::Other {} => 1,
    };
    // Sum of weights, number of edges, bond type and direction of each pair.
    let mut pairs = BTreeMap::<[usize; 2], (f32, u8, u8, Option<[usize; 2]>)>::new();
    for (edge, &[source, target]) in
        graph.edges.iter().enumerate().filter(|(_, edge)| edge[0] != edge[1])
    {
        let [source, target] = [source, target].map(|node| shown.binary_search(&(node as usize)));
        let (Ok(source), Ok(target)) = (source, target) else { continue };
        let weight = trace.edge_weights.as_ref().map_or(0.0, |weights| weights[edge]);
        let ends = [source.min(target), source.max(target)];
        let first = (0.0, 0, bond(edge), Some([source, target]));
        let (sum, count, _, direction) = pairs.entry(ends).or_insert(first);
        (*sum, *count) = (*sum + weight, count.saturating_add(1));
        *direction = direction.filter(|known| *known == [source, target]);
    }
    pairs
        .into_iter()
        .map(|(ends, (sum, count, bond, direction))| UndirectedEdge {
            ends,
            weight: sum / f32::from(count),
            bond,
            direction,
        })
        .collect()
}

/// Returns the 5th percentile of the distances between nodes and their nearest neighbors.
fn nearest_distance(coordinates: &[Point]) -> Option<f64> {
    let mut all: Vec<f64> = (0..coordinates.len())
        .filter_map(|node| {
            let others = (0..coordinates.len()).filter(|&other| other != node);
            others
                .map(|other| layout::euclidean(coordinates[node], coordinates[other]))
                .min_by(f64::total_cmp)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 20).copied()
}

#[cfg(test)]
mod tests {
    use graph_diffuser::explain::{PredictionAndTarget, TracedGraph, TracedTarget};

    use crate::figure::traces::{content_only_trace, small_grid};
    use crate::snapshot::assert_text_snapshot;

    use super::*;

    #[test]
    fn svg_matches_the_snapshots() {
        let view = FigureView { node: 0, layer: 0, head: None };
        assert_text_snapshot("explain_grid", &draw_attention(&small_grid(), view).to_svg());
        let molecule = graph_diffuser_data::chem::Molecule::from_smiles("C1=CC=CN1CC#N")
            .unwrap()
            .zinc_graph()
            .unwrap();
        let schema = graph_diffuser_data::benchmarks::zinc::schema();
        let graph = TracedGraph::new(&molecule, Some(3), &schema);
        let target = TracedTarget::Regression {
            name: "target".into(),
            predicted: 1.2345,
            target: Some(-0.5),
        };
        let outcome = PredictionAndTarget::Graph { targets: vec![target] };
        let trace = content_only_trace(graph, outcome, true);
        let view = FigureView { node: 8, layer: 0, head: Some(0) };
        assert_text_snapshot("explain_molecule", &draw_attention(&trace, view).to_svg());
    }

    #[test]
    fn every_panel_marks_the_query_node_and_dashes_only_ground_truth_cells() {
        let canvas = draw_attention(&small_grid(), FigureView { node: 0, layer: 0, head: Some(1) });
        let thick = canvas.circles().filter(|style| style.dashes.is_empty() && style.width > 4.0);
        assert_eq!(thick.count(), 4);
        // Nodes 2 and 3 are the ground-truth cells of node 0; they are marked in the graph, its
        // legend and the attention panel.
        let dashed = canvas.circles().filter(|style| !style.dashes.is_empty());
        assert_eq!(dashed.count(), 2 + 1 + 2);
        let title = canvas.title();
        assert!(title.contains("Node 0: predicted 2, true 2 (correct)"), "{title}");
    }

    #[test]
    fn figures_of_all_graph_sizes_are_finite() {
        for nodes in [1_usize, 2, 40, 700] {
            let edges =
                (1..nodes as u32).flat_map(|node| [[node / 2, node], [node, node / 2]]).collect();
            let graph = TracedGraph {
                index: Some(0),
                nodes,
                edges,
                node_features: vec![],
                edge_features: vec![],
                labels: (0..nodes).map(|node| node.to_string()).collect(),
                structure: Structure::Other {},
            };
            let target = TracedTarget::Multiclass {
                name: "class".into(),
                probabilities: vec![0.3, 0.7],
                predicted: 1,
                target: Some(0),
                classes: vec![],
            };
            let outcome = PredictionAndTarget::Graph { targets: vec![target] };
            let canvas = draw_attention(
                &content_only_trace(graph, outcome, false),
                FigureView { node: nodes - 1, layer: 0, head: None },
            );
            let svg = canvas.to_svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{nodes} nodes");
            let filled = canvas.circles().filter(|style| style.fill.is_some()).count();
            assert_eq!(filled, 2 * nodes.min(MAX_DRAWN_NODES) + 1);
            assert!(canvas.to_png().starts_with(b"\x89PNG"));
        }
    }
}
