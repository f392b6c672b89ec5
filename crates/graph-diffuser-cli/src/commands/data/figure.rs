//! A graph as a picture: neighbours stand near each other.

use std::fmt::Write as _;

use graph_diffuser::explain::Structure;
use graph_diffuser::explain::layout::places;
use graph_diffuser_data::Graph;

/// More would be a black spot.
pub(super) const MOST_NODES: usize = 1000;

const MARGIN: f64 = 30.0;

/// The graph as SVG, with a label at each node.
pub(super) fn draw(graph: &Graph, labels: &[String]) -> String {
    let places = scaled(&places(graph.nodes, &graph.edges, &Structure::Other {}));
    let side = side(graph.nodes);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {side} {side}\" width=\"{side}\" height=\"{side}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for &[source, target] in graph
        .edges
        .iter()
        .filter(|[source, target]| source < target || !has(graph, *target, *source))
    {
        let ([x1, y1], [x2, y2]) = (places[source as usize], places[target as usize]);
        let _ = writeln!(svg, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#888\"/>");
    }
    for ([x, y], label) in places.iter().zip(labels) {
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

/// Whether the edge is there; an edge that goes both ways is drawn once.
fn has(graph: &Graph, source: u32, target: u32) -> bool {
    graph.edges.contains(&[source, target])
}

fn side(nodes: usize) -> f64 {
    (2.0 * MARGIN + 60.0 * (nodes as f64).sqrt()).clamp(160.0, 2000.0).round()
}

/// Into the square of the picture.
fn scaled(places: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let side = side(places.len());
    let least = |axis: usize| places.iter().map(|place| place[axis]).fold(f64::INFINITY, f64::min);
    let most =
        |axis: usize| places.iter().map(|place| place[axis]).fold(f64::NEG_INFINITY, f64::max);
    let extent = (most(0) - least(0)).max(most(1) - least(1)).max(1e-9);
    let scale = (side - 2.0 * MARGIN) / extent;
    let at = |place: &[f64; 2], axis: usize| {
        let slack = (side - 2.0 * MARGIN - scale * (most(axis) - least(axis))) / 2.0;
        MARGIN + slack + scale * (place[axis] - least(axis))
    };
    places.iter().map(|place| [at(place, 0), at(place, 1)]).collect()
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::{Features, Targets};

    use super::*;

    #[test]
    fn neighbours_stand_nearer_than_strangers_and_all_are_inside() {
        // A path of five nodes: its ends are farthest apart.
        let edges = (0..4_u32).flat_map(|node| [[node, node + 1], [node + 1, node]]).collect();
        let none = || Features::None;
        let targets = Targets::GraphValues(vec![]);
        let graph =
            Graph { nodes: 5, edges, node_features: none(), edge_features: none(), targets };
        let places = scaled(&places(graph.nodes, &graph.edges, &Structure::Other {}));
        let far = |first: usize, second: usize| {
            let ([x, y], [other_x, other_y]) = (places[first], places[second]);
            (x - other_x).hypot(y - other_y)
        };
        assert!((0..4).all(|node| far(node, node + 1) < far(0, 4)));
        let inside = |value: f64| (0.0..=side(5)).contains(&value);
        assert!(places.iter().all(|[x, y]| inside(*x) && inside(*y)));
        let labels: Vec<String> = (0..5).map(|node| format!("<{node}")).collect();
        let svg = draw(&graph, &labels);
        assert_eq!((svg.matches("<path").count(), svg.matches("&lt;").count()), (4, 5));
    }
}
