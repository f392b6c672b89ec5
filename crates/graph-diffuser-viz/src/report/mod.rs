//! Reports of finished runs and sweeps, and model cards.
//!
//! A [`Report`] is plain data that serializes to JSON; Markdown, CSV, HTML and SVG are derived from
//! it. Results come first, the protocol last.

mod sweep_summary;
mod table;
mod curves;
mod evaluation;
mod plots;
mod html;
mod model_card;
mod paired;
mod seeds;
mod sweep;
mod targets;

use std::path::{Path, PathBuf};
use std::slice;

use graph_diffuser_data::AtomicFile;
use serde::Serialize;

use graph_diffuser::recipe::{LoadedDataset, PaperResult, Recipe, distinct_settings};
use graph_diffuser::run::{DataRecord, FinishedRun, Run, RunError, RunResult};
use graph_diffuser::statistics::{SeedStats, mean};
use graph_diffuser::sweep::{SweepError, file_names};
use graph_diffuser::task::Metric;

use crate::canvas::Canvas;

pub use curves::{Curves, SeedCurves};
pub use evaluation::{EvaluationKind, RunEvaluation, TargetEvaluation, WorstCase};
pub use model_card::model_card;
pub use paired::PairedDifference;
pub use sweep_summary::{ConfigurationRow, FailedRun, Provenance, RunCounts, SweepSummary, Tuning};
pub use targets::TargetRow;

/// Writes `report.md` and the model card `README.md` of a finished run, unless they exist.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub fn write_run_report(run: &Run, finished: &FinishedRun) -> Result<(), RunError> {
    let is_missing = |name: &str| !run.directory().join(name).exists();
    if is_missing("report.md") {
        let report = Report::new(slice::from_ref(finished)).to_markdown();
        run.write("report.md", report.as_bytes())?;
    }
    if is_missing("README.md") {
        run.write("README.md", model_card(finished).as_bytes())?;
    }
    Ok(())
}

/// Results of runs, grouped by recipe.
///
/// # Examples
/// ```
/// use graph_diffuser_viz::report::Report;
///
/// let report = Report::new(&[]);
/// assert!(report.to_markdown().starts_with("| recipe | metric | test | n | dataset | runs |"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// One row per recipe, in order of first appearance.
    pub rows: Vec<ReportRow>,
    /// Paired differences to the first row; only between rows with predictions of the same test
    /// graphs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<PairedDifference>,
    /// Evaluation of the first run of each row whose predictions were saved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evaluations: Vec<RunEvaluation>,
    /// Summary of the sweep, if the report is of a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<SweepSummary>,
    /// Datasets of the runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<DataRecord>,
    /// Program versions and platforms of the runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub provenance: Vec<Provenance>,
    /// Learning curves of each row with a finished run.
    #[serde(skip)]
    pub curves: Vec<Curves>,
    /// Learning curves of the configurations of a sweep that were not chosen.
    #[serde(skip)]
    pub other_curves: Vec<Curves>,
}

/// Row of a [`Report`]: all runs of one recipe, or in a sweep those of its chosen configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportRow {
    /// Name of the recipe, followed by the settings in which rows of the same name differ.
    pub recipe: String,
    /// Name of the dataset.
    pub dataset: String,
    /// Names of the runs.
    pub run_names: Vec<String>,
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
        let labels = labels(&groups.iter().map(|(recipe, _)| recipe).collect::<Vec<_>>());
        let mut report = Self::default();
        for (label, (recipe, group)) in labels.iter().zip(&groups) {
            let row = ReportRow::new(label.clone(), recipe, group);
            report.curves.push(Curves::new(&row, group));
            report.rows.push(row);
        }
        let labeled: Vec<(&str, Vec<&FinishedRun>)> = labels
            .iter()
            .zip(&groups)
            .map(|(label, (_, group))| (label.as_str(), group.clone()))
            .collect();
        report.add_groups(&labeled);
        report.provenance = Provenance::of_runs(runs.iter());
        report
    }

    /// Adds comparison, evaluation and datasets of labeled groups of runs.
    fn add_groups(&mut self, groups: &[(&str, Vec<&FinishedRun>)]) {
        self.differences = PairedDifference::to_first(groups);
        let evaluate = |(label, group): &(&str, Vec<&FinishedRun>)| {
            group.iter().find_map(|run| RunEvaluation::new(label, run))
        };
        self.evaluations = groups.iter().filter_map(evaluate).collect();
        let records = groups.iter().flat_map(|(_, group)| group.iter());
        for record in records.filter_map(|run| run.data.as_ref()) {
            if !self.datasets.contains(record) {
                self.datasets.push(record.clone());
            }
        }
    }

    /// Names and draws the graphs of the worst predictions; `load` returns the dataset of a run
    /// directory if it is available.
    pub fn draw_worst_cases(&mut self, mut load: impl FnMut(&Path) -> Option<LoadedDataset>) {
        for evaluation in &mut self.evaluations {
            let loaded = evaluation::needs_graphs(evaluation).and_then(&mut load);
            if let Some(LoadedDataset { dataset, rows, .. }) = loaded {
                evaluation.draw_worst(&dataset, &rows);
            }
        }
    }

    /// Writes the report in all formats, with its figures, and returns the paths of the files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<Vec<PathBuf>, SweepError> {
        let figures = self.figures();
        let mut markdown = self.results_to_markdown();
        let mut section = "";
        for figure in &figures {
            if section != figure.section {
                section = figure.section;
                markdown.push_str(&format!("\n## {section}\n"));
            }
            // Brackets would end the text of an image.
            let label = figure.label.replace(['[', ']'], "");
            markdown.push_str(&format!("\n![{label}]({})\n", figure.file));
        }
        markdown.push_str(&self.protocol_to_markdown());
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
        files.extend(figures.into_iter().map(|figure| (figure.file, figure.canvas.to_svg())));
        let mut written = Vec::new();
        for (name, text) in files {
            let path = directory.join(name);
            AtomicFile::replace(&path, text.as_bytes())?;
            written.push(path);
        }
        Ok(written)
    }

    /// Returns the figures that are written as files.
    fn figures(&self) -> Vec<ReportFigure> {
        let mut figures: Vec<ReportFigure> = Vec::new();
        for evaluation in &self.evaluations {
            for target in evaluation.targets.iter().take(evaluation::SHOWN_TARGETS) {
                figures.extend(target.plots().into_iter().map(|plot| ReportFigure {
                    section: "Evaluation",
                    label: format!("{}, {}: {}", evaluation.recipe, target.target, plot.caption),
                    file: format!("{}-{}-{}", evaluation.recipe, target.target, plot.name),
                    canvas: plot.canvas,
                }));
            }
        }
        let names = file_names(figures.iter().map(|figure| figure.file.as_str()));
        for (figure, name) in figures.iter_mut().zip(names) {
            figure.file = format!("plots/{name}.svg");
        }
        let mut add = |label: String, file: String, canvas: Canvas| {
            figures.push(ReportFigure { section: "Learning curves", label, file, canvas });
        };
        if let Some(all) = self.combined_curves() {
            add("All recipes: validation curves".to_owned(), "curves.svg".to_owned(), all);
        }
        let names = file_names(self.curves.iter().map(|curves| curves.label.as_str()));
        for (curves, name) in self.curves.iter().zip(names) {
            let label = &curves.label;
            if let Some(loss) = curves.draw_loss() {
                let label = format!("{label}: training and validation loss");
                add(label, format!("curves/{name}-loss.svg"), loss);
            }
            if !curves.is_loss() {
                let label = format!("{label}: validation curves");
                add(label, format!("curves/{name}.svg"), curves.draw());
            }
        }
        figures
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

/// Figure that is written as a file.
struct ReportFigure {
    section: &'static str,
    label: String,
    file: String,
    canvas: Canvas,
}

/// Returns the label of each recipe: its name, followed by the settings in which recipes of the
/// same name differ.
fn labels(recipes: &[&Recipe]) -> Vec<String> {
    let label = |recipe: &Recipe| {
        let same_name: Vec<&Recipe> =
            recipes.iter().copied().filter(|other| other.name == recipe.name).collect();
        let position = same_name.iter().position(|other| *other == recipe);
        let settings = &distinct_settings(&same_name)[position.expect("one of the recipes")];
        if settings.is_empty() {
            recipe.name.clone()
        } else {
            format!("{} ({})", recipe.name, settings.join(", "))
        }
    };
    recipes.iter().map(|recipe| label(recipe)).collect()
}

impl ReportRow {
    fn new(label: String, recipe: &Recipe, group: &[&FinishedRun]) -> Self {
        let results = || group.iter().map(|run| &run.result);
        let first: Option<&RunResult> = results().next();
        let metric = first.map(|result| result.metric);
        Self {
            recipe: label,
            dataset: recipe.data.name(),
            run_names: group.iter().map(|run| run.name()).collect(),
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
            blend: None,
        };
        FinishedRun {
            directory: format!("runs/grid-s{seed}").into(),
            recipe,
            schema: None,
            data: None,
            result,
            history: Vec::new(),
            member_histories: vec![],
            has_fingerprints: false,
            environment: None,
            test_predictions: None,
        }
    }

    #[test]
    fn table_shows_mean_std_and_the_paper_result() {
        // 0.9, 0.94, 0.98: mean 0.94, sum of squares 0.0032, divided by two.
        let report = Report::new(&[run(0, 0.90, &[]), run(1, 0.94, &[]), run(2, 0.98, &[])]);
        let markdown = report.to_markdown();
        let expected = "| grid-diffuser | accuracy | 0.9400 ± 0.0400 | 3 | Grid Histogram Counting \
                        | grid-s0, grid-s1, grid-s2 | 33073 | 60 | 0.9755 ± 0.0250 | 43000 |";
        assert!(markdown.contains(expected), "{markdown}");
        let csv = report.to_csv();
        assert!(csv.lines().all(|line| line.split(',').count() == 13), "{csv}");
    }

    #[test]
    fn runs_with_different_settings_are_not_averaged() {
        let report = Report::new(&[run(0, 0.9, &[]), run(1, 0.5, &["train.epochs=1"])]);
        let labels: Vec<&str> = report.rows.iter().map(|row| row.recipe.as_str()).collect();
        let expected = ["train.epochs=20", "train.epochs=1"];
        assert_eq!(labels, expected.map(|setting| format!("grid-diffuser ({setting})")));
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
            "curves/grid-diffuser__train.epochs=20_.svg",
            "curves/grid-diffuser__train.epochs=1_.svg",
        ];
        assert_eq!(names, expected.map(Path::new));
    }

    #[test]
    fn rows_that_differ_by_a_missing_key_are_told_apart() {
        let report = Report::new(&[run(0, 0.9, &["train.patience=3"]), run(0, 0.5, &[])]);
        let labels: Vec<&str> = report.rows.iter().map(|row| row.recipe.as_str()).collect();
        let expected = ["train.patience=3", "train.patience unset"];
        assert_eq!(labels, expected.map(|setting| format!("grid-diffuser ({setting})")));
    }

    #[test]
    fn paper_columns_appear_only_with_a_result_of_the_paper() {
        let mut other = run(0, 0.9, &[]);
        other.recipe.paper = None;
        let report = Report::new(&[other]);
        assert!(!report.to_markdown().contains("paper"), "{}", report.to_markdown());
        assert!(!report.to_html().contains("paper"), "{}", report.to_html());
    }
}
