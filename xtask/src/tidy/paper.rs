//! Rule about equations: each is cited in the sources and in the paper map.

use std::collections::BTreeSet;

use crate::repository::{Diagnostic, TextFile, find};

/// Equations of the paper, as printed.
const EQUATIONS: std::ops::RangeInclusive<u32> = 1..=9;
/// Page that maps equations to code.
pub(super) const PAPER_MAP: &str = "docs/paper-map.md";

pub(super) fn cited_equations(files: &[TextFile]) -> Vec<Diagnostic> {
    let missing = |path: &str, cited: &BTreeSet<u32>| -> Vec<Diagnostic> {
        let missing = EQUATIONS.filter(|equation| !cited.contains(equation));
        missing
            .map(|equation| Diagnostic::new(path, 1, format!("`Eq. {equation}` is not cited")))
            .collect()
    };
    let sources = files.iter().filter(|file| file.is_crate_source());
    let mut diagnostics =
        missing("crates/*/src", &sources.flat_map(|file| citations(&file.text)).collect());
    match find(files, PAPER_MAP) {
        Some(map) => diagnostics.extend(missing(PAPER_MAP, &citations(&map.text))),
        None => diagnostics.push(Diagnostic::new(PAPER_MAP, 1, "file is missing")),
    }
    diagnostics
}

/// Returns the numbers after `Eq. `, with ranges such as `Eq. 4–5` expanded.
fn citations(text: &str) -> BTreeSet<u32> {
    let number = |text: &str| {
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        Some((text[..end].parse::<u32>().ok()?, end))
    };
    let mut citations = BTreeSet::new();
    for (at, mark) in text.match_indices("Eq. ") {
        let rest = &text[at + mark.len()..];
        let Some((first, end)) = number(rest) else { continue };
        let last = rest[end..].strip_prefix('–').and_then(number).map_or(first, |(last, _)| last);
        citations.extend(EQUATIONS.filter(|equation| (first..=last).contains(equation)));
    }
    citations
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::tests::{SOURCE, check_with, file, tidy_files};
    use super::*;

    #[test]
    fn equation_without_citation_is_reported() {
        let found = check_with(file(PAPER_MAP, "Eq. 1–3 and Eq. 5–8, Eq. 10, Eq. x"));
        assert_eq!(
            found,
            [
                "docs/paper-map.md:1: `Eq. 4` is not cited",
                "docs/paper-map.md:1: `Eq. 9` is not cited"
            ]
        );
        let found = check_with(file(SOURCE, &tidy_files()[4].text.replace("1–9", "1–6")));
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], "crates/*/src:1: `Eq. 7` is not cited");
        // A citation in a test or in a document does not count as one in the source.
        let mut files = tidy_files();
        files[4].text = files[4].text.replace("1–9", "1–8");
        files.push(file("crates/a/tests/x.rs", "//! Eq. 9"));
        assert_eq!(check(&files).len(), 1);
    }

    #[test]
    fn missing_paper_map_is_reported_once() {
        let mut files = tidy_files();
        files.retain(|file| file.path != PAPER_MAP);
        assert_eq!(check(&files).len(), 1);
    }
}
