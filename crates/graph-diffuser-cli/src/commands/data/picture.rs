//! A graph as a picture: nodes push each other away, edges pull.

use std::f64::consts::TAU;
use std::fmt::Write as _;

use graph_diffuser_data::Graph;

/// Every two nodes are looked at in every step, and more would be a black spot.
pub(super) const MOST_NODES: usize = 1000;

const STEPS: usize = 300;
const MARGIN: f64 = 30.0;

/// The graph as SVG, with a label at each node.
pub(super) fn draw(graph: &Graph, labels: &[String]) -> String {
    let places = scaled(&layout(graph));
    let side = side(graph.nodes);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {side} {side}\" width=\"{side}\" height=\"{side}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for &[source, target] in
        graph.edges.iter().filter(|[source, target]| source < target || !has(graph, *target, *source))
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

/// Fruchterman and Reingold, from a circle: the same graph gives the same picture.
fn layout(graph: &Graph) -> Vec<[f64; 2]> {
    let n = graph.nodes;
    let mut places: Vec<[f64; 2]> = (0..n)
        .map(|node| {
            // Not quite a circle: nodes that stand the same way could never leave each other's line.
            let (angle, radius) = (TAU * node as f64 / n as f64, 1.0 + 0.01 * (node % 7) as f64);
            [radius * angle.cos(), radius * angle.sin()]
        })
        .collect();
    let distance = 2.0 / (n as f64).sqrt();
    for step in 0..STEPS {
        let mut forces = vec![[0.0; 2]; n];
        for first in 0..n {
            for second in first + 1..n {
                let (away, length) = between(places[first], places[second]);
                let push = distance * distance / length;
                add(&mut forces[first], away, push);
                add(&mut forces[second], away, -push);
            }
        }
        for &[source, target] in &graph.edges {
            let (source, target) = (source as usize, target as usize);
            let (away, length) = between(places[source], places[target]);
            // Half: most edges stand in both directions.
            let pull = 0.5 * length * length / distance;
            add(&mut forces[source], away, -pull);
            add(&mut forces[target], away, pull);
        }
        let most = 0.2 * (1.0 - step as f64 / STEPS as f64);
        for (place, force) in places.iter_mut().zip(&forces) {
            let length = force[0].hypot(force[1]).max(1e-9);
            add(place, [force[0] / length, force[1] / length], length.min(most));
        }
    }
    places
}

/// Direction from the second place to the first, and how far it is.
fn between(first: [f64; 2], second: [f64; 2]) -> ([f64; 2], f64) {
    let (x, y) = (first[0] - second[0], first[1] - second[1]);
    let length = x.hypot(y).max(1e-6);
    ([x / length, y / length], length)
}

fn add(place: &mut [f64; 2], direction: [f64; 2], amount: f64) {
    place[0] += direction[0] * amount;
    place[1] += direction[1] * amount;
}

/// Into the square of the picture.
fn scaled(places: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let side = side(places.len());
    let least = |axis: usize| places.iter().map(|place| place[axis]).fold(f64::INFINITY, f64::min);
    let most = |axis: usize| places.iter().map(|place| place[axis]).fold(f64::NEG_INFINITY, f64::max);
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
        let graph = Graph { nodes: 5, edges, node_features: none(), edge_features: none(), targets };
        let places = scaled(&layout(&graph));
        let far = |first: usize, second: usize| between(places[first], places[second]).1;
        assert!((0..4).all(|node| far(node, node + 1) < far(0, 4)));
        let inside = |value: f64| (0.0..=side(5)).contains(&value);
        assert!(places.iter().all(|[x, y]| inside(*x) && inside(*y)));
        let labels: Vec<String> = (0..5).map(|node| format!("<{node}")).collect();
        let svg = draw(&graph, &labels);
        assert_eq!((svg.matches("<path").count(), svg.matches("&lt;").count()), (4, 5));
    }
}
