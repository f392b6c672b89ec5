//! Report tables in Markdown and CSV.

use graph_diffuser::recipe::PaperResult;
use graph_diffuser::run::DataRecord;
use graph_diffuser::statistics::{self, SeedStats};
use graph_diffuser::task::Metric;
use graph_diffuser_data::formats::csv_line;

use super::{ConfigurationRow, Report, ReportRow, SweepSummary};

/// Alignment of a table column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Table of formatted cells.
#[derive(Debug)]
pub(super) struct ReportTable {
    /// Name of the table in HTML.
    pub(super) id: &'static str,
    pub(super) caption: &'static str,
    pub(super) columns: Vec<(&'static str, Align)>,
    pub(super) rows: Vec<Vec<String>>,
}

impl ReportTable {
    fn to_markdown(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = String>| {
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let mut text = line(&mut self.columns.iter().map(|(name, _)| (*name).to_owned()));
        text.push_str(&line(&mut self.columns.iter().map(|(_, align)| match align {
            Align::Left => "---".to_owned(),
            Align::Right => "---:".to_owned(),
        })));
        for row in &self.rows {
            text.push_str(&line(
                &mut row.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")),
            ));
        }
        text
    }

    /// Returns the caption and the table as Markdown.
    fn to_captioned_markdown(&self) -> String {
        format!("\n{}:\n\n{}", self.caption, self.to_markdown())
    }
}

/// Maximum number of run names in a table cell.
const MAX_NAMES: usize = 5;

/// Protocol of a report of runs.
pub(super) const PROTOCOL: &str = "Runs that differ only in their seed form one row. Test scores \
     are taken at the best validation epoch; ± is the sample standard deviation (n - 1) over seeds. \
     Intervals are 95 % bootstrap intervals over test samples.";

const DASH: &str = "–";

/// Returns the text, or a dash if it is absent.
fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| DASH.to_owned())
}

/// Formats a score, or a dash if it is not finite.
pub(super) fn format_score(value: f64) -> String {
    if value.is_finite() { statistics::format_score(value) } else { DASH.to_owned() }
}

/// Formats a confidence interval.
pub(super) fn format_interval([low, high]: [f64; 2]) -> String {
    format!("{} to {}", format_score(low), format_score(high))
}

/// Formats mean and standard deviation.
fn format_stats(stats: &SeedStats) -> String {
    let std = stats.stats.std.map_or(String::new(), |std| format!(" ± {}", format_score(std)));
    format!("{}{std}", format_score(stats.stats.mean))
}

/// Formats the settings of a configuration.
pub(super) fn format_settings(settings: &[String]) -> String {
    if settings.is_empty() { "defaults".to_owned() } else { settings.join(", ") }
}

impl Report {
    /// Returns whether a row has a result of the paper.
    pub(super) fn has_paper(&self) -> bool {
        self.rows.iter().any(|row| row.paper.is_some())
    }

    /// Returns the results table, with additional columns for a sweep.
    pub(super) fn table(&self) -> ReportTable {
        // The scores are first, so that they are visible on narrow screens.
        let mut columns = vec![
            ("recipe", Align::Left),
            ("metric", Align::Left),
            ("test", Align::Right),
            (if self.sweep.is_some() { "seeds" } else { "n" }, Align::Right),
            ("dataset", Align::Left),
        ];
        if self.sweep.is_some() {
            columns.extend([
                ("chosen", Align::Left),
                ("configurations", Align::Right),
                ("finished runs", Align::Right),
            ]);
        } else {
            columns.push(("runs", Align::Left));
        }
        columns.extend([("parameters", Align::Right), ("seconds", Align::Right)]);
        if self.has_paper() {
            columns.extend([("paper", Align::Right), ("paper parameters", Align::Right)]);
        }
        let cells = |row: &ReportRow| row.cells(self.has_paper());
        ReportTable {
            id: "results",
            caption: "Test scores, mean ± standard deviation over seeds",
            columns,
            rows: self.rows.iter().map(cells).collect(),
        }
    }

    /// Returns the table of paired differences to the first row, if there are any.
    pub(super) fn differences_table(&self) -> Option<ReportTable> {
        let columns = vec![
            ("recipe", Align::Left),
            ("compared with", Align::Left),
            ("metric", Align::Left),
            ("runs", Align::Right),
            ("test graphs", Align::Right),
            ("difference", Align::Right),
            ("95% interval", Align::Right),
        ];
        let rows = self.differences.iter().map(|paired| {
            vec![
                paired.recipe.clone(),
                paired.baseline.clone(),
                paired.metric.name().to_owned(),
                format!("{} and {}", paired.runs[1], paired.runs[0]),
                paired.graphs.to_string(),
                format!("{:+.4}", paired.difference),
                format!("{:+.4} to {:+.4}", paired.interval[0], paired.interval[1]),
            ]
        });
        (!self.differences.is_empty()).then(|| ReportTable {
            id: "differences",
            caption: "Paired differences on the same test graphs, with bootstrap intervals over \
                      graphs and seeds",
            columns,
            rows: rows.collect(),
        })
    }

    /// Returns the table of the scores of each target, if there are any; the column of the random
    /// forest is shown for molecules.
    pub(super) fn targets_table(&self) -> Option<ReportTable> {
        const FOREST_COLUMN: usize = 5;
        let columns = vec![
            ("target", Align::Left),
            ("metric", Align::Left),
            ("test", Align::Right),
            ("95% interval", Align::Right),
            ("baseline", Align::Right),
            ("forest", Align::Right),
            ("samples", Align::Right),
            ("prevalence", Align::Right),
            ("recipe", Align::Left),
            ("dataset", Align::Left),
        ];
        let percent = |fraction: f64| format!("{:.1}%", 100.0 * fraction);
        let rows = self.rows.iter().flat_map(|row| {
            row.targets.iter().filter(|target| target.primary).map(|target| {
                vec![
                    target.target.clone(),
                    target.metric.name().to_owned(),
                    format_stats(&target.test),
                    or_dash(target.interval.map(format_interval)),
                    or_dash(target.baseline.map(format_score)),
                    or_dash(target.forest.map(format_score)),
                    target.samples.to_string(),
                    or_dash(target.prevalence.map(percent)),
                    row.recipe.clone(),
                    row.dataset.clone(),
                ]
            })
        });
        let mut rows: Vec<Vec<String>> = rows.collect();
        let mut columns = columns;
        let mut targets = self.rows.iter().flat_map(|row| &row.targets);
        let caption = if targets.any(|target| target.forest.is_some()) {
            "Test scores by target; the baseline predicts the mean or the class frequencies of the \
             training split, the forest is a random forest on fingerprints and descriptors"
        } else {
            columns.remove(FOREST_COLUMN);
            for row in &mut rows {
                row.remove(FOREST_COLUMN);
            }
            "Test scores by target; the baseline predicts the mean or the class frequencies of the \
             training split"
        };
        (!rows.is_empty()).then_some(ReportTable { id: "targets", caption, columns, rows })
    }

    /// Returns the report as Markdown: results, and the protocol at the end.
    pub fn to_markdown(&self) -> String {
        self.results_to_markdown() + &self.protocol_to_markdown()
    }

    /// Returns the results as Markdown; a sweep includes all configurations.
    pub(super) fn results_to_markdown(&self) -> String {
        let mut text = match &self.sweep {
            Some(sweep) => format!("# Sweep `{}`\n\n", sweep.name),
            None => String::new(),
        };
        text.push_str(&self.table().to_markdown());
        if let Some(targets) = self.targets_table() {
            text.push_str(&targets.to_captioned_markdown());
        }
        if let Some(differences) = self.differences_table() {
            text.push_str(&differences.to_captioned_markdown());
        }
        if let Some(sweep) = &self.sweep {
            text.push_str(&bullets("## Caveats", sweep.notes.clone()));
        }
        let seeds: Vec<String> = self
            .rows
            .iter()
            .filter(|row| row.test.as_ref().is_some_and(|test| test.scores.len() > 1))
            .filter_map(|row| Some(format!("`{}`: {}", row.recipe, row.scores_by_seed()?)))
            .collect();
        text.push_str(&bullets("## Test scores by seed", seeds));
        if let Some(sweep) = &self.sweep {
            text.push_str(&sweep.to_markdown());
        }
        text
    }

    /// Returns protocol, datasets and program versions as Markdown; empty for a report without
    /// runs.
    pub(super) fn protocol_to_markdown(&self) -> String {
        let mut text = String::new();
        if let Some(sweep) = &self.sweep {
            text.push_str(&format!("\n## Protocol\n\n{}\n", sweep.protocol.join(" ")));
            text.push_str(&format!("\n```sh\n{}\n```\n", sweep.command));
        } else if !self.rows.is_empty() {
            text.push_str(&format!("\n{PROTOCOL}\n"));
        }
        let datasets = self.datasets.iter().map(describe_data);
        let versions = self.provenance().iter().map(super::Provenance::summary);
        text.push_str(&bullets("", datasets.chain(versions).collect()));
        text
    }

    /// Returns the program versions of the runs.
    pub(super) fn provenance(&self) -> &[super::Provenance] {
        self.sweep.as_ref().map_or(&self.provenance, |sweep| &sweep.provenance)
    }

    /// Returns the rows as CSV, at full precision.
    pub fn to_csv(&self) -> String {
        let mut text = String::from(
            "recipe,dataset,run_names,runs,metric,mean,std,population_std,parameters,seconds,paper_mean,paper_std,paper_parameters",
        );
        if self.sweep.is_some() {
            text.push_str(",chosen,configurations,planned,finished,failed,missing,seeds,scores");
        }
        text.push('\n');
        for row in &self.rows {
            let (test, paper) = (row.test.as_ref(), row.paper.as_ref());
            let mut cells = vec![
                row.recipe.clone(),
                row.dataset.clone(),
                spaced(&row.run_names),
                test.map_or(0, |test| test.scores.len()).to_string(),
                cell(row.metric.map(Metric::name)),
                cell(test.map(|test| test.stats.mean)),
                cell(test.and_then(|test| test.stats.std)),
                cell(test.map(|test| test.population_std)),
                cell(row.parameters),
                cell(row.seconds),
                cell(paper.map(|paper| paper.mean)),
                cell(paper.and_then(|paper| paper.std)),
                cell(paper.and_then(|paper| paper.parameters)),
            ];
            if let Some(tuning) = &row.tuning {
                let counts = tuning.runs;
                cells.push(cell(tuning.chosen.as_ref().map(|settings| settings.join(" "))));
                cells.push(tuning.configurations.to_string());
                cells.extend(
                    [counts.planned, counts.finished, counts.failed, counts.missing]
                        .map(|n| n.to_string()),
                );
                cells.push(cell(test.map(|test| spaced(&test.seeds))));
                cells.push(cell(test.map(|test| spaced(&test.scores))));
            }
            text += &(csv_line(&cells) + "\n");
        }
        text
    }

    /// Returns the configurations of a sweep as CSV; `None` if the report is not of a sweep.
    pub fn configurations_to_csv(&self) -> Option<String> {
        let sweep = self.sweep.as_ref()?;
        let mut text = String::from(
            "recipe,settings,chosen,planned,finished,failed,missing,valid_mean,valid_std,test_mean,test_std,\
             test_population_std,seconds\n",
        );
        for row in &sweep.configurations {
            let counts = row.runs;
            let (valid, test) = (row.valid.as_ref(), row.test.as_ref());
            let mut cells =
                vec![row.recipe.clone(), row.settings.join(" "), row.chosen.to_string()];
            cells.extend(
                [counts.planned, counts.finished, counts.failed, counts.missing]
                    .map(|n| n.to_string()),
            );
            cells.extend([
                cell(valid.map(|valid| valid.stats.mean)),
                cell(valid.and_then(|valid| valid.stats.std)),
                cell(test.map(|test| test.stats.mean)),
                cell(test.and_then(|test| test.stats.std)),
                cell(test.map(|test| test.population_std)),
                cell(row.seconds),
            ]);
            text += &(csv_line(&cells) + "\n");
        }
        Some(text)
    }
}

fn cell(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn spaced(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Returns a bulleted list below a title; empty without items.
fn bullets(title: &str, items: Vec<String>) -> String {
    let title = if title.is_empty() { String::new() } else { format!("\n{title}\n") };
    if items.is_empty() { String::new() } else { format!("{title}\n- {}\n", items.join("\n- ")) }
}

/// Describes name, size, split and fingerprint of a dataset.
pub(super) fn describe_data(data: &DataRecord) -> String {
    let split = data.split.as_ref().map_or(String::new(), |split| format!(", split: {split}"));
    format!(
        "{}: {} graphs, {} train, {} valid, {} test{split}; {}",
        data.name, data.graphs, data.train, data.valid, data.test, data.fingerprint
    )
}

impl ReportRow {
    fn cells(&self, has_paper: bool) -> Vec<String> {
        let test = self.test.as_ref();
        let mut cells = vec![
            self.recipe.clone(),
            or_dash(self.metric.map(|metric| metric.name().to_owned())),
            or_dash(test.map(format_stats)),
            test.map_or(0, |test| test.scores.len()).to_string(),
            self.dataset.clone(),
        ];
        if let Some(tuning) = &self.tuning {
            cells.push(or_dash(tuning.chosen.as_deref().map(format_settings)));
            cells.push(tuning.configurations.to_string());
            cells.push(tuning.runs.summary());
        } else {
            cells.push(self.listed_names());
        }
        cells.push(or_dash(self.parameters.map(|count| count.to_string())));
        cells.push(or_dash(self.seconds.map(|seconds| format!("{seconds:.0}"))));
        if has_paper {
            let paper = self.paper.as_ref();
            cells.push(or_dash(paper.map(PaperResult::formatted)));
            let parameters = paper.and_then(|paper| paper.parameters);
            cells.push(or_dash(parameters.map(|count| count.to_string())));
        }
        cells
    }

    /// Lists the names of the runs; of many runs the first ones and the last.
    fn listed_names(&self) -> String {
        match &self.run_names[..] {
            [first @ .., last] if first.len() >= MAX_NAMES => {
                format!("{}, …, {last}", first[..MAX_NAMES - 1].join(", "))
            }
            names => names.join(", "),
        }
    }

    /// Formats the test score of each seed.
    pub(super) fn scores_by_seed(&self) -> Option<String> {
        let SeedStats { seeds, scores, .. } = self.test.as_ref()?;
        let scores = seeds
            .iter()
            .zip(scores)
            .map(|(seed, value)| format!("seed {seed}: {}", format_score(*value)));
        Some(scores.collect::<Vec<_>>().join(", "))
    }
}

impl SweepSummary {
    /// Returns the table of all configurations.
    pub(super) fn table(&self) -> ReportTable {
        let columns = vec![
            ("recipe", Align::Left),
            ("configuration", Align::Left),
            ("chosen", Align::Left),
            ("finished runs", Align::Right),
            ("valid", Align::Right),
            ("test", Align::Right),
            ("seconds", Align::Right),
        ];
        ReportTable {
            id: "configurations",
            caption: "All configurations, mean ± standard deviation over seeds",
            columns,
            rows: self.configurations.iter().map(ConfigurationRow::cells).collect(),
        }
    }

    fn to_markdown(&self) -> String {
        let failed_runs = self.failed_runs.iter().map(|failed_run| {
            let lines = failed_run
                .reason
                .lines()
                .filter(|line| !line.trim().is_empty() && !line.contains("```"));
            let lines: Vec<String> = lines.map(|line| format!("  {line}\n")).collect();
            format!("`{}`\n\n  ```text\n{}  ```", failed_run.run, lines.concat())
        });
        let table = self.table().to_markdown();
        format!(
            "{}\n## All configurations\n\n{table}",
            bullets("## Failed runs", failed_runs.collect())
        )
    }
}

impl ConfigurationRow {
    fn cells(&self) -> Vec<String> {
        vec![
            self.recipe.clone(),
            format_settings(&self.settings),
            if self.chosen { "yes".to_owned() } else { String::new() },
            self.runs.summary(),
            or_dash(self.valid.as_ref().map(format_stats)),
            or_dash(self.test.as_ref().map(format_stats)),
            or_dash(self.seconds.map(|seconds| format!("{seconds:.0}"))),
        ]
    }
}
