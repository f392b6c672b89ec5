//! Vector canvas with SVG and PNG output.

use crate::png;
use crate::report::escape;

/// Red, green and blue.
pub(crate) type Color = [u8; 3];

/// Horizontal alignment of a text relative to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    Line { from: [f64; 2], to: [f64; 2], width: f64, color: Color },
    Disc { center: [f64; 2], radius: f64, fill: Color },
    Ring { center: [f64; 2], radius: f64, width: f64, color: Color, dashed: bool },
    Box { corner: [f64; 2], size: [f64; 2], fill: Color },
    Text { at: [f64; 2], size: f64, anchor: Anchor, bold: bool, color: Color, text: String },
}

/// Figure made of shapes on a white background, drawn in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Canvas {
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// Accessible title of the figure.
    pub(crate) title: String,
    pub(crate) shapes: Vec<Shape>,
}

/// Number of dashes of a dashed ring.
pub(crate) const DASHES: usize = 10;

impl Canvas {
    pub(crate) fn line(&mut self, from: [f64; 2], to: [f64; 2], width: f64, color: Color) {
        self.shapes.push(Shape::Line { from, to, width, color });
    }

    pub(crate) fn disc(&mut self, center: [f64; 2], radius: f64, fill: Color) {
        self.shapes.push(Shape::Disc { center, radius, fill });
    }

    pub(crate) fn ring(&mut self, center: [f64; 2], radius: f64, width: f64, color: Color) {
        self.shapes.push(Shape::Ring { center, radius, width, color, dashed: false });
    }

    pub(crate) fn dashed_ring(&mut self, center: [f64; 2], radius: f64, width: f64, color: Color) {
        self.shapes.push(Shape::Ring { center, radius, width, color, dashed: true });
    }

    pub(crate) fn text(
        &mut self,
        at: [f64; 2],
        size: f64,
        anchor: Anchor,
        color: Color,
        text: &str,
    ) {
        self.shapes.push(Shape::Text {
            at,
            size,
            anchor,
            bold: false,
            color,
            text: text.to_owned(),
        });
    }

    pub(crate) fn bold(
        &mut self,
        at: [f64; 2],
        size: f64,
        anchor: Anchor,
        color: Color,
        text: &str,
    ) {
        self.shapes.push(Shape::Text {
            at,
            size,
            anchor,
            bold: true,
            color,
            text: text.to_owned(),
        });
    }

    /// Returns the figure as SVG.
    pub fn to_svg(&self) -> String {
        let Self { width, height, .. } = self;
        let title = escape(&self.title);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\" font-family=\"sans-serif\">\n\
             <title>{title}</title>\n<rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#ffffff\"/>\n"
        );
        self.shapes.iter().for_each(|shape| text.push_str(&shape.to_svg()));
        text.push_str("</svg>\n");
        text
    }

    /// Returns the figure as PNG, with two pixels per SVG unit.
    pub fn to_png(&self) -> Vec<u8> {
        png::render(self, 2.0)
    }
}

fn hex([red, green, blue]: Color) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

impl Shape {
    fn to_svg(&self) -> String {
        match self {
            Self::Line { from: [x1, y1], to: [x2, y2], width, color } => format!(
                "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{}\" \
                 stroke-width=\"{width:.2}\" stroke-linecap=\"round\"/>\n",
                hex(*color)
            ),
            Self::Disc { center: [x, y], radius, fill } => {
                format!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"{}\"/>\n",
                    hex(*fill)
                )
            }
            Self::Ring { center: [x, y], radius, width, color, dashed } => {
                let dash = std::f64::consts::TAU * radius / (2 * DASHES) as f64;
                let dashes = if *dashed {
                    format!(" stroke-dasharray=\"{dash:.2}\"")
                } else {
                    String::new()
                };
                format!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"none\" stroke=\"{}\" \
                     stroke-width=\"{width:.1}\"{dashes}/>\n",
                    hex(*color)
                )
            }
            Self::Box { corner: [x, y], size: [width, height], fill } => format!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\"/>\n",
                hex(*fill)
            ),
            Self::Text { at: [x, y], size, anchor, bold, color, text } => {
                let anchor = match anchor {
                    Anchor::Start => "",
                    Anchor::Middle => " text-anchor=\"middle\"",
                    Anchor::End => " text-anchor=\"end\"",
                };
                let weight = if *bold { " font-weight=\"bold\"" } else { "" };
                format!(
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.1}\"{anchor}{weight} fill=\"{}\">{}</text>\n",
                    hex(*color),
                    escape(text)
                )
            }
        }
    }
}
