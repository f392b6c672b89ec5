//! What a sweep came to: one row a recipe, chosen by validation, and every configuration.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::run::{Environment, FinishedRun};
use crate::sweep::{
    Axis, Configuration, PlannedRun, RunState, Selection, Sweep, ValidationScores, select,
};
use crate::task::Metric;

use super::{Curves, PairedDifference, Report, ReportRow, SeedStats};

/// How a row's configuration was chosen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tuning {
    /// The chosen combination; absent while no run is finished.
    pub chosen: Option<Vec<String>>,
    /// Configurations of this recipe.
    pub configurations: usize,
    /// Runs of all of them.
    pub runs: RunCounts,
    /// Seeds that the configurations were compared over; empty where they have none in common.
    pub compared_over: BTreeSet<u64>,
}

/// How many runs are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RunCounts {
    /// In the plan.
    pub planned: usize,
    /// Done.
    pub finished: usize,
    /// Ended with an error, or cannot be used.
    pub failed: usize,
    /// Not begun, or begun and not done.
    pub missing: usize,
}

/// Where rows of a sweep come from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepSummary {
    /// Name of its directory.
    pub name: String,
    /// The command that starts it.
    pub command: String,
    /// How configurations were tuned, chosen and scored, in sentences.
    pub protocol: Vec<String>,
    /// What a reader must know beside that.
    pub notes: Vec<String>,
    /// What was searched.
    pub over: Vec<Axis>,
    /// Seeds of every configuration.
    pub seeds: Vec<u64>,
    /// What was set in every recipe.
    pub set: Vec<String>,
    /// Every configuration, recipe after recipe.
    pub configurations: Vec<ConfigurationRow>,
    /// Runs that failed or cannot be used.
    pub failed_runs: Vec<FailedRun>,
    /// What made the runs.
    pub provenance: Vec<Provenance>,
}

/// One configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConfigurationRow {
    /// Its recipe.
    pub recipe: String,
    /// Its combination.
    pub settings: Vec<String>,
    /// Whether it stands for its recipe.
    pub chosen: bool,
    /// Its runs.
    pub runs: RunCounts,
    /// Validation at the best epoch, over the seeds that were compared.
    pub valid: Option<SeedStats>,
    /// Test at that epoch, over all finished seeds.
    pub test: Option<SeedStats>,
    /// Mean wall time of a run.
    pub seconds: Option<f64>,
}

/// A run that gave no score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedRun {
    /// Its name.
    pub run: String,
    /// What is known of it.
    pub reason: String,
}

/// A program and a machine that made runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Provenance {
    /// Version of the program.
    pub version: String,
    /// The commit it was built from, where that is known.
    pub commit: Option<String>,
    /// Operating system and processor family.
    pub platform: String,
}

/// A configuration and what its runs came to.
struct Searched<'a> {
    configuration: &'a Configuration,
    finished: Vec<FinishedRun>,
    counts: RunCounts,
}

impl Report {
    /// What a sweep came to so far.
    pub fn of_sweep(sweep: &Sweep) -> Self {
        let configurations = sweep.configurations().iter();
        let mut searched: Vec<Searched<'_>> = configurations
            .map(|configuration| Searched {
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
        for (place, planned) in sweep.plan().recipes.iter().enumerate() {
            let of_recipe: Vec<&Searched<'_>> =
                searched.iter().filter(|searched| searched.configuration.recipe == place).collect();
            let shown = report.add_recipe(&planned.recipe.name, &of_recipe, &mut summary);
            groups.push((planned.recipe.name.as_str(), shown));
        }
        report.differences = PairedDifference::to_first(&groups);
        report.sweep = Some(summary);
        report
    }

    /// Adds the row of one recipe and returns the runs that it shows.
    fn add_recipe<'a>(
        &mut self,
        name: &str,
        searched: &[&'a Searched<'_>],
        summary: &mut SweepSummary,
    ) -> Vec<&'a FinishedRun> {
        let (selection, metric) = choose(searched);
        let Selection { chosen, compared_over } = selection;
        let counts =
            searched.iter().fold(RunCounts::default(), |sum, searched| sum.plus(searched.counts));
        let shown = searched[chosen.unwrap_or(0)];
        let group: Vec<&FinishedRun> = shown.finished.iter().collect();
        let mut row = ReportRow::new(name.to_owned(), &shown.configuration.resolved, &group);
        row.tuning = Some(Tuning {
            chosen: chosen.map(|_| shown.configuration.settings.clone()),
            configurations: searched.len(),
            runs: counts,
            compared_over: compared_over.clone(),
        });
        if chosen.is_some() {
            self.curves.push(Curves::new(&row, &group));
        }
        self.rows.push(row);
        summary.notes.extend(notes(name, searched, &compared_over, metric, &summary.seeds));
        for (place, searched) in searched.iter().enumerate() {
            let finished = || searched.finished.iter().map(|run| &run.result);
            let compared = |seed: u64| compared_over.is_empty() || compared_over.contains(&seed);
            let valid = finished().filter(|result| compared(result.seed));
            let count = searched.finished.len();
            summary.configurations.push(ConfigurationRow {
                recipe: name.to_owned(),
                settings: searched.configuration.settings.clone(),
                chosen: chosen == Some(place),
                runs: searched.counts,
                valid: SeedStats::of(valid.map(|result| (result.seed, result.best.valid.metric))),
                test: SeedStats::of(finished().map(|result| (result.seed, result.test.metric))),
                seconds: (count > 0)
                    .then(|| finished().map(|result| result.seconds).sum::<f64>() / count as f64),
            });
        }
        group
    }
}

/// The best configuration, by validation scores of the metric that the first finished run has.
fn choose(searched: &[&Searched<'_>]) -> (Selection, Option<Metric>) {
    let metric =
        searched.iter().find_map(|searched| Some(searched.finished.first()?.result.metric));
    let scores = |searched: &&Searched<'_>| -> ValidationScores {
        let results = searched.finished.iter().map(|run| &run.result);
        let comparable = results.filter(|result| Some(result.metric) == metric);
        comparable.map(|result| (result.seed, result.best.valid.metric)).collect()
    };
    let scores: Vec<ValidationScores> = searched.iter().map(scores).collect();
    (select(metric.unwrap_or(Metric::Accuracy), &scores), metric)
}

/// Where a comparison was not what the protocol says of a whole sweep.
fn notes(
    name: &str,
    searched: &[&Searched<'_>],
    compared_over: &BTreeSet<u64>,
    metric: Option<Metric>,
    seeds: &[u64],
) -> Vec<String> {
    let Some(metric) = metric else { return vec![format!("`{name}`: no run is finished.")] };
    let mut notes = Vec::new();
    let without = searched.iter().filter(|searched| searched.finished.is_empty()).count();
    if without > 0 {
        notes.push(format!(
            "`{name}`: {without} of {} configurations took no part in the choice: none of their runs is finished.",
            searched.len()
        ));
    }
    let other_metric = |run: &FinishedRun| run.result.metric != metric;
    if searched.iter().any(|searched| searched.finished.iter().any(other_metric)) {
        notes.push(format!(
            "`{name}`: runs that do not measure {} took no part in the choice.",
            metric.name()
        ));
    }
    if searched.len() - without > 1 {
        if compared_over.is_empty() {
            notes.push(format!(
                "`{name}`: no seed is finished in all configurations; each was judged by the seeds it has."
            ));
        } else if compared_over.len() < seeds.len() {
            let compared: Vec<String> = compared_over.iter().map(u64::to_string).collect();
            let word = if compared.len() == 1 { "seed" } else { "seeds" };
            notes.push(format!(
                "`{name}`: configurations were compared over {word} {} alone.",
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
        | RunState::Begun { fault: Some(reason), .. } => reason,
        RunState::Missing | RunState::Begun { .. } | RunState::Finished(_) => return None,
    };
    Some(FailedRun { run: run.name.clone(), reason: reason.trim().to_owned() })
}

fn provenance(searched: &[Searched<'_>]) -> Vec<Provenance> {
    let runs = searched.iter().flat_map(|searched| &searched.finished);
    let mut provenance: Vec<Provenance> = Vec::new();
    for Environment { version, commit, platform, .. } in
        runs.filter_map(|run| run.environment.as_ref())
    {
        let maker = Provenance {
            version: version.clone(),
            commit: commit.clone(),
            platform: platform.clone(),
        };
        if !provenance.contains(&maker) {
            provenance.push(maker);
        }
    }
    provenance
}

impl Searched<'_> {
    fn add(&mut self, state: RunState) {
        self.counts.planned += 1;
        match state {
            RunState::Finished(run) => {
                self.counts.finished += 1;
                self.finished.push(*run);
            }
            RunState::Failed { .. } | RunState::Unusable { .. } => self.counts.failed += 1,
            RunState::Missing | RunState::Begun { .. } => self.counts.missing += 1,
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

    /// For a cell of a table.
    pub(crate) fn in_words(self) -> String {
        let mut text = format!("{} of {}", self.finished, self.planned);
        for (count, what) in [(self.failed, "failed"), (self.missing, "missing")] {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
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
            over: plan.over.clone(),
            seeds: plan.seeds.0.clone().collect(),
            set: plan.set.clone(),
            configurations: Vec::new(),
            failed_runs,
            provenance,
        }
    }
}

/// What was done, in sentences that hold for every recipe of the sweep.
fn protocol(sweep: &Sweep) -> Vec<String> {
    let plan = sweep.plan();
    let range = &plan.seeds.0;
    let seeds = match range.end - range.start {
        1 => format!("seed {}", range.start),
        count => format!("{count} seeds ({} to {})", range.start, range.end - 1),
    };
    let settings = "Every recipe, baselines included, has its own settings, the paper's as far as it gives them where the recipe is one of its rows";
    let mut sentences = Vec::new();
    if plan.over.is_empty() {
        sentences.push(format!("{settings}. Nothing was searched; each recipe ran with {seeds}."));
    } else {
        let axes = plan
            .over
            .iter()
            .map(|axis| format!("`{}` over `{}`", axis.path, axis.values.join("`, `")));
        let axes = axes.collect::<Vec<_>>().join(" and ");
        let count = plan.over.iter().map(|axis| axis.values.len()).product::<usize>();
        let configurations = if count == 1 {
            "one configuration".to_owned()
        } else {
            format!("{count} configurations")
        };
        sentences.push(format!(
            "{settings}, and every recipe got the same search: {axes}, that is {configurations} a recipe, each with {seeds}."
        ));
    }
    if !plan.set.is_empty() {
        sentences.push(format!("Set in every recipe: `{}`.", plan.set.join("`, `")));
    }
    if !plan.over.is_empty() {
        sentences.push(
            "For each recipe the configuration with the best mean validation score was chosen, each run judged at its best \
             validation epoch, over the seeds that all configurations of the recipe have finished. Test scores had no part in the choice."
                .to_owned(),
        );
    }
    sentences.push(
        "The score of a run is its test score at its best validation epoch; mean, sample deviation (n - 1) and population \
         deviation (n) are over all finished seeds of the configuration."
            .to_owned(),
    );
    sentences
}

#[cfg(test)]
mod tests {
    use crate::sweep::tests::{begin, finish};

    use super::*;

    fn assert_text(name: &str, text: &str) {
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name, text));
    }

    #[test]
    fn the_choice_is_by_validation_where_test_would_choose_otherwise() {
        let (_directory, sweep) = begin(&["optim.lr=3e-4,8e-4"], 0..2);
        for run in sweep.runs() {
            // The first is better on validation, the second by far on test.
            let (valid, test) = [(0.8, 0.3), (0.7, 0.9)][run.configuration];
            finish(&sweep, &run, valid + 0.01 * run.seed as f64, test);
        }
        let report = Report::of_sweep(&sweep);
        let row = &report.rows[0];
        let tuning = row.tuning.as_ref().expect("of a sweep");
        assert_eq!(tuning.chosen, Some(vec!["optim.lr=3e-4".to_owned()]));
        assert_eq!(row.test.as_ref().expect("a score").mean, 0.3);
        assert_eq!(tuning.runs, RunCounts { planned: 4, finished: 4, failed: 0, missing: 0 });
        let summary = report.sweep.as_ref().expect("of a sweep");
        assert_eq!(summary.notes, [""; 0]);
        let text = report.to_markdown();
        assert!(
            text.contains("every recipe got the same search: `optim.lr` over `3e-4`, `8e-4`"),
            "{text}"
        );
        assert!(text.contains("Test scores had no part in the choice."), "{text}");
    }

    #[test]
    fn runs_that_are_missing_or_failed_are_counted_and_named() {
        let (_directory, sweep) = begin(&["optim.lr=3e-4,4e-4,8e-4"], 0..2);
        let runs = sweep.runs();
        finish(&sweep, &runs[0], 0.5, 0.4);
        finish(&sweep, &runs[1], 0.6, 0.5);
        finish(&sweep, &runs[3], 0.9, 0.9);
        sweep.keep_failure(&runs[2], "error: <loss> is not finite").expect("kept");
        let report = Report::of_sweep(&sweep);
        // Over seed 0, which both have finished, the second is ahead; seed 1 of the first does not count.
        let tuning = report.rows[0].tuning.as_ref().expect("of a sweep");
        assert_eq!(tuning.chosen, Some(vec!["optim.lr=4e-4".to_owned()]));
        assert_eq!(tuning.compared_over, BTreeSet::from([0]));
        assert_eq!(tuning.runs, RunCounts { planned: 6, finished: 3, failed: 1, missing: 2 });
        assert_text("sweep_report", &report.to_markdown());
        let html = report.to_html();
        assert!(html.contains("error: &lt;loss&gt; is not finite"), "{html}");
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!html.contains(outside), "the page needs something else: {outside}");
        }
        let csv = report.to_csv();
        assert!(csv.lines().all(|line| line.split(',').count() == 19), "{csv}");
        let configurations = report.configurations_to_csv().expect("of a sweep");
        assert_eq!(configurations.lines().count(), 4, "{configurations}");
    }

    #[test]
    fn a_sweep_without_a_finished_run_has_a_report() {
        let (_directory, sweep) = begin(&[], 0..2);
        let report = Report::of_sweep(&sweep);
        let text = report.to_markdown();
        assert!(
            text.contains("| grid-diffuser | – | 1 | 0 of 2, 2 missing | 0 | – | – |"),
            "{text}"
        );
        assert!(
            text.contains("Nothing was searched; each recipe ran with 2 seeds (0 to 1)."),
            "{text}"
        );
        assert!(text.contains("`grid-diffuser`: no run is finished."), "{text}");
        report.write(sweep.directory()).expect("written");
        assert!(sweep.directory().join("report.html").exists());
    }
}
