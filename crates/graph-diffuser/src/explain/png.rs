//! A picture in pixels.
//!
//! Every shape knows how far a point is from its border, and a pixel is covered by as much as that says; so
//! edges are smooth without a graphics library. Letters are strokes.

use std::f64::consts::TAU;
use std::io::Write as _;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use super::canvas::{Anchor, Canvas, Color, DASHES, Shape};
use super::stroke_font;

struct Sheet {
    width: usize,
    height: usize,
    scale: f64,
    pixels: Vec<u8>,
}

/// Paints `canvas` with `scale` pixels to its unit.
pub(super) fn paint(canvas: &Canvas, scale: f64) -> Vec<u8> {
    let [width, height] =
        [canvas.width, canvas.height].map(|size| (size * scale).round().max(1.0) as usize);
    let mut sheet = Sheet { width, height, scale, pixels: vec![255; 3 * width * height] };
    canvas.shapes.iter().for_each(|shape| sheet.shape(shape));
    encode(width, height, &sheet.pixels)
}

impl Sheet {
    fn shape(&mut self, shape: &Shape) {
        match shape {
            Shape::Line { from, to, width, color } => self.stroke(*from, *to, *width, *color),
            Shape::Disc { centre, radius, fill } => {
                let inside =
                    |point: [f64; 2]| (point[0] - centre[0]).hypot(point[1] - centre[1]) - radius;
                self.fill([*centre, *centre], *radius, inside, *fill);
            }
            Shape::Ring { centre, radius, width, color, dashed: false } => {
                let away =
                    |point: [f64; 2]| (point[0] - centre[0]).hypot(point[1] - centre[1]) - radius;
                self.fill(
                    [*centre, *centre],
                    radius + width,
                    |point| away(point).abs() - width / 2.0,
                    *color,
                );
            }
            Shape::Ring { centre, radius, width, color, dashed: true } => {
                let at = |part: f64| {
                    let (sine, cosine) = (TAU * part).sin_cos();
                    [centre[0] + radius * cosine, centre[1] + radius * sine]
                };
                for dash in 0..DASHES {
                    // Three short strokes are an arc.
                    let part = |step: usize| (dash as f64 + step as f64 / 6.0) / DASHES as f64;
                    (0..3).for_each(|step| {
                        self.stroke(at(part(step)), at(part(step + 1)), *width, *color)
                    });
                }
            }
            Shape::Box { corner, size, fill } => {
                let far = [corner[0] + size[0], corner[1] + size[1]];
                let inside = |point: [f64; 2]| {
                    let out =
                        |axis: usize| (corner[axis] - point[axis]).max(point[axis] - far[axis]);
                    out(0).max(out(1))
                };
                self.fill([*corner, far], 1.0, inside, *fill);
            }
            Shape::Text { at, size, anchor, bold, color, text } => {
                let (lines, width) = stroke_font::polylines(text, *size);
                let shift = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => width / 2.0,
                    Anchor::End => width,
                };
                let pen = size * if *bold { 0.13 } else { 0.09 };
                let place = |point: [f64; 2]| [at[0] + point[0] - shift, at[1] + point[1]];
                for line in lines {
                    for pair in line.windows(2) {
                        self.stroke(place(pair[0]), place(pair[1]), pen, *color);
                    }
                }
            }
        }
    }

    /// A line with round ends.
    fn stroke(&mut self, from: [f64; 2], to: [f64; 2], width: f64, color: Color) {
        let along = [to[0] - from[0], to[1] - from[1]];
        let length = (along[0] * along[0] + along[1] * along[1]).max(1e-12);
        let outside = |point: [f64; 2]| {
            let [x, y] = [point[0] - from[0], point[1] - from[1]];
            let share = ((x * along[0] + y * along[1]) / length).clamp(0.0, 1.0);
            (x - share * along[0]).hypot(y - share * along[1]) - width / 2.0
        };
        self.fill([from, to], width, outside, color);
    }

    /// Paints where `outside` is below zero, around the box between two corners.
    fn fill(
        &mut self,
        corners: [[f64; 2]; 2],
        margin: f64,
        outside: impl Fn([f64; 2]) -> f64,
        color: Color,
    ) {
        let range = |axis: usize, most: usize| {
            let [first, second] = corners.map(|corner| corner[axis]);
            let low = ((first.min(second) - margin) * self.scale - 1.0).max(0.0) as usize;
            let high = ((first.max(second) + margin) * self.scale + 2.0).max(0.0) as usize;
            low.min(most)..high.min(most)
        };
        let (columns, rows) = (range(0, self.width), range(1, self.height));
        for row in rows {
            for column in columns.clone() {
                let point = [column, row].map(|pixel| (pixel as f64 + 0.5) / self.scale);
                let covered = (0.5 - outside(point) * self.scale).clamp(0.0, 1.0);
                if covered > 0.0 {
                    let start = 3 * (row * self.width + column);
                    for (pixel, ink) in self.pixels[start..start + 3].iter_mut().zip(color) {
                        let mixed =
                            f64::from(*pixel) + covered * (f64::from(ink) - f64::from(*pixel));
                        *pixel = mixed.round() as u8;
                    }
                }
            }
        }
    }
}

/// Red, green and blue of each pixel as a PNG file.
fn encode(width: usize, height: usize, pixels: &[u8]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |name: &[u8; 4], content: &[u8]| {
        file.extend((content.len() as u32).to_be_bytes());
        let body = [name, content].concat();
        let mut sum = Crc::new();
        sum.update(&body);
        file.extend(&body);
        file.extend(sum.sum().to_be_bytes());
    };
    let [wide, high] = [width, height].map(|size| (size as u32).to_be_bytes());
    // Eight bits a colour, three colours, not interlaced.
    chunk(b"IHDR", &[&wide[..], &high, &[8, 2, 0, 0, 0]].concat());
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    for row in pixels.chunks(3 * width) {
        // No filter: most of a row is white.
        packed.write_all(&[0]).and_then(|()| packed.write_all(row)).expect("memory takes it");
    }
    chunk(b"IDAT", &packed.finish().expect("memory takes it"));
    chunk(b"IEND", &[]);
    file
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_box_and_a_disc_cover_their_area() {
        let mut sheet = Sheet { width: 40, height: 40, scale: 2.0, pixels: vec![255; 4800] };
        sheet.shape(&Shape::Box { corner: [1.0, 2.0], size: [4.0, 3.0], fill: [0, 0, 0] });
        let ink = |sheet: &Sheet| {
            sheet.pixels.iter().step_by(3).map(|&pixel| 1.0 - f64::from(pixel) / 255.0).sum::<f64>()
        };
        assert!((ink(&sheet) - 48.0).abs() < 0.1, "{}", ink(&sheet));
        sheet.shape(&Shape::Disc { centre: [13.0, 13.0], radius: 5.0, fill: [0, 0, 0] });
        assert!((ink(&sheet) - 48.0 - 100.0 * std::f64::consts::PI).abs() < 2.0, "{}", ink(&sheet));
    }

    #[test]
    fn a_file_has_its_size_its_sums_and_its_pixels() {
        let pixels: Vec<u8> = (0..18).collect();
        let file = encode(3, 2, &pixels);
        assert_eq!(&file[..8], b"\x89PNG\r\n\x1a\n");
        let mut rest = &file[8..];
        let mut packed = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
            let mut sum = Crc::new();
            sum.update(&rest[4..8 + length]);
            assert_eq!(sum.sum().to_be_bytes(), rest[8 + length..12 + length]);
            match &rest[4..8] {
                b"IHDR" => assert_eq!(rest[8..16], [0, 0, 0, 3, 0, 0, 0, 2]),
                b"IDAT" => packed.extend(&rest[8..8 + length]),
                name => assert_eq!(name, b"IEND"),
            }
            rest = &rest[12 + length..];
        }
        let mut rows = Vec::new();
        flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut rows).unwrap();
        assert_eq!(rows, [&[0][..], &pixels[..9], &[0], &pixels[9..]].concat());
    }
}
