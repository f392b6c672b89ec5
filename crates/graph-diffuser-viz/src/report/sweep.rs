//! Report of a sweep: one row per recipe, selected by validation score, and all configurations.

use std::collections::BTreeSet;

use graph_diffuser::run::FinishedRun;
use graph_diffuser::statistics::{SeedStats, mean};
use graph_diffuser::sweep::{
    Configuration, PlannedRun, RunState, Selection, Sweep, ValidationScores, select,
};
use graph_diffuser::task::Metric;

use super::{
    ConfigurationRow, Curves, FailedRun, Provenance, Report, ReportRow, RunCounts, SweepSummary,
    Tuning,
};

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
        let mut report = Self::default();
        let mut groups = Vec::new();
        let finished = searched.iter().flat_map(|searched| &searched.finished);
        let mut summary = SweepSummary::new(sweep, failed_runs, Provenance::of_runs(finished));
        for (index, planned) in sweep.plan().recipes.iter().enumerate() {
            let of_recipe: Vec<&ConfigurationRuns<'_>> =
                searched.iter().filter(|searched| searched.configuration.recipe == index).collect();
            let shown = report.add_recipe(&planned.recipe.name, &of_recipe, &mut summary);
            groups.push((planned.recipe.name.as_str(), shown));
        }
        report.add_groups(&groups);
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
            if chosen != Some(index) && !searched.finished.is_empty() {
                let settings = &searched.configuration.settings;
                let runs: Vec<&FinishedRun> = searched.finished.iter().collect();
                let metric = metric.unwrap_or(Metric::Accuracy);
                self.other_curves.push(Curves::of(name, settings, metric, &runs));
            }
            let finished = || searched.finished.iter().map(|run| &run.result);
            let compared = |seed: u64| common_seeds.is_empty() || common_seeds.contains(&seed);
            let valid = finished().filter(|result| compared(result.seed));
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
                seconds: mean(finished().map(|result| result.seconds)),
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

#[cfg(test)]
mod tests {
    use std::fs;

    use graph_diffuser::run::Environment;
    use graph_diffuser::sweep::Plan;
    use serde_json::json;
    use tempfile::TempDir;

    use crate::snapshot::assert_text_snapshot;

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
            device: "cpu".into(),
        };
        sweep.create_run(run, &environment).expect("created");
        let scores = |metric: f64| json!({ "metric": metric, "loss": 0.0, "samples": 1, "metrics": { "accuracy": metric } });
        let epoch = |epoch: usize, metric: f64| {
            json!({
                "epoch": epoch, "step": epoch, "lr": 0.1, "train_loss": 1.0,
                "valid": scores(metric), "best": true, "seconds": 30.0,
            })
        };
        let result = json!({
            "seed": run.seed, "metric": "accuracy", "parameters": 33_073,
            "best": { "epoch": 2, "valid": scores(valid) }, "test": scores(test),
            "epochs": 2, "seconds": 60.0,
        });
        let history = format!("{}\n{}\n", epoch(1, valid / 2.0), epoch(2, valid));
        let directory = sweep.run_directory(run);
        fs::write(directory.join("metrics.jsonl"), history).expect("written");
        fs::write(directory.join("result.json"), result.to_string()).expect("written");
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
        assert_eq!(row.test.as_ref().expect("a score").stats.mean, 0.3);
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
        assert_text_snapshot("sweep_report", &report.to_markdown());
        let html = report.to_html();
        assert!(html.contains("error: &lt;loss&gt; is not finite"), "{html}");
        let html = html.replace("href=\"#", "");
        for outside in ["src=", "href=", "url(", "@import"] {
            assert!(!html.contains(outside), "the page refers to an external resource: {outside}");
        }
        assert_eq!(html.matches("<script").count(), 1, "only tables are sorted by a script");
        let csv = report.to_csv();
        assert!(csv.lines().all(|line| line.split(',').count() == 21), "{csv}");
        let configurations = report.configurations_to_csv().expect("the report is of a sweep");
        assert_eq!(configurations.lines().count(), 4, "{configurations}");
    }

    #[test]
    fn sweep_without_finished_runs_has_a_report() {
        let (_directory, sweep) = begin(&[], 0..2);
        let report = Report::from_sweep(&sweep);
        let text = report.to_markdown();
        assert!(
            text.contains(
                "| grid-diffuser | – | – | 0 | Grid Histogram Counting | – | 1 | 0 of 2, 2 missing | – |"
            ),
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
