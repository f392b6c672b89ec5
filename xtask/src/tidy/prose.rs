//! Rules about wording, line width and the size of the README.

use crate::repository::{Diagnostic, TextFile};

use super::{contains_word, on_lines};

/// This file quotes the words that it reports.
const THIS_FILE: &str = "xtask/src/tidy/prose.rs";
const MAX_MARKDOWN_WIDTH: usize = 120;
const MAX_COMMENT_WIDTH: usize = 100;
const MAX_README_BYTES: usize = 8 * 1024;

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

pub(super) fn discouraged_words(file: &TextFile) -> Vec<Diagnostic> {
    let is_prose = ["rs", "md", "toml", "js", "html", "py", "snap", "sh"]
        .iter()
        .any(|extension| file.has_extension(extension));
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

pub(super) fn doc_openings(file: &TextFile) -> Vec<Diagnostic> {
    if !file.is_rust() {
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

pub(super) fn line_width(file: &TextFile) -> Vec<Diagnostic> {
    let is_markdown = file.has_extension("md");
    if !is_markdown && !file.is_rust() {
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

pub(super) fn readme_size(file: &TextFile) -> Vec<Diagnostic> {
    let bytes = file.text.len();
    if file.path == "README.md" && bytes > MAX_README_BYTES {
        let message = format!("{bytes} bytes, at most {MAX_README_BYTES}");
        vec![Diagnostic::new(&file.path, 1, message)]
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_with, file};
    use super::*;

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
}
