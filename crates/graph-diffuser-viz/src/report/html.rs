//! Report as a self-contained HTML page without scripts, fonts or other external resources.

use crate::canvas::escape;

use super::table::{Align, DIFFERENCES, ReportTable, TARGETS};
use super::{Curves, Report, SweepSummary};

const STYLE: &str = include_str!("report.css");

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
    fn to_html(&self) -> String {
        let class = |align: &Align| if *align == Align::Right { " class=\"number\"" } else { "" };
        let heads = self
            .columns
            .iter()
            .map(|(name, align)| format!("<th scope=\"col\"{}>{name}</th>", class(align)));
        let mut text = format!(
            "<div class=\"wide\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n",
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

impl Report {
    /// Returns the report as a self-contained HTML page.
    pub fn to_html(&self) -> String {
        let title = match &self.sweep {
            Some(sweep) => format!("Sweep {}", sweep.name),
            None => "Results compared with the paper".to_owned(),
        };
        let title = escape(&title);
        let mut text = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        );
        if let Some(sweep) = &self.sweep {
            for sentence in &sweep.protocol {
                text.push_str(&format!("<p>{}</p>\n", prose(sentence)));
            }
        }
        text.push_str(&format!("<h2>Results</h2>\n{}", self.table().to_html()));
        if let Some(targets) = self.targets_table() {
            text.push_str(&format!("<p>{TARGETS}</p>\n{}", targets.to_html()));
        }
        if let Some(differences) = self.differences_table() {
            text.push_str(&format!("<p>{DIFFERENCES}</p>\n{}", differences.to_html()));
        }
        if let Some(sweep) = &self.sweep {
            if !sweep.notes.is_empty() {
                text.push_str("<h3>Caveats</h3>\n");
            }
            text.push_str(&list(sweep.notes.iter().map(|note| prose(note))));
        }
        let seeds = self.rows.iter().filter_map(|row| {
            let name = escape(&row.recipe);
            Some(format!("<code>{name}</code>: {}", escape(&row.scores_by_seed()?)))
        });
        text.push_str(&format!(
            "<details><summary>Test scores by seed</summary>\n{}</details>\n",
            list(seeds)
        ));
        text.push_str("<h2>Validation curves</h2>\n");
        for chart in self.combined_curves().into_iter().chain(self.curves.iter().map(Curves::draw))
        {
            text.push_str(&format!("<figure>\n{}</figure>\n", chart.to_svg()));
        }
        if let Some(sweep) = &self.sweep {
            text.push_str(&sweep.to_html());
        }
        text.push_str("</main>\n</body>\n</html>\n");
        text
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.map(|item| format!("<li>{item}</li>\n")).collect();
    if items.is_empty() { String::new() } else { format!("<ul>\n{}</ul>\n", items.concat()) }
}

impl SweepSummary {
    fn to_html(&self) -> String {
        let mut text = format!("<h2>All configurations</h2>\n{}", self.table().to_html());
        if !self.failed_runs.is_empty() {
            let failed_runs = self.failed_runs.iter();
            let failed_runs = failed_runs.map(|failed_run| {
                format!(
                    "<code>{}</code><pre>{}</pre>",
                    escape(&failed_run.run),
                    escape(&failed_run.reason)
                )
            });
            text.push_str(&format!("<h2>Failed runs</h2>\n{}", list(failed_runs)));
        }
        text.push_str(&format!("<h2>Reproduction</h2>\n<pre>{}</pre>\n", escape(&self.command)));
        text.push_str(&list(
            self.provenance.iter().map(|provenance| escape(&provenance.summary())),
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_recipes_and_logs_is_escaped() {
        let hostile = "<script>alert('1')</script> & \"x\"\u{1b}";
        assert_eq!(prose("set `a<b` now"), "set <code>a&lt;b</code> now");
        let table = ReportTable {
            columns: vec![("name", Align::Left)],
            rows: vec![vec![hostile.to_owned()]],
        };
        assert!(!table.to_html().contains("<script"), "{}", table.to_html());
    }
}
