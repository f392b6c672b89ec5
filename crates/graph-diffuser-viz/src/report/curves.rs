//! Validation curves of a report.

use std::collections::BTreeMap;

use graph_diffuser::recipe::PaperResult;
use graph_diffuser::run::FinishedRun;
use graph_diffuser::statistics::{self, SeedStats};
use graph_diffuser::task::Metric;

use crate::canvas::{Canvas, Style};
use crate::chart::{Chart, LegendEntry, Mark, NUM_STYLES, curve_style};
use crate::color::{BLUE, SKY};

use super::ReportRow;
use super::table::format_score;

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
        complete.filter_map(|(epoch, values)| Some((epoch, statistics::mean(values)?))).collect()
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
    pub fn draw(&self) -> Canvas {
        let values = self.seeds.iter().flat_map(|(_, points)| points.iter().copied());
        let band = self.paper.as_ref().map(|paper| self.band(paper));
        let title = match &self.configuration {
            Some(configuration) => format!("{} ({configuration})", self.label),
            None => self.label.clone(),
        };
        let mut chart = Chart::new(title, y_label(self.metric), values, band.into_iter().flatten());
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
        for (_, points) in &self.seeds {
            chart.line(points, &thin);
        }
        if self.seeds.len() > 1 {
            chart.line(&self.mean(), &bold);
        }
        for point in self.seeds.iter().filter_map(|(seed, points)| self.best(*seed, points)) {
            chart.mark(point, Mark::Ring, BLUE);
        }
        chart.draw(&legend)
    }
}

/// Draws the mean curves of several rows in one figure.
pub(super) fn draw_combined(curves: &[Curves]) -> Canvas {
    let means: Vec<Vec<(usize, f64)>> = curves.iter().map(Curves::mean).collect();
    let metric = curves.first().map_or(Metric::Accuracy, |curves| curves.metric);
    let title = "All recipes: mean over seeds".to_owned();
    let mut chart =
        Chart::new(title, y_label(metric), means.iter().flatten().copied(), [].into_iter());
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
            curves
                .seeds
                .iter()
                .filter_map(|(seed, points)| Some((*seed, curves.best(*seed, points)?.1))),
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
        let epochs: Vec<usize> =
            curves("x", &[5, 3]).mean().into_iter().map(|(epoch, _)| epoch).collect();
        assert_eq!(epochs, [1, 2, 3]);
        let selected = Curves { selected: [(7, 2)].into(), ..curves("x", &[1]) };
        assert_eq!(selected.best(7, &[(1, 0.3), (2, 0.1), (3, 0.4)]), Some((2, 0.1)));
        assert_eq!(selected.best(8, &[(2, 0.1)]), None);
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
        let equal =
            Curves { seeds: vec![(0, vec![(1, 0.5), (2, 0.5)])], paper: None, ..curves("x", &[]) };
        assert!(!equal.draw().to_svg().contains("NaN"));
    }
}
