//! Report tables in Markdown and CSV.

use graph_diffuser::recipe::PaperResult;
use graph_diffuser::statistics::SeedStats;
use graph_diffuser::task::Metric;

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
}

/// Caption of the paired differences.
pub(super) const DIFFERENCES: &str =
    "Paired differences on the same test graphs, with bootstrap intervals over graphs and seeds:";

/// Caption of the scores of each target.
pub(super) const TARGETS: &str = "Test scores by target; the baseline predicts the mean or the class \
     frequencies of the training split:";

const DASH: &str = "–";

/// Returns the text, or a dash if it is absent.
fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| DASH.to_owned())
}

/// Formats a score with four decimals.
pub(super) fn format_score(value: f64) -> String {
    if value.is_finite() { format!("{value:.4}") } else { DASH.to_owned() }
}

/// Formats the settings of a configuration.
pub(super) fn format_settings(settings: &[String]) -> String {
    if settings.is_empty() { "defaults".to_owned() } else { settings.join(", ") }
}

impl Report {
    /// Returns the results table, with additional columns for a sweep.
    pub(super) fn table(&self) -> ReportTable {
        let mut columns = vec![("recipe", Align::Left)];
        if self.sweep.is_some() {
            columns.extend([
                ("chosen", Align::Left),
                ("configurations", Align::Right),
                ("finished runs", Align::Right),
            ]);
        }
        columns.extend([
            (if self.sweep.is_some() { "seeds" } else { "runs" }, Align::Right),
            ("metric", Align::Left),
            ("test mean", Align::Right),
            ("std", Align::Right),
            ("population std", Align::Right),
            ("parameters", Align::Right),
            ("seconds", Align::Right),
            ("paper", Align::Right),
            ("paper parameters", Align::Right),
        ]);
        ReportTable { columns, rows: self.rows.iter().map(ReportRow::cells).collect() }
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
        (!self.differences.is_empty()).then(|| ReportTable { columns, rows: rows.collect() })
    }

    /// Returns the table of the scores of each target, if there are any.
    pub(super) fn targets_table(&self) -> Option<ReportTable> {
        let columns = vec![
            ("recipe", Align::Left),
            ("target", Align::Left),
            ("n", Align::Right),
            ("prevalence", Align::Right),
            ("metric", Align::Left),
            ("test mean", Align::Right),
            ("std", Align::Right),
            ("95% interval", Align::Right),
            ("baseline", Align::Right),
        ];
        let percent = |fraction: f64| format!("{:.1}%", 100.0 * fraction);
        let rows = self.rows.iter().flat_map(|row| {
            row.targets.iter().filter(|target| target.primary).map(|target| {
                vec![
                    row.recipe.clone(),
                    target.target.clone(),
                    target.samples.to_string(),
                    or_dash(target.prevalence.map(percent)),
                    target.metric.name().to_owned(),
                    format_score(target.test.stats.mean),
                    or_dash(target.test.stats.std.map(format_score)),
                    or_dash(target.interval.map(|[low, high]| format!("{low:.4} to {high:.4}"))),
                    or_dash(target.baseline.map(format_score)),
                ]
            })
        });
        let rows: Vec<Vec<String>> = rows.collect();
        (!rows.is_empty()).then_some(ReportTable { columns, rows })
    }

    /// Returns the report as Markdown; a sweep includes its protocol and all configurations.
    pub fn to_markdown(&self) -> String {
        let mut table = self.table().to_markdown();
        if let Some(targets) = self.targets_table() {
            table.push_str(&format!("\n{TARGETS}\n\n{}", targets.to_markdown()));
        }
        if let Some(differences) = self.differences_table() {
            table.push_str(&format!("\n{DIFFERENCES}\n\n{}", differences.to_markdown()));
        }
        match &self.sweep {
            None => table,
            Some(sweep) => sweep.to_markdown(&table, &self.rows),
        }
    }

    /// Returns the rows as CSV, at full precision.
    pub fn to_csv(&self) -> String {
        let mut text = String::from(
            "recipe,runs,metric,mean,std,population_std,parameters,seconds,paper_mean,paper_std,paper_parameters",
        );
        if self.sweep.is_some() {
            text.push_str(",chosen,configurations,planned,finished,failed,missing,seeds,scores");
        }
        text.push('\n');
        for row in &self.rows {
            let (test, paper) = (row.test.as_ref(), row.paper.as_ref());
            let mut cells = vec![
                row.recipe.clone(),
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
            text.push_str(&csv_line(&cells));
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
            text.push_str(&csv_line(&cells));
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

fn csv_line(cells: &[String]) -> String {
    let quoted = cells.iter().map(|cell| {
        if cell.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.clone()
        }
    });
    quoted.collect::<Vec<_>>().join(",") + "\n"
}

impl ReportRow {
    fn cells(&self) -> Vec<String> {
        let test = self.test.as_ref();
        let mut cells = vec![self.recipe.clone()];
        if let Some(tuning) = &self.tuning {
            cells.push(or_dash(tuning.chosen.as_deref().map(format_settings)));
            cells.push(tuning.configurations.to_string());
            cells.push(tuning.runs.summary());
        }
        cells.extend([
            test.map_or(0, |test| test.scores.len()).to_string(),
            or_dash(self.metric.map(|metric| metric.name().to_owned())),
            or_dash(test.map(|test| format_score(test.stats.mean))),
            or_dash(test.and_then(|test| test.stats.std).map(format_score)),
            or_dash(test.map(|test| format_score(test.population_std))),
            or_dash(self.parameters.map(|count| count.to_string())),
            or_dash(self.seconds.map(|seconds| format!("{seconds:.0}"))),
            or_dash(self.paper.as_ref().map(PaperResult::formatted)),
            or_dash(
                self.paper
                    .as_ref()
                    .and_then(|paper| paper.parameters)
                    .map(|count| count.to_string()),
            ),
        ]);
        cells
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
            ("valid mean", Align::Right),
            ("valid std", Align::Right),
            ("test mean", Align::Right),
            ("test std", Align::Right),
            ("seconds", Align::Right),
        ];
        ReportTable {
            columns,
            rows: self.configurations.iter().map(ConfigurationRow::cells).collect(),
        }
    }

    fn to_markdown(&self, table: &str, rows: &[ReportRow]) -> String {
        let mut text = format!("# Sweep `{}`\n\n{}\n\n{table}", self.name, self.protocol.join(" "));
        let mut list = |title: &str, items: Vec<String>| {
            if !items.is_empty() {
                text.push_str(&format!("\n{title}\n\n- {}\n", items.join("\n- ")));
            }
        };
        list("## Caveats", self.notes.clone());
        let seeds = rows
            .iter()
            .filter_map(|row| Some(format!("`{}`: {}", row.recipe, row.scores_by_seed()?)));
        list("## Test scores by seed", seeds.collect());
        let failed_runs = self.failed_runs.iter().map(|failed_run| {
            let lines = failed_run
                .reason
                .lines()
                .filter(|line| !line.trim().is_empty() && !line.contains("```"));
            let lines: Vec<String> = lines.map(|line| format!("  {line}\n")).collect();
            format!("`{}`\n\n  ```text\n{}  ```", failed_run.run, lines.concat())
        });
        list("## Failed runs", failed_runs.collect());
        text.push_str(&format!("\n## All configurations\n\n{}", self.table().to_markdown()));
        text.push_str(&format!("\n## Reproduction\n\n```sh\n{}\n```\n", self.command));
        for provenance in &self.provenance {
            text.push_str(&format!("\n{}\n", provenance.summary()));
        }
        text
    }
}

impl super::Provenance {
    /// Formats program version, commit and platform.
    pub(super) fn summary(&self) -> String {
        let commit =
            self.commit.as_ref().map_or_else(String::new, |commit| format!(", commit {commit}"));
        format!("graph-diffuser {}{commit}, {}", self.version, self.platform)
    }
}

impl ConfigurationRow {
    fn cells(&self) -> Vec<String> {
        let mean = |stats: &Option<SeedStats>| {
            or_dash(stats.as_ref().map(|stats| format_score(stats.stats.mean)))
        };
        let std = |stats: &Option<SeedStats>| {
            or_dash(stats.as_ref().and_then(|stats| stats.stats.std).map(format_score))
        };
        vec![
            self.recipe.clone(),
            format_settings(&self.settings),
            if self.chosen { "yes".to_owned() } else { String::new() },
            self.runs.summary(),
            mean(&self.valid),
            std(&self.valid),
            mean(&self.test),
            std(&self.test),
            or_dash(self.seconds.map(|seconds| format!("{seconds:.0}"))),
        ]
    }
}
