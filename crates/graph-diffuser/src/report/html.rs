//! The report as one HTML page that needs nothing else: no script, no font, no other file.

use super::table::{Align, DIFFERENCES, Table};
use super::{Report, SweepSummary};

const STYLE: &str = include_str!("report.css");

/// Text that cannot be taken for markup.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Not allowed in XML, and of no use in HTML.
            letter if letter.is_control() && letter != '\n' && letter != '\t' => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Escaped, with what stands between backticks as code.
fn prose(text: &str) -> String {
    let parts = escape(text);
    let parts = parts.split('`').enumerate();
    parts
        .map(
            |(place, part)| {
                if place % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() }
            },
        )
        .collect()
}

impl Table {
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
                row.iter().zip(&self.columns).enumerate().map(|(place, (cell, (_, align)))| {
                    match place {
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
    /// One page with everything in it.
    pub fn to_html(&self) -> String {
        let title = match &self.sweep {
            Some(sweep) => format!("Sweep {}", sweep.name),
            None => "Runs beside the paper's figures".to_owned(),
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
        if let Some(differences) = self.differences_table() {
            text.push_str(&format!("<p>{DIFFERENCES}</p>\n{}", differences.to_html()));
        }
        if let Some(sweep) = &self.sweep {
            text.push_str(&list(sweep.notes.iter().map(|note| prose(note))));
        }
        let seeds = self.rows.iter().filter_map(|row| {
            let name = escape(&row.recipe);
            Some(format!("<code>{name}</code>: {}", escape(&row.each_seed()?)))
        });
        text.push_str(&format!(
            "<details><summary>Test score of each seed</summary>\n{}</details>\n",
            list(seeds)
        ));
        text.push_str("<h2>Curves</h2>\n");
        for picture in
            self.combined_curves().into_iter().chain(self.curves.iter().map(super::Curves::to_svg))
        {
            text.push_str(&format!("<figure>\n{picture}</figure>\n"));
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
        let mut text = format!("<h2>Every configuration</h2>\n{}", self.table().to_html());
        if !self.failed_runs.is_empty() {
            let failed_runs = self.failed_runs.iter();
            let failed_runs = failed_runs.map(|failed_run| {
                format!(
                    "<code>{}</code><pre>{}</pre>",
                    escape(&failed_run.run),
                    escape(&failed_run.reason)
                )
            });
            text.push_str(&format!("<h2>Runs without a score</h2>\n{}", list(failed_runs)));
        }
        text.push_str(&format!("<h2>How it was made</h2>\n<pre>{}</pre>\n", escape(&self.command)));
        text.push_str(&list(self.provenance.iter().map(|maker| escape(&maker.in_words()))));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_a_recipe_or_log_never_becomes_markup() {
        let hostile = "<script>alert('1')</script> & \"x\"\u{1b}";
        let escaped = escape(hostile);
        assert_eq!(escaped, "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;x&quot; ");
        assert_eq!(prose("set `a<b` now"), "set <code>a&lt;b</code> now");
        let table =
            Table { columns: vec![("name", Align::Left)], rows: vec![vec![hostile.to_owned()]] };
        assert!(!table.to_html().contains("<script"), "{}", table.to_html());
    }
}
