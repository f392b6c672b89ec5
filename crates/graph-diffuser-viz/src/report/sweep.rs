//! Report of a sweep: one row per recipe, selected by validation score, and all configurations.

use std::collections::BTreeSet;

use serde::Serialize;

use graph_diffuser::run::{Environment, FinishedRun};
use graph_diffuser::sweep::{
    Axis, Configuration, PlannedRun, RunState, Selection, Sweep, ValidationScores, select,
};
use graph_diffuser::task::Metric;

use super::{Curves, PairedDifference, Report, ReportRow, SeedStats};

/// Model selection of a recipe.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tuning {
    /// Settings of the chosen configuration; absent until a run is finished.
    pub chosen: Option<Vec<String>>,
    /// Number of configurations of the recipe.
    pub configurations: usize,
    /// Runs of all configurations.
    pub runs: RunCounts,
    /// Seeds over which configurations were compared; empty if they have no seed in common.
    pub common_seeds: BTreeSet<u64>,
}

/// Numbers of runs by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RunCounts {
    /// Planned runs.
    pub planned: usize,
    /// Finished runs.
    pub finished: usize,
    /// Runs that failed or cannot be loaded.
    pub failed: usize,
    /// Runs that are not started or not finished.
    pub missing: usize,
}

/// Summary of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepSummary {
    /// Name of the sweep directory.
    pub name: String,
    /// Command that starts the sweep.
    pub command: String,
    /// Description of search, model selection and evaluation.
    pub protocol: Vec<String>,
    /// Caveats: deviations from the protocol, such as unfinished runs.
    pub notes: Vec<String>,
    /// Axes of the grid search.
    pub grid: Vec<Axis>,
    /// Seeds of each configuration.
    pub seeds: Vec<u64>,
    /// Settings applied to all recipes.
    pub set: Vec<String>,
    /// All configurations, grouped by recipe.
    pub configurations: Vec<ConfigurationRow>,
    /// Runs that failed or cannot be loaded.
    pub failed_runs: Vec<FailedRun>,
    /// Program versions and platforms of the runs.
    pub provenance: Vec<Provenance>,
}

/// Results of one configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConfigurationRow {
    /// Name of the recipe.
    pub recipe: String,
    /// Settings of the configuration.
    pub settings: Vec<String>,
    /// True if the configuration was chosen for its recipe.
    pub chosen: bool,
    /// Runs of the configuration.
    pub runs: RunCounts,
    /// Validation scores at the best epoch, over the compared seeds.
    pub valid: Option<SeedStats>,
    /// Test scores at the best epoch, over all finished seeds.
    pub test: Option<SeedStats>,
    /// Mean wall-clock time of a run in seconds.
    pub seconds: Option<f64>,
}

/// Run without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedRun {
    /// Name of the run.
    pub run: String,
    /// Error message or tail of the log.
    pub reason: String,
}

/// Program version and platform of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Provenance {
    /// Program version.
    pub version: String,
    /// Commit that the program was built from, if known.
    pub commit: Option<String>,
    /// Operating system and CPU architecture.
    pub platform: String,
}

/// Configuration with its finished runs.
struct ConfigurationRuns<'a> {
    configuration: &'a Configuration,
    finished: Vec<FinishedRun>,
    counts: RunCounts,
}

impl Report {
    /// Reports the current state of a sweep.
    pub fn from_sweep(sweep: &Sweep) -> Self {
        let configurations = sweep.configurations().iter();
        let mut searched: Vec<ConfigurationRuns<'_>> = configurations
            .map(|configuration| ConfigurationRuns {
                configuration,
                finished: Vec::new(),
                counts: RunCounts::default(),
            })
            .collect();
        let mut failed_runs = Vec::new();
        for run in sweep.runs() {
            let state = sweep.state(&run);
            failed_runs.extend(failed_run(&run, &state));
            searched[run.configuration].add(state);
        }
        let mut report =
            Self { rows: Vec::new(), differences: Vec::new(), sweep: None, curves: Vec::new() };
        let mut groups = Vec::new();
        let mut summary = SweepSummary::new(sweep, failed_runs, provenance(&searched));
        for (index, planned) in sweep.plan().recipes.iter().enumerate() {
            let of_recipe: Vec<&ConfigurationRuns<'_>> =
                searched.iter().filter(|searched| searched.configuration.recipe == index).collect();
            let shown = report.add_recipe(&planned.recipe.name, &of_recipe, &mut summary);
            groups.push((planned.recipe.name.as_str(), shown));
        }
        report.differences = PairedDifference::to_first(&groups);
        report.sweep = Some(summary);
        report
    }

    /// Adds the row of one recipe and returns the runs of its chosen configuration.
    fn add_recipe<'a>(
        &mut self,
        name: &str,
        searched: &[&'a ConfigurationRuns<'_>],
        summary: &mut SweepSummary,
    ) -> Vec<&'a FinishedRun> {
        let (selection, metric) = choose(searched);
        let Selection { chosen, common_seeds } = selection;
        let counts =
            searched.iter().fold(RunCounts::default(), |sum, searched| sum.plus(searched.counts));
        let shown = searched[chosen.unwrap_or(0)];
        let group: Vec<&FinishedRun> = shown.finished.iter().collect();
        let mut row = ReportRow::new(name.to_owned(), &shown.configuration.resolved, &group);
        row.tuning = Some(Tuning {
            chosen: chosen.map(|_| shown.configuration.settings.clone()),
            configurations: searched.len(),
            runs: counts,
            common_seeds: common_seeds.clone(),
        });
        if chosen.is_some() {
            self.curves.push(Curves::new(&row, &group));
        }
        self.rows.push(row);
        summary.notes.extend(notes(name, searched, &common_seeds, metric, &summary.seeds));
        for (index, searched) in searched.iter().enumerate() {
            let finished = || searched.finished.iter().map(|run| &run.result);
            let compared = |seed: u64| common_seeds.is_empty() || common_seeds.contains(&seed);
            let valid = finished().filter(|result| compared(result.seed));
            let count = searched.finished.len();
            summary.configurations.push(ConfigurationRow {
                recipe: name.to_owned(),
                settings: searched.configuration.settings.clone(),
                chosen: chosen == Some(index),
                runs: searched.counts,
                valid: SeedStats::from_scores(
                    valid.map(|result| (result.seed, result.best.valid.metric)),
                ),
                test: SeedStats::from_scores(
                    finished().map(|result| (result.seed, result.test.metric)),
                ),
                seconds: (count > 0)
                    .then(|| finished().map(|result| result.seconds).sum::<f64>() / count as f64),
            });
        }
        group
    }
}

/// Selects the best configuration by the validation metric of the first finished run.
fn choose(searched: &[&ConfigurationRuns<'_>]) -> (Selection, Option<Metric>) {
    let metric =
        searched.iter().find_map(|searched| Some(searched.finished.first()?.result.metric));
    let scores = |searched: &&ConfigurationRuns<'_>| -> ValidationScores {
        let results = searched.finished.iter().map(|run| &run.result);
        let comparable = results.filter(|result| Some(result.metric) == metric);
        comparable.map(|result| (result.seed, result.best.valid.metric)).collect()
    };
    let scores: Vec<ValidationScores> = searched.iter().map(scores).collect();
    (select(metric.unwrap_or(Metric::Accuracy), &scores), metric)
}

/// Returns the deviations from the protocol of a complete sweep.
fn notes(
    name: &str,
    searched: &[&ConfigurationRuns<'_>],
    common_seeds: &BTreeSet<u64>,
    metric: Option<Metric>,
    seeds: &[u64],
) -> Vec<String> {
    let Some(metric) = metric else { return vec![format!("`{name}`: no finished runs.")] };
    let mut notes = Vec::new();
    let without = searched.iter().filter(|searched| searched.finished.is_empty()).count();
    if without > 0 {
        notes.push(format!(
            "`{name}`: {without} of {} configurations have no finished runs and were not considered.",
            searched.len()
        ));
    }
    let other_metric = |run: &FinishedRun| run.result.metric != metric;
    if searched.iter().any(|searched| searched.finished.iter().any(other_metric)) {
        notes.push(format!(
            "`{name}`: runs with a metric other than {} were not considered.",
            metric.name()
        ));
    }
    if searched.len() - without > 1 {
        if common_seeds.is_empty() {
            notes.push(format!(
                "`{name}`: no seed is finished in all configurations; each mean is over its own seeds."
            ));
        } else if common_seeds.len() < seeds.len() {
            let compared: Vec<String> = common_seeds.iter().map(u64::to_string).collect();
            let word = if compared.len() == 1 { "seed" } else { "seeds" };
            notes.push(format!(
                "`{name}`: configurations were compared only over {word} {}.",
                compared.join(", ")
            ));
        }
    }
    notes
}

fn failed_run(run: &PlannedRun, state: &RunState) -> Option<FailedRun> {
    let reason = match state {
        RunState::Failed { reason }
        | RunState::Unusable { reason }
        | RunState::Started { problem: Some(reason), .. } => reason,
        RunState::Missing | RunState::Started { .. } | RunState::Finished(_) => return None,
    };
    Some(FailedRun { run: run.name.clone(), reason: reason.trim().to_owned() })
}

fn provenance(searched: &[ConfigurationRuns<'_>]) -> Vec<Provenance> {
    let runs = searched.iter().flat_map(|searched| &searched.finished);
    let mut provenance: Vec<Provenance> = Vec::new();
    for Environment { version, commit, platform, .. } in
        runs.filter_map(|run| run.environment.as_ref())
    {
        let entry = Provenance {
            version: version.clone(),
            commit: commit.clone(),
            platform: platform.clone(),
        };
        if !provenance.contains(&entry) {
            provenance.push(entry);
        }
    }
    provenance
}

impl ConfigurationRuns<'_> {
    fn add(&mut self, state: RunState) {
        self.counts.planned += 1;
        match state {
            RunState::Finished(run) => {
                self.counts.finished += 1;
                self.finished.push(*run);
            }
            RunState::Failed { .. } | RunState::Unusable { .. } => self.counts.failed += 1,
            RunState::Missing | RunState::Started { .. } => self.counts.missing += 1,
        }
    }
}

impl RunCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            planned: self.planned + other.planned,
            finished: self.finished + other.finished,
            failed: self.failed + other.failed,
            missing: self.missing + other.missing,
        }
    }

    /// Formats the counts for a table cell.
    pub(crate) fn summary(self) -> String {
        let mut text = format!("{} of {}", self.finished, self.planned);
        for (count, state) in [(self.failed, "failed"), (self.missing, "missing")] {
            if count > 0 {
                text.push_str(&format!(", {count} {state}"));
            }
        }
        text
    }
}

impl SweepSummary {
    fn new(sweep: &Sweep, failed_runs: Vec<FailedRun>, provenance: Vec<Provenance>) -> Self {
        let plan = sweep.plan();
        let directory = sweep.directory().canonicalize();
        let directory = directory.as_deref().unwrap_or(sweep.directory());
        let name = directory
            .file_name()
            .map_or_else(|| "sweep".into(), |name| name.to_string_lossy().into_owned());
        Self {
            name,
            command: plan.command(),
            protocol: protocol(sweep),
            notes: Vec::new(),
            grid: plan.grid.clone(),
            seeds: plan.seeds.0.clone().collect(),
            set: plan.set.clone(),
            configurations: Vec::new(),
            failed_runs,
            provenance,
        }
    }
}

/// Describes search, model selection and evaluation of a sweep.
fn protocol(sweep: &Sweep) -> Vec<String> {
    let plan = sweep.plan();
    let range = &plan.seeds.0;
    let seeds = match range.end - range.start {
        1 => format!("seed {}", range.start),
        count => format!("{count} seeds ({} to {})", range.start, range.end - 1),
    };
    let mut sentences = Vec::new();
    if plan.grid.is_empty() {
        sentences.push(format!("No hyperparameter search; each recipe was trained with {seeds}."));
    } else {
        let axes = plan
            .grid
            .iter()
            .map(|axis| format!("`{}` over `{}`", axis.path, axis.values.join("`, `")));
        let axes = axes.collect::<Vec<_>>().join(" and ");
        let count = plan.grid.iter().map(|axis| axis.values.len()).product::<usize>();
        let configurations = if count == 1 {
            "one configuration".to_owned()
        } else {
            format!("{count} configurations")
        };
        sentences.push(format!(
            "Grid search, identical for all recipes: {axes}; {configurations} per recipe, each trained with {seeds}."
        ));
    }
    if !plan.set.is_empty() {
        sentences.push(format!("Settings of all recipes: `{}`.", plan.set.join("`, `")));
    }
    if !plan.grid.is_empty() {
        sentences.push(
            "Model selection uses validation scores only: for each recipe the configuration with the best mean over \
             the seeds that all its configurations have finished, each run at its best validation epoch."
                .to_owned(),
        );
    }
    sentences.push(
        "Test scores are taken at the best validation epoch; mean, sample standard deviation (std, n - 1) and \
         population standard deviation (population std, n) are over all finished seeds of the configuration."
            .to_owned(),
    );
    sentences
}

#[cfg(test)]
mod tests {
    use std::fs;

    use graph_diffuser::run::RunResult;
    use graph_diffuser::sweep::Plan;
    use graph_diffuser::task::EvalMetrics;
    use graph_diffuser::train::{BestEpoch, EpochRecord};
    use tempfile::TempDir;

    use super::*;

    fn begin(grid: &[&str], seeds: std::ops::Range<u64>) -> (TempDir, Sweep) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let grid: Vec<String> = grid.iter().map(|&axis| axis.to_owned()).collect();
        let plan = Plan::new(&["grid-diffuser".to_owned()], &[], &grid, seeds).expect("valid plan");
        let sweep = Sweep::begin(&directory.path().join("table"), plan);
        (directory, sweep.expect("created"))
    }

    /// Writes the files of a run that finished with these scores.
    fn finish(sweep: &Sweep, run: &PlannedRun, valid: f64, test: f64) {
        let environment = Environment {
            version: "1.2.3".to_owned(),
            commit: Some("abc".to_owned()),
            platform: "linux-x86_64".to_owned(),
            threads: 1,
            command: Vec::new(),
        };
        sweep.create_run(run, &environment).expect("created");
        let scores = |metric| EvalMetrics {
            metric,
            loss: 0.0,
            samples: 1,
            metrics: [(Metric::Accuracy, metric)].into(),
        };
        let result = RunResult {
            seed: run.seed,
            metric: Metric::Accuracy,
            parameters: 33_073,
            best: BestEpoch { epoch: 2, valid: scores(valid) },
            test: scores(test),
            epochs: 2,
            seconds: 60.0,
        };
        let epoch = |epoch: usize, metric: f64| EpochRecord {
            epoch,
            step: epoch as u64,
            lr: 0.1,
            train_loss: 1.0,
            valid: Some(scores(metric)),
            best: true,
            seconds: 30.0,
        };
        let lines = [epoch(1, valid / 2.0), epoch(2, valid)]
            .map(|record| serde_json::to_string(&record).expect("plain data"));
        let directory = sweep.run_directory(run);
        fs::write(directory.join("metrics.jsonl"), lines.join("\n")).expect("written");
        fs::write(directory.join("result.json"), serde_json::to_vec(&result).expect("plain data"))
            .expect("written");
    }

    fn assert_text(name: &str, text: &str) {
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name, text));
    }

    #[test]
    fn selection_uses_validation_scores_even_if_test_scores_disagree() {
        let (_directory, sweep) = begin(&["optim.lr=3e-4,8e-4"], 0..2);
        for run in sweep.runs() {
            // The first configuration has better validation scores, the second better test scores.
            let (valid, test) = [(0.8, 0.3), (0.7, 0.9)][run.configuration];
            finish(&sweep, &run, valid + 0.01 * run.seed as f64, test);
        }
        let report = Report::from_sweep(&sweep);
        let row = &report.rows[0];
        let tuning = row.tuning.as_ref().expect("the report is of a sweep");
        assert_eq!(tuning.chosen, Some(vec!["optim.lr=3e-4".to_owned()]));
        assert_eq!(row.test.as_ref().expect("a score").mean, 0.3);
        assert_eq!(tuning.runs, RunCounts { planned: 4, finished: 4, failed: 0, missing: 0 });
        let summary = report.sweep.as_ref().expect("the report is of a sweep");
        assert_eq!(summary.notes, [""; 0]);
        let text = report.to_markdown();
        assert!(
            text.contains("Grid search, identical for all recipes: `optim.lr` over `3e-4`, `8e-4`"),
            "{text}"
        );
        assert!(text.contains("Model selection uses validation scores only"), "{text}");
    }

    #[test]
    fn missing_and_failed_runs_are_reported() {
        let (_directory, sweep) = begin(&["optim.lr=3e-4,4e-4,8e-4"], 0..2);
        let runs = sweep.runs();
        finish(&sweep, &runs[0], 0.5, 0.4);
        finish(&sweep, &runs[1], 0.6, 0.5);
        finish(&sweep, &runs[3], 0.9, 0.9);
        sweep.record_failure(&runs[2], "error: <loss> is not finite").expect("kept");
        let report = Report::from_sweep(&sweep);
        // The second configuration is better on seed 0, the only seed that both have finished.
        let tuning = report.rows[0].tuning.as_ref().expect("the report is of a sweep");
        assert_eq!(tuning.chosen, Some(vec!["optim.lr=4e-4".to_owned()]));
        assert_eq!(tuning.common_seeds, BTreeSet::from([0]));
        assert_eq!(tuning.runs, RunCounts { planned: 6, finished: 3, failed: 1, missing: 2 });
        assert_text("sweep_report", &report.to_markdown());
        let html = report.to_html();
        assert!(html.contains("error: &lt;loss&gt; is not finite"), "{html}");
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!html.contains(outside), "the page refers to an external resource: {outside}");
        }
        let csv = report.to_csv();
        assert!(csv.lines().all(|line| line.split(',').count() == 19), "{csv}");
        let configurations = report.configurations_to_csv().expect("the report is of a sweep");
        assert_eq!(configurations.lines().count(), 4, "{configurations}");
    }

    #[test]
    fn sweep_without_finished_runs_has_a_report() {
        let (_directory, sweep) = begin(&[], 0..2);
        let report = Report::from_sweep(&sweep);
        let text = report.to_markdown();
        assert!(
            text.contains("| grid-diffuser | – | 1 | 0 of 2, 2 missing | 0 | – | – |"),
            "{text}"
        );
        assert!(
            text.contains(
                "No hyperparameter search; each recipe was trained with 2 seeds (0 to 1)."
            ),
            "{text}"
        );
        assert!(text.contains("`grid-diffuser`: no finished runs."), "{text}");
        report.write(sweep.directory()).expect("written");
        assert!(sweep.directory().join("report.html").exists());
    }
}
