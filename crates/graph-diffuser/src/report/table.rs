//! Reports as tables: Markdown for people, CSV for spreadsheets.

use crate::recipe::PaperResult;
use crate::task::Metric;

use super::{ConfigurationRow, Report, ReportRow, SeedStats, SweepSummary};

/// Where the text of a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// A table of finished cells.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: Vec<(&'static str, Align)>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
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
    "Paired differences on the same test graphs, with a bootstrap interval over graphs and seeds:";

const NONE: &str = "–";

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| NONE.to_owned())
}

pub(super) fn score(value: f64) -> String {
    if value.is_finite() { format!("{value:.4}") } else { NONE.to_owned() }
}

/// A combination of settings for people.
pub(super) fn combination(settings: &[String]) -> String {
    if settings.is_empty() { "as it is".to_owned() } else { settings.join(", ") }
}

impl Report {
    /// The rows, with more columns where they come from a sweep.
    pub(super) fn table(&self) -> Table {
        let mut columns = vec![("recipe", Align::Left)];
        if self.sweep.is_some() {
            columns.extend([
                ("chosen", Align::Left),
                ("of", Align::Right),
                ("runs finished", Align::Right),
            ]);
        }
        columns.extend([
            (if self.sweep.is_some() { "seeds" } else { "runs" }, Align::Right),
            ("metric", Align::Left),
            ("test mean", Align::Right),
            ("sample sd", Align::Right),
            ("population sd", Align::Right),
            ("parameters", Align::Right),
            ("seconds", Align::Right),
            ("paper", Align::Right),
            ("paper parameters", Align::Right),
        ]);
        Table { columns, rows: self.rows.iter().map(ReportRow::cells).collect() }
    }

    /// Paired differences to the first row, where there are any.
    pub(super) fn differences_table(&self) -> Option<Table> {
        let columns = vec![
            ("recipe", Align::Left),
            ("compared with", Align::Left),
            ("metric", Align::Left),
            ("runs", Align::Right),
            ("test graphs", Align::Right),
            ("difference", Align::Right),
            ("95 % interval", Align::Right),
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
        (!self.differences.is_empty()).then(|| Table { columns, rows: rows.collect() })
    }

    /// For people: the table, and for a sweep how it was tuned and every configuration.
    pub fn to_markdown(&self) -> String {
        let mut table = self.table().to_markdown();
        if let Some(differences) = self.differences_table() {
            table.push_str(&format!("\n{DIFFERENCES}\n\n{}", differences.to_markdown()));
        }
        match &self.sweep {
            None => table,
            Some(sweep) => sweep.to_markdown(&table, &self.rows),
        }
    }

    /// The rows for spreadsheets, at full precision.
    pub fn to_csv(&self) -> String {
        let mut text = String::from(
            "recipe,runs,metric,mean,sample_deviation,population_deviation,parameters,seconds,paper_mean,paper_sd,paper_parameters",
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
                cell(test.map(|test| test.mean)),
                cell(test.and_then(|test| test.std)),
                cell(test.map(|test| test.population_std)),
                cell(row.parameters),
                cell(row.seconds),
                cell(paper.map(|paper| paper.mean)),
                cell(paper.and_then(|paper| paper.sd)),
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

    /// Every configuration of a sweep for spreadsheets.
    pub fn configurations_to_csv(&self) -> Option<String> {
        let sweep = self.sweep.as_ref()?;
        let mut text = String::from(
            "recipe,settings,chosen,planned,finished,failed,missing,valid_mean,valid_sample_deviation,test_mean,test_sample_deviation,test_population_deviation,seconds\n",
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
                cell(valid.map(|valid| valid.mean)),
                cell(valid.and_then(|valid| valid.std)),
                cell(test.map(|test| test.mean)),
                cell(test.and_then(|test| test.std)),
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
            cells.push(or_none(tuning.chosen.as_deref().map(combination)));
            cells.push(tuning.configurations.to_string());
            cells.push(tuning.runs.in_words());
        }
        cells.extend([
            test.map_or(0, |test| test.scores.len()).to_string(),
            or_none(self.metric.map(|metric| metric.name().to_owned())),
            or_none(test.map(|test| score(test.mean))),
            or_none(test.and_then(|test| test.std).map(score)),
            or_none(test.map(|test| score(test.population_std))),
            or_none(self.parameters.map(|count| count.to_string())),
            or_none(self.seconds.map(|seconds| format!("{seconds:.0}"))),
            or_none(self.paper.as_ref().map(PaperResult::printed)),
            or_none(
                self.paper
                    .as_ref()
                    .and_then(|paper| paper.parameters)
                    .map(|count| count.to_string()),
            ),
        ]);
        cells
    }

    /// The score of each seed, for people.
    pub(super) fn each_seed(&self) -> Option<String> {
        let SeedStats { seeds, scores, .. } = self.test.as_ref()?;
        let scores =
            seeds.iter().zip(scores).map(|(seed, value)| format!("seed {seed}: {}", score(*value)));
        Some(scores.collect::<Vec<_>>().join(", "))
    }
}

impl SweepSummary {
    /// Every configuration.
    pub(super) fn table(&self) -> Table {
        let columns = vec![
            ("recipe", Align::Left),
            ("configuration", Align::Left),
            ("chosen", Align::Left),
            ("runs finished", Align::Right),
            ("valid mean", Align::Right),
            ("valid sd", Align::Right),
            ("test mean", Align::Right),
            ("test sd", Align::Right),
            ("seconds", Align::Right),
        ];
        Table { columns, rows: self.configurations.iter().map(ConfigurationRow::cells).collect() }
    }

    fn to_markdown(&self, table: &str, rows: &[ReportRow]) -> String {
        let mut text = format!("# Sweep `{}`\n\n{}\n\n{table}", self.name, self.protocol.join(" "));
        let mut list = |title: &str, items: Vec<String>| {
            if !items.is_empty() {
                text.push_str(&format!("\n{title}\n\n- {}\n", items.join("\n- ")));
            }
        };
        list("To be read with it:", self.notes.clone());
        let seeds =
            rows.iter().filter_map(|row| Some(format!("`{}`: {}", row.recipe, row.each_seed()?)));
        list("## Each seed", seeds.collect());
        let failed_runs = self.failed_runs.iter().map(|failed_run| {
            let lines = failed_run
                .reason
                .lines()
                .filter(|line| !line.trim().is_empty() && !line.contains("```"));
            let lines: Vec<String> = lines.map(|line| format!("  {line}\n")).collect();
            format!("`{}`\n\n  ```text\n{}  ```", failed_run.run, lines.concat())
        });
        list("## Runs without a score", failed_runs.collect());
        text.push_str(&format!("\n## Every configuration\n\n{}", self.table().to_markdown()));
        text.push_str(&format!("\n## How it was made\n\n```sh\n{}\n```\n", self.command));
        for maker in &self.provenance {
            text.push_str(&format!("\n{}\n", maker.in_words()));
        }
        text
    }
}

impl super::Provenance {
    pub(super) fn in_words(&self) -> String {
        let commit =
            self.commit.as_ref().map_or_else(String::new, |commit| format!(", commit {commit}"));
        format!("graph-diffuser {}{commit}, {}", self.version, self.platform)
    }
}

impl ConfigurationRow {
    fn cells(&self) -> Vec<String> {
        let mean =
            |spread: &Option<SeedStats>| or_none(spread.as_ref().map(|spread| score(spread.mean)));
        let deviation = |spread: &Option<SeedStats>| {
            or_none(spread.as_ref().and_then(|spread| spread.std).map(score))
        };
        vec![
            self.recipe.clone(),
            combination(&self.settings),
            if self.chosen { "yes".to_owned() } else { String::new() },
            self.runs.in_words(),
            mean(&self.valid),
            deviation(&self.valid),
            mean(&self.test),
            deviation(&self.test),
            or_none(self.seconds.map(|seconds| format!("{seconds:.0}"))),
        ]
    }
}
