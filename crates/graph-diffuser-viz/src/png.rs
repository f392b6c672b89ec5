//! PNG renderer of a [`Canvas`].
//!
//! Shapes are signed distance functions; the coverage of a pixel follows from its distance to the
//! border, which gives antialiased edges. Text uses a built-in stroke font.

use std::f64::consts::TAU;
use std::io::Write as _;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use crate::canvas::{Anchor, Canvas, Color, DASHES, Shape};
use crate::stroke_font;

/// RGB image with a scale from canvas units to pixels.
struct Raster {
    width: usize,
    height: usize,
    scale: f64,
    pixels: Vec<u8>,
}

/// Renders `canvas` with `scale` pixels per unit.
pub(crate) fn render(canvas: &Canvas, scale: f64) -> Vec<u8> {
    let [width, height] =
        [canvas.width, canvas.height].map(|size| (size * scale).round().max(1.0) as usize);
    let mut raster = Raster { width, height, scale, pixels: vec![255; 3 * width * height] };
    canvas.shapes.iter().for_each(|shape| raster.shape(shape));
    encode(width, height, &raster.pixels)
}

impl Raster {
    fn shape(&mut self, shape: &Shape) {
        match shape {
            Shape::Line { from, to, width, color } => self.stroke(*from, *to, *width, *color),
            Shape::Disc { center, radius, fill } => {
                let inside =
                    |point: [f64; 2]| (point[0] - center[0]).hypot(point[1] - center[1]) - radius;
                self.fill([*center, *center], *radius, inside, *fill);
            }
            Shape::Ring { center, radius, width, color, dashed: false } => {
                let distance =
                    |point: [f64; 2]| (point[0] - center[0]).hypot(point[1] - center[1]) - radius;
                self.fill(
                    [*center, *center],
                    radius + width,
                    |point| distance(point).abs() - width / 2.0,
                    *color,
                );
            }
            Shape::Ring { center, radius, width, color, dashed: true } => {
                let at = |part: f64| {
                    let (sine, cosine) = (TAU * part).sin_cos();
                    [center[0] + radius * cosine, center[1] + radius * sine]
                };
                for dash in 0..DASHES {
                    // Approximate each arc by three strokes.
                    let part = |step: usize| (dash as f64 + step as f64 / 6.0) / DASHES as f64;
                    (0..3).for_each(|step| {
                        self.stroke(at(part(step)), at(part(step + 1)), *width, *color);
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

    /// Draws a line with round caps.
    fn stroke(&mut self, from: [f64; 2], to: [f64; 2], width: f64, color: Color) {
        let along = [to[0] - from[0], to[1] - from[1]];
        let length = (along[0] * along[0] + along[1] * along[1]).max(1e-12);
        let outside = |point: [f64; 2]| {
            let [x, y] = [point[0] - from[0], point[1] - from[1]];
            let fraction = ((x * along[0] + y * along[1]) / length).clamp(0.0, 1.0);
            (x - fraction * along[0]).hypot(y - fraction * along[1]) - width / 2.0
        };
        self.fill([from, to], width, outside, color);
    }

    /// Fills the region where the signed distance `outside` is negative, within `margin` of the box
    /// between two corners.
    fn fill(
        &mut self,
        corners: [[f64; 2]; 2],
        margin: f64,
        outside: impl Fn([f64; 2]) -> f64,
        color: Color,
    ) {
        let range = |axis: usize, size: usize| {
            let [first, second] = corners.map(|corner| corner[axis]);
            let low = ((first.min(second) - margin) * self.scale - 1.0).max(0.0) as usize;
            let high = ((first.max(second) + margin) * self.scale + 2.0).max(0.0) as usize;
            low.min(size)..high.min(size)
        };
        let (columns, rows) = (range(0, self.width), range(1, self.height));
        for row in rows {
            for column in columns.clone() {
                let point = [column, row].map(|pixel| (pixel as f64 + 0.5) / self.scale);
                let coverage = (0.5 - outside(point) * self.scale).clamp(0.0, 1.0);
                if coverage > 0.0 {
                    let start = 3 * (row * self.width + column);
                    for (pixel, ink) in self.pixels[start..start + 3].iter_mut().zip(color) {
                        let mixed =
                            f64::from(*pixel) + coverage * (f64::from(ink) - f64::from(*pixel));
                        *pixel = mixed.round() as u8;
                    }
                }
            }
        }
    }
}

/// Encodes RGB pixels as PNG.
fn encode(width: usize, height: usize, pixels: &[u8]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |name: &[u8; 4], content: &[u8]| {
        file.extend((content.len() as u32).to_be_bytes());
        let body = [name, content].concat();
        let mut crc = Crc::new();
        crc.update(&body);
        file.extend(&body);
        file.extend(crc.sum().to_be_bytes());
    };
    let [wide, high] = [width, height].map(|size| (size as u32).to_be_bytes());
    // 8 bits per channel, RGB, not interlaced.
    chunk(b"IHDR", &[&wide[..], &high, &[8, 2, 0, 0, 0]].concat());
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    for row in pixels.chunks(3 * width) {
        // Filter type 0: most of a row is white.
        encoder
            .write_all(&[0])
            .and_then(|()| encoder.write_all(row))
            .expect("writing to memory cannot fail");
    }
    chunk(b"IDAT", &encoder.finish().expect("writing to memory cannot fail"));
    chunk(b"IEND", &[]);
    file
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn box_and_disc_cover_their_area() {
        let mut raster = Raster { width: 40, height: 40, scale: 2.0, pixels: vec![255; 4800] };
        raster.shape(&Shape::Box { corner: [1.0, 2.0], size: [4.0, 3.0], fill: [0, 0, 0] });
        let ink = |raster: &Raster| {
            raster
                .pixels
                .iter()
                .step_by(3)
                .map(|&pixel| 1.0 - f64::from(pixel) / 255.0)
                .sum::<f64>()
        };
        assert!((ink(&raster) - 48.0).abs() < 0.1, "{}", ink(&raster));
        raster.shape(&Shape::Disc { center: [13.0, 13.0], radius: 5.0, fill: [0, 0, 0] });
        assert!(
            (ink(&raster) - 48.0 - 100.0 * std::f64::consts::PI).abs() < 2.0,
            "{}",
            ink(&raster)
        );
    }

    #[test]
    fn encoded_file_has_size_checksums_and_pixels() {
        let pixels: Vec<u8> = (0..18).collect();
        let file = encode(3, 2, &pixels);
        assert_eq!(&file[..8], b"\x89PNG\r\n\x1a\n");
        let mut rest = &file[8..];
        let mut packed = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
            let mut crc = Crc::new();
            crc.update(&rest[4..8 + length]);
            assert_eq!(crc.sum().to_be_bytes(), rest[8 + length..12 + length]);
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
