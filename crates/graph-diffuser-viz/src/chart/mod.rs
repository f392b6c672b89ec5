//! Charts with axes, lines, bars, markers, a band and a legend.
//!
//! Curves differ in color, dashes and markers, so that they are distinguishable in grayscale.

mod mark;
mod scale;

pub(crate) use mark::Mark;
pub(crate) use scale::Scale;

use std::collections::HashSet;

use crate::canvas::{Anchor, Canvas, Point, Style, TextStyle};
use crate::color::{
    BLUE, Color, FOREGROUND, GREEN, GRID, ORANGE, OUTLINE, PURPLE, SKY, VERMILLION,
};
use crate::font::text_width;

/// Width and height of the plot of a large chart, without labels.
const LARGE: [f64; 2] = [436.0, 250.0];
/// Width and height of the plot of a small chart, without labels.
const SMALL: [f64; 2] = [256.0, 220.0];
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const LEGEND_ROW: f64 = 20.0;
/// Space between two legend entries.
const LEGEND_GAP: f64 = 32.0;
/// Start of a legend label, relative to its line.
const LEGEND_LABEL: f64 = 38.0;
const FONT_SIZE: f64 = 12.0;
/// Cells per unit of the grid in which [`Chart::dots`] are drawn once.
const DOT_GRID: f64 = 0.8;

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

/// Chart of values `y` over `x`.
#[derive(Debug)]
pub(crate) struct Chart {
    title: String,
    labels: [String; 2],
    x: Scale,
    y: Scale,
    /// Width and height of the plot.
    size: [f64; 2],
    bands: Vec<(f64, [f64; 2])>,
    bars: Vec<([f64; 2], f64, Style)>,
    lines: Vec<(Vec<Point>, Style)>,
    marks: Vec<(Point, Mark, Color)>,
    dots: Vec<Point>,
    texts: Vec<(Point, String)>,
}

impl Chart {
    /// Creates a large chart over epochs whose axes cover `points` of epoch and value, and `extra`
    /// values.
    pub(crate) fn of_epochs(
        title: String,
        y_label: String,
        points: impl Iterator<Item = Point>,
        extra: impl Iterator<Item = f64>,
    ) -> Self {
        let (mut last, mut low, mut high) = (1.0_f64, f64::INFINITY, f64::NEG_INFINITY);
        for [epoch, value] in points.chain(extra.map(|value| [0.0, value])) {
            (last, low, high) = (last.max(epoch), low.min(value), high.max(value));
        }
        let (low, high) = if low.is_finite() { (low, high) } else { (0.0, 1.0) };
        let scales = [Scale::from_zero(last, 8.0), Scale::covering(low, high, 6.0)];
        Self { size: LARGE, ..Self::small(title, ["epoch".to_owned(), y_label], scales) }
    }

    /// Creates a small chart with the given labels and scales of its axes.
    pub(crate) fn small(title: String, labels: [String; 2], [x, y]: [Scale; 2]) -> Self {
        Self {
            title,
            labels,
            x,
            y,
            size: SMALL,
            bands: vec![],
            bars: vec![],
            lines: vec![],
            marks: vec![],
            dots: vec![],
            texts: vec![],
        }
    }

    /// Makes the plot square.
    pub(crate) fn square(self) -> Self {
        Self { size: [SMALL[0]; 2], ..self }
    }

    /// Makes a chart over epochs small.
    pub(crate) fn compact(self) -> Self {
        let last = self.x.last();
        Self { x: Scale::from_zero(last, 5.0), size: [SMALL[0], 160.0], ..self }
    }

    fn position(&self, [x, y]: Point) -> Point {
        let [width, height] = self.size;
        [LEFT + self.x.fraction(x) * width, TOP + (1.0 - self.y.fraction(y)) * height]
    }

    /// Adds a horizontal band with a dashed line at `mean`.
    pub(crate) fn band(&mut self, mean: f64, range: [f64; 2]) {
        self.bands.push((mean, range));
    }

    /// Returns the line style of [`Chart::band`].
    pub(crate) fn band_line() -> Style {
        Style::stroke(VERMILLION, 1.5).dashed(&[6.0, 4.0])
    }

    /// Adds a line through points; a single point is drawn as a dot.
    pub(crate) fn line(&mut self, points: &[Point], style: &Style) {
        let points: Vec<Point> = points.iter().map(|&point| self.position(point)).collect();
        self.lines.push((downsample(&points), style.clone()));
    }

    /// Adds a bar from the lower end of the axis to `height`.
    pub(crate) fn bar(&mut self, range: [f64; 2], height: f64, style: Style) {
        self.bars.push((range, height, style));
    }

    /// Adds a marker.
    pub(crate) fn mark(&mut self, point: Point, mark: Mark, color: Color) {
        self.marks.push((self.position(point), mark, color));
    }

    /// Adds the points of a scatter plot; points that would cover each other are drawn once.
    pub(crate) fn dots(&mut self, points: &[Point]) {
        let mut seen = HashSet::new();
        for &point in points {
            let point = self.position(point);
            let pixel = point.map(|coordinate| (coordinate * DOT_GRID).round() as i64);
            if point.iter().all(|coordinate| coordinate.is_finite()) && seen.insert(pixel) {
                self.dots.push(point);
            }
        }
    }

    /// Adds a small centered text whose baseline is a little above a point.
    pub(crate) fn text(&mut self, point: Point, text: String) {
        self.texts.push((self.position(point), text));
    }

    /// Draws axes, data and legend.
    pub(crate) fn draw(self, legend: &[LegendEntry]) -> Canvas {
        let [width, right, bottom] = self.extent();
        let (starts, rows) = legend_positions(legend, width);
        let height = bottom + 58.0 + rows as f64 * LEGEND_ROW;
        let mut canvas = Canvas::new(width, height, self.title.clone());
        self.draw_axes(&mut canvas);
        for ([low, high], height, style) in &self.bars {
            let [x, top] = self.position([*low, *height]);
            let size = [self.position([*high, 0.0])[0] - x, bottom - top];
            canvas.rectangle([x, top], size, style.clone());
        }
        for &(mean, [low, high]) in &self.bands {
            let [_, top] = self.position([0.0, high]);
            let height = self.position([0.0, low])[1] - top;
            let fill = Style::fill(VERMILLION).opacity(0.15);
            canvas.rectangle([LEFT, top], [right - LEFT, height], fill);
            let y = self.position([0.0, mean])[1];
            canvas.line([LEFT, y], [right, y], Self::band_line());
        }
        for &point in &self.dots {
            canvas.circle(point, 2.5, Style::fill(BLUE).opacity(0.55));
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
        for ([x, y], text) in self.texts {
            let style = TextStyle::new(10.0, FOREGROUND).anchor(Anchor::Middle);
            canvas.text([x, y - 4.0], text, style);
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

    /// Returns the width of the chart and the right and lower end of the plot.
    fn extent(&self) -> [f64; 3] {
        let right = LEFT + self.size[0];
        [right + RIGHT, right, TOP + self.size[1]]
    }

    fn draw_axes(&self, canvas: &mut Canvas) {
        let [width, right, bottom] = self.extent();
        let is_small = self.size[0] < LARGE[0];
        // The title of a small chart starts at its edge, to have more space.
        let start = if is_small { 16.0 } else { LEFT };
        let title = TextStyle::new(14.0, FOREGROUND).bold().fit(&self.title, right - start);
        canvas.text([start, 24.0], &self.title, title);
        for tick in self.y.ticks() {
            let y = self.position([0.0, tick])[1];
            canvas.line([LEFT, y], [right, y], Style::stroke(GRID, 1.0));
            let style = label_style().anchor(Anchor::End);
            canvas.text([LEFT - 8.0, y + 4.0], self.y.label(tick), style);
        }
        let axis = Style::stroke(FOREGROUND, 1.0);
        let middle = label_style().anchor(Anchor::Middle);
        for tick in self.x.ticks() {
            let x = self.position([tick, 0.0])[0];
            canvas.line([x, bottom], [x, bottom + 5.0], axis.clone());
            canvas.text([x, bottom + 19.0], self.x.label(tick), middle);
        }
        canvas.polyline(vec![[LEFT, TOP], [LEFT, bottom], [right, bottom]], axis);
        let [x_label, y_label] = &self.labels;
        let fitted = middle.fit(x_label, width);
        canvas.text([f64::midpoint(LEFT, right), bottom + 37.0], x_label, fitted);
        let fitted = middle.fit(y_label, self.size[1] + TOP).vertical();
        canvas.text([16.0, TOP + self.size[1] / 2.0], y_label, fitted);
    }
}

fn label_style() -> TextStyle {
    TextStyle::new(FONT_SIZE, FOREGROUND)
}

/// Returns the start and row of each legend entry, and the number of rows.
fn legend_positions(legend: &[LegendEntry], width: f64) -> (Vec<(f64, usize)>, usize) {
    // Labels of a small chart need all of its width.
    let left = if width < LARGE[0] { RIGHT } else { LEFT };
    let (mut x, mut row) = (left, 0);
    let mut positions = Vec::new();
    for entry in legend {
        let entry_width = LEGEND_LABEL + text_width(&entry.label, FONT_SIZE, false);
        if x > left && x + entry_width > width - RIGHT {
            (x, row) = (left, row + 1);
        }
        positions.push((x, row));
        x += entry_width + LEGEND_GAP;
    }
    (positions, if legend.is_empty() { 0 } else { row + 1 })
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
        let width = LARGE[0] + LEFT + RIGHT;
        let (positions, rows) = legend_positions(&legend, width);
        assert!(rows > 1);
        let label = LEGEND_LABEL + text_width(&legend[0].label, FONT_SIZE, false);
        assert!(positions.iter().all(|(x, _)| x + label <= width));
        for pair in positions.windows(2) {
            assert!(pair[1].1 > pair[0].1 || pair[1].0 >= pair[0].0 + label, "{positions:?}");
        }
    }

    #[test]
    fn dots_that_cover_each_other_are_drawn_once() {
        let scale = Scale::covering(0.0, 100.0, 5.0);
        let mut chart = Chart::small(String::new(), [String::new(), String::new()], [scale; 2]);
        chart.dots(&[[1.0, 2.0], [1.0, 2.0], [1.01, 2.0], [50.0, 2.0], [f64::NAN, 0.0]]);
        assert_eq!(chart.dots.len(), 2);
    }
}
