//! Rules about source files: module documentation, names, unfinished work, unsafe code and absolute
//! paths.

use std::collections::BTreeMap;

use crate::repository::{Diagnostic, TextFile};

use super::{contains_word, on_lines};

/// File names that do not describe their content.
const VAGUE_NAMES: [&str; 6] = ["utils", "common", "helpers", "misc", "base", "manager"];
// Split, so that this file does not break its own rules.
const UNFINISHED: [(&str, &str); 3] = [
    (concat!("TO", "DO"), "belongs in an issue"),
    (concat!("to", "do!"), "is unfinished work"),
    (concat!("#[ig", "nore"), "hides a test; use a nextest profile"),
];
const HOME_DIRECTORIES: [&str; 3] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/")];

/// Places with unsafe code, as ARCHITECTURE.md states.
const UNSAFE_PLACES: [&str; 5] = [
    "crates/graph-diffuser-cube/src/buffer.rs",
    "crates/graph-diffuser-kernels/",
    "crates/graph-diffuser-cli/src/main.rs",
    "crates/graph-diffuser-python/src/lib.rs",
    "loom/",
];
const UNSAFE: [&str; 5] = [
    concat!("un", "safe {"),
    concat!("un", "safe fn "),
    concat!("un", "safe impl"),
    concat!("un", "safe trait"),
    concat!("un", "safe extern"),
];

pub(super) fn module_docs(file: &TextFile) -> Vec<Diagnostic> {
    if !file.is_rust() || file.text.starts_with("//!") {
        Vec::new()
    } else {
        vec![Diagnostic::new(&file.path, 1, "missing module documentation (`//!`)")]
    }
}

pub(super) fn file_names(file: &TextFile) -> Vec<Diagnostic> {
    let parts = file.path.split('/').map(|part| part.split('.').next().unwrap_or(part));
    let vague = parts.filter(|part| VAGUE_NAMES.contains(part));
    vague.map(|part| Diagnostic::new(&file.path, 1, format!("vague file name `{part}`"))).collect()
}

pub(super) fn machine_paths(file: &TextFile) -> Vec<Diagnostic> {
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

pub(super) fn unfinished_work(file: &TextFile) -> Vec<Diagnostic> {
    if !file.is_rust() {
        return Vec::new();
    }
    on_lines(file, |line| {
        let mut words = UNFINISHED.iter();
        let (word, why) = words.find(|(word, _)| contains_word(line, word))?;
        Some(format!("`{word}` {why}"))
    })
}

/// Reports unsafe code in other places than [`UNSAFE_PLACES`], and unsafe functions without a
/// section on safety.
pub(super) fn unsafe_code(file: &TextFile) -> Vec<Diagnostic> {
    if !file.is_rust() {
        return Vec::new();
    }
    let is_allowed = UNSAFE_PLACES.iter().any(|place| file.path.starts_with(place));
    let mut has_safety = false;
    let mut diagnostics = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let code = line.trim_start();
        let mut report =
            |message: &str| diagnostics.push(Diagnostic::new(&file.path, index + 1, message));
        if code.starts_with("//") || code.starts_with("#[") {
            has_safety |= code == "/// # Safety";
            continue;
        }
        if !is_allowed && UNSAFE.iter().any(|word| contains_word(line, word)) {
            report("unsafe code outside of the places that ARCHITECTURE.md lists");
        } else if contains_word(line, UNSAFE[1]) && !has_safety {
            report("unsafe function without a section `# Safety`");
        }
        has_safety = false;
    }
    diagnostics
}

/// Reports public types of one name in several places of the workspace.
pub(super) fn unique_type_names(files: &[TextFile]) -> Vec<Diagnostic> {
    let mut declared: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_crate_source()) {
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

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::tests::{check_with, file, tidy_files};
    use super::*;

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
    fn unsafe_code_is_confined_and_documented() {
        let function = format!("//! X.\n/// Does.\n#[inline]\npub {}x() {{}}", UNSAFE[1]);
        let found = check_with(file("crates/a/src/x.rs", &function));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/a/src/x.rs:4: unsafe code outside"), "{found:?}");
        let path = "crates/graph-diffuser-kernels/src/x.rs";
        let found = check_with(file(path, &function));
        assert!(found[0].ends_with("without a section `# Safety`"), "{found:?}");
        let documented = function.replace("Does.", "Does.\n///\n/// # Safety\n/// Always.");
        assert!(check_with(file(path, &documented)).is_empty());
        let comment = format!("//! X.\n// {}", UNSAFE[0]);
        assert!(check_with(file("crates/a/src/x.rs", &comment)).is_empty());
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
}
