//! PNG output of a [`Canvas`].

use tiny_skia::{
    FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, Stroke, StrokeDash, Transform,
};

use crate::color::Color;
use crate::font::{text_outline, text_width};

use super::{Anchor, Canvas, Point, Shape, Style};

/// Renders a canvas with `scale` pixels per unit.
pub(super) fn render(canvas: &Canvas, scale: f64) -> Vec<u8> {
    rasterize(canvas, scale).encode_png().expect("writing to memory cannot fail")
}

fn rasterize(canvas: &Canvas, scale: f64) -> Pixmap {
    let [width, height] =
        [canvas.width, canvas.height].map(|size| (size * scale).round().max(1.0) as u32);
    let mut pixmap = Pixmap::new(width, height).expect("figures are at most a few thousand pixels");
    pixmap.fill(tiny_skia::Color::WHITE);
    let transform = Transform::from_scale(scale as f32, scale as f32);
    for shape in &canvas.shapes {
        match shape {
            Shape::Path { points, closed, style } => {
                draw(&mut pixmap, to_path(points, *closed), style, transform);
            }
            Shape::Circle { center, radius, style } => {
                let [x, y] = center.map(|value| value as f32);
                draw(&mut pixmap, PathBuilder::from_circle(x, y, *radius as f32), style, transform);
            }
            Shape::Text { at, text, style } => {
                let width = text_width(text, style.size, style.bold);
                let shift = match style.anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => width / 2.0,
                    Anchor::End => width,
                };
                let outline = text_outline(text, style.size, style.bold);
                let turn = if style.vertical { -90.0 } else { 0.0 };
                let place = transform
                    .pre_translate(at[0] as f32, at[1] as f32)
                    .pre_rotate(turn)
                    .pre_translate(-shift as f32, 0.0);
                draw(&mut pixmap, outline, &Style::fill(style.color), place);
            }
        }
    }
    pixmap
}

fn to_path(points: &[Point], closed: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    for (index, [x, y]) in points.iter().map(|point| point.map(|value| value as f32)).enumerate() {
        if index == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
    }
    if closed {
        path.close();
    }
    path.finish()
}

/// Fills and strokes a path; an empty path is `None`.
fn draw(pixmap: &mut Pixmap, path: Option<Path>, style: &Style, transform: Transform) {
    let Some(path) = path else { return };
    if let Some(color) = style.fill {
        let paint = paint(color, style.opacity);
        pixmap.fill_path(&path, &paint, FillRule::Winding, transform, None);
    }
    if let Some(color) = style.stroke {
        let dashes = style.dashes.iter().map(|&length| length as f32).collect();
        let dash = StrokeDash::new(dashes, 0.0); // `None` without dashes
        let line_cap = if dash.is_some() { LineCap::Butt } else { LineCap::Round };
        let stroke = Stroke {
            width: style.width as f32,
            line_cap,
            line_join: LineJoin::Round,
            dash,
            ..Stroke::default()
        };
        pixmap.stroke_path(&path, &paint(color, 1.0), &stroke, transform, None);
    }
}

fn paint(color: Color, opacity: f64) -> Paint<'static> {
    let [red, green, blue] = color.channels();
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(red, green, blue, (255.0 * opacity).round() as u8);
    paint
}

#[cfg(test)]
mod tests {
    use super::super::TextStyle;
    use super::*;

    const BLACK: Color = Color::rgb(0);

    /// Returns the area covered by black shapes, in pixels.
    fn ink(canvas: &Canvas) -> f64 {
        let pixmap = rasterize(canvas, 2.0);
        pixmap.pixels().iter().map(|pixel| 1.0 - f64::from(pixel.red()) / 255.0).sum()
    }

    #[test]
    fn shapes_cover_their_area() {
        let mut canvas = Canvas::new(20.0, 20.0, "");
        canvas.rectangle([1.0, 2.0], [4.0, 3.0], Style::fill(BLACK));
        assert!((ink(&canvas) - 48.0).abs() < 0.1, "{}", ink(&canvas));
        canvas.circle([13.0, 13.0], 5.0, Style::fill(BLACK));
        let expected = 48.0 + 100.0 * std::f64::consts::PI;
        // Coverage is sampled, with an error of at most an eighth of a pixel along the outline.
        assert!((ink(&canvas) - expected).abs() < 8.0, "{}", ink(&canvas));
        // Half of a dashed line of length 16 and width 1 is covered.
        let before = ink(&canvas);
        canvas.line([1.0, 18.5], [17.0, 18.5], Style::stroke(BLACK, 1.0).dashed(&[2.0, 2.0]));
        assert!((ink(&canvas) - before - 32.0).abs() < 0.5, "{} {before}", ink(&canvas));
    }

    #[test]
    fn text_is_drawn_at_its_anchor() {
        let ends = |anchor: Anchor, vertical: bool| {
            let mut canvas = Canvas::new(100.0, 100.0, "");
            let style = TextStyle { vertical, ..TextStyle::new(20.0, BLACK).anchor(anchor) };
            canvas.text([50.0, 50.0], "HH", style);
            let pixmap = rasterize(&canvas, 1.0);
            let dark = (0..10_000_usize).filter(|&index| pixmap.pixels()[index].red() < 128);
            let along = dark.map(|index| if vertical { index / 100 } else { index % 100 });
            along.fold([100, 0], |[low, high], at| [at.min(low), at.max(high)])
        };
        let width = text_width("HH", 20.0, false).round() as usize;
        let near = |found: [usize; 2], expected: [usize; 2]| {
            let close = |axis: usize| found[axis].abs_diff(expected[axis]) <= 3;
            assert!(close(0) && close(1), "{found:?} is not {expected:?}");
        };
        near(ends(Anchor::Start, false), [50, 50 + width]);
        near(ends(Anchor::Middle, false), [50 - width / 2, 50 + width / 2]);
        near(ends(Anchor::End, false), [50 - width, 50]);
        near(ends(Anchor::Start, true), [50 - width, 50]);
    }

    #[test]
    fn file_is_a_png_with_two_pixels_per_unit() {
        let file = Canvas::new(30.0, 20.0, "").to_png();
        assert!(file.starts_with(b"\x89PNG\r\n\x1a\n"));
        assert_eq!(file[16..24], [0, 0, 0, 60, 0, 0, 0, 40]);
    }
}
