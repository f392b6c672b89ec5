//! Rules about built-in recipes: each is embedded, listed in the guide, described and named like
//! its file. That its settings are valid is a unit test of the library.

use crate::repository::{Diagnostic, TextFile, find};

/// Directory of the built-in recipes.
const RECIPES: &str = "crates/graph-diffuser/recipes/";
/// Page that lists every built-in recipe.
pub(super) const RECIPE_LIST: &str = "docs/guide/recipes.md";
/// Macro call in the library that embeds recipes by name.
const EMBEDDED: &str = "= embed_recipes![";

pub(super) fn built_in_recipes(files: &[TextFile]) -> Vec<Diagnostic> {
    let embedded = files
        .iter()
        .filter(|file| file.is_crate_source())
        .find_map(|file| file.text.split_once(EMBEDDED)?.1.split_once("];"))
        .map_or("", |(names, _)| names);
    let listed = find(files, RECIPE_LIST).map_or("", |file| &file.text);
    let mut diagnostics = Vec::new();
    for file in files {
        let name = file.path.strip_prefix(RECIPES).and_then(|name| name.strip_suffix(".toml"));
        let Some(name) = name else { continue };
        let mut report = |holds: bool, message: &str| {
            if !holds {
                diagnostics.push(Diagnostic::new(&file.path, 1, format!("`{name}` {message}")));
            }
        };
        report(contains_name(listed, name), &format!("is not listed in {RECIPE_LIST}"));
        report(embedded.contains(&format!("\"{name}\",")), "is not in `BUILT_IN`");
        report(file.text.starts_with("# "), "does not begin with a comment that describes it");
        let key = format!("name = \"{name}\"");
        report(file.text.lines().any(|line| line == key), "is not the `name` in the file");
    }
    diagnostics
}

/// Returns whether `text` contains the recipe name `name`, not as a part of a longer name.
fn contains_name(text: &str, name: &str) -> bool {
    let part_of_name = |letter: char| letter.is_alphanumeric() || "-_".contains(letter);
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(part_of_name) && !text[at + name.len()..].starts_with(part_of_name)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_with, file};
    use super::*;

    #[test]
    fn unlisted_recipe_is_reported() {
        let text = "# ZINC.\nname = \"zinc\"";
        assert_eq!(
            check_with(file("crates/graph-diffuser/recipes/zinc.toml", text)),
            [
                "crates/graph-diffuser/recipes/zinc.toml:1: `zinc` is not listed in \
                 docs/guide/recipes.md",
                "crates/graph-diffuser/recipes/zinc.toml:1: `zinc` is not in `BUILT_IN`",
            ]
        );
        // A longer name does not match a shorter one.
        let found = check_with(file(RECIPE_LIST, "`grid-quick-authors` and `my-grid-quick`"));
        assert_eq!(
            found,
            ["crates/graph-diffuser/recipes/grid-quick.toml:1: `grid-quick` is not listed in \
              docs/guide/recipes.md"]
        );
    }

    #[test]
    fn recipe_with_another_name_or_without_description_is_reported() {
        let path = "crates/graph-diffuser/recipes/grid-quick.toml";
        assert_eq!(
            check_with(file(path, "name = \"grid\"")),
            [
                format!("{path}:1: `grid-quick` does not begin with a comment that describes it"),
                format!("{path}:1: `grid-quick` is not the `name` in the file"),
            ]
        );
    }
}
