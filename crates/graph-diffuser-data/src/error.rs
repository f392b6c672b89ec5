//! What is wrong with an input file, where, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

/// One kind of thing that can be wrong; every reader has its own.
pub trait Diagnostic: std::error::Error + Send + Sync + 'static {
    /// What the user can do about it, when we know.
    fn hint(&self) -> Option<String> {
        None
    }
}

/// A fault and its place.
#[derive(Debug)]
pub struct LocatedError {
    /// The file.
    pub path: PathBuf,
    /// Its line, counted from one.
    pub line: Option<u64>,
    /// The name or number of the column, or the key.
    pub column: Option<String>,
    /// What is wrong there.
    pub fault: Box<dyn Diagnostic>,
}

impl LocatedError {
    /// A fault of a file as a whole.
    pub fn new(path: &Path, fault: impl Diagnostic) -> Self {
        Self { path: path.to_owned(), line: None, column: None, fault: Box::new(fault) }
    }

    /// The same, in this line.
    pub fn at_line(self, line: u64) -> Self {
        Self { line: Some(line), ..self }
    }

    /// The same, in this column.
    pub fn in_column(self, column: impl Into<String>) -> Self {
        Self { column: Some(column.into()), ..self }
    }

    /// What the user can do about it, when we know.
    pub fn hint(&self) -> Option<String> {
        self.fault.hint()
    }
}

impl fmt::Display for LocatedError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}`", self.path.display())?;
        if let Some(line) = self.line {
            write!(formatter, ", line {line}")?;
        }
        if let Some(column) = &self.column {
            write!(formatter, ", column `{column}`")?;
        }
        write!(formatter, ": {}", self.fault)
    }
}

impl std::error::Error for LocatedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.fault.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("`{0}` is not a number")]
    struct NotANumber(String);

    impl Diagnostic for NotANumber {}

    #[test]
    fn a_problem_says_where_it_is() {
        let problem = LocatedError::new(Path::new("mine.csv"), NotANumber("one".into()));
        assert_eq!(problem.to_string(), "`mine.csv`: `one` is not a number");
        let problem = problem.at_line(3).in_column("target");
        assert_eq!(
            problem.to_string(),
            "`mine.csv`, line 3, column `target`: `one` is not a number"
        );
    }
}
