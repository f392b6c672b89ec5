//! Summary of a sweep: protocol, configurations and failed runs.

use std::collections::BTreeSet;

use graph_diffuser::run::{Environment, FinishedRun};
use graph_diffuser::statistics::SeedStats;
use graph_diffuser::sweep::{Axis, RandomSearch, Sweep};
use serde::Serialize;

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
    /// Random search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<RandomSearch>,
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

impl Provenance {
    /// Returns the distinct versions and platforms of runs.
    pub(super) fn of_runs<'a>(runs: impl Iterator<Item = &'a FinishedRun>) -> Vec<Self> {
        let mut provenance: Vec<Self> = Vec::new();
        for Environment { version, commit, platform, .. } in
            runs.filter_map(|run| run.environment.as_ref())
        {
            let entry = Self {
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

    /// Formats program version, commit and platform.
    pub(super) fn summary(&self) -> String {
        let commit =
            self.commit.as_ref().map_or_else(String::new, |commit| format!(", commit {commit}"));
        format!("graph-diffuser {}{commit}, {}", self.version, self.platform)
    }
}

impl RunCounts {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            planned: self.planned + other.planned,
            finished: self.finished + other.finished,
            failed: self.failed + other.failed,
            missing: self.missing + other.missing,
        }
    }

    /// Formats the counts for a table cell.
    pub(super) fn summary(self) -> String {
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
    pub(super) fn new(
        sweep: &Sweep,
        failed_runs: Vec<FailedRun>,
        provenance: Vec<Provenance>,
    ) -> Self {
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
            random: plan.random.clone(),
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
    let count = match &plan.random {
        Some(search) => search.trials.len(),
        None => plan.grid.iter().map(|axis| axis.values.len()).product::<usize>(),
    };
    let configurations = match count {
        1 => "one configuration".to_owned(),
        count => format!("{count} configurations"),
    };
    let mut sentences = Vec::new();
    if let Some(RandomSearch { search_seed, space, .. }) = &plan.random {
        let space: Vec<String> = space
            .iter()
            .map(|dimension| format!("`{}` {}", dimension.path, dimension.describe()))
            .collect();
        sentences.push(format!(
            "Random search (search seed {search_seed}), identical for all recipes: {}; {configurations} per recipe, each trained with {seeds}.",
            space.join("; ")
        ));
    } else if plan.grid.is_empty() {
        sentences.push(format!("No hyperparameter search; each recipe was trained with {seeds}."));
    } else {
        let axes = plan
            .grid
            .iter()
            .map(|axis| format!("`{}` over `{}`", axis.path, axis.values.join("`, `")));
        let axes = axes.collect::<Vec<_>>().join(" and ");
        sentences.push(format!(
            "Grid search, identical for all recipes: {axes}; {configurations} per recipe, each trained with {seeds}."
        ));
    }
    if !plan.set.is_empty() {
        sentences.push(format!("Settings of all recipes: `{}`.", plan.set.join("`, `")));
    }
    if plan.random.is_some() || !plan.grid.is_empty() {
        sentences.push(
            "Model selection uses validation scores only: for each recipe the configuration with the best mean over \
             the seeds that all its configurations have finished, each run at its best validation epoch."
                .to_owned(),
        );
    }
    sentences.push(
        "Test scores are taken at the best validation epoch; ± is the sample standard deviation (n - 1) over all \
         finished seeds of the configuration."
            .to_owned(),
    );
    sentences
}
