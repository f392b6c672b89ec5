//! Rule about documents: relative links refer to files of the repository.

use crate::repository::{Diagnostic, TextFile};

pub(super) fn relative_links(files: &[TextFile]) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("md")) {
        let directory = file.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let mut in_code = false;
        for (index, line) in file.text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            for link in links(&without_code(line)).filter(|_| !in_code) {
                let target = join(directory, link);
                let exists = files.iter().any(|found| {
                    let rest = found.path.strip_prefix(&target);
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                });
                if !exists {
                    let message = format!("link to `{link}`, which does not exist");
                    diagnostics.push(Diagnostic::new(&file.path, index + 1, message));
                }
            }
        }
    }
    diagnostics
}

/// Returns the targets of the links in a line, without URLs and anchors.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let paths = targets.map(|target| target.split_once('#').map_or(target, |(path, _)| path));
    paths.filter(|path| !path.is_empty() && !path.contains("://") && !path.starts_with("mailto:"))
}

/// Removes the code spans of a line.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Resolves `..` in a path relative to a directory.
fn join(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_with, file};

    #[test]
    fn broken_link_is_reported_with_its_line() {
        let text = "[a](paper-map.md#eq) [b](https://example.org/x) [c](#here)\n\
                    [d](guide) [e](../docs/guide/recipes.md)\n[`f`](missing.md) [g](guid) `C[NH](C)`\n\
                    ```\n[h](code.md)\n```";
        assert_eq!(
            check_with(file("docs/x.md", text)),
            [
                "docs/x.md:3: link to `missing.md`, which does not exist",
                "docs/x.md:3: link to `guid`, which does not exist",
            ]
        );
    }
}
