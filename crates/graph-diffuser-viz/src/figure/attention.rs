//! Attention figures in the style of the paper's Figure 2, for any graph.
//!
//! Panels show the graph, then position × content = attention of one query node. Node labels keep
//! figures readable in grayscale; a thick ring marks the query node.

use graph_diffuser::explain::AttentionTrace;
use graph_diffuser::explain::summary::{format_value, headline};

use crate::canvas::{Canvas, TextStyle};
use crate::color::INK;

use super::attention_layout::{AttentionFigure, FigureView, MARGIN, PANEL, WIDTH};
use super::panel::{PANEL_LEGEND, PANEL_TITLE, Panel};

/// Top of the first row of panels.
const TOP: f64 = 96.0;

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
    draw_panels(&figure, &panels)
}

/// Draws headline and panels.
fn draw_panels(figure: &AttentionFigure<'_>, panels: &[Panel<'_>]) -> Canvas {
    let AttentionFigure { trace, view, .. } = figure;
    let row_height = PANEL_TITLE + figure.height + PANEL_LEGEND;
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
        figure.name(view.node),
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
        panel.draw(figure, &mut canvas, [left, top]);
    }
    canvas
}

#[cfg(test)]
mod tests {
    use graph_diffuser::explain::{PredictionAndTarget, Structure, TracedGraph, TracedTarget};

    use crate::figure::attention_layout::MAX_DRAWN_NODES;
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
