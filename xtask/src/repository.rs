//! Files of the repository, and diagnostics about them.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// A file of the repository.
#[derive(Debug)]
pub(crate) struct TextFile {
    /// Path relative to the root, separated by `/`.
    pub(crate) path: String,
    /// Content; empty for a binary file.
    pub(crate) text: String,
}

impl TextFile {
    pub(crate) fn is_rust(&self) -> bool {
        self.has_extension("rs")
    }

    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    /// Returns whether this is a Rust file in `crates/*/src`.
    pub(crate) fn is_crate_source(&self) -> bool {
        let mut parts = self.path.split('/');
        self.is_rust() && (parts.next(), parts.nth(1)) == (Some("crates"), Some("src"))
    }
}

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Diagnostic {
    pub(crate) fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Returns the file at `path`.
pub(crate) fn find<'a>(files: &'a [TextFile], path: &str) -> Option<&'a TextFile> {
    files.iter().find(|file| file.path == path)
}

/// Reads all files below `root` except those that `.gitignore` lists, sorted by path.
///
/// # Errors
/// Returns an error if a directory or a file cannot be read.
pub(crate) fn read_all(root: &Path) -> anyhow::Result<Vec<TextFile>> {
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
            } else {
                let text = String::from_utf8(fs::read(entry.path())?).unwrap_or_default();
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

/// Removes the variables that cargo sets for this program from the environment of a command.
///
/// Build scripts of dependencies depend on them, so that cargo would compile these dependencies
/// again whenever it is started by this program after it was not, and the reverse.
pub(crate) fn without_package_variables(command: &mut Command) -> &mut Command {
    let is_of_package = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_package(name)) {
        command.env_remove(name);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_files_are_not_read() {
        assert!(is_ignored("target", "target", "/target"));
        assert!(!is_ignored("docs/target", "target", "/target"));
        assert!(is_ignored("docs/target", "target", "target/"));
        assert!(is_ignored("a/b.snap.new", "b.snap.new", "*.snap.new"));
        assert!(!is_ignored("a/b.snap", "b.snap", "*.snap.new"));
    }
}
