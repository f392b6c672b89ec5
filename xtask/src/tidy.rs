//! `cargo xtask tidy`: what the style asks for and no compiler sees.
//!
//! Files are read once into [`TextFile`]s; each rule is a function from those to faults.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

/// Equations of the paper, as printed.
const EQUATIONS: std::ops::RangeInclusive<u32> = 1..=9;
const PAPER_MAP: &str = "docs/paper-map.md";
const README: &str = "README.md";
const RECIPE_SOURCE: &str = "crates/graph-diffuser/src/recipe.rs";
/// Names that say nothing of what is inside.
const EMPTY_NAMES: [&str; 6] = ["utils", "common", "helpers", "misc", "base", "manager"];
// Written in halves, so that this file does not break its own rules.
const UNFINISHED: [(&str, &str); 3] = [
    (concat!("TO", "DO"), "is for an issue, not for the source"),
    (concat!("to", "do!"), "is unfinished work"),
    (concat!("#[ig", "nore"), "hides a test; use a nextest profile"),
];
const HOMES: [&str; 3] = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/")];

/// A text file of the repository.
#[derive(Debug)]
struct TextFile {
    /// From the root, with `/` between the parts.
    path: String,
    text: String,
}

/// Something to put right.
#[derive(Debug, PartialEq, Eq)]
struct Diagnostic {
    path: String,
    line: usize,
    message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

impl Diagnostic {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

/// Checks the repository at `root` and prints every fault.
///
/// # Errors
/// Where there is a fault.
pub(crate) fn tidy(root: &Path) -> anyhow::Result<()> {
    let files = read_all(root)?;
    let faults = faults(&files);
    for fault in &faults {
        eprintln!("{fault}");
    }
    match faults.len() {
        0 => eprintln!("{} files are tidy", files.len()),
        1 => bail!("1 fault"),
        count => bail!("{count} faults"),
    }
    Ok(())
}

fn faults(files: &[TextFile]) -> Vec<Diagnostic> {
    let rules = [
        modules_open_with_their_idea,
        names_say_something,
        no_paths_of_one_machine,
        nothing_unfinished,
    ];
    let mut faults: Vec<Diagnostic> =
        files.iter().flat_map(|file| rules.iter().flat_map(|rule| rule(file))).collect();
    faults.extend(equations_are_cited(files));
    faults.extend(recipes_are_listed(files));
    faults
}

fn modules_open_with_their_idea(file: &TextFile) -> Vec<Diagnostic> {
    let opens = !is_rust(file) || file.text.starts_with("//!");
    if opens {
        Vec::new()
    } else {
        vec![Diagnostic::new(&file.path, 1, "opens without `//!`: say what the file is")]
    }
}

fn names_say_something(file: &TextFile) -> Vec<Diagnostic> {
    let parts = file.path.split('/').map(|part| part.split('.').next().unwrap_or(part));
    let empty = parts.filter(|part| EMPTY_NAMES.contains(part));
    empty
        .map(|part| Diagnostic::new(&file.path, 1, format!("`{part}` says nothing: name the idea")))
        .collect()
}

fn no_paths_of_one_machine(file: &TextFile) -> Vec<Diagnostic> {
    // In other people's text of a lock file such a path would be theirs.
    if file.path == "Cargo.lock" {
        return Vec::new();
    }
    // After a letter or a dot it is the middle of a relative path or of an address.
    let stands_alone = |before: &str| {
        !before.ends_with(|last: char| last.is_alphanumeric() || "._-~".contains(last))
    };
    let finds = |line: &str| {
        let found = HOMES
            .iter()
            .copied()
            .find(|home| line.match_indices(home).any(|(at, _)| stands_alone(&line[..at])));
        found.map(|home| format!("a path below `{home}` exists on one machine only"))
    };
    on_lines(file, finds)
}

fn nothing_unfinished(file: &TextFile) -> Vec<Diagnostic> {
    if !is_rust(file) {
        return Vec::new();
    }
    let is_word = |line: &str, at: usize, word: &str| {
        let part_of_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        !line[..at].ends_with(part_of_word) && !line[at + word.len()..].starts_with(part_of_word)
    };
    on_lines(file, |line| {
        let mut words = UNFINISHED.iter();
        let (word, why) = words
            .find(|(word, _)| line.match_indices(word).any(|(at, _)| is_word(line, at, word)))?;
        Some(format!("`{word}` {why}"))
    })
}

fn equations_are_cited(files: &[TextFile]) -> Vec<Diagnostic> {
    let missing = |path: &str, cited: &BTreeSet<u32>| -> Vec<Diagnostic> {
        let missing = EQUATIONS.filter(|equation| !cited.contains(equation));
        missing
            .map(|equation| Diagnostic::new(path, 1, format!("no `Eq. {equation}` is cited")))
            .collect()
    };
    let sources = files.iter().filter(|file| is_rust(file) && is_below_crate_source(&file.path));
    let mut faults = missing("crates/*/src", &sources.flat_map(|file| cited(&file.text)).collect());
    match find(files, PAPER_MAP) {
        Some(map) => faults.extend(missing(PAPER_MAP, &cited(&map.text))),
        None => faults.push(Diagnostic::new(
            PAPER_MAP,
            1,
            "is missing: one row for every equation and table",
        )),
    }
    faults
}

/// Numbers after `Eq. `, with ranges such as `Eq. 4–5` filled in.
fn cited(text: &str) -> BTreeSet<u32> {
    let number = |text: &str| {
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        Some((text[..end].parse::<u32>().ok()?, end))
    };
    let mut cited = BTreeSet::new();
    for (at, mark) in text.match_indices("Eq. ") {
        let rest = &text[at + mark.len()..];
        let Some((first, end)) = number(rest) else { continue };
        let last = rest[end..].strip_prefix('–').and_then(number).map_or(first, |(last, _)| last);
        cited.extend(EQUATIONS.filter(|equation| (first..=last).contains(equation)));
    }
    cited
}

fn recipes_are_listed(files: &[TextFile]) -> Vec<Diagnostic> {
    let text = |path: &str| find(files, path).map_or("", |file| file.text.as_str());
    let built_in = text(RECIPE_SOURCE).split_once("BUILT_IN").map_or("", |(_, after)| after);
    let built_in = built_in.split_once("];").map_or("", |(list, _)| list);
    let mut faults = Vec::new();
    for file in files {
        let Some(name) =
            file.path.strip_prefix("recipes/").and_then(|name| name.strip_suffix(".toml"))
        else {
            continue;
        };
        if !names(text(README), name) {
            faults.push(Diagnostic::new(
                &file.path,
                1,
                format!("`{name}` is not listed in {README}"),
            ));
        }
        let entry = [format!("\"{name}\","), format!("recipes/{name}.toml\"")];
        if !entry.iter().all(|part| built_in.contains(part)) {
            faults.push(Diagnostic::new(
                &file.path,
                1,
                format!("`{name}` is not in `BUILT_IN` of {RECIPE_SOURCE}"),
            ));
        }
    }
    faults
}

/// Whether `text` has `name` by itself, not inside a longer name.
fn names(text: &str, name: &str) -> bool {
    let part_of_name = |letter: char| letter.is_alphanumeric() || "-_".contains(letter);
    let mut places = text.match_indices(name);
    places.any(|(at, _)| {
        !text[..at].ends_with(part_of_name) && !text[at + name.len()..].starts_with(part_of_name)
    })
}

/// A fault for every line of which `finds` has something to say.
fn on_lines(file: &TextFile, finds: impl Fn(&str) -> Option<String>) -> Vec<Diagnostic> {
    let lines = file.text.lines().enumerate();
    lines
        .filter_map(|(place, line)| Some(Diagnostic::new(&file.path, place + 1, finds(line)?)))
        .collect()
}

fn find<'a>(files: &'a [TextFile], path: &str) -> Option<&'a TextFile> {
    files.iter().find(|file| file.path == path)
}

fn is_rust(file: &TextFile) -> bool {
    Path::new(&file.path).extension().is_some_and(|ending| ending == "rs")
}

fn is_below_crate_source(path: &str) -> bool {
    let mut parts = path.split('/');
    (parts.next(), parts.nth(1)) == (Some("crates"), Some("src"))
}

/// All text files below `root`, sorted, without what `.gitignore` names.
fn read_all(root: &Path) -> anyhow::Result<Vec<TextFile>> {
    let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
    let ignored: Vec<&str> =
        ignored.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut files = Vec::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        let path = root.join(&directory);
        for entry in
            fs::read_dir(&path).with_context(|| format!("cannot list `{}`", path.display()))?
        {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                bail!("{} is not UTF-8", entry.path().display())
            };
            let path =
                if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
            if name == ".git" || ignored.iter().any(|pattern| is_ignored(&path, &name, pattern)) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                directories.push(path);
            } else if let Ok(text) = String::from_utf8(fs::read(entry.path())?) {
                files.push(TextFile { path, text });
            }
        }
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(files)
}

/// The three forms of pattern that our `.gitignore` may use: `/path`, `name` and `*.ending`.
fn is_ignored(path: &str, name: &str, pattern: &str) -> bool {
    let pattern = pattern.trim_end_matches('/');
    match (pattern.strip_prefix('/'), pattern.strip_prefix('*')) {
        (Some(from_root), _) => path == from_root,
        (None, Some(ending)) => name.ends_with(ending),
        (None, None) => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    /// A repository without a fault.
    fn tidy_files() -> Vec<TextFile> {
        vec![
            file("README.md", "| `grid-quick` | minutes |"),
            file(PAPER_MAP, "Eq. 1, Eq. 2–3, Eq. 4–5, Eq. 6–8, Eq. 9"),
            file("recipes/grid-quick.toml", "name = \"grid-quick\""),
            file(
                RECIPE_SOURCE,
                "//! Recipes (Eq. 1–9).\npub const BUILT_IN: [(&str, &str); 1] = [\n    \
                 (\"grid-quick\", include_str!(\"../../../recipes/grid-quick.toml\")),\n];",
            ),
        ]
    }

    /// The faults after `changed` replaces or joins the tidy files.
    fn faults_with(changed: TextFile) -> Vec<String> {
        let mut files = tidy_files();
        files.retain(|file| file.path != changed.path);
        files.push(changed);
        faults(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tidy_repository_has_no_fault() {
        assert_eq!(faults(&tidy_files()), []);
    }

    #[test]
    fn a_module_that_does_not_say_what_it_is_is_a_fault() {
        let expected = ["crates/a/src/x.rs:1: opens without `//!`: say what the file is"];
        assert_eq!(faults_with(file("crates/a/src/x.rs", "\n//! Late.")), expected);
        assert_eq!(faults_with(file("crates/a/src/x.rs", "")), expected);
        assert!(faults_with(file("docs/x.md", "plain")).is_empty());
    }

    #[test]
    fn a_name_that_says_nothing_is_a_fault() {
        for path in ["crates/a/src/utils.rs", "crates/a/src/common/tensor.rs", "docs/misc.md"] {
            assert_eq!(faults_with(file(path, "//! X.")).len(), 1, "{path}");
        }
        for path in ["crates/a/src/database.rs", "docs/base-rates.md"] {
            assert!(faults_with(file(path, "//! X.")).is_empty(), "{path}");
        }
    }

    #[test]
    fn a_path_of_one_machine_is_a_fault_with_its_line() {
        for home in HOMES {
            let found = faults_with(file("docs/x.md", &format!("one\nsee `{home}me/x`\nthree")));
            assert_eq!(
                found,
                [format!("docs/x.md:2: a path below `{home}` exists on one machine only")]
            );
            assert_eq!(faults_with(file("a.toml", &format!("{home}x"))).len(), 1);
            for harmless in
                [format!("https://example.org{home}x"), format!("..{home}x"), format!("~{home}x")]
            {
                assert!(faults_with(file("docs/x.md", &harmless)).is_empty(), "{harmless}");
            }
            assert!(faults_with(file("Cargo.lock", home)).is_empty());
        }
    }

    #[test]
    fn unfinished_work_is_a_fault_in_sources_alone() {
        for (word, _) in UNFINISHED {
            let text = format!("//! X.\n    {word}] now");
            let found = faults_with(file("xtask/src/x.rs", &text));
            assert_eq!(found.len(), 1, "{word}");
            assert!(found[0].starts_with("xtask/src/x.rs:2: "), "{found:?}");
            assert!(faults_with(file("CONTRIBUTING.md", &text)).is_empty(), "{word}");
        }
        assert!(faults_with(file("xtask/src/x.rs", "//! MASTODON, in_todo!x")).is_empty());
    }

    #[test]
    fn an_equation_that_is_cited_nowhere_is_a_fault() {
        let found = faults_with(file(PAPER_MAP, "Eq. 1–3 and Eq. 5–8, Eq. 10, Eq. x"));
        assert_eq!(
            found,
            [
                "docs/paper-map.md:1: no `Eq. 4` is cited",
                "docs/paper-map.md:1: no `Eq. 9` is cited"
            ]
        );
        let found = faults_with(file(RECIPE_SOURCE, &tidy_files()[3].text.replace("1–9", "1–6")));
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], "crates/*/src:1: no `Eq. 7` is cited");
        // A citation in a test or in a document does not stand for one in the source.
        let mut files = tidy_files();
        files[3].text = files[3].text.replace("1–9", "1–8");
        files.push(file("crates/a/tests/x.rs", "//! Eq. 9"));
        assert_eq!(faults(&files).len(), 1);
    }

    #[test]
    fn a_paper_map_that_is_missing_is_one_fault() {
        let mut files = tidy_files();
        files.retain(|file| file.path != PAPER_MAP);
        assert_eq!(faults(&files).len(), 1);
    }

    #[test]
    fn a_recipe_that_is_not_listed_is_a_fault() {
        let found = faults_with(file("recipes/zinc.toml", ""));
        assert_eq!(
            found,
            [
                "recipes/zinc.toml:1: `zinc` is not listed in README.md",
                "recipes/zinc.toml:1: `zinc` is not in `BUILT_IN` of crates/graph-diffuser/src/recipe.rs",
            ]
        );
        // A longer name does not stand for a shorter one.
        let found = faults_with(file("README.md", "`grid-quick-authors` and `my-grid-quick`"));
        assert_eq!(found, ["recipes/grid-quick.toml:1: `grid-quick` is not listed in README.md"]);
    }

    #[test]
    fn ignored_files_are_not_read() {
        assert!(is_ignored("target", "target", "/target"));
        assert!(!is_ignored("docs/target", "target", "/target"));
        assert!(is_ignored("docs/target", "target", "target/"));
        assert!(is_ignored("a/b.snap.new", "b.snap.new", "*.snap.new"));
        assert!(!is_ignored("a/b.snap", "b.snap", "*.snap.new"));
    }
}
