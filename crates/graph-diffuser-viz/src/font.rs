//! Embedded font: widths and outlines of text, independent of installed fonts.
//!
//! Glyphs are placed by their advance width, without kerning. `fonts/README.md` describes the
//! origin of the font files.

use std::sync::LazyLock;

use tiny_skia::{Path, PathBuilder, Transform};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// Family names in SVG: the embedded font and the common fonts with the same metrics.
pub(crate) const FAMILY: &str = "Arimo, Arial, Helvetica, sans-serif";

/// Distance from the baseline to the center of a capital letter, in units of the font size.
pub(crate) const CENTER: f64 = 0.344;

static REGULAR: LazyLock<Face<'_>> =
    LazyLock::new(|| parse(include_bytes!("../fonts/Arimo-Regular.ttf")));
static BOLD: LazyLock<Face<'_>> =
    LazyLock::new(|| parse(include_bytes!("../fonts/Arimo-Bold.ttf")));

fn parse(file: &'static [u8]) -> Face<'static> {
    Face::parse(file, 0).expect("the embedded font is valid")
}

/// Returns the glyphs of a text with their positions, and the width of the text, in font units.
///
/// Characters that the font does not contain are shown as a box, its first glyph.
fn lay_out(face: &Face<'_>, text: &str) -> (Vec<(GlyphId, f64)>, f64) {
    let mut x = 0.0;
    let glyphs = text.chars().map(|letter| {
        let glyph = face.glyph_index(letter).unwrap_or(GlyphId(0));
        let start = x;
        x += f64::from(face.glyph_hor_advance(glyph).unwrap_or(0));
        (glyph, start)
    });
    (glyphs.collect(), x)
}

fn face(bold: bool) -> &'static Face<'static> {
    if bold { &BOLD } else { &REGULAR }
}

/// Returns the width of a text at a font size of `size`.
pub(crate) fn text_width(text: &str, size: f64, bold: bool) -> f64 {
    let face = face(bold);
    lay_out(face, text).1 * size / f64::from(face.units_per_em())
}

/// Returns the outline of a text whose baseline starts at the origin, with `y` pointing down.
///
/// Returns `None` if the text has no visible glyph.
pub(crate) fn text_outline(text: &str, size: f64, bold: bool) -> Option<Path> {
    let face = face(bold);
    let mut path = PathBuilder::new();
    for (glyph, x) in lay_out(face, text).0 {
        face.outline_glyph(glyph, &mut Outline { path: &mut path, x: x as f32 });
    }
    let scale = size as f32 / f32::from(face.units_per_em());
    path.finish()?.transform(Transform::from_scale(scale, -scale))
}

/// Appends the outline of a glyph at the horizontal position `x`.
struct Outline<'a> {
    path: &'a mut PathBuilder,
    x: f32,
}

impl OutlineBuilder for Outline<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        self.path.move_to(self.x + x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.path.line_to(self.x + x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.path.quad_to(self.x + x1, y1, self.x + x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.path.cubic_to(self.x + x1, y1, self.x + x2, y2, self.x + x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn font_contains_ascii_greek_and_the_symbols_of_figures() {
        for face in [&*REGULAR, &*BOLD] {
            for letter in (' '..='~').chain("×–…±σΣ−≤≥≈√∞µéü".chars()) {
                assert!(face.glyph_index(letter).is_some(), "{letter}");
            }
        }
    }

    #[test]
    fn widths_are_those_of_arial() {
        // Advance widths of Arial per 2048 units: H 1479, i 455, space 569; bold i 569.
        assert!((text_width("Hi ", 2048.0, false) - 2503.0).abs() < 1e-9);
        assert!((text_width("i", 2048.0, true) - 569.0).abs() < 1e-9);
        assert_eq!(text_width("", 12.0, false), 0.0);
    }

    #[test]
    fn outline_rests_on_the_baseline() {
        let bounds = text_outline("H", 100.0, false).unwrap().bounds();
        assert!(bounds.bottom().abs() < 0.1, "{bounds:?}");
        assert!((f64::from(bounds.top()) + 200.0 * CENTER).abs() < 0.5, "{bounds:?}");
        assert!(text_outline(" ", 100.0, false).is_none());
        assert_eq!(text_outline("\u{4e2d}", 10.0, true), text_outline("\u{1}", 10.0, true));
    }
}
