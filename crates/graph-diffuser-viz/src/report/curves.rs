//! Validation curves as SVG.
//!
//! Lines use the color-blind safe palette of Okabe and Ito, and also differ in width, dashes and
//! markers. Text and background colors are attributes that a style sheet may override.

use std::collections::BTreeMap;

use graph_diffuser::recipe::PaperResult;
use graph_diffuser::run::FinishedRun;
use graph_diffuser::task::Metric;

use super::html::escape;
use super::table::format_score;
use super::{ReportRow, SeedStats};

const WIDTH: f64 = 720.0;
const PLOT_HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const LEGEND_ROW: f64 = 20.0;
/// Approximate character width at a font size of 12, used to break the legend into rows.
const CHAR_WIDTH: f64 = 6.6;

const BLUE: &str = "#0072B2";
const SKY: &str = "#56B4E9";
const VERMILLION: &str = "#D55E00";
/// Color, dashes and marker of each row; the last color is that of the text.
const STYLES: [(&str, &str, Mark); 8] = [
    (BLUE, "", Mark::Circle),
    (VERMILLION, "8 3", Mark::Square),
    ("#009E73", "2 3", Mark::Triangle),
    ("#E69F00", "10 3 2 3", Mark::Diamond),
    ("#CC79A7", "5 2", Mark::Cross),
    (SKY, "12 4", Mark::Plus),
    ("#666666", "1 2", Mark::Wedge),
    ("#222222", "8 2 2 2 2 2", Mark::Ring),
];

/// Validation curves of one row of a report, one per seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// Label of the row.
    pub label: String,
    /// Settings of the chosen configuration, in a sweep.
    pub configuration: Option<String>,
    /// Metric.
    pub metric: Metric,
    /// For each seed the evaluated epochs and their validation scores.
    pub seeds: Vec<(u64, Vec<(usize, f64)>)>,
    /// Selected epoch of each seed.
    pub selected: BTreeMap<u64, usize>,
    /// Test result reported in the paper.
    pub paper: Option<PaperResult>,
}

#[derive(Debug, Clone, Copy)]
enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Plus,
    Wedge,
    Ring,
}

impl Curves {
    pub(super) fn new(row: &ReportRow, runs: &[&FinishedRun]) -> Self {
        let points = |run: &FinishedRun| {
            let scored = run
                .history
                .iter()
                .filter_map(|record| Some((record.epoch, record.valid.as_ref()?.metric)));
            scored.filter(|(_, value)| value.is_finite()).collect()
        };
        let chosen = row.tuning.as_ref().and_then(|tuning| tuning.chosen.as_ref());
        Self {
            label: row.recipe.clone(),
            configuration: chosen
                .filter(|settings| !settings.is_empty())
                .map(|settings| settings.join(", ")),
            metric: row.metric.unwrap_or(Metric::Accuracy),
            seeds: runs.iter().map(|run| (run.result.seed, points(run))).collect(),
            selected: runs.iter().map(|run| (run.result.seed, run.result.best.epoch)).collect(),
            paper: row.paper.clone(),
        }
    }

    /// Returns the mean over seeds at the epochs that all seeds have evaluated.
    fn mean(&self) -> Vec<(usize, f64)> {
        let mut scores: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (epoch, value) in self.seeds.iter().flat_map(|(_, points)| points) {
            scores.entry(*epoch).or_default().push(*value);
        }
        let complete = scores.into_iter().filter(|(_, values)| values.len() == self.seeds.len());
        complete
            .map(|(epoch, values)| (epoch, values.iter().sum::<f64>() / values.len() as f64))
            .collect()
    }

    /// Returns the point of the epoch that was selected for a seed.
    fn best(&self, seed: u64, points: &[(usize, f64)]) -> Option<(usize, f64)> {
        let epoch = self.selected.get(&seed)?;
        points.iter().copied().find(|point| point.0 == *epoch)
    }

    /// Returns the range mean ± std of the paper, clipped to possible scores.
    fn band(&self, paper: &PaperResult) -> [f64; 2] {
        // Scores to maximize are at most 1; errors are unbounded.
        let max =
            if self.metric.is_better(1.0, 0.0) { 1.0_f64.max(paper.mean) } else { f64::INFINITY };
        let std = paper.std.unwrap_or_default();
        [(paper.mean - std).max(0.0_f64.min(paper.mean)), (paper.mean + std).min(max)]
    }

    /// Draws a thin line per seed, a bold mean and the result of the paper.
    pub fn to_svg(&self) -> String {
        let values = self.seeds.iter().flat_map(|(_, points)| points.iter().copied());
        let band = self.paper.as_ref().map(|paper| self.band(paper));
        let title = match &self.configuration {
            Some(configuration) => format!("{} ({configuration})", self.label),
            None => self.label.clone(),
        };
        let mut plot = Plot::new(&title, self.metric, values, band.into_iter().flatten());
        let mut legend = Vec::new();
        if let (Some(paper), Some(band)) = (&self.paper, band) {
            plot.band(paper.mean, band);
            let dashes = Stroke { color: VERMILLION, width: 1.5, dashes: "6 4" };
            legend.push((dashes, None, format!("paper (test): {}", paper.formatted())));
        }
        let thin = Stroke { color: SKY, width: 1.0, dashes: "" };
        let bold = Stroke { color: BLUE, width: 2.5, dashes: "" };
        for (_, points) in &self.seeds {
            plot.line(points, &thin);
        }
        if self.seeds.len() > 1 {
            plot.line(&self.mean(), &bold);
            legend.insert(0, (bold, None, format!("mean of {} seeds", self.seeds.len())));
        }
        for point in self.seeds.iter().filter_map(|(seed, points)| self.best(*seed, points)) {
            plot.mark(point, BLUE, Mark::Ring);
        }
        legend.insert(
            legend.len().min(1),
            (thin, Some((Mark::Ring, BLUE)), "seed (circle: best epoch)".to_owned()),
        );
        plot.finish(&legend)
    }
}

/// Draws the mean curves of several rows in one figure.
pub(super) fn combined(curves: &[Curves]) -> String {
    let means: Vec<Vec<(usize, f64)>> = curves.iter().map(Curves::mean).collect();
    let metric = curves.first().map_or(Metric::Accuracy, |curves| curves.metric);
    let mut plot = Plot::new(
        "All recipes: mean over seeds",
        metric,
        means.iter().flatten().copied(),
        [].into_iter(),
    );
    let mut legend = Vec::new();
    for (index, (curves, mean)) in curves.iter().zip(&means).enumerate() {
        let (color, dashes, mark) = STYLES[index % STYLES.len()];
        let stroke = Stroke { color, width: 2.0, dashes };
        plot.line(mean, &stroke);
        // Offset the markers of different curves so that they overlap less.
        let every = mean.len().div_ceil(5).max(1);
        for point in mean.iter().skip(index * every / STYLES.len()).step_by(every) {
            plot.mark(*point, color, mark);
        }
        let best = SeedStats::from_scores(
            curves
                .seeds
                .iter()
                .filter_map(|(seed, points)| Some((*seed, curves.best(*seed, points)?.1))),
        );
        let best = best.map_or(String::new(), |best| format!(", best {}", format_score(best.mean)));
        legend.push((stroke, Some((mark, color)), format!("{}{best}", curves.label)));
    }
    plot.finish(&legend)
}

#[derive(Debug, Clone, Copy)]
struct Stroke<'a> {
    color: &'a str,
    width: f64,
    dashes: &'a str,
}

type LegendEntry<'a> = (Stroke<'a>, Option<(Mark, &'a str)>, String);

/// Axis scale with ticks at round numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scale {
    low: f64,
    high: f64,
    step: f64,
}

impl Scale {
    /// Covers a range with at most about `count` steps of 1, 2 or 5 times a power of ten.
    fn covering(low: f64, high: f64, count: f64) -> Self {
        let (low, high) = if low < high { (low, high) } else { (low - 0.05, low + 0.05) };
        let rough = (high - low) / count;
        let power = 10_f64.powf(rough.log10().floor());
        let factor =
            [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * (1.0 - 1e-9));
        let step = factor.unwrap_or(10.0) * power;
        Self {
            low: (low / step + 1e-9).floor() * step,
            high: (high / step - 1e-9).ceil() * step,
            step,
        }
    }

    fn ticks(&self) -> Vec<f64> {
        let count = ((self.high - self.low) / self.step + 1e-6).floor() as usize;
        (0..=count.min(50)).map(|tick| self.low + tick as f64 * self.step).collect()
    }

    fn label(&self, tick: f64) -> String {
        if self.high.abs().max(self.low.abs()) >= 1e6 {
            return format!("{tick:.1e}");
        }
        let decimals = (-(self.step * 1.000_001).log10().floor()).max(0.0) as usize;
        let text = format!("{tick:.decimals$}");
        // Avoid a negative zero.
        if text.trim_start_matches('-').chars().all(|letter| "0.".contains(letter)) {
            text.replace('-', "")
        } else {
            text
        }
    }

    fn fraction(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }
}

/// Plot of validation scores over epochs.
#[derive(Debug)]
struct Plot {
    title: String,
    epochs: Scale,
    scores: Scale,
    metric: Metric,
    body: String,
}

impl Plot {
    fn new(
        title: &str,
        metric: Metric,
        points: impl Iterator<Item = (usize, f64)>,
        extra_scores: impl Iterator<Item = f64>,
    ) -> Self {
        let (mut last, mut low, mut high) = (1, f64::INFINITY, f64::NEG_INFINITY);
        let with_epochs = points.chain(extra_scores.map(|value| (0, value)));
        for (epoch, value) in with_epochs {
            (last, low, high) = (last.max(epoch), low.min(value), high.max(value));
        }
        let (low, high) = if low.is_finite() { (low, high) } else { (0.0, 1.0) };
        let rounded = Scale::covering(0.0, last as f64, 8.0);
        let epochs = Scale { low: 0.0, high: last as f64, step: rounded.step.max(1.0) };
        let scores = Scale::covering(low, high, 6.0);
        Self { title: title.to_owned(), epochs, scores, metric, body: String::new() }
    }

    fn x(&self, epoch: f64) -> f64 {
        LEFT + self.epochs.fraction(epoch) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, score: f64) -> f64 {
        TOP + (1.0 - self.scores.fraction(score)) * PLOT_HEIGHT
    }

    fn band(&mut self, mean: f64, [low, high]: [f64; 2]) {
        let (top, middle, bottom) = (self.y(high), self.y(mean), self.y(low));
        let (right, width) = (WIDTH - RIGHT, WIDTH - LEFT - RIGHT);
        self.body.push_str(&format!(
            "<rect x=\"{LEFT:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{VERMILLION}\" fill-opacity=\"0.15\"/>\n\
             <line x1=\"{LEFT:.1}\" y1=\"{middle:.1}\" x2=\"{right:.1}\" y2=\"{middle:.1}\" stroke=\"{VERMILLION}\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"/>\n",
            bottom - top
        ));
    }

    fn line(&mut self, points: &[(usize, f64)], stroke: &Stroke<'_>) {
        let points = points
            .iter()
            .map(|(epoch, value)| (self.x(*epoch as f64), self.y(*value)))
            .collect::<Vec<_>>();
        if let [(x, y)] = points[..] {
            self.body.push_str(&format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\" fill=\"{}\"/>\n",
                stroke.color
            ));
        }
        if points.len() < 2 {
            return;
        }
        let points: Vec<String> =
            downsample(&points).iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.body.push_str(&format!(
            "<polyline points=\"{}\"{}/>\n",
            points.join(" "),
            stroke.attributes()
        ));
    }

    fn mark(&mut self, (epoch, value): (usize, f64), color: &str, mark: Mark) {
        let text = mark.draw(self.x(epoch as f64), self.y(value), color);
        self.body.push_str(&text);
    }

    /// Returns the SVG with background, axes, curves and legend.
    fn finish(self, legend: &[LegendEntry<'_>]) -> String {
        let (positions, rows) = legend_positions(legend);
        let bottom = TOP + PLOT_HEIGHT;
        let height = bottom + 58.0 + rows as f64 * LEGEND_ROW;
        let title = escape(&self.title);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"{WIDTH:.0}\" height=\"{height:.0}\" \
             role=\"img\" aria-label=\"{title}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect class=\"background\" width=\"{WIDTH:.0}\" height=\"{height:.0}\" fill=\"#ffffff\"/>\n\
             <text class=\"label\" x=\"{LEFT:.1}\" y=\"24\" font-size=\"14\" font-weight=\"bold\" fill=\"#222222\">{title}</text>\n"
        );
        let right = WIDTH - RIGHT;
        for tick in self.scores.ticks() {
            let (y, label) = (self.y(tick), self.scores.label(tick));
            text.push_str(&format!(
                "<line class=\"grid\" x1=\"{LEFT:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\n\
                 <text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#222222\">{label}</text>\n",
                LEFT - 8.0,
                y + 4.0
            ));
        }
        for tick in self.epochs.ticks() {
            let (x, label) = (self.x(tick), self.epochs.label(tick));
            text.push_str(&format!(
                "<line class=\"axis\" x1=\"{x:.1}\" y1=\"{bottom:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#222222\"/>\n\
                 <text class=\"label\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#222222\">{label}</text>\n",
                bottom + 5.0,
                bottom + 19.0
            ));
        }
        let (center, middle) = (f64::midpoint(LEFT, right), TOP + PLOT_HEIGHT / 2.0);
        text.push_str(&format!(
            "<polyline class=\"axis\" points=\"{LEFT:.1},{TOP:.1} {LEFT:.1},{bottom:.1} {right:.1},{bottom:.1}\" fill=\"none\" stroke=\"#222222\"/>\n\
             <text class=\"label\" x=\"{center:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#222222\">epoch</text>\n\
             <text class=\"label\" x=\"16\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {middle:.1})\" fill=\"#222222\">validation {}</text>\n",
            bottom + 37.0,
            self.metric.name().replace('_', " ")
        ));
        text.push_str(&self.body);
        for ((x, row), (stroke, mark, label)) in positions.into_iter().zip(legend) {
            let y = bottom + 60.0 + row as f64 * LEGEND_ROW;
            let x_end = x + 30.0;
            text.push_str(&format!(
                "<polyline points=\"{x:.1},{y:.1} {x_end:.1},{y:.1}\"{}/>\n",
                stroke.attributes()
            ));
            if let Some((mark, color)) = mark {
                text.push_str(&mark.draw(x + 15.0, y, color));
            }
            text.push_str(&format!(
                "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" fill=\"#222222\">{}</text>\n",
                x + 38.0,
                y + 4.0,
                escape(label)
            ));
        }
        text.push_str("</svg>\n");
        text
    }
}

/// Returns the start and row of each legend entry, and the number of rows.
fn legend_positions(legend: &[LegendEntry<'_>]) -> (Vec<(f64, usize)>, usize) {
    let (mut x, mut row) = (LEFT, 0);
    let mut positions = Vec::new();
    for (_, _, label) in legend {
        let width = 60.0 + label.chars().count() as f64 * CHAR_WIDTH;
        if x > LEFT && x + width > WIDTH {
            (x, row) = (LEFT, row + 1);
        }
        positions.push((x, row));
        x += width;
    }
    (positions, row + 1)
}

/// Keeps the lowest and the highest point of each pixel column, in their order.
fn downsample(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let of_columns = points.chunk_by(|left, right| left.0.floor() == right.0.floor());
    let kept = of_columns.flat_map(|column| {
        let indices = 0..column.len();
        let low = indices
            .clone()
            .min_by(|&left, &right| column[left].1.total_cmp(&column[right].1))
            .unwrap_or(0);
        let high = indices
            .clone()
            .max_by(|&left, &right| column[left].1.total_cmp(&column[right].1))
            .unwrap_or(0);
        let both = if low == high { vec![low] } else { vec![low.min(high), low.max(high)] };
        both.into_iter().map(|index| column[index]).collect::<Vec<_>>()
    });
    kept.collect()
}

impl Stroke<'_> {
    fn attributes(&self) -> String {
        let Self { color, width, dashes } = self;
        let class = if *color == "#222222" { " class=\"axis\"" } else { "" };
        let dashes = if dashes.is_empty() {
            String::new()
        } else {
            format!(" stroke-dasharray=\"{dashes}\"")
        };
        format!(
            "{class} fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"{dashes} stroke-linejoin=\"round\""
        )
    }
}

impl Mark {
    fn draw(self, x: f64, y: f64, color: &str) -> String {
        let path = |path: &str, filled: bool| {
            let class = if color == "#222222" { "axis" } else { "mark" };
            let fill = if filled { color } else { "none" };
            format!(
                "<path class=\"{class}\" transform=\"translate({x:.1} {y:.1})\" d=\"{path}\" fill=\"{fill}\" stroke=\"{color}\" stroke-width=\"1.5\"/>\n"
            )
        };
        let circle = "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z";
        match self {
            Self::Circle => path(circle, true),
            Self::Ring => path(circle, false),
            Self::Square => path("M-3 -3h6v6h-6z", true),
            Self::Triangle => path("M0 -4l4 7h-8z", true),
            Self::Wedge => path("M0 4l4 -7h-8z", true),
            Self::Diamond => path("M0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z", true),
            Self::Cross => path("M-3.5 -3.5l7 7m0 -7l-7 7", false),
            Self::Plus => path("M-4.5 0h9m-4.5 -4.5v9", false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves(label: &str, lengths: &[usize]) -> Curves {
        // Each seed approaches 0.9 at a different rate.
        let seed = |(seed, length): (usize, &usize)| {
            let points = (1..=*length).map(|epoch| (epoch, 0.9 - 0.6 / (epoch + seed) as f64));
            (seed as u64, points.collect())
        };
        Curves {
            label: label.to_owned(),
            configuration: Some("optim.lr=3e-4".to_owned()),
            metric: Metric::Accuracy,
            seeds: lengths.iter().enumerate().map(seed).collect(),
            selected: lengths
                .iter()
                .enumerate()
                .map(|(seed, &length)| (seed as u64, length))
                .collect(),
            paper: Some(PaperResult {
                metric: Metric::Accuracy,
                mean: 0.9755,
                std: Some(0.025),
                parameters: Some(43_000),
            }),
        }
    }

    fn assert_svg_snapshot(name: &str, text: &str) {
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name, text));
    }

    #[test]
    fn svg_matches_the_snapshots() {
        assert_svg_snapshot("curves", &curves("grid-diffuser", &[5, 5, 4]).to_svg());
        let others: Vec<Curves> =
            ["one", "two <&>"].into_iter().map(|label| curves(label, &[4, 4])).collect();
        assert_svg_snapshot("curves_combined", &combined(&others));
    }

    #[test]
    fn mean_covers_only_epochs_that_all_seeds_evaluated() {
        let epochs: Vec<usize> =
            curves("x", &[5, 3]).mean().into_iter().map(|(epoch, _)| epoch).collect();
        assert_eq!(epochs, [1, 2, 3]);
        let selected = Curves { selected: [(7, 2)].into(), ..curves("x", &[1]) };
        assert_eq!(selected.best(7, &[(1, 0.3), (2, 0.1), (3, 0.4)]), Some((2, 0.1)));
        assert_eq!(selected.best(8, &[(2, 0.1)]), None);
    }

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        let labels = |low: f64, high: f64| {
            let scale = Scale::covering(low, high, 6.0);
            assert!(scale.low <= low && scale.high >= high, "{scale:?}");
            scale.ticks().into_iter().map(|tick| scale.label(tick)).collect::<Vec<_>>()
        };
        assert_eq!(labels(0.31, 0.99), ["0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(0.068, 0.0712), ["0.068", "0.069", "0.070", "0.071", "0.072"]);
        assert_eq!(labels(0.0, 2500.0), ["0", "500", "1000", "1500", "2000", "2500"]);
        assert_eq!(labels(-0.1, 0.2), ["-0.10", "-0.05", "0.00", "0.05", "0.10", "0.15", "0.20"]);
    }

    #[test]
    fn empty_and_constant_curves_are_drawn_without_nan() {
        for lengths in [&[][..], &[0], &[1], &[1, 1]] {
            let svg = curves("x", lengths).to_svg();
            assert!(
                svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"),
                "{svg}"
            );
        }
        let equal =
            Curves { seeds: vec![(0, vec![(1, 0.5), (2, 0.5)])], paper: None, ..curves("x", &[]) };
        assert!(!equal.to_svg().contains("NaN"));
    }

    #[test]
    fn downsampling_keeps_the_extremes() {
        let points: Vec<(f64, f64)> =
            (0..10_000).map(|index| (f64::from(index) / 100.0, f64::from(index % 97))).collect();
        let kept = downsample(&points);
        assert!(kept.len() <= 200, "{}", kept.len());
        assert!(
            kept.iter().any(|point| point.1 == 96.0) && kept.iter().any(|point| point.1 == 0.0)
        );
        assert!(kept.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }
}
