//! Figure of a graph, laid out by its edges.

use std::fmt::Write as _;

use graph_diffuser::explain::Structure;
use graph_diffuser_data::Graph;
use graph_diffuser_viz::layout::coordinates;

/// Maximum number of nodes that are drawn; a larger figure is unreadable.
pub(super) const MAX_NODES: usize = 1000;

const MARGIN: f64 = 30.0;

/// Draws a graph as SVG with a label on each node.
pub(super) fn draw(graph: &Graph, labels: &[String]) -> String {
    let coordinates = scaled(&coordinates(graph.num_nodes, &graph.edges, &Structure::Other {}));
    let side = side(graph.num_nodes);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {side} {side}\" \
         width=\"{side}\" height=\"{side}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    // An edge with its reverse is drawn once.
    for &[source, target] in graph
        .edges
        .iter()
        .filter(|[source, target]| source < target || !graph.edges.contains(&[*target, *source]))
    {
        let ([x1, y1], [x2, y2]) = (coordinates[source as usize], coordinates[target as usize]);
        let _ = writeln!(svg, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#888\"/>");
    }
    for ([x, y], label) in coordinates.iter().zip(labels) {
        let label = label.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\" fill=\"#dbe9f6\" stroke=\"#456\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            y + 4.0
        );
    }
    svg + "</svg>\n"
}

/// Returns the side length of the figure.
fn side(nodes: usize) -> f64 {
    (2.0 * MARGIN + 60.0 * (nodes as f64).sqrt()).clamp(160.0, 2000.0).round()
}

/// Scales and centers the coordinates in the figure.
fn scaled(coordinates: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let side = side(coordinates.len());
    let min =
        |axis: usize| coordinates.iter().map(|point| point[axis]).fold(f64::INFINITY, f64::min);
    let max =
        |axis: usize| coordinates.iter().map(|point| point[axis]).fold(f64::NEG_INFINITY, f64::max);
    let extent = (max(0) - min(0)).max(max(1) - min(1)).max(1e-9);
    let scale = (side - 2.0 * MARGIN) / extent;
    let scale_axis = |point: &[f64; 2], axis: usize| {
        let slack = (side - 2.0 * MARGIN - scale * (max(axis) - min(axis))) / 2.0;
        MARGIN + slack + scale * (point[axis] - min(axis))
    };
    coordinates.iter().map(|point| [scale_axis(point, 0), scale_axis(point, 1)]).collect()
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
        let coordinates = scaled(&coordinates(graph.num_nodes, &graph.edges, &Structure::Other {}));
        let distance = |first: usize, second: usize| {
            let ([x, y], [other_x, other_y]) = (coordinates[first], coordinates[second]);
            (x - other_x).hypot(y - other_y)
        };
        assert!((0..4).all(|node| distance(node, node + 1) < distance(0, 4)));
        let inside = |value: f64| (0.0..=side(5)).contains(&value);
        assert!(coordinates.iter().all(|[x, y]| inside(*x) && inside(*y)));
        let labels: Vec<String> = (0..5).map(|node| format!("<{node}")).collect();
        let svg = draw(&graph, &labels);
        assert_eq!((svg.matches("<path").count(), svg.matches("&lt;").count()), (4, 5));
    }
}
