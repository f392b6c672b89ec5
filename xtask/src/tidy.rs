//! `cargo xtask tidy`: style rules that the compiler and clippy do not check.
//!
//! All text files are read once into [`TextFile`]s; a rule is a function from those to diagnostics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

/// Equations of the paper, as printed.
const EQUATIONS: std::ops::RangeInclusive<u32> = 1..=9;
const PAPER_MAP: &str = "docs/paper-map.md";
/// Page that lists every built-in recipe.
const RECIPE_LIST: &str = "docs/guide/recipes.md";
/// Directory of the built-in recipes.
const RECIPES: &str = "crates/graph-diffuser/recipes/";
const RECIPE_SOURCE: &str = "crates/graph-diffuser/src/recipe.rs";
/// This file quotes what it forbids.
const THIS_FILE: &str = "xtask/src/tidy.rs";
/// File names that do not describe their content.
const VAGUE_NAMES: [&str; 6] = ["utils", "common", "helpers", "misc", "base", "manager"];
const MAX_MARKDOWN_WIDTH: usize = 120;
const MAX_COMMENT_WIDTH: usize = 100;
const MAX_README_BYTES: usize = 8 * 1024;
// Split, so that this file does not break its own rules.
const UNFINISHED: [(&str, &str); 3] = [
    (concat!("TO", "DO"), "belongs in an issue"),
    (concat!("to", "do!"), "is unfinished work"),
    (concat!("#[ig", "nore"), "hides a test; use a nextest profile"),
];
const HOME_DIRECTORIES: [&str; 3] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/")];

/// Words and phrases that this project does not use, and what to write instead.
const DISCOURAGED: [(&str, &str); 36] = [
    ("graphs to learn from", "training graphs"),
    ("is sound", "is valid"),
    ("because:", "caused by:"),
    ("graphics processor", "GPU"),
    ("labels of 0 and 1", "binary labels"),
    ("who attends to whom", "attention weights"),
    ("to be had", "available"),
    ("so many", "the number of"),
    ("goes by rows", "is evaluated in chunks"),
    ("go on with", "resume, continue"),
    ("goes on with", "resumes, continues"),
    ("is no molecule", "is not a valid SMILES string"),
    ("the user's own", "user-provided"),
    ("of your own", "your"),
    ("that are alike", "identical"),
    ("misused", "usage error"),
    ("misspelt", "misspelled"),
    ("passed over", "skipped"),
    ("what is learned", "target, task"),
    ("the numbers mean", "schema"),
    ("changes nothing", "has no effect"),
    ("draws the parameters", "initializes"),
    ("what came of it", "result"),
    ("stands twice", "is a duplicate"),
    ("with most to tell", "most concentrated attention"),
    ("stands for", "is, represents"),
    ("linear maps", "linear layers"),
    ("optimiser", "optimizer"),
    ("normalise", "normalize"),
    ("normalisation", "normalization"),
    ("serialise", "serialize"),
    ("initialise", "initialize"),
    ("colour", "color"),
    ("neighbour", "neighbor"),
    ("behaviour", "behavior"),
    ("catalogue", "catalog"),
];

/// First words with which a doc comment does not open: it names what it documents instead.
const DISCOURAGED_OPENINGS: [&str; 7] =
    ["What", "Where", "Which", "Whether", "How", "Whose", "The same"];

/// A text file of the repository.
#[derive(Debug)]
struct TextFile {
    /// Path relative to the root, separated by `/`.
    path: String,
    text: String,
}

/// A violation of a rule.
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
    let rules = [
        module_docs,
        file_names,
        machine_paths,
        unfinished_work,
        discouraged_words,
        doc_openings,
        line_width,
        readme_size,
    ];
    let mut diagnostics: Vec<Diagnostic> =
        files.iter().flat_map(|file| rules.iter().flat_map(|rule| rule(file))).collect();
    diagnostics.extend(cited_equations(files));
    diagnostics.extend(listed_recipes(files));
    diagnostics.extend(unique_type_names(files));
    diagnostics
}

fn module_docs(file: &TextFile) -> Vec<Diagnostic> {
    if !is_rust(file) || file.text.starts_with("//!") {
        Vec::new()
    } else {
        vec![Diagnostic::new(&file.path, 1, "missing module documentation (`//!`)")]
    }
}

fn file_names(file: &TextFile) -> Vec<Diagnostic> {
    let parts = file.path.split('/').map(|part| part.split('.').next().unwrap_or(part));
    let vague = parts.filter(|part| VAGUE_NAMES.contains(part));
    vague.map(|part| Diagnostic::new(&file.path, 1, format!("vague file name `{part}`"))).collect()
}

fn machine_paths(file: &TextFile) -> Vec<Diagnostic> {
    // Paths in a lock file come from the packages it lists.
    if file.path == "Cargo.lock" {
        return Vec::new();
    }
    // After a letter or a dot it is the middle of a relative path or of a URL.
    let is_absolute = |before: &str| {
        !before.ends_with(|last: char| last.is_alphanumeric() || "._-~".contains(last))
    };
    on_lines(file, |line| {
        let found = HOME_DIRECTORIES
            .iter()
            .copied()
            .find(|home| line.match_indices(home).any(|(at, _)| is_absolute(&line[..at])));
        found.map(|home| format!("absolute path below `{home}`"))
    })
}

fn unfinished_work(file: &TextFile) -> Vec<Diagnostic> {
    if !is_rust(file) {
        return Vec::new();
    }
    on_lines(file, |line| {
        let mut words = UNFINISHED.iter();
        let (word, why) = words.find(|(word, _)| contains_word(line, word))?;
        Some(format!("`{word}` {why}"))
    })
}

fn discouraged_words(file: &TextFile) -> Vec<Diagnostic> {
    let is_prose = ["rs", "md", "toml", "js", "html", "py", "snap", "sh"]
        .iter()
        .any(|extension| has_extension(file, extension));
    if !is_prose || file.path == THIS_FILE {
        return Vec::new();
    }
    on_lines(file, |line| {
        let lower = line.to_lowercase();
        let (phrase, instead) =
            DISCOURAGED.iter().find(|(phrase, _)| contains_word(&lower, phrase))?;
        Some(format!("`{phrase}` is not used here; write: {instead}"))
    })
}

fn doc_openings(file: &TextFile) -> Vec<Diagnostic> {
    if !is_rust(file) {
        return Vec::new();
    }
    let mut diagnostics = Vec::new();
    let mut in_doc = false;
    for (index, line) in file.text.lines().enumerate() {
        let doc = line.trim_start().strip_prefix("/// ");
        if let (Some(text), false) = (doc, in_doc)
            && let Some(opening) = DISCOURAGED_OPENINGS.iter().find(|opening| {
                text.strip_prefix(**opening).is_some_and(|rest| rest.starts_with(' '))
            })
        {
            let message =
                format!("doc comment opens with `{opening}`; use a verb or a noun phrase");
            diagnostics.push(Diagnostic::new(&file.path, index + 1, message));
        }
        in_doc = line.trim_start().starts_with("///");
    }
    diagnostics
}

fn line_width(file: &TextFile) -> Vec<Diagnostic> {
    let is_markdown = has_extension(file, "md");
    if !is_markdown && !is_rust(file) {
        return Vec::new();
    }
    on_lines(file, |line| {
        let width = line.chars().count();
        let max = if is_markdown { MAX_MARKDOWN_WIDTH } else { MAX_COMMENT_WIDTH };
        // Tables and links cannot be wrapped.
        let cannot_wrap = line.trim_start().starts_with('|') || line.contains("](");
        let applies = if is_markdown { !cannot_wrap } else { line.trim_start().starts_with("//") };
        (applies && width > max).then(|| format!("line of {width} characters, at most {max}"))
    })
}

fn readme_size(file: &TextFile) -> Vec<Diagnostic> {
    let bytes = file.text.len();
    if file.path == "README.md" && bytes > MAX_README_BYTES {
        let message = format!("{bytes} bytes, at most {MAX_README_BYTES}");
        vec![Diagnostic::new(&file.path, 1, message)]
    } else {
        Vec::new()
    }
}

fn cited_equations(files: &[TextFile]) -> Vec<Diagnostic> {
    let missing = |path: &str, cited: &BTreeSet<u32>| -> Vec<Diagnostic> {
        let missing = EQUATIONS.filter(|equation| !cited.contains(equation));
        missing
            .map(|equation| Diagnostic::new(path, 1, format!("`Eq. {equation}` is not cited")))
            .collect()
    };
    let sources = files.iter().filter(|file| is_rust(file) && is_crate_source(&file.path));
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

fn listed_recipes(files: &[TextFile]) -> Vec<Diagnostic> {
    let text = |path: &str| find(files, path).map_or("", |file| file.text.as_str());
    let built_in = text(RECIPE_SOURCE).split_once("BUILT_IN").map_or("", |(_, after)| after);
    let built_in = built_in.split_once("];").map_or("", |(list, _)| list);
    let mut diagnostics = Vec::new();
    for file in files {
        let name = file.path.strip_prefix(RECIPES).and_then(|name| name.strip_suffix(".toml"));
        let Some(name) = name else { continue };
        if !contains_name(text(RECIPE_LIST), name) {
            let message = format!("`{name}` is not listed in {RECIPE_LIST}");
            diagnostics.push(Diagnostic::new(&file.path, 1, message));
        }
        if !built_in.contains(&format!("\"{name}\",")) {
            let message = format!("`{name}` is not in `BUILT_IN` of {RECIPE_SOURCE}");
            diagnostics.push(Diagnostic::new(&file.path, 1, message));
        }
    }
    diagnostics
}

/// Reports public types of one name in several places of the workspace.
fn unique_type_names(files: &[TextFile]) -> Vec<Diagnostic> {
    let mut declared: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_rust(file) && is_crate_source(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(name) = public_type(line) {
                declared.entry(name).or_default().push((&file.path, index + 1));
            }
        }
    }
    let repeated = declared.into_iter().filter(|(_, places)| places.len() > 1);
    let diagnostics = repeated.flat_map(|(name, places)| {
        let (first, line) = places[0];
        let message = format!("public type `{name}` is also declared in {first}:{line}");
        let others: Vec<(String, usize)> =
            places[1..].iter().map(|(path, line)| ((*path).to_owned(), *line)).collect();
        others.into_iter().map(move |(path, line)| Diagnostic::new(&path, line, message.clone()))
    });
    diagnostics.collect()
}

/// Returns the name of the public type that a line declares.
fn public_type(line: &str) -> Option<&str> {
    let declaration = line.trim_start().strip_prefix("pub ")?;
    let keywords = ["struct ", "enum ", "trait ", "type ", "union "];
    let rest = keywords.iter().find_map(|keyword| declaration.strip_prefix(keyword))?;
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    Some(&rest[..end.unwrap_or(rest.len())])
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

/// Returns whether `text` contains the recipe name `name`, not as a part of a longer name.
fn contains_name(text: &str, name: &str) -> bool {
    let part_of_name = |letter: char| letter.is_alphanumeric() || "-_".contains(letter);
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(part_of_name) && !text[at + name.len()..].starts_with(part_of_name)
    })
}

/// Applies a rule to every line of a file.
fn on_lines(file: &TextFile, rule: impl Fn(&str) -> Option<String>) -> Vec<Diagnostic> {
    let lines = file.text.lines().enumerate();
    lines
        .filter_map(|(index, line)| Some(Diagnostic::new(&file.path, index + 1, rule(line)?)))
        .collect()
}

fn find<'a>(files: &'a [TextFile], path: &str) -> Option<&'a TextFile> {
    files.iter().find(|file| file.path == path)
}

fn is_rust(file: &TextFile) -> bool {
    has_extension(file, "rs")
}

fn has_extension(file: &TextFile, extension: &str) -> bool {
    Path::new(&file.path).extension().is_some_and(|found| found == extension)
}

fn is_crate_source(path: &str) -> bool {
    let mut parts = path.split('/');
    (parts.next(), parts.nth(1)) == (Some("crates"), Some("src"))
}

/// Reads all text files below `root` except those that `.gitignore` lists, sorted by path.
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

/// Matches the three pattern forms that our `.gitignore` uses: `/path`, `name` and `*.extension`.
fn is_ignored(path: &str, name: &str, pattern: &str) -> bool {
    let pattern = pattern.trim_end_matches('/');
    match (pattern.strip_prefix('/'), pattern.strip_prefix('*')) {
        (Some(absolute), _) => path == absolute,
        (None, Some(suffix)) => name.ends_with(suffix),
        (None, None) => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    /// Files of a repository without violations.
    fn tidy_files() -> Vec<TextFile> {
        vec![
            file(RECIPE_LIST, "| `grid-quick` | minutes |"),
            file(PAPER_MAP, "Eq. 1, Eq. 2–3, Eq. 4–5, Eq. 6–8, Eq. 9"),
            file("crates/graph-diffuser/recipes/grid-quick.toml", "name = \"grid-quick\""),
            file(
                RECIPE_SOURCE,
                "//! Recipes (Eq. 1–9).\npub const BUILT_IN: [(&str, &str); 1] = \
                 embed_recipes![\n    \"grid-quick\",\n];",
            ),
        ]
    }

    /// Diagnostics after adding `changed` to the tidy files, replacing a file of the same path.
    fn check_with(changed: TextFile) -> Vec<String> {
        let mut files = tidy_files();
        files.retain(|file| file.path != changed.path);
        files.push(changed);
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tidy_repository_has_no_diagnostics() {
        assert_eq!(check(&tidy_files()), []);
    }

    #[test]
    fn module_without_docs_is_reported() {
        let expected = ["crates/a/src/x.rs:1: missing module documentation (`//!`)"];
        assert_eq!(check_with(file("crates/a/src/x.rs", "\n//! Late.")), expected);
        assert_eq!(check_with(file("crates/a/src/x.rs", "")), expected);
        assert!(check_with(file("docs/x.md", "plain")).is_empty());
    }

    #[test]
    fn vague_file_name_is_reported() {
        for path in ["crates/a/src/utils.rs", "crates/a/src/common/tensor.rs", "docs/misc.md"] {
            assert_eq!(check_with(file(path, "//! X.")).len(), 1, "{path}");
        }
        for path in ["crates/a/src/database.rs", "docs/base-rates.md"] {
            assert!(check_with(file(path, "//! X.")).is_empty(), "{path}");
        }
    }

    #[test]
    fn machine_path_is_reported_with_its_line() {
        for home in HOME_DIRECTORIES {
            let found = check_with(file("docs/x.md", &format!("one\nsee `{home}me/x`\nthree")));
            assert_eq!(found, [format!("docs/x.md:2: absolute path below `{home}`")]);
            assert_eq!(check_with(file("a.toml", &format!("{home}x"))).len(), 1);
            for relative in
                [format!("https://example.org{home}x"), format!("..{home}x"), format!("~{home}x")]
            {
                assert!(check_with(file("docs/x.md", &relative)).is_empty(), "{relative}");
            }
            assert!(check_with(file("Cargo.lock", home)).is_empty());
        }
    }

    #[test]
    fn unfinished_work_is_reported_in_source_files_only() {
        for (word, _) in UNFINISHED {
            let text = format!("//! X.\n    {word}] now");
            let found = check_with(file("xtask/src/x.rs", &text));
            assert_eq!(found.len(), 1, "{word}");
            assert!(found[0].starts_with("xtask/src/x.rs:2: "), "{found:?}");
            assert!(check_with(file("CONTRIBUTING.md", &text)).is_empty(), "{word}");
        }
        assert!(check_with(file("xtask/src/x.rs", "//! MASTODON, in_todo!x")).is_empty());
    }

    #[test]
    fn discouraged_words_are_reported_in_any_case_and_as_whole_words() {
        for text in ["The recipe is sound.", "Colour of a node", "is\nbecause: it"] {
            assert_eq!(check_with(file("docs/x.md", text)).len(), 1, "{text}");
            assert_eq!(check_with(file("crates/a/src/x.rs", &format!("//! {text}"))).len(), 1);
        }
        for text in ["this sounds fine", "colours_of", "so manyfold"] {
            assert!(check_with(file("docs/x.md", text)).is_empty(), "{text}");
        }
        assert!(check_with(file("data.csv", "colour")).is_empty());
    }

    #[test]
    fn doc_comment_opening_with_a_question_word_is_reported() {
        let text = "//! X.\n/// What it does.\n/// Which is fine here.\nstruct X;\n/// The same.\n";
        let found = check_with(file("crates/a/src/x.rs", text));
        assert_eq!(
            found,
            ["crates/a/src/x.rs:2: doc comment opens with `What`; use a verb or a noun phrase"]
        );
    }

    #[test]
    fn long_lines_are_reported_in_prose_and_comments() {
        let long = "x".repeat(MAX_MARKDOWN_WIDTH + 1);
        assert_eq!(check_with(file("docs/x.md", &long)).len(), 1);
        assert!(check_with(file("docs/x.md", &format!("| {long} |"))).is_empty());
        let comment = format!("//! X.\n// {}", "x".repeat(MAX_COMMENT_WIDTH));
        assert_eq!(check_with(file("crates/a/src/x.rs", &comment)).len(), 1);
        assert_eq!(check_with(file("README.md", &"x\n".repeat(MAX_README_BYTES))).len(), 1);
    }

    #[test]
    fn public_type_name_must_be_unique() {
        let mut files = tidy_files();
        files.push(file("crates/a/src/x.rs", "//! X.\npub struct Layout<'a>;\nstruct Row;"));
        files.push(file("crates/b/src/y.rs", "//! Y.\npub enum Layout {}\npub struct Row;"));
        let found: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["crates/b/src/y.rs:2: public type `Layout` is also declared in crates/a/src/x.rs:2"]
        );
    }

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
        let found = check_with(file(RECIPE_SOURCE, &tidy_files()[3].text.replace("1–9", "1–6")));
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], "crates/*/src:1: `Eq. 7` is not cited");
        // A citation in a test or in a document does not count as one in the source.
        let mut files = tidy_files();
        files[3].text = files[3].text.replace("1–9", "1–8");
        files.push(file("crates/a/tests/x.rs", "//! Eq. 9"));
        assert_eq!(check(&files).len(), 1);
    }

    #[test]
    fn missing_paper_map_is_reported_once() {
        let mut files = tidy_files();
        files.retain(|file| file.path != PAPER_MAP);
        assert_eq!(check(&files).len(), 1);
    }

    #[test]
    fn unlisted_recipe_is_reported() {
        let found = check_with(file("crates/graph-diffuser/recipes/zinc.toml", ""));
        assert_eq!(
            found,
            [
                "crates/graph-diffuser/recipes/zinc.toml:1: `zinc` is not listed in docs/guide/recipes.md",
                "crates/graph-diffuser/recipes/zinc.toml:1: `zinc` is not in `BUILT_IN` of crates/graph-diffuser/src/recipe.rs",
            ]
        );
        // A longer name does not match a shorter one.
        let found = check_with(file(RECIPE_LIST, "`grid-quick-authors` and `my-grid-quick`"));
        assert_eq!(
            found,
            [
                "crates/graph-diffuser/recipes/grid-quick.toml:1: `grid-quick` is not listed in docs/guide/recipes.md"
            ]
        );
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
