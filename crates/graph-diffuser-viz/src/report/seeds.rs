//! Figure of the test scores of all seeds, with mean and standard deviation of each row.

use graph_diffuser::explain::summary::truncate;
use graph_diffuser::recipe::PaperResult;
use graph_diffuser::statistics::SeedStats;
use graph_diffuser::task::Metric;

use crate::canvas::{Anchor, Canvas, Style, TextStyle};
use crate::chart::Scale;
use crate::color::{BLUE, FOREGROUND, GRID, SKY, VERMILLION};

use super::table::format_score;
use super::{Report, ReportRow};

const LEFT: f64 = 24.0;
const PLOT: f64 = 320.0;
const VALUES: f64 = 136.0;
const ROW: f64 = 44.0;
const TOP: f64 = 44.0;

/// Row with scores.
struct Scored<'a> {
    label: &'a str,
    test: &'a SeedStats,
    paper: Option<&'a PaperResult>,
}

impl Report {
    /// Draws the test scores of all seeds, one figure per metric; empty if no row has several
    /// seeds.
    pub(super) fn seed_figures(&self) -> Vec<Canvas> {
        let mut metrics: Vec<Metric> = self.rows.iter().filter_map(|row| row.metric).collect();
        metrics.sort();
        metrics.dedup();
        let of_metric = |metric: &Metric| {
            let rows: Vec<Scored<'_>> = self
                .rows
                .iter()
                .filter(|row| row.metric == Some(*metric))
                .filter_map(ReportRow::scored)
                .collect();
            let has_seeds = rows.iter().any(|row| row.test.scores.len() > 1);
            has_seeds.then(|| draw(*metric, &rows))
        };
        metrics.iter().filter_map(of_metric).collect()
    }
}

impl ReportRow {
    fn scored(&self) -> Option<Scored<'_>> {
        let test = self.test.as_ref().filter(|test| test.stats.mean.is_finite())?;
        Some(Scored { label: &self.recipe, test, paper: self.paper.as_ref() })
    }
}

fn draw(metric: Metric, rows: &[Scored<'_>]) -> Canvas {
    let mut values: Vec<f64> = Vec::new();
    for Scored { test, paper, .. } in rows {
        let std = test.stats.std.unwrap_or(0.0);
        values.extend(test.scores.iter().copied().filter(|score| score.is_finite()));
        values.extend([test.stats.mean - std, test.stats.mean + std]);
        values.extend(paper.map(|paper| paper.mean));
    }
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let scale = Scale::covering(low, high, 5.0);
    let x = |value: f64| LEFT + scale.fraction(value) * PLOT;
    let bottom = TOP + ROW * rows.len() as f64;
    let title = format!("Test {} of every seed, mean ± std", metric.name().replace('_', " "));
    let has_paper = rows.iter().any(|row| row.paper.is_some());
    let height = bottom + if has_paper { 52.0 } else { 30.0 };
    let mut canvas = Canvas::new(LEFT + PLOT + VALUES, height, title.clone());
    let text = TextStyle::new(12.0, FOREGROUND);
    canvas.text([16.0, 24.0], title, TextStyle::new(14.0, FOREGROUND).bold());
    for tick in scale.ticks() {
        canvas.line([x(tick), TOP], [x(tick), bottom], Style::stroke(GRID, 1.0));
        canvas.text([x(tick), bottom + 18.0], scale.label(tick), text.anchor(Anchor::Middle));
    }
    for (index, Scored { label, test, paper }) in rows.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.7);
        let label = truncate(label, 80);
        let style = text.fit(&label, PLOT + VALUES - 12.0);
        canvas.text([LEFT, y - 16.0], label, style);
        if let Some(paper) = paper {
            let line = Style::stroke(VERMILLION, 2.0).dashed(&[4.0, 2.0]);
            canvas.line([x(paper.mean), y - 10.0], [x(paper.mean), y + 10.0], line);
        }
        let mean = test.stats.mean;
        if let Some(std) = test.stats.std {
            canvas.line([x(mean - std), y], [x(mean + std), y], Style::stroke(BLUE, 2.0));
        }
        canvas.line([x(mean), y - 9.0], [x(mean), y + 9.0], Style::stroke(BLUE, 3.0));
        for &score in test.scores.iter().filter(|score| score.is_finite()) {
            let style = Style::fill(SKY).opacity(0.85).outlined(BLUE, 1.0);
            canvas.circle([x(score), y], 4.0, style);
        }
        let std = test.stats.std.map_or(String::new(), |std| format!(" ± {}", format_score(std)));
        let value = format!("{}{std}", format_score(mean));
        canvas.text([LEFT + PLOT + 14.0, y + 4.0], value, text);
    }
    canvas.line([LEFT, bottom], [LEFT + PLOT, bottom], Style::stroke(FOREGROUND, 1.0));
    if has_paper {
        let y = bottom + 38.0;
        let line = Style::stroke(VERMILLION, 2.0).dashed(&[4.0, 2.0]);
        canvas.line([LEFT, y], [LEFT + 24.0, y], line);
        canvas.text([LEFT + 32.0, y + 4.0], "mean of the paper", text);
    }
    canvas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_a_point_and_constant_scores_are_drawn() {
        for scores in [[0.5, 0.5, 0.5], [0.1, 0.5, 0.7]] {
            let seeds = (0..).zip(scores);
            let test = SeedStats::from_scores(seeds).expect("scores");
            let rows = [Scored { label: "a <b>", test: &test, paper: None }];
            let svg = draw(Metric::RocAuc, &rows).to_svg();
            assert_eq!(svg.matches("<circle").count(), 3);
            assert!(!svg.contains("NaN") && svg.contains("Test roc auc"), "{svg}");
        }
    }
}
