//! Vector canvas with SVG and PNG output.
//!
//! Figures are drawn once, as a list of shapes; [`Canvas::to_svg`] and [`Canvas::to_png`] write
//! the same shapes.

mod png;
mod svg;

pub(crate) use svg::escape;

use crate::color::Color;
use crate::font::text_width;

/// Coordinates `[x, y]`, with `y` pointing down.
pub type Point = [f64; 2];

/// Width of text in `DejaVu Sans`, a common and wide fallback font, relative to the embedded font.
const FALLBACK_WIDTH: f64 = 1.15;

/// Figure made of shapes on a white background, drawn in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Canvas {
    width: f64,
    height: f64,
    /// Accessible title of the figure.
    title: String,
    shapes: Vec<Shape>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    Path { points: Vec<Point>, closed: bool, style: Style },
    Circle { center: Point, radius: f64, style: Style },
    Text { at: Point, text: String, style: TextStyle },
}

/// Fill and stroke of a shape.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Style {
    pub(crate) fill: Option<Color>,
    /// Opacity of the fill.
    pub(crate) opacity: f64,
    pub(crate) stroke: Option<Color>,
    pub(crate) width: f64,
    /// Alternating lengths of dashes and gaps; empty for a solid stroke.
    pub(crate) dashes: Vec<f64>,
}

/// Horizontal alignment of a text relative to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Size, color and alignment of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TextStyle {
    pub(crate) size: f64,
    pub(crate) color: Color,
    pub(crate) anchor: Anchor,
    pub(crate) bold: bool,
    /// True if the text runs from bottom to top.
    pub(crate) vertical: bool,
}

impl Style {
    pub(crate) fn fill(color: Color) -> Self {
        Self { fill: Some(color), opacity: 1.0, stroke: None, width: 0.0, dashes: vec![] }
    }

    pub(crate) fn stroke(color: Color, width: f64) -> Self {
        Self { fill: None, opacity: 1.0, stroke: Some(color), width, dashes: vec![] }
    }

    pub(crate) fn outlined(self, color: Color, width: f64) -> Self {
        Self { stroke: Some(color), width, ..self }
    }

    pub(crate) fn dashed(self, dashes: &[f64]) -> Self {
        Self { dashes: dashes.to_vec(), ..self }
    }

    pub(crate) fn opacity(self, opacity: f64) -> Self {
        Self { opacity, ..self }
    }
}

impl TextStyle {
    pub(crate) fn new(size: f64, color: Color) -> Self {
        Self { size, color, anchor: Anchor::Start, bold: false, vertical: false }
    }

    pub(crate) fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub(crate) fn anchor(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    pub(crate) fn vertical(self) -> Self {
        Self { vertical: true, ..self }
    }

    /// Reduces the size if `text` may be wider than `max_width` in SVG.
    pub(crate) fn fit(self, text: &str, max_width: f64) -> Self {
        let width = FALLBACK_WIDTH * text_width(text, self.size, self.bold);
        Self { size: self.size * (max_width / width.max(max_width)), ..self }
    }
}

impl Canvas {
    pub(crate) fn new(width: f64, height: f64, title: impl Into<String>) -> Self {
        Self { width, height, title: title.into(), shapes: vec![] }
    }

    pub(crate) fn line(&mut self, from: Point, to: Point, style: Style) {
        self.polyline(vec![from, to], style);
    }

    pub(crate) fn polyline(&mut self, points: Vec<Point>, style: Style) {
        self.shapes.push(Shape::Path { points, closed: false, style });
    }

    pub(crate) fn polygon(&mut self, points: Vec<Point>, style: Style) {
        self.shapes.push(Shape::Path { points, closed: true, style });
    }

    pub(crate) fn rectangle(&mut self, [x, y]: Point, [width, height]: [f64; 2], style: Style) {
        let corners = vec![[x, y], [x + width, y], [x + width, y + height], [x, y + height]];
        self.polygon(corners, style);
    }

    pub(crate) fn circle(&mut self, center: Point, radius: f64, style: Style) {
        self.shapes.push(Shape::Circle { center, radius, style });
    }

    pub(crate) fn text(&mut self, at: Point, text: impl Into<String>, style: TextStyle) {
        self.shapes.push(Shape::Text { at, text: text.into(), style });
    }

    /// Returns the accessible title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the figure as SVG.
    pub fn to_svg(&self) -> String {
        svg::render(self)
    }

    /// Returns the figure as PNG, with two pixels per SVG unit.
    pub fn to_png(&self) -> Vec<u8> {
        png::render(self, 2.0)
    }

    #[cfg(test)]
    pub(crate) fn circles(&self) -> impl Iterator<Item = &Style> {
        self.shapes.iter().filter_map(|shape| match shape {
            Shape::Circle { style, .. } => Some(style),
            Shape::Path { .. } | Shape::Text { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::color::INK;

    use super::*;

    #[test]
    fn wide_text_is_reduced_to_the_maximum_width() {
        let style = TextStyle::new(20.0, INK).bold();
        assert_eq!(style.fit("short", 500.0), style);
        let text = "a long note in a narrow panel";
        let fitted = style.fit(text, 100.0);
        let width = FALLBACK_WIDTH * text_width(text, fitted.size, true);
        assert!((width - 100.0).abs() < 1e-9, "{width}");
    }
}
