//! `cargo xtask tidy`: style rules that the compiler and clippy do not check.
//!
//! All text files are read once into [`TextFile`]s; a rule is a function from those to diagnostics.

mod prose;
mod sources;
mod links;
mod paper;
mod recipes;

use std::path::Path;

use anyhow::bail;

use crate::modules;
use crate::repository::{Diagnostic, TextFile, read_all};

/// Checks the repository at `root` and prints every violation.
///
/// # Errors
/// Returns an error if there is any violation.
pub(crate) fn tidy(root: &Path) -> anyhow::Result<()> {
    let files = read_all(root)?;
    let diagnostics = check(&files);
    for diagnostic in &diagnostics {
        eprintln!("{diagnostic}");
    }
    match diagnostics.len() {
        0 => eprintln!("{} files checked, no problems found", files.len()),
        1 => bail!("1 problem found"),
        count => bail!("{count} problems found"),
    }
    Ok(())
}

fn check(files: &[TextFile]) -> Vec<Diagnostic> {
    let rules_of_a_file = [
        sources::module_docs,
        sources::file_names,
        sources::machine_paths,
        sources::unfinished_work,
        sources::unsafe_code,
        prose::discouraged_words,
        prose::doc_openings,
        prose::line_width,
        prose::readme_size,
    ];
    let rules_of_all_files = [
        sources::unique_type_names,
        links::relative_links,
        paper::cited_equations,
        recipes::built_in_recipes,
        modules::check,
    ];
    let of_a_file =
        files.iter().flat_map(|file| rules_of_a_file.iter().flat_map(|rule| rule(file)));
    of_a_file.chain(rules_of_all_files.iter().flat_map(|rule| rule(files))).collect()
}

/// Returns whether `text` contains `word`, not as a part of a longer word.
fn contains_word(text: &str, word: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        (!word.starts_with(is_word) || !before.ends_with(is_word))
            && (!word.ends_with(is_word) || !after.starts_with(is_word))
    })
}

/// Applies a rule to every line of a file.
fn on_lines(file: &TextFile, rule: impl Fn(&str) -> Option<String>) -> Vec<Diagnostic> {
    let lines = file.text.lines().enumerate();
    lines
        .filter_map(|(index, line)| Some(Diagnostic::new(&file.path, index + 1, rule(line)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::paper::PAPER_MAP;
    use super::recipes::RECIPE_LIST;
    use super::*;

    /// File of [`tidy_files`] that embeds the recipes and cites every equation.
    pub(super) const SOURCE: &str = "crates/graph-diffuser/src/recipe.rs";

    pub(super) fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    /// Files of a repository without violations.
    pub(super) fn tidy_files() -> Vec<TextFile> {
        vec![
            file(modules::PAGE, &modules::page(&[])),
            file(RECIPE_LIST, "| `grid-quick` | minutes |"),
            file(PAPER_MAP, "Eq. 1, Eq. 2–3, Eq. 4–5, Eq. 6–8, Eq. 9"),
            file(
                "crates/graph-diffuser/recipes/grid-quick.toml",
                "# Minutes.\nname = \"grid-quick\"",
            ),
            file(
                SOURCE,
                "//! Recipes (Eq. 1–9).\npub const BUILT_IN: [(&str, &str); 1] = \
                 embed_recipes![\n    \"grid-quick\",\n];",
            ),
        ]
    }

    /// Diagnostics after adding `changed` to the tidy files, replacing a file of the same path.
    pub(super) fn check_with(changed: TextFile) -> Vec<String> {
        let mut files = tidy_files();
        files.retain(|file| file.path != changed.path);
        files.push(changed);
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tidy_repository_has_no_diagnostics() {
        assert_eq!(check(&tidy_files()), []);
    }
}
