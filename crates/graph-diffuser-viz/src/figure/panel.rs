//! One panel of an attention figure.

use std::f64::consts::TAU;

use graph_diffuser::explain::summary::{format_value, truncate};

use crate::canvas::{Anchor, Canvas, Point, Style, TextStyle};
use crate::color::{Color, GRAY, INK, OUTLINE, PLAIN, VERMILLION, WHITE, ramp};
use crate::font::{CENTER, text_width};
use crate::layout;

use super::attention::{AttentionFigure, PANEL};
use super::nodes::node_fills;

/// Height of the title above the nodes of a panel.
pub(super) const PANEL_TITLE: f64 = 62.0;
/// Height of the legend below the nodes of a panel.
pub(super) const PANEL_LEGEND: f64 = 62.0;
/// Number of dashes of a dashed ring.
const DASHES: f64 = 10.0;

/// Contents of one panel.
pub(super) struct Panel<'a> {
    pub(super) title: &'a str,
    pub(super) note: String,
    /// One weight per node; `None` for the panel of the graph.
    pub(super) weights: Option<&'a [f32]>,
    /// True if ground-truth cells are marked.
    pub(super) marks_ground_truth: bool,
}

impl Panel<'_> {
    pub(super) fn draw(
        &self,
        figure: &AttentionFigure<'_>,
        canvas: &mut Canvas,
        [left, top]: Point,
    ) {
        canvas.text([left, top + 24.0], self.title, TextStyle::new(21.0, INK).bold());
        let note = TextStyle::new(15.0, INK).fit(&self.note, PANEL);
        canvas.text([left, top + 46.0], &self.note, note);
        let coordinates: Vec<Point> = figure
            .coordinates
            .iter()
            .map(|point| [left + point[0], top + PANEL_TITLE + point[1]])
            .collect();
        self.draw_edges(figure, canvas, &coordinates);
        // The color scale is the panel maximum without the query node, whose weight is in the note.
        let max = self.weights.map(|weights| {
            let others = weights.iter().enumerate().filter(|(node, _)| *node != figure.view.node);
            others.map(|(_, weight)| *weight).fold(1e-9, f32::max)
        });
        self.draw_nodes(figure, canvas, &coordinates, max);
        let bottom = top + PANEL_TITLE + figure.height + 26.0;
        match max {
            Some(max) => draw_color_bar(canvas, [left, bottom], max),
            None => draw_legend(canvas, [left, bottom], !figure.ground_truth.is_empty()),
        }
    }

    fn draw_edges(&self, figure: &AttentionFigure<'_>, canvas: &mut Canvas, points: &[Point]) {
        let [low, high] = figure.weight_range().unwrap_or([0.0, 0.0]);
        for edge in &figure.edges {
            let relative =
                if high > low { f64::from((edge.weight - low) / (high - low)) } else { 0.3 };
            let (width, color) =
                if self.weights.is_some() { (1.5, GRAY) } else { (1.0 + 4.5 * relative, INK) };
            let ends = edge.ends.map(|end| points[end]);
            draw_bond(canvas, ends, edge.bond, width, color, figure.radius);
        }
    }

    fn draw_nodes(
        &self,
        figure: &AttentionFigure<'_>,
        canvas: &mut Canvas,
        points: &[Point],
        max: Option<f32>,
    ) {
        let radius = figure.radius;
        let categories = node_fills(figure.trace);
        for (&node, &point) in figure.shown.iter().zip(points) {
            let fill = match (self.weights, max) {
                (Some(weights), Some(max)) => ramp(f64::from(weights[node] / max)),
                _ => categories.get(node).copied().flatten().unwrap_or(PLAIN),
            };
            canvas.circle(point, radius, Style::fill(fill).outlined(OUTLINE, 1.0));
            if radius >= 6.0 {
                let label = figure.trace.graph.labels.get(node).map_or("CLS", String::as_str);
                draw_label(canvas, &truncate(label, 4), point, radius, fill);
            }
        }
        for (&node, &point) in figure.shown.iter().zip(points) {
            if self.marks_ground_truth && figure.ground_truth.contains(&node) {
                draw_dashed_ring(canvas, point, radius + 3.5);
            }
            if node == figure.view.node {
                canvas.circle(point, radius + 2.0, Style::stroke(INK, 4.5));
            }
        }
    }
}

/// Draws a label that fits into a node.
pub(super) fn draw_label(
    canvas: &mut Canvas,
    label: &str,
    [x, y]: Point,
    radius: f64,
    fill: Color,
) {
    let size = (1.15 * radius).min(1.75 * radius / text_width(label, 1.0, false).max(0.1));
    let color = if fill.is_dark() { WHITE } else { INK };
    let style = TextStyle::new(size, color).anchor(Anchor::Middle);
    canvas.text([x, y + CENTER * size], label, style);
}

fn draw_dashed_ring(canvas: &mut Canvas, center: Point, radius: f64) {
    let dash = TAU * radius / (2.0 * DASHES);
    canvas.circle(center, radius, Style::stroke(VERMILLION, 2.5).dashed(&[dash, dash]));
}

/// Draws the legend of the rings.
fn draw_legend(canvas: &mut Canvas, [left, y]: Point, has_ground_truth: bool) {
    let style = TextStyle::new(15.0, INK);
    canvas.circle([left + 10.0, y], 8.0, Style::fill(PLAIN).outlined(INK, 4.0));
    canvas.text([left + 28.0, y + 5.0], "query node", style);
    if has_ground_truth {
        draw_dashed_ring(canvas, [left + 222.0, y], 9.0);
        canvas.text([left + 240.0, y + 5.0], "ground-truth cells", style);
    }
}

/// Draws one, two or three lines; the second line of an aromatic bond is thin.
pub(super) fn draw_bond(
    canvas: &mut Canvas,
    [from, to]: [Point; 2],
    bond: u8,
    width: f64,
    color: Color,
    radius: f64,
) {
    let length = layout::euclidean(from, to).max(1e-9);
    let side = [-(to[1] - from[1]) / length, (to[0] - from[0]) / length];
    let mut line = |shift: f64, width: f64| {
        let moved = |point: Point| [point[0] + shift * side[0], point[1] + shift * side[1]];
        canvas.line(moved(from), moved(to), Style::stroke(color, width));
    };
    let step = (0.34 * radius).max(2.5) + width / 2.0;
    match bond {
        2 => [-step / 2.0, step / 2.0].into_iter().for_each(|shift| line(shift, width)),
        3 => [-step, 0.0, step].into_iter().for_each(|shift| line(shift, width)),
        4 => {
            line(-step / 2.0, width);
            line(step / 2.0, width.min(1.0));
        }
        _ => line(0.0, width),
    }
}

/// Draws the color scale from zero to `max`.
fn draw_color_bar(canvas: &mut Canvas, [left, y]: Point, max: f32) {
    let (width, steps) = (230.0, 46);
    for step in 0..steps {
        let x = left + width * f64::from(step) / f64::from(steps);
        let fill = ramp((f64::from(step) + 0.5) / f64::from(steps));
        // Overlap adjacent boxes slightly to avoid visible seams.
        let size = [width / f64::from(steps) + if step + 1 < steps { 0.6 } else { 0.0 }, 13.0];
        canvas.rectangle([x, y - 6.0], size, Style::fill(fill));
    }
    canvas.rectangle([left, y - 6.0], [width, 13.0], Style::stroke(OUTLINE, 1.0));
    let style = TextStyle::new(14.0, INK);
    for (x, anchor, value) in [
        (left, Anchor::Start, 0.0),
        (left + width / 2.0, Anchor::Middle, max / 2.0),
        (left + width, Anchor::End, max),
    ] {
        canvas.text([x, y + 23.0], format_value(value), style.anchor(anchor));
    }
}
