//! Figure of a graph, laid out by its edges.

use std::collections::BTreeSet;

use graph_diffuser::explain::{Structure, TracedGraph};

use crate::canvas::{Anchor, Canvas, Point, Style, TextStyle};
use crate::color::{INK, OUTLINE, PLAIN, WHITE, atom_fill};
use crate::layout::{bounds, coordinates};

use super::nodes::node_fills;
use super::panel::{draw_arrow_head, draw_bond, draw_label};

/// Maximum number of nodes of [`draw_graph`]; a larger figure is unreadable.
pub const MAX_NODES: usize = 1000;

const MARGIN: f64 = 30.0;
const RADIUS: f64 = 10.0;
const INDEX_SIZE: f64 = 9.0;

/// Draws a graph with a label on each node.
///
/// A molecule is drawn as a structural formula, in which carbon atoms with neighbors are corners
/// without a label. `show_indices` adds the index of every node.
pub fn draw_graph(graph: &TracedGraph, show_indices: bool) -> Canvas {
    let points = scaled(&coordinates(graph.nodes, &graph.edges, &graph.structure));
    let (low, high) = bounds(&points);
    let size = [0, 1].map(|axis| (high[axis] + low[axis]).max(2.0 * MARGIN));
    let mut canvas = Canvas::new(size[0], size[1], format!("graph with {} nodes", graph.nodes));
    let edges: BTreeSet<[u32; 2]> = graph.edges.iter().copied().collect();
    let is_molecule = matches!(graph.structure, Structure::Molecule { .. });
    for (index, &[source, target]) in graph.edges.iter().enumerate() {
        let has_reverse = edges.contains(&[target, source]);
        // An edge with its reverse is drawn once.
        if source == target || (has_reverse && source > target) {
            continue;
        }
        let bond = match &graph.structure {
            Structure::Molecule { bonds } => bonds.get(index).copied().unwrap_or(1),
            Structure::Grid { .. } | Structure::Other {} => 1,
        };
        let ends = [source, target].map(|node| points[node as usize]);
        draw_bond(&mut canvas, ends, bond, 1.5, if is_molecule { INK } else { OUTLINE }, RADIUS);
        if !has_reverse {
            draw_arrow_head(&mut canvas, ends, 1.5, OUTLINE, RADIUS);
        }
    }
    let fills = node_fills(graph);
    for (node, (&point, label)) in points.iter().zip(&graph.labels).enumerate() {
        let is_corner = is_molecule
            && label == "C"
            && graph.nodes > 2
            && graph.edges.iter().any(|edge| edge.contains(&(node as u32)));
        if !is_corner {
            let fill = fills.get(node).copied().flatten().unwrap_or(PLAIN);
            let fill = if is_molecule { atom_fill(label) } else { fill };
            let outline = if is_molecule { WHITE } else { OUTLINE };
            canvas.circle(point, RADIUS, Style::fill(fill).outlined(outline, 1.0));
            draw_label(&mut canvas, label, point, RADIUS, fill);
        }
        if show_indices {
            let at = [point[0] + 0.8 * RADIUS, point[1] - 0.8 * RADIUS];
            let style = TextStyle::new(INDEX_SIZE, if is_corner { INK } else { OUTLINE });
            canvas.text(at, node.to_string(), style.anchor(Anchor::Start));
        }
    }
    canvas
}

/// Scales the coordinates to a readable distance between nodes and moves them into the figure.
fn scaled(coordinates: &[Point]) -> Vec<Point> {
    const SPACING: f64 = 42.0;
    const MAX_EXTENT: f64 = 2400.0;
    let (low, high) = bounds(coordinates);
    let extent = (high[0] - low[0]).max(high[1] - low[1]).max(1e-9);
    let scale = SPACING.min(MAX_EXTENT / extent);
    let place = |point: &Point| [0, 1].map(|axis| MARGIN + scale * (point[axis] - low[axis]));
    coordinates.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(
        nodes: usize,
        edges: Vec<[u32; 2]>,
        labels: &[&str],
        structure: Structure,
    ) -> TracedGraph {
        TracedGraph {
            index: Some(0),
            nodes,
            edges,
            node_features: vec![],
            edge_features: vec![],
            labels: labels.iter().map(ToString::to_string).collect(),
            structure,
        }
    }

    #[test]
    fn all_nodes_are_inside_the_figure_and_directed_edges_have_arrows() {
        // A path of five nodes; its last edge has no reverse.
        let mut edges: Vec<[u32; 2]> =
            (0..3).flat_map(|node| [[node, node + 1], [node + 1, node]]).collect();
        edges.push([3, 4]);
        let labels = ["<0", "<1", "<2", "<3", "<4"];
        let graph = traced(5, edges, &labels, Structure::Other {});
        let svg = draw_graph(&graph, false).to_svg();
        // Four lines and one arrow head.
        assert_eq!((svg.matches("<path").count(), svg.matches("&lt;").count()), (5, 5));
        let points = scaled(&coordinates(5, &graph.edges, &Structure::Other {}));
        assert!(points.iter().flatten().all(|&value| value >= MARGIN));
    }

    #[test]
    fn molecules_are_structural_formulas() {
        // Acetate: two corners, a double bond to O and a single bond to O-.
        let edges: Vec<[u32; 2]> =
            [[0, 1], [1, 2], [1, 3]].into_iter().flat_map(|[a, b]| [[a, b], [b, a]]).collect();
        let bonds = vec![1, 1, 2, 2, 1, 1];
        let labels = ["C", "C", "O", "O-"];
        let graph = traced(4, edges, &labels, Structure::Molecule { bonds });
        let svg = draw_graph(&graph, false).to_svg();
        assert_eq!((svg.matches("<circle").count(), svg.matches("<path").count()), (2, 4));
        assert!(svg.contains(">O-<") && !svg.contains(">C<"), "{svg}");
        assert!(draw_graph(&graph, true).to_svg().contains(">3<"));
    }
}
