//! Report as a self-contained HTML page without fonts, images or other external resources.
//!
//! The page is complete without scripts; a short one makes long tables sortable.

use crate::canvas::{Canvas, escape};

use super::evaluation::{MAX_TARGETS, SHOWN_TARGETS, WorstCase};
use super::plots::format_significant;
use super::table::{Align, PROTOCOL, ReportTable, describe_data};
use super::{Curves, Report, RunEvaluation, SweepSummary, TargetEvaluation};

const STYLE: &str = include_str!("report.css");
const SORT: &str = include_str!("sort.js");
/// Base64 of the SHA-256 of [`SORT`], by which the page allows the script.
const SORT_HASH: &str = "dBfqdT5mKHxFZSdZjGejGDKjpqEPyDFeg3KTFed5JzE=";
/// Number of rows from which a table is sortable.
const SORTABLE: usize = 3;
/// Number of evaluations that are not collapsed.
const OPEN_EVALUATIONS: usize = 3;

/// Escapes text and converts spans in backticks to `<code>`.
fn prose(text: &str) -> String {
    let parts = escape(text);
    let parts = parts.split('`').enumerate();
    parts
        .map(
            |(index, part)| {
                if index % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() }
            },
        )
        .collect()
}

impl ReportTable {
    fn is_sortable(&self) -> bool {
        self.rows.len() >= SORTABLE
    }

    fn to_html(&self) -> String {
        let class = |align: &Align| if *align == Align::Right { " class=\"number\"" } else { "" };
        let heads = self
            .columns
            .iter()
            .map(|(name, align)| format!("<th scope=\"col\"{}>{name}</th>", class(align)));
        let (id, caption) = (self.id, escape(self.caption));
        let sortable = if self.is_sortable() { " class=\"sortable\"" } else { "" };
        let mut text = format!(
            "<p class=\"hint\">Scroll the table sideways to see all columns →</p>\n\
             <div class=\"scroll\" role=\"region\" aria-labelledby=\"{id}-caption\" tabindex=\"0\">\
             <table{sortable}>\n<caption id=\"{id}-caption\"><span>{caption}</span></caption>\n\
             <thead><tr>{}</tr></thead>\n<tbody>\n",
            heads.collect::<String>()
        );
        for row in &self.rows {
            let cells =
                row.iter().zip(&self.columns).enumerate().map(|(column, (cell, (_, align)))| {
                    match column {
                        0 => format!("<th scope=\"row\">{}</th>", escape(cell)),
                        _ => format!("<td{}>{}</td>", class(align), escape(cell)),
                    }
                });
            text.push_str(&format!("<tr>{}</tr>\n", cells.collect::<String>()));
        }
        text.push_str("</tbody>\n</table></div>\n");
        text
    }
}

/// Section of the page, linked from its contents.
struct Section {
    id: &'static str,
    title: &'static str,
    body: String,
}

impl Report {
    /// Returns the report as a self-contained HTML page.
    pub fn to_html(&self) -> String {
        let title = escape(&self.title());
        let sections = self.sections();
        let is_sortable = [Some(self.table()), self.targets_table()]
            .into_iter()
            .flatten()
            .chain(self.sweep.as_ref().map(SweepSummary::table))
            .any(|table| table.is_sortable());
        let (policy, script) = if is_sortable {
            (format!("; script-src 'sha256-{SORT_HASH}'"), format!("<script>{SORT}</script>\n"))
        } else {
            (String::new(), String::new())
        };
        let links = sections
            .iter()
            .map(|section| format!("<li><a href=\"#{}\">{}</a></li>\n", section.id, section.title));
        let mut text = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'{policy}\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <header>\n<h1>{title}</h1>\n<p class=\"summary\">{}</p>\n</header>\n\
             <nav aria-label=\"Contents\">\n<ul>\n{}</ul>\n</nav>\n<main>\n",
            escape(&self.summary()),
            links.collect::<String>()
        );
        for Section { id, title, body } in &sections {
            text.push_str(&format!(
                "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{title}</h2>\n{body}</section>\n"
            ));
        }
        text.push_str(&format!("</main>\n{script}</body>\n</html>\n"));
        text
    }

    fn title(&self) -> String {
        match (&self.sweep, &self.rows[..]) {
            (Some(sweep), _) => format!("Sweep {}", sweep.name),
            (None, [row]) => format!("Results of {}", row.recipe),
            (None, rows) => format!("Results of {} configurations", rows.len()),
        }
    }

    /// Summarizes runs, datasets and metrics in one line.
    fn summary(&self) -> String {
        let runs: usize = self.rows.iter().map(|row| row.run_names.len()).sum();
        let unique = |values: &mut dyn Iterator<Item = String>| {
            let mut found: Vec<String> = Vec::new();
            values.for_each(|value| {
                if !found.contains(&value) {
                    found.push(value);
                }
            });
            found.join(", ")
        };
        let datasets = unique(&mut self.rows.iter().map(|row| row.dataset.clone()));
        let metrics =
            unique(&mut self.rows.iter().filter_map(|row| Some(row.metric?.name().to_owned())));
        let runs = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
        [runs, datasets, metrics]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(" · ")
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        let mut add = |id, title, body: String| {
            if !body.is_empty() {
                sections.push(Section { id, title, body });
            }
        };
        add("results-section", "Results", self.results_to_html());
        let targets = self.targets_table().map_or(String::new(), |table| table.to_html());
        add("targets-section", "Scores by target", targets);
        add("evaluation-section", "Evaluation on test graphs", self.evaluations_to_html());
        add("curves-section", "Learning curves", self.curves_to_html());
        if let Some(sweep) = &self.sweep {
            add("configurations-section", "All configurations", sweep.table().to_html());
            add("failed-section", "Failed runs", sweep.failed_to_html());
        }
        add("protocol-section", "Protocol", self.protocol_to_html());
        sections
    }

    fn results_to_html(&self) -> String {
        let mut text = self.table().to_html();
        for canvas in self.seed_figures() {
            text.push_str(&format!("<figure>\n{}</figure>\n", canvas.to_svg()));
        }
        if let Some(differences) = self.differences_table() {
            text.push_str(&differences.to_html());
        }
        if let Some(sweep) = self.sweep.as_ref().filter(|sweep| !sweep.notes.is_empty()) {
            text.push_str("<h3>Caveats</h3>\n");
            text.push_str(&list(sweep.notes.iter().map(|note| prose(note))));
        }
        let seeds: Vec<String> = self
            .rows
            .iter()
            .filter(|row| row.run_names.len() > 1)
            .filter_map(|row| {
                let name = escape(&row.recipe);
                Some(format!("<code>{name}</code>: {}", escape(&row.scores_by_seed()?)))
            })
            .collect();
        if !seeds.is_empty() {
            text.push_str(&format!(
                "<details><summary>Test scores by seed</summary>\n{}</details>\n",
                list(seeds.into_iter())
            ));
        }
        text
    }

    fn evaluations_to_html(&self) -> String {
        let mut text = String::new();
        for (index, evaluation) in self.evaluations.iter().enumerate() {
            let heading = format!("<h3>{}</h3>\n", escape(&evaluation.recipe));
            let body = evaluation.to_html();
            if index < OPEN_EVALUATIONS {
                text.push_str(&format!("{heading}{body}"));
            } else {
                text.push_str(&format!(
                    "{heading}<details><summary>Plots of {}</summary>\n{body}</details>\n",
                    escape(&evaluation.run)
                ));
            }
        }
        text
    }

    fn curves_to_html(&self) -> String {
        let mut text = String::new();
        if let Some(all) = self.combined_curves() {
            text.push_str(&format!("<div class=\"curves\">{}</div>\n", figure(&all, "")));
        }
        for curves in &self.curves {
            let mut figures = String::new();
            if let Some(loss) = curves.draw_loss() {
                figures.push_str(&figure(&loss, "Training and validation loss."));
            }
            if !curves.is_loss() {
                figures.push_str(&figure(&curves.draw(), "Validation score."));
            }
            text.push_str(&format!(
                "<h3>{}</h3>\n<div class=\"curves\">\n{figures}</div>\n",
                escape(&curves.label)
            ));
        }
        let others: Vec<String> = self
            .other_curves
            .iter()
            .filter_map(Curves::draw_small_loss)
            .map(|chart| figure(&chart, ""))
            .collect();
        if !others.is_empty() {
            text.push_str(&format!(
                "<details><summary>Training and validation loss of the other configurations \
                 ({})</summary>\n<div class=\"plots\">\n{}</div></details>\n",
                others.len(),
                others.concat()
            ));
        }
        text
    }

    fn protocol_to_html(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut text = match &self.sweep {
            Some(sweep) => {
                format!("<p>{}</p>\n", prose(&sweep.protocol.join("\n")).replace('\n', "</p>\n<p>"))
            }
            None => format!("<p>{PROTOCOL}</p>\n"),
        };
        if !self.datasets.is_empty() {
            text.push_str("<h3>Datasets</h3>\n");
            text.push_str(&list(self.datasets.iter().map(|data| escape(&describe_data(data)))));
        }
        let versions = self.provenance();
        if self.sweep.is_some() || !versions.is_empty() {
            text.push_str("<h3>Reproduction</h3>\n");
        }
        if let Some(sweep) = &self.sweep {
            text.push_str(&format!("<pre>{}</pre>\n", escape(&sweep.command)));
        }
        text.push_str(&list(versions.iter().map(|version| escape(&version.summary()))));
        text
    }
}

/// Returns a figure with a caption, if it is not empty.
fn figure(canvas: &Canvas, caption: &str) -> String {
    let caption = match caption {
        "" => String::new(),
        caption => format!("<figcaption>{}</figcaption>\n", escape(caption)),
    };
    format!("<figure>\n{}{caption}</figure>\n", canvas.to_svg())
}

impl RunEvaluation {
    fn to_html(&self) -> String {
        let shown = if self.num_targets > self.targets.len() {
            let count = self.targets.len().min(MAX_TARGETS);
            format!("; plots of the first {count} of {} targets", self.num_targets)
        } else {
            String::new()
        };
        let mut text =
            format!("<p>Run <code>{}</code>, test split{shown}.</p>\n", escape(&self.run));
        let (shown, others) = self.targets.split_at(self.targets.len().min(SHOWN_TARGETS));
        text.extend(shown.iter().map(TargetEvaluation::to_html));
        if !others.is_empty() {
            let plots: String = others.iter().map(TargetEvaluation::to_html).collect();
            let targets = if others.len() == 1 { "target" } else { "targets" };
            text.push_str(&format!(
                "<details><summary>Plots of {} more {targets}</summary>\n{plots}</details>\n",
                others.len()
            ));
        }
        text
    }
}

impl TargetEvaluation {
    fn to_html(&self) -> String {
        let plots: String =
            self.plots().iter().map(|plot| figure(&plot.canvas, &plot.caption)).collect();
        let mut text =
            format!("<h4>{}</h4>\n<div class=\"plots\">\n{plots}</div>\n", escape(&self.target));
        if !self.worst.is_empty() {
            text.push_str(
                "<p>Largest errors, by index of the graph in the dataset:</p>\n<ol class=\"worst\">\n",
            );
            for case in &self.worst {
                text.push_str(&format!("<li>{}</li>\n", case.to_html()));
            }
            text.push_str("</ol>\n");
        }
        text
    }
}

impl WorstCase {
    fn to_html(&self) -> String {
        let [target, predicted, error] =
            [self.target, self.predicted, self.predicted - self.target].map(format_significant);
        let name = self.name();
        let text = match &self.class {
            None => format!("{name}: true {target}, predicted {predicted}, error {error}"),
            Some(class) => {
                format!("{name}: true class {class}, predicted with probability {predicted}")
            }
        };
        self.figure.as_ref().map_or_else(|| escape(&text), |canvas| figure(canvas, &text))
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.map(|item| format!("<li>{item}</li>\n")).collect();
    if items.is_empty() { String::new() } else { format!("<ul>\n{}</ul>\n", items.concat()) }
}

impl SweepSummary {
    fn failed_to_html(&self) -> String {
        let failed_runs = self.failed_runs.iter();
        list(failed_runs.map(|failed_run| {
            format!(
                "<code>{}</code><pre>{}</pre>",
                escape(&failed_run.run),
                escape(&failed_run.reason)
            )
        }))
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn table(rows: usize, cell: &str) -> ReportTable {
        ReportTable {
            id: "x",
            caption: "Caption",
            columns: vec![("name", Align::Left)],
            rows: vec![vec![cell.to_owned()]; rows],
        }
    }

    #[test]
    fn text_of_recipes_and_logs_is_escaped() {
        let hostile = "<script>alert('1')</script> & \"x\"\u{1b}";
        assert_eq!(prose("set `a<b` now"), "set <code>a&lt;b</code> now");
        let html = table(1, hostile).to_html();
        assert!(!html.contains("<script"), "{html}");
    }

    #[test]
    fn long_tables_are_sortable_and_all_are_labeled_and_focusable() {
        assert!(!table(1, "a").to_html().contains("sortable"));
        let html = table(SORTABLE, "a").to_html();
        assert!(html.contains("<table class=\"sortable\">"), "{html}");
        assert!(html.contains("aria-labelledby=\"x-caption\" tabindex=\"0\""), "{html}");
        assert!(html.contains("<caption id=\"x-caption\">"), "{html}");
    }

    #[test]
    fn content_security_policy_allows_exactly_the_script() {
        const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digest = Sha256::digest(SORT);
        let mut encoded = String::new();
        for bytes in digest.chunks(3) {
            let group = (0..3).fold(0_u32, |group, index| {
                group << 8 | u32::from(bytes.get(index).copied().unwrap_or(0))
            });
            let digits = (0..=bytes.len()).map(|index| group >> (18 - 6 * index) & 63);
            encoded.extend(digits.map(|digit| char::from(DIGITS[digit as usize])));
        }
        assert_eq!(format!("{encoded}="), SORT_HASH);
    }
}
