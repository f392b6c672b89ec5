//! Figure of a graph, laid out by its edges.

use graph_diffuser::explain::Structure;
use graph_diffuser_data::Graph;

use crate::canvas::{Anchor, Canvas, Point, Style, TextStyle};
use crate::color::{Color, INK};
use crate::font::CENTER;
use crate::layout::{bounds, coordinates};

/// Maximum number of nodes of [`draw_graph`]; a larger figure is unreadable.
pub const MAX_NODES: usize = 1000;

const MARGIN: f64 = 30.0;
const RADIUS: f64 = 9.0;
const FONT_SIZE: f64 = 11.0;
const EDGE: Color = Color::rgb(0x88_88_88);
const FILL: Color = Color::rgb(0xdb_e9_f6);
const BORDER: Color = Color::rgb(0x44_55_66);

/// Draws a graph with a label on each node.
pub fn draw_graph(graph: &Graph, labels: &[String]) -> Canvas {
    let points = scaled(&coordinates(graph.num_nodes, &graph.edges, &Structure::Other {}));
    let side = side(graph.num_nodes);
    let mut canvas = Canvas::new(side, side, format!("graph with {} nodes", graph.num_nodes));
    // An edge with its reverse is drawn once.
    for &[source, target] in graph
        .edges
        .iter()
        .filter(|[source, target]| source < target || !graph.edges.contains(&[*target, *source]))
    {
        let [from, to] = [source, target].map(|node| points[node as usize]);
        canvas.line(from, to, Style::stroke(EDGE, 1.0));
    }
    let style = TextStyle::new(FONT_SIZE, INK).anchor(Anchor::Middle);
    for (&[x, y], label) in points.iter().zip(labels) {
        canvas.circle([x, y], RADIUS, Style::fill(FILL).outlined(BORDER, 1.0));
        canvas.text([x, y + CENTER * FONT_SIZE], label, style);
    }
    canvas
}

/// Returns the side length of the figure.
fn side(nodes: usize) -> f64 {
    (2.0 * MARGIN + 60.0 * (nodes as f64).sqrt()).clamp(160.0, 2000.0).round()
}

/// Scales and centers the coordinates in the figure.
fn scaled(coordinates: &[Point]) -> Vec<Point> {
    let side = side(coordinates.len());
    let (low, high) = bounds(coordinates);
    let extent = (high[0] - low[0]).max(high[1] - low[1]).max(1e-9);
    let scale = (side - 2.0 * MARGIN) / extent;
    let center = [0, 1].map(|axis| f64::midpoint(low[axis], high[axis]));
    let place =
        |point: &Point| [0, 1].map(|axis| side / 2.0 + scale * (point[axis] - center[axis]));
    coordinates.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::{Features, Targets};

    use super::*;

    #[test]
    fn adjacent_nodes_are_closest_and_all_nodes_are_inside_the_figure() {
        // A path of five nodes: its ends are farthest apart.
        let edges = (0..4_u32).flat_map(|node| [[node, node + 1], [node + 1, node]]).collect();
        let none = || Features::None;
        let targets = Targets::GraphValues(vec![]);
        let graph =
            Graph { num_nodes: 5, edges, node_features: none(), edge_features: none(), targets };
        let points = scaled(&coordinates(graph.num_nodes, &graph.edges, &Structure::Other {}));
        let distance = |first: usize, second: usize| {
            let ([x, y], [other_x, other_y]) = (points[first], points[second]);
            (x - other_x).hypot(y - other_y)
        };
        assert!((0..4).all(|node| distance(node, node + 1) < distance(0, 4)));
        let inside = |value: f64| (0.0..=side(5)).contains(&value);
        assert!(points.iter().all(|[x, y]| inside(*x) && inside(*y)));
        let labels: Vec<String> = (0..5).map(|node| format!("<{node}")).collect();
        let svg = draw_graph(&graph, &labels).to_svg();
        assert_eq!((svg.matches("<path").count(), svg.matches("&lt;").count()), (4, 5));
    }
}
