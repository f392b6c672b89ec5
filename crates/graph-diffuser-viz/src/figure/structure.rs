//! Small figure of a graph: the structural formula of a molecule, or nodes and edges.

use graph_diffuser::explain::summary::truncate;
use graph_diffuser::explain::{Structure, TracedGraph};

use crate::canvas::{Canvas, Point, Style};
use crate::color::{BLUE, Color, FOREGROUND, INK, atom_fill};
use crate::layout::{bounds, coordinates};

use super::panel::{draw_bond, draw_label};

/// Maximum number of nodes of [`draw_structure`]; a larger figure is unreadable.
pub const MAX_STRUCTURE_NODES: usize = 150;

const WIDTH: f64 = 260.0;
const HEIGHT: f64 = 180.0;
const MARGIN: f64 = 16.0;
/// Maximum length of an edge.
const MAX_EDGE: f64 = 34.0;

/// Draws a graph in a figure of fixed size; carbon atoms are vertices without a label.
pub fn draw_structure(graph: &TracedGraph) -> Canvas {
    let title = format!("{}, {} nodes", graph.name(), graph.nodes);
    let mut canvas = Canvas::new(WIDTH, HEIGHT, title);
    let (points, length) = placed(graph);
    let bonds = match &graph.structure {
        Structure::Molecule { bonds } => Some(bonds),
        Structure::Grid { .. } | Structure::Other {} => None,
    };
    let radius = (0.3 * length).clamp(2.0, 9.0);
    // An edge with its reverse is drawn once.
    for (index, &[source, target]) in graph.edges.iter().enumerate() {
        let is_drawn = source < target || !graph.edges.contains(&[target, source]);
        if is_drawn {
            let ends = [source, target].map(|node| points[node as usize]);
            let bond = bonds.map_or(1, |bonds| bonds.get(index).copied().unwrap_or(1));
            draw_bond(&mut canvas, ends, bond, 1.4, FOREGROUND, radius);
        }
    }
    for (label, &point) in graph.labels.iter().zip(&points) {
        match bonds {
            Some(_) if label == "C" && graph.nodes > 1 => {}
            Some(_) => draw_atom(&mut canvas, label, point, radius.max(6.0), atom_fill(label)),
            None => canvas.circle(point, radius / 2.0, Style::fill(BLUE)),
        }
    }
    canvas
}

fn draw_atom(canvas: &mut Canvas, label: &str, point: Point, radius: f64, fill: Color) {
    canvas.circle(point, radius, Style::fill(fill).outlined(INK, 0.5));
    draw_label(canvas, &truncate(label, 4), point, radius, fill);
}

/// Returns the positions of the nodes in the figure and the scale, the length of a typical edge.
fn placed(graph: &TracedGraph) -> (Vec<Point>, f64) {
    let points = coordinates(graph.nodes, &graph.edges, &graph.structure);
    let (low, high) = bounds(&points);
    let extent = [0, 1].map(|axis| (high[axis] - low[axis]).max(1e-9));
    let scale =
        ((WIDTH - 2.0 * MARGIN) / extent[0]).min((HEIGHT - 2.0 * MARGIN) / extent[1]).min(MAX_EDGE);
    let center = [0, 1].map(|axis| f64::midpoint(low[axis], high[axis]));
    let place = |point: &Point| {
        [
            WIDTH / 2.0 + scale * (point[0] - center[0]),
            HEIGHT / 2.0 + scale * (point[1] - center[1]),
        ]
    };
    (points.iter().map(place).collect(), scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(labels: &[&str], edges: &[[u32; 2]], structure: Structure) -> TracedGraph {
        TracedGraph {
            index: Some(4),
            nodes: labels.len(),
            edges: edges.to_vec(),
            node_features: vec![],
            edge_features: vec![],
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            structure,
        }
    }

    #[test]
    fn carbon_has_no_label_and_double_bonds_have_two_lines() {
        // Formaldehyde with an explicit single bond to another carbon.
        let edges = [[0, 1], [1, 0], [1, 2], [2, 1]];
        let bonds = Structure::Molecule { bonds: vec![2, 2, 1, 1] };
        let svg = draw_structure(&graph(&["O", "C", "C"], &edges, bonds)).to_svg();
        assert_eq!((svg.matches("<path").count(), svg.matches("<text").count()), (3, 1), "{svg}");
        let lone = draw_structure(&graph(&["C"], &[], Structure::Molecule { bonds: vec![] }));
        assert_eq!(lone.to_svg().matches("<text").count(), 1);
        let other = draw_structure(&graph(&["0", "1"], &[[0, 1]], Structure::Other {})).to_svg();
        assert_eq!((other.matches("<path").count(), other.matches("<circle").count()), (1, 2));
    }
}
