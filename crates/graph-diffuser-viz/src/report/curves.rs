//! Learning curves of a report: validation score, and training and validation loss.

use std::collections::BTreeMap;

use graph_diffuser::recipe::PaperResult;
use graph_diffuser::run::FinishedRun;
use graph_diffuser::statistics::{self, SeedStats};
use graph_diffuser::task::Metric;
use graph_diffuser::train::EpochRecord;

use crate::canvas::{Canvas, Point, Style};
use crate::chart::{Chart, LegendEntry, Mark, NUM_STYLES, curve_style};
use crate::color::{BLUE, SKY};

use super::ReportRow;
use super::table::format_score;

/// Learning curves of one configuration, one per seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// Label of the row.
    pub label: String,
    /// Settings of the configuration, in a sweep.
    pub configuration: Option<String>,
    /// Metric.
    pub metric: Metric,
    /// Curves of each seed.
    pub seeds: Vec<SeedCurves>,
    /// Selected epoch of each seed.
    pub selected: BTreeMap<u64, usize>,
    /// Test result reported in the paper.
    pub paper: Option<PaperResult>,
}

/// Learning curves of one seed: points of epoch and value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeedCurves {
    /// Seed of the run.
    pub seed: u64,
    /// Validation score of each evaluated epoch.
    pub scores: Vec<Point>,
    /// Training loss of each epoch.
    pub train_loss: Vec<Point>,
    /// Validation loss of each evaluated epoch.
    pub valid_loss: Vec<Point>,
}

impl SeedCurves {
    /// Returns the curves of a run, or of each member of an ensemble.
    fn of_run(run: &FinishedRun) -> Vec<Self> {
        match &run.result.ensemble {
            None => vec![Self::new(run.result.seed, &run.history)],
            Some(ensemble) => {
                let members = ensemble.members.iter().zip(&run.member_histories);
                members.map(|(member, history)| Self::new(member.seed, history)).collect()
            }
        }
    }

    fn new(seed: u64, history: &[EpochRecord]) -> Self {
        let points = |value: &dyn Fn(&EpochRecord) -> Option<f64>| -> Vec<Point> {
            let points = history.iter().filter_map(|record| {
                Some([record.epoch as f64, value(record).filter(|value| value.is_finite())?])
            });
            points.collect()
        };
        Self {
            seed,
            scores: points(&|record| Some(record.valid.as_ref()?.metric)),
            train_loss: points(&|record| Some(record.train_loss)),
            valid_loss: points(&|record| Some(record.valid.as_ref()?.loss)),
        }
    }
}

/// Returns the seed and the selected epoch of a run, or of each member of an ensemble.
fn selected_epochs(run: &FinishedRun) -> Vec<(u64, usize)> {
    match &run.result.ensemble {
        None => vec![(run.result.seed, run.result.best.epoch)],
        Some(ensemble) => {
            ensemble.members.iter().map(|member| (member.seed, member.best.epoch)).collect()
        }
    }
}

/// Returns the mean over curves at the epochs that all of them have.
fn mean(curves: &[&[Point]]) -> Vec<Point> {
    let mut values: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for [epoch, value] in curves.iter().flat_map(|points| points.iter()) {
        values.entry(*epoch as u64).or_default().push(*value);
    }
    let complete = values.into_iter().filter(|(_, values)| values.len() == curves.len());
    complete.filter_map(|(epoch, values)| Some([epoch as f64, statistics::mean(values)?])).collect()
}

impl Curves {
    pub(super) fn new(row: &ReportRow, runs: &[&FinishedRun]) -> Self {
        let chosen = row.tuning.as_ref().and_then(|tuning| tuning.chosen.as_ref());
        let settings = chosen.map_or(&[][..], Vec::as_slice);
        let metric = row.metric.unwrap_or(Metric::Accuracy);
        Self { paper: row.paper.clone(), ..Self::of(&row.recipe, settings, metric, runs) }
    }

    /// Returns the curves of a configuration.
    pub(super) fn of(
        label: &str,
        settings: &[String],
        metric: Metric,
        runs: &[&FinishedRun],
    ) -> Self {
        Self {
            label: label.to_owned(),
            configuration: (!settings.is_empty()).then(|| settings.join(", ")),
            metric,
            seeds: runs.iter().flat_map(|run| SeedCurves::of_run(run)).collect(),
            selected: runs.iter().flat_map(|run| selected_epochs(run)).collect(),
            paper: None,
        }
    }

    /// Returns the mean validation score over seeds.
    fn mean_score(&self) -> Vec<Point> {
        mean(&self.seeds.iter().map(|seed| &seed.scores[..]).collect::<Vec<_>>())
    }

    /// Returns the point of the epoch that was selected for a seed.
    fn best(&self, seed: &SeedCurves) -> Option<Point> {
        let epoch = *self.selected.get(&seed.seed)?;
        seed.scores.iter().copied().find(|point| point[0] == epoch as f64)
    }

    /// Returns whether the validation score is the loss, which has a figure of its own.
    pub(super) fn is_loss(&self) -> bool {
        self.metric == Metric::Loss
    }

    /// Returns the title: the label, followed by the settings in a sweep.
    fn title(&self) -> String {
        match &self.configuration {
            Some(configuration) => format!("{} ({configuration})", self.label),
            None => self.label.clone(),
        }
    }

    /// Returns the range mean ± std of the paper, clipped to possible scores.
    fn band(&self, paper: &PaperResult) -> [f64; 2] {
        // Scores to maximize are at most 1; errors are unbounded.
        let max =
            if self.metric.is_better(1.0, 0.0) { 1.0_f64.max(paper.mean) } else { f64::INFINITY };
        let std = paper.std.unwrap_or_default();
        [(paper.mean - std).max(0.0_f64.min(paper.mean)), (paper.mean + std).min(max)]
    }

    /// Draws the validation score: a thin line per seed, a bold mean and the result of the paper.
    pub fn draw(&self) -> Canvas {
        let values = self.seeds.iter().flat_map(|seed| seed.scores.iter().copied());
        let band = self.paper.as_ref().map(|paper| self.band(paper));
        let bounds = band.into_iter().flatten();
        let mut chart = Chart::of_epochs(self.title(), y_label(self.metric), values, bounds);
        let [thin, bold] = [Style::stroke(SKY, 1.0), Style::stroke(BLUE, 2.5)];
        let mut legend = Vec::new();
        let mut explain = |line: &Style, mark, label: String| {
            legend.push(LegendEntry { line: line.clone(), mark, label });
        };
        if self.seeds.len() > 1 {
            explain(&bold, None, format!("mean of {} seeds", self.seeds.len()));
        }
        explain(&thin, Some((Mark::Ring, BLUE)), "seed (circle: best epoch)".to_owned());
        if let (Some(paper), Some(band)) = (&self.paper, band) {
            chart.band(paper.mean, band);
            explain(&Chart::band_line(), None, format!("paper (test): {}", paper.formatted()));
        }
        for seed in &self.seeds {
            chart.line(&seed.scores, &thin);
        }
        if self.seeds.len() > 1 {
            chart.line(&self.mean_score(), &bold);
        }
        for point in self.seeds.iter().filter_map(|seed| self.best(seed)) {
            chart.mark(point, Mark::Ring, BLUE);
        }
        chart.draw(&legend)
    }

    /// Draws the training and validation loss of every seed, with bold means of several seeds;
    /// `None` if no loss was saved.
    pub fn draw_loss(&self) -> Option<Canvas> {
        self.loss_chart(false)
    }

    /// Draws [`Curves::draw_loss`] in a small chart.
    pub(super) fn draw_small_loss(&self) -> Option<Canvas> {
        self.loss_chart(true)
    }

    fn loss_chart(&self, is_small: bool) -> Option<Canvas> {
        let parts: [Vec<&[Point]>; 2] = [
            self.seeds.iter().map(|seed| &seed.train_loss[..]).collect(),
            self.seeds.iter().map(|seed| &seed.valid_loss[..]).collect(),
        ];
        let values: Vec<Point> =
            parts.iter().flatten().flat_map(|points| points.iter().copied()).collect();
        if values.is_empty() {
            return None;
        }
        let title = self.title();
        let mut chart =
            Chart::of_epochs(title, "loss".to_owned(), values.into_iter(), [].into_iter());
        if is_small {
            chart = chart.compact();
        }
        let mut legend = Vec::new();
        for (index, (curves, name)) in parts.iter().zip(["training", "validation"]).enumerate() {
            let (line, _, color) = curve_style(index);
            let is_single = curves.len() == 1;
            for points in curves {
                let thin = Style::stroke(color, 0.8);
                chart.line(points, if is_single { &line } else { &thin });
            }
            if !is_single {
                chart.line(&mean(curves), &line);
            }
            let label = if is_single { name.to_owned() } else { format!("{name}, mean") };
            legend.push(LegendEntry { line, mark: None, label });
        }
        if !is_small && self.seeds.len() > 1 {
            let line = Style::stroke(BLUE, 0.8);
            legend.push(LegendEntry { line, mark: None, label: "one seed".to_owned() });
        }
        Some(chart.draw(&legend))
    }
}

/// Draws the mean curves of several rows in one figure.
pub(super) fn draw_combined(curves: &[Curves]) -> Canvas {
    let means: Vec<Vec<Point>> = curves.iter().map(Curves::mean_score).collect();
    let metric = curves.first().map_or(Metric::Accuracy, |curves| curves.metric);
    let title = "All recipes: mean over seeds".to_owned();
    let points = means.iter().flatten().copied();
    let mut chart = Chart::of_epochs(title, y_label(metric), points, [].into_iter());
    let mut legend = Vec::new();
    for (index, (curves, mean)) in curves.iter().zip(&means).enumerate() {
        let (line, mark, color) = curve_style(index);
        chart.line(mean, &line);
        // Offset the markers of different curves so that they overlap less.
        let every = mean.len().div_ceil(5).max(1);
        for point in mean.iter().skip(index * every / NUM_STYLES).step_by(every) {
            chart.mark(*point, mark, color);
        }
        let best = SeedStats::from_scores(
            curves.seeds.iter().filter_map(|seed| Some((seed.seed, curves.best(seed)?[1]))),
        );
        let best =
            best.map_or(String::new(), |best| format!(", best {}", format_score(best.stats.mean)));
        let label = format!("{}{best}", curves.label);
        legend.push(LegendEntry { line, mark: Some((mark, color)), label });
    }
    chart.draw(&legend)
}

fn y_label(metric: Metric) -> String {
    format!("validation {}", metric.name().replace('_', " "))
}

#[cfg(test)]
mod tests {
    use crate::snapshot::assert_text_snapshot;

    use super::*;

    fn curves(label: &str, lengths: &[usize]) -> Curves {
        // Each seed approaches 0.9 at a different rate.
        let seed = |(seed, length): (usize, &usize)| {
            let point = |epoch: usize| [epoch as f64, 0.9 - 0.6 / (epoch + seed) as f64];
            let loss = |epoch: usize| [epoch as f64, 1.0 / (epoch + seed) as f64];
            SeedCurves {
                seed: seed as u64,
                scores: (1..=*length).map(point).collect(),
                train_loss: (1..=*length).map(loss).collect(),
                valid_loss: (1..=*length).map(|epoch| [epoch as f64, 0.5]).collect(),
            }
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

    #[test]
    fn svg_matches_the_snapshots() {
        let chart = curves("grid-diffuser", &[5, 5, 4]).draw();
        assert_text_snapshot("curves", &chart.to_svg());
        let others: Vec<Curves> =
            ["one", "two <&>"].into_iter().map(|label| curves(label, &[4, 4])).collect();
        assert_text_snapshot("curves_combined", &draw_combined(&others).to_svg());
    }

    #[test]
    fn mean_covers_only_epochs_that_all_seeds_evaluated() {
        let epochs: Vec<f64> =
            curves("x", &[5, 3]).mean_score().into_iter().map(|[epoch, _]| epoch).collect();
        assert_eq!(epochs, [1.0, 2.0, 3.0]);
        let selected = Curves { selected: [(7, 2)].into(), ..curves("x", &[1]) };
        let seed = |seed: u64| SeedCurves {
            seed,
            scores: vec![[1.0, 0.3], [2.0, 0.1], [3.0, 0.4]],
            ..SeedCurves::default()
        };
        assert_eq!(selected.best(&seed(7)), Some([2.0, 0.1]));
        assert_eq!(selected.best(&seed(8)), None);
    }

    #[test]
    fn loss_chart_has_both_losses_of_every_seed() {
        let paths = |lengths: &[usize]| {
            let svg = curves("x", lengths).draw_loss().expect("losses were saved").to_svg();
            svg.matches("<path").count() - svg.matches("stroke=\"#dddddd\"").count()
        };
        // One seed adds a training and a validation curve; several also have two means and a
        // third legend entry.
        assert_eq!(paths(&[5, 5, 5]) - paths(&[5]), 3 * 2 + 2 + 1 - 2);
        assert_eq!(curves("x", &[]).draw_loss(), None);
    }

    #[test]
    fn empty_and_constant_curves_are_drawn_without_nan() {
        for lengths in [&[][..], &[0], &[1], &[1, 1]] {
            let svg = curves("x", lengths).draw().to_svg();
            assert!(
                svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"),
                "{svg}"
            );
        }
        let scores = vec![[1.0, 0.5], [2.0, 0.5]];
        let seeds = vec![SeedCurves { scores, ..SeedCurves::default() }];
        let equal = Curves { seeds, paper: None, ..curves("x", &[]) };
        assert!(!equal.draw().to_svg().contains("NaN"));
    }
}
