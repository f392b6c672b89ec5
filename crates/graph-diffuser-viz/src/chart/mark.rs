//! Markers of curves.

use crate::canvas::{Canvas, Point, Style};
use crate::color::Color;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Plus,
    Wedge,
    Ring,
}

impl Mark {
    pub(super) fn draw(self, canvas: &mut Canvas, [x, y]: Point, color: Color) {
        let outline = Style::stroke(color, 1.5);
        let filled = Style::fill(color).outlined(color, 1.5);
        let mut polygon = |corners: &[Point]| {
            let corners = corners.iter().map(|[dx, dy]| [x + dx, y + dy]).collect();
            canvas.polygon(corners, filled.clone());
        };
        match self {
            Self::Circle => canvas.circle([x, y], 3.5, filled),
            Self::Ring => canvas.circle([x, y], 3.5, outline),
            Self::Square => polygon(&[[-3.0, -3.0], [3.0, -3.0], [3.0, 3.0], [-3.0, 3.0]]),
            Self::Triangle => polygon(&[[0.0, -4.0], [4.0, 3.0], [-4.0, 3.0]]),
            Self::Wedge => polygon(&[[0.0, 4.0], [4.0, -3.0], [-4.0, -3.0]]),
            Self::Diamond => polygon(&[[0.0, -4.5], [4.5, 0.0], [0.0, 4.5], [-4.5, 0.0]]),
            Self::Cross => {
                canvas.line([x - 3.5, y - 3.5], [x + 3.5, y + 3.5], outline.clone());
                canvas.line([x + 3.5, y - 3.5], [x - 3.5, y + 3.5], outline);
            }
            Self::Plus => {
                canvas.line([x - 4.5, y], [x + 4.5, y], outline.clone());
                canvas.line([x, y - 4.5], [x, y + 4.5], outline);
            }
        }
    }
}
