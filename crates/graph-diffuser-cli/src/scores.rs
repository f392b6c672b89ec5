//! Text table of the scores of each target.

use graph_diffuser::statistics::format_score;
use graph_diffuser::task::TargetScores;

use crate::printer::thousands;

/// Number of targets above which only the first metric of each is shown.
const MAX_FULL_TARGETS: usize = 4;

/// Formats the scores of all targets, with intervals and the scores of a constant prediction
/// and, for molecules, a random forest.
pub(crate) fn score_table(targets: &[TargetScores]) -> String {
    let mut rows = vec![
        ["target", "n", "prevalence", "metric", "score", "95% interval", "baseline", "forest"]
            .map(String::from),
    ];
    for target in targets {
        let shown = if targets.len() > MAX_FULL_TARGETS { 1 } else { target.metrics.len() };
        let mut metrics: Vec<_> = target.metrics.iter().collect();
        metrics.sort_by_key(|(metric, _)| (Some(**metric) != target.primary_metric(), **metric));
        for (row, (metric, score)) in metrics.into_iter().take(shown).enumerate() {
            let first = |text: String| if row == 0 { text } else { String::new() };
            let percent = |fraction: f64| format!("{:.1}%", 100.0 * fraction);
            let interval =
                |[low, high]: [f64; 2]| format!("{} to {}", format_score(low), format_score(high));
            rows.push([
                first(target.name.clone()),
                first(thousands(target.samples)),
                first(target.prevalence.map_or(String::new(), percent)),
                metric.name().to_owned(),
                format_score(score.value),
                score.interval.map_or(String::new(), interval),
                score.baseline.map_or(String::new(), format_score),
                score.forest.map_or(String::new(), format_score),
            ]);
        }
    }
    let mut widths = [0; 8];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; 8]| {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .enumerate()
            .filter(|(column, _)| match column {
                2 => widths[2] > "prevalence".len() || has_prevalence(targets),
                7 => has_forest(targets),
                _ => true,
            })
            .map(|(column, (cell, width))| {
                if matches!(column, 0 | 3) {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            })
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn has_forest(targets: &[TargetScores]) -> bool {
    let mut scores = targets.iter().flat_map(|target| target.metrics.values());
    scores.any(|score| score.forest.is_some())
}

fn has_prevalence(targets: &[TargetScores]) -> bool {
    targets.iter().any(|target| target.prevalence.is_some())
}
