//! One panel of an attention figure.

use std::f64::consts::TAU;

use graph_diffuser::explain::summary::{format_value, truncate};

use crate::canvas::{Anchor, Canvas, Point, Style, TextStyle};
use crate::color::{Color, GRAY, INK, OUTLINE, PLAIN, VERMILLION, WHITE, ramp};
use crate::font::{CENTER, text_width};
use crate::layout;

use super::attention_layout::{AttentionFigure, PANEL};
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
        let scale = self.weights.map(|weights| ColorScale::new(weights, figure.view.node));
        self.draw_nodes(figure, canvas, &coordinates, scale);
        let bottom = top + PANEL_TITLE + figure.height + 26.0;
        match scale {
            Some(scale) => draw_color_bar(canvas, [left, bottom], scale),
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
            if let Some([from, to]) = edge.direction {
                draw_arrow_head(canvas, [points[from], points[to]], width, color, figure.radius);
            }
        }
    }

    fn draw_nodes(
        &self,
        figure: &AttentionFigure<'_>,
        canvas: &mut Canvas,
        points: &[Point],
        scale: Option<ColorScale>,
    ) {
        let radius = figure.radius;
        let categories = node_fills(&figure.trace.graph);
        for (&node, &point) in figure.shown.iter().zip(points) {
            let fill = match (self.weights, scale) {
                (Some(weights), Some(scale)) => ramp(scale.shade(weights[node])),
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

/// Draws the head of an arrow that ends at the circle of a node.
pub(super) fn draw_arrow_head(
    canvas: &mut Canvas,
    [from, to]: [Point; 2],
    width: f64,
    color: Color,
    radius: f64,
) {
    let length = layout::euclidean(from, to).max(1e-9);
    let along = [(to[0] - from[0]) / length, (to[1] - from[1]) / length];
    let (size, half) = (4.0 + 2.0 * width, 2.5 + width);
    let at = |back: f64, side: f64| {
        let distance = length - radius - 1.5 - back;
        [
            from[0] + distance * along[0] - side * along[1],
            from[1] + distance * along[1] + side * along[0],
        ]
    };
    canvas.polygon(vec![at(0.0, 0.0), at(size, half), at(size, -half)], Style::fill(color));
}

/// Range of the weights of a panel, without that of the query node, which is in the note.
///
/// The scale starts at zero, or at the smallest weight if all are large. Weights that are nearly
/// equal get one medium color instead of the darkest.
#[derive(Clone, Copy)]
struct ColorScale {
    low: f32,
    high: f32,
    is_uniform: bool,
}

impl ColorScale {
    fn new(weights: &[f32], query: usize) -> Self {
        let others = weights.iter().enumerate().filter(|(node, _)| *node != query);
        let [low, high] = others.fold([f32::INFINITY, 1e-9], |[low, high], (_, &weight)| {
            [low.min(weight), high.max(weight)]
        });
        let is_uniform = low.is_finite() && high - low <= 0.02 * high;
        let low = if low.is_finite() && low >= 0.5 * high { low } else { 0.0 };
        Self { low, high, is_uniform }
    }

    /// Returns the position of a weight in the color ramp.
    fn shade(self, weight: f32) -> f64 {
        let share = f64::from((weight - self.low) / (self.high - self.low).max(1e-12));
        if self.is_uniform {
            return 0.3;
        }
        if self.low == 0.0 {
            return share;
        }
        // The contrast is in proportion to the range.
        let contrast = f64::from(2.0 * (self.high - self.low) / self.high).min(1.0);
        let [from, to] = [0.3 - 0.2 * contrast, 0.3 + 0.7 * contrast];
        from + (to - from) * share
    }
}

/// Draws the color scale.
fn draw_color_bar(canvas: &mut Canvas, [left, y]: Point, scale: ColorScale) {
    let (width, steps) = (230.0, 46);
    for step in 0..steps {
        let x = left + width * f64::from(step) / f64::from(steps);
        let share = (step as f32 + 0.5) / steps as f32;
        let fill = ramp(scale.shade(scale.low + share * (scale.high - scale.low)));
        // Overlap adjacent boxes slightly to avoid visible seams.
        let size = [width / f64::from(steps) + if step + 1 < steps { 0.6 } else { 0.0 }, 13.0];
        canvas.rectangle([x, y - 6.0], size, Style::fill(fill));
    }
    canvas.rectangle([left, y - 6.0], [width, 13.0], Style::stroke(OUTLINE, 1.0));
    let style = TextStyle::new(14.0, INK);
    let ColorScale { low, high, is_uniform } = scale;
    if is_uniform {
        let text = format!("uniform, {}", format_value(high));
        canvas.text([left + width / 2.0, y + 23.0], text, style.anchor(Anchor::Middle));
        return;
    }
    for (x, anchor, value) in [
        (left, Anchor::Start, low),
        (left + width / 2.0, Anchor::Middle, f32::midpoint(low, high)),
        (left + width, Anchor::End, high),
    ] {
        canvas.text([x, y + 23.0], format_value(value), style.anchor(anchor));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_weights_are_not_shaded_as_the_largest() {
        let uniform = ColorScale::new(&[0.9, 0.25, 0.25, 0.251], 0);
        assert!(uniform.is_uniform && (uniform.shade(0.25) - 0.3).abs() < 1e-9);
        let from_zero = ColorScale::new(&[0.9, 0.0, 0.1, 0.4], 0);
        assert_eq!((from_zero.low, from_zero.high), (0.0, 0.4));
        assert!((from_zero.shade(0.1) - 0.25).abs() < 1e-6);
        let high = ColorScale::new(&[0.5, 0.9, 1.0], 0);
        assert_eq!((high.low, high.high, high.is_uniform), (0.9, 1.0, false));
    }
}
