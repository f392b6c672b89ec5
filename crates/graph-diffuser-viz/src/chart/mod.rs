//! Line chart with axes, a band, markers and a legend.
//!
//! Curves differ in color, dashes and markers, so that they are distinguishable in grayscale.

mod mark;
mod scale;

pub(crate) use mark::Mark;

use crate::canvas::{Anchor, Canvas, Point, Style, TextStyle};
use crate::color::{
    BLUE, Color, FOREGROUND, GREEN, GRID, ORANGE, OUTLINE, PURPLE, SKY, VERMILLION,
};
use crate::font::text_width;
use scale::Scale;

const WIDTH: f64 = 720.0;
const PLOT_HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const LEGEND_ROW: f64 = 20.0;
/// Space between two legend entries.
const LEGEND_GAP: f64 = 32.0;
/// Start of a legend label, relative to its line.
const LEGEND_LABEL: f64 = 38.0;
const FONT_SIZE: f64 = 12.0;

/// Number of distinct curve styles.
pub(crate) const NUM_STYLES: usize = STYLES.len();

/// Color, dashes and marker of each curve.
const STYLES: [(Color, &[f64], Mark); 8] = [
    (BLUE, &[], Mark::Circle),
    (VERMILLION, &[8.0, 3.0], Mark::Square),
    (GREEN, &[2.0, 3.0], Mark::Triangle),
    (ORANGE, &[10.0, 3.0, 2.0, 3.0], Mark::Diamond),
    (PURPLE, &[5.0, 2.0], Mark::Cross),
    (SKY, &[12.0, 4.0], Mark::Plus),
    (OUTLINE, &[1.0, 2.0], Mark::Wedge),
    (FOREGROUND, &[8.0, 2.0, 2.0, 2.0, 2.0, 2.0], Mark::Ring),
];

/// Returns line style, marker and marker color of the curve at `index`.
pub(crate) fn curve_style(index: usize) -> (Style, Mark, Color) {
    let (color, dashes, mark) = STYLES[index % STYLES.len()];
    (Style::stroke(color, 2.0).dashed(dashes), mark, color)
}

/// Entry of the legend: a line, an optional marker on it, and a label.
#[derive(Debug)]
pub(crate) struct LegendEntry {
    pub(crate) line: Style,
    pub(crate) mark: Option<(Mark, Color)>,
    pub(crate) label: String,
}

/// Chart of values over epochs.
#[derive(Debug)]
pub(crate) struct Chart {
    title: String,
    y_label: String,
    epochs: Scale,
    values: Scale,
    bands: Vec<(f64, [f64; 2])>,
    lines: Vec<(Vec<Point>, Style)>,
    marks: Vec<(Point, Mark, Color)>,
}

impl Chart {
    /// Creates a chart whose axes cover `points` of epoch and value, and `extra` values.
    pub(crate) fn new(
        title: String,
        y_label: String,
        points: impl Iterator<Item = (usize, f64)>,
        extra: impl Iterator<Item = f64>,
    ) -> Self {
        let (mut last, mut low, mut high) = (1, f64::INFINITY, f64::NEG_INFINITY);
        for (epoch, value) in points.chain(extra.map(|value| (0, value))) {
            (last, low, high) = (last.max(epoch), low.min(value), high.max(value));
        }
        let (low, high) = if low.is_finite() { (low, high) } else { (0.0, 1.0) };
        Self {
            title,
            y_label,
            epochs: Scale::from_zero(last as f64, 8.0),
            values: Scale::covering(low, high, 6.0),
            bands: vec![],
            lines: vec![],
            marks: vec![],
        }
    }

    fn position(&self, epoch: f64, value: f64) -> Point {
        let x = LEFT + self.epochs.fraction(epoch) * (WIDTH - LEFT - RIGHT);
        [x, TOP + (1.0 - self.values.fraction(value)) * PLOT_HEIGHT]
    }

    /// Adds a horizontal band with a dashed line at `mean`.
    pub(crate) fn band(&mut self, mean: f64, range: [f64; 2]) {
        self.bands.push((mean, range));
    }

    /// Returns the line style of [`Chart::band`].
    pub(crate) fn band_line() -> Style {
        Style::stroke(VERMILLION, 1.5).dashed(&[6.0, 4.0])
    }

    /// Adds a line through points of epoch and value; a single point is drawn as a dot.
    pub(crate) fn line(&mut self, points: &[(usize, f64)], style: &Style) {
        let points: Vec<Point> =
            points.iter().map(|&(epoch, value)| self.position(epoch as f64, value)).collect();
        self.lines.push((downsample(&points), style.clone()));
    }

    /// Adds a marker at an epoch and a value.
    pub(crate) fn mark(&mut self, (epoch, value): (usize, f64), mark: Mark, color: Color) {
        self.marks.push((self.position(epoch as f64, value), mark, color));
    }

    /// Draws axes, curves and legend.
    pub(crate) fn draw(self, legend: &[LegendEntry]) -> Canvas {
        let (starts, rows) = legend_positions(legend);
        let bottom = TOP + PLOT_HEIGHT;
        let height = bottom + 58.0 + rows as f64 * LEGEND_ROW;
        let mut canvas = Canvas::new(WIDTH, height, self.title.clone());
        self.draw_axes(&mut canvas);
        for &(mean, [low, high]) in &self.bands {
            let [x, top] = self.position(0.0, high);
            let height = self.position(0.0, low)[1] - top;
            let fill = Style::fill(VERMILLION).opacity(0.15);
            canvas.rectangle([x, top], [WIDTH - LEFT - RIGHT, height], fill);
            let y = self.position(0.0, mean)[1];
            canvas.line([LEFT, y], [WIDTH - RIGHT, y], Self::band_line());
        }
        for (points, style) in self.lines {
            match (&points[..], style.stroke) {
                ([], _) => {}
                ([point], Some(color)) => canvas.circle(*point, 2.0, Style::fill(color)),
                _ => canvas.polyline(points, style),
            }
        }
        for (point, mark, color) in self.marks {
            mark.draw(&mut canvas, point, color);
        }
        for (&(x, row), entry) in starts.iter().zip(legend) {
            let y = bottom + 60.0 + row as f64 * LEGEND_ROW;
            canvas.line([x, y], [x + 30.0, y], entry.line.clone());
            if let Some((mark, color)) = entry.mark {
                mark.draw(&mut canvas, [x + 15.0, y], color);
            }
            canvas.text([x + LEGEND_LABEL, y + 4.0], &entry.label, label_style());
        }
        canvas
    }

    fn draw_axes(&self, canvas: &mut Canvas) {
        let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
        let title = TextStyle::new(14.0, FOREGROUND).bold().fit(&self.title, right - LEFT);
        canvas.text([LEFT, 24.0], &self.title, title);
        for tick in self.values.ticks() {
            let y = self.position(0.0, tick)[1];
            canvas.line([LEFT, y], [right, y], Style::stroke(GRID, 1.0));
            let style = label_style().anchor(Anchor::End);
            canvas.text([LEFT - 8.0, y + 4.0], self.values.label(tick), style);
        }
        let axis = Style::stroke(FOREGROUND, 1.0);
        let middle = label_style().anchor(Anchor::Middle);
        for tick in self.epochs.ticks() {
            let x = self.position(tick, 0.0)[0];
            canvas.line([x, bottom], [x, bottom + 5.0], axis.clone());
            canvas.text([x, bottom + 19.0], self.epochs.label(tick), middle);
        }
        canvas.polyline(vec![[LEFT, TOP], [LEFT, bottom], [right, bottom]], axis);
        canvas.text([f64::midpoint(LEFT, right), bottom + 37.0], "epoch", middle);
        canvas.text([16.0, TOP + PLOT_HEIGHT / 2.0], &self.y_label, middle.vertical());
    }
}

fn label_style() -> TextStyle {
    TextStyle::new(FONT_SIZE, FOREGROUND)
}

/// Returns the start and row of each legend entry, and the number of rows.
fn legend_positions(legend: &[LegendEntry]) -> (Vec<(f64, usize)>, usize) {
    let (mut x, mut row) = (LEFT, 0);
    let mut positions = Vec::new();
    for entry in legend {
        let width = LEGEND_LABEL + text_width(&entry.label, FONT_SIZE, false);
        if x > LEFT && x + width > WIDTH - RIGHT {
            (x, row) = (LEFT, row + 1);
        }
        positions.push((x, row));
        x += width + LEGEND_GAP;
    }
    (positions, row + 1)
}

/// Keeps the lowest and the highest point of each pixel column, in their order.
fn downsample(points: &[Point]) -> Vec<Point> {
    let of_columns = points.chunk_by(|left, right| left[0].floor() == right[0].floor());
    let kept = of_columns.flat_map(|column| {
        let by_height =
            |left: &usize, right: &usize| column[*left][1].total_cmp(&column[*right][1]);
        let low = (0..column.len()).min_by(by_height).unwrap_or(0);
        let high = (0..column.len()).max_by(by_height).unwrap_or(0);
        let both = if low == high { vec![low] } else { vec![low.min(high), low.max(high)] };
        both.into_iter().map(|index| column[index]).collect::<Vec<_>>()
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downsampling_keeps_the_extremes() {
        let points: Vec<Point> =
            (0..10_000).map(|index| [f64::from(index) / 100.0, f64::from(index % 97)]).collect();
        let kept = downsample(&points);
        assert!(kept.len() <= 200, "{}", kept.len());
        assert!(
            kept.iter().any(|point| point[1] == 96.0) && kept.iter().any(|point| point[1] == 0.0)
        );
        assert!(kept.windows(2).all(|pair| pair[0][0] <= pair[1][0]));
    }

    #[test]
    fn legend_entries_do_not_overlap_and_stay_inside_the_figure() {
        let entry = |label: &str| {
            let (line, mark, color) = curve_style(0);
            LegendEntry { line, mark: Some((mark, color)), label: label.to_owned() }
        };
        let legend = ["a rather long label of a curve, WWWWWWWW"; 5].map(entry);
        let (positions, rows) = legend_positions(&legend);
        assert!(rows > 1);
        let width = LEGEND_LABEL + text_width(&legend[0].label, FONT_SIZE, false);
        assert!(positions.iter().all(|(x, _)| x + width <= WIDTH));
        for pair in positions.windows(2) {
            assert!(pair[1].1 > pair[0].1 || pair[1].0 >= pair[0].0 + width, "{positions:?}");
        }
    }
}
