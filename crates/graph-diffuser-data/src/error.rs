//! Errors in input files: what is wrong, where, and how to fix it.

use std::fmt;
use std::path::{Path, PathBuf};

/// An error that may know how to fix its cause; implemented by every error that a user can see.
pub trait Diagnostic: std::error::Error + Send + Sync + 'static {
    /// Returns a suggestion that fixes the error, if there is one.
    fn hint(&self) -> Option<String> {
        None
    }

    /// Returns whether the arguments of a command, not its environment, caused the error.
    fn is_usage_error(&self) -> bool {
        false
    }
}

impl Diagnostic for std::io::Error {}

/// An error and its location in an input file.
#[derive(Debug)]
pub struct LocatedError {
    /// Path of the file.
    pub path: PathBuf,
    /// Line number, starting at 1.
    pub line: Option<u64>,
    /// Column name or number, or key.
    pub column: Option<String>,
    /// The error itself.
    pub error: Box<dyn Diagnostic>,
}

impl LocatedError {
    /// Creates an error that concerns the file as a whole.
    pub(crate) fn new(path: &Path, error: impl Diagnostic) -> Self {
        Self { path: path.to_owned(), line: None, column: None, error: Box::new(error) }
    }

    /// Sets the line number, starting at 1.
    pub(crate) fn at_line(self, line: u64) -> Self {
        Self { line: Some(line), ..self }
    }

    /// Sets the column or key.
    pub(crate) fn in_column(self, column: impl Into<String>) -> Self {
        Self { column: Some(column.into()), ..self }
    }
}

impl LocatedError {
    /// Returns whether the error itself is of type `E`.
    pub fn is<E: Diagnostic>(&self) -> bool {
        let error: &(dyn std::error::Error + 'static) = self.error.as_ref();
        error.is::<E>()
    }
}

impl Diagnostic for LocatedError {
    fn hint(&self) -> Option<String> {
        self.error.hint()
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
        write!(formatter, ": {}", self.error)
    }
}

impl std::error::Error for LocatedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
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
    fn display_includes_line_and_column() {
        let error = LocatedError::new(Path::new("mine.csv"), NotANumber("one".into()));
        assert_eq!(error.to_string(), "`mine.csv`: `one` is not a number");
        let error = error.at_line(3).in_column("target");
        assert_eq!(error.to_string(), "`mine.csv`, line 3, column `target`: `one` is not a number");
    }
}
