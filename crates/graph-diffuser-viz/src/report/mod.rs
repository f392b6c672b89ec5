//! Reports of finished runs and sweeps, compared with the results of the paper.
//!
//! A [`Report`] is plain data that serializes to JSON; Markdown, CSV, HTML and SVG are derived from
//! it.

mod curves;
mod html;
mod paired;
mod sweep;
mod sweep_summary;
mod table;
mod targets;

use std::path::{Path, PathBuf};

use graph_diffuser_data::AtomicFile;
use serde::Serialize;

use graph_diffuser::recipe::{PaperResult, Recipe};
use graph_diffuser::run::{FinishedRun, RunResult};
use graph_diffuser::statistics::{SeedStats, mean};
use graph_diffuser::sweep::{SweepError, file_names};
use graph_diffuser::task::Metric;

use crate::canvas::Canvas;

pub use curves::Curves;
pub use paired::PairedDifference;
pub use sweep_summary::{ConfigurationRow, FailedRun, Provenance, RunCounts, SweepSummary, Tuning};
pub use targets::TargetRow;

/// Results of runs, grouped by recipe.
///
/// # Examples
/// ```
/// use graph_diffuser_viz::report::Report;
///
/// let report = Report::new(&[]);
/// assert!(report.to_markdown().starts_with("| recipe | runs | metric | test mean | std |"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// One row per recipe, in order of first appearance.
    pub rows: Vec<ReportRow>,
    /// Paired differences to the first row; only between rows with predictions of the same test
    /// graphs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<PairedDifference>,
    /// Summary of the sweep, if the report is of a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<SweepSummary>,
    /// Validation curves of each row with a finished run.
    #[serde(skip)]
    pub curves: Vec<Curves>,
}

/// Row of a [`Report`]: all runs of one recipe, or in a sweep those of its chosen configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportRow {
    /// Name of the recipe, followed by changed settings if an earlier row has the same name.
    pub recipe: String,
    /// Metric; absent, like the fields derived from runs, until a run is finished.
    pub metric: Option<Metric>,
    /// Number of trainable parameters.
    pub parameters: Option<usize>,
    /// Test score of each run at its best validation epoch.
    #[serde(flatten)]
    pub test: Option<SeedStats>,
    /// Mean wall-clock time of a run in seconds.
    pub seconds: Option<f64>,
    /// Result reported in the paper.
    pub paper: Option<PaperResult>,
    /// Test scores of each target.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetRow>,
    /// Model selection, in a sweep.
    #[serde(flatten)]
    pub tuning: Option<Tuning>,
}

impl Report {
    /// Groups finished runs by recipe; runs that differ only in their seed form one row.
    pub fn new(runs: &[FinishedRun]) -> Self {
        let mut groups: Vec<(Recipe, Vec<&FinishedRun>)> = Vec::new();
        for run in runs {
            let recipe = Recipe { seed: 0, ..run.recipe.clone() };
            match groups.iter_mut().find(|(known, _)| *known == recipe) {
                Some((_, group)) => group.push(run),
                None => groups.push((recipe, vec![run])),
            }
        }
        let label = |index: usize| {
            let recipe = &groups[index].0;
            match groups[..index].iter().find(|(known, _)| known.name == recipe.name) {
                Some((first, _)) => {
                    format!("{} ({})", recipe.name, recipe.differences(first).join(", "))
                }
                None => recipe.name.clone(),
            }
        };
        let rows = groups
            .iter()
            .enumerate()
            .map(|(index, (recipe, group))| ReportRow::new(label(index), recipe, group));
        let rows: Vec<ReportRow> = rows.collect();
        let curves =
            rows.iter().zip(&groups).map(|(row, (_, group))| Curves::new(row, group)).collect();
        let labeled =
            rows.iter().zip(&groups).map(|(row, (_, group))| (row.recipe.as_str(), group.clone()));
        let differences = PairedDifference::to_first(&labeled.collect::<Vec<_>>());
        Self { rows, differences, sweep: None, curves }
    }

    /// Writes the report in all formats, with its curves, and returns the paths of the files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<Vec<PathBuf>, SweepError> {
        let names = file_names(self.curves.iter().map(|curves| curves.label.as_str()));
        let figures = self.curves.iter().zip(names).map(|(curves, name)| {
            let file = format!("curves/{name}.svg");
            (curves.label.clone(), file, curves.draw().to_svg())
        });
        let mut figures: Vec<(String, String, String)> = figures.collect();
        if let Some(all) = self.combined_curves() {
            let all = ("All recipes".to_owned(), "curves.svg".to_owned(), all.to_svg());
            figures.insert(0, all);
        }
        let mut markdown = self.to_markdown();
        if !figures.is_empty() {
            markdown.push_str("\n## Validation curves\n");
            for (label, file, _) in &figures {
                markdown.push_str(&format!("\n![{label}: validation curves]({file})\n"));
            }
        }
        let json = serde_json::to_string_pretty(self).expect("plain data serializes");
        let mut files = vec![
            ("report.md".to_owned(), markdown),
            ("report.csv".to_owned(), self.to_csv()),
            ("report.json".to_owned(), json),
            ("report.html".to_owned(), self.to_html()),
        ];
        files.extend(
            self.configurations_to_csv().map(|text| ("configurations.csv".to_owned(), text)),
        );
        files.extend(figures.into_iter().map(|(_, file, svg)| (file, svg)));
        let mut written = Vec::new();
        for (name, text) in files {
            let path = directory.join(name);
            AtomicFile::replace(&path, text.as_bytes())?;
            written.push(path);
        }
        Ok(written)
    }

    /// Draws the mean curves of all rows in one figure; `None` for a single row or different
    /// metrics.
    fn combined_curves(&self) -> Option<Canvas> {
        let first = self.curves.first()?;
        let comparable =
            self.curves.len() > 1 && self.curves.iter().all(|curves| curves.metric == first.metric);
        comparable.then(|| curves::draw_combined(&self.curves))
    }
}

impl ReportRow {
    fn new(label: String, recipe: &Recipe, group: &[&FinishedRun]) -> Self {
        let results = || group.iter().map(|run| &run.result);
        let first: Option<&RunResult> = results().next();
        let metric = first.map(|result| result.metric);
        Self {
            recipe: label,
            metric,
            parameters: first.map(|result| result.parameters),
            test: SeedStats::from_scores(results().map(|result| (result.seed, result.test.metric))),
            seconds: mean(results().map(|result| result.seconds)),
            paper: recipe
                .paper
                .clone()
                .filter(|paper| metric.is_none_or(|metric| paper.metric == metric)),
            targets: TargetRow::of_runs(group),
            tuning: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use graph_diffuser::task::EvalMetrics;
    use graph_diffuser::train::BestEpoch;

    use super::*;

    fn run(seed: u64, metric: f64, set: &[&str]) -> FinishedRun {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        let recipe = Recipe {
            seed,
            ..Recipe::find("grid-diffuser", &set).expect("the overrides are valid")
        };
        let scores = EvalMetrics {
            metric,
            loss: 0.0,
            samples: 1,
            metrics: [(Metric::Accuracy, metric)].into(),
        };
        let result = RunResult {
            seed,
            metric: Metric::Accuracy,
            parameters: 33_073,
            best: BestEpoch { epoch: 1, valid: scores.clone() },
            test: scores,
            targets: vec![],
            epochs: 1,
            seconds: 60.0,
            ensemble: None,
        };
        FinishedRun {
            recipe,
            result,
            history: Vec::new(),
            environment: None,
            test_predictions: None,
        }
    }

    #[test]
    fn table_shows_sample_and_population_std_and_the_paper_result() {
        // 0.9, 0.94, 0.98: mean 0.94, sum of squares 0.0032, divided by two and by three.
        let report = Report::new(&[run(0, 0.90, &[]), run(1, 0.94, &[]), run(2, 0.98, &[])]);
        let markdown = report.to_markdown();
        let expected = "| grid-diffuser | 3 | accuracy | 0.9400 | 0.0400 | 0.0327 | 33073 | 60 \
                        | 0.9755 ± 0.0250 | 43000 |";
        assert!(markdown.contains(expected), "{markdown}");
        let csv = report.to_csv();
        assert!(csv.lines().all(|line| line.split(',').count() == 11), "{csv}");
    }

    #[test]
    fn runs_with_different_settings_are_not_averaged() {
        let report = Report::new(&[run(0, 0.9, &[]), run(1, 0.5, &["train.epochs=1"])]);
        let labels: Vec<&str> = report.rows.iter().map(|row| row.recipe.as_str()).collect();
        assert_eq!(labels, ["grid-diffuser", "grid-diffuser (train.epochs=1)"]);
        assert_eq!(report.rows[0].test.as_ref().expect("a score").stats.std, None);
    }

    #[test]
    fn report_is_written_in_all_formats() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let report = Report::new(&[run(0, 0.9, &[]), run(0, 0.5, &["train.epochs=1"])]);
        let written = report.write(directory.path()).expect("written");
        let names: Vec<&Path> = written
            .iter()
            .map(|path| path.strip_prefix(directory.path()).expect("files are in the directory"))
            .collect();
        let expected = [
            "report.md",
            "report.csv",
            "report.json",
            "report.html",
            "curves.svg",
            "curves/grid-diffuser.svg",
            "curves/grid-diffuser__train.epochs=1_.svg",
        ];
        assert_eq!(names, expected.map(Path::new));
    }
}
