//! Output: results to stdout, diagnostics to stderr.

use std::io::{StdoutLock, Write};
use std::process::ExitCode;

use graph_diffuser::explain::ExplainError;
use graph_diffuser::predict::PredictError;
use graph_diffuser::recipe::RecipeError;
use graph_diffuser::run::RunError;
use graph_diffuser::sweep::SweepError;
use graph_diffuser_data::download::{PrepareError, UnknownSource};
use graph_diffuser_data::{Diagnostic as _, LocatedError};
use serde::Serialize;

/// Error of arguments that are valid individually, but not in combination or with existing files.
#[derive(Debug)]
pub(crate) struct UsageError {
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl std::fmt::Display for UsageError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for UsageError {}

/// Prints results as text, or as JSON with `--json`.
#[derive(Debug)]
pub(crate) struct Printer {
    json: bool,
}

impl Printer {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a result to stdout: `value` as one line of JSON, or `text`.
    pub(crate) fn data(&mut self, value: &impl Serialize, text: impl FnOnce() -> String) {
        let text = if self.json {
            serde_json::to_string(value).expect("results are plain data")
        } else {
            text()
        };
        self.raw(text.trim_end());
    }

    /// Prints text to stdout unchanged.
    pub(crate) fn raw(&mut self, text: &str) {
        // Ignore a closed pipe: the reader needs no more output.
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    /// Returns stdout for results that are written incrementally.
    pub(crate) fn stream(&self) -> StdoutLock<'static> {
        std::io::stdout().lock()
    }

    /// Prints a diagnostic to stderr.
    pub(crate) fn note(&self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Prints an error with its causes and its hint, and returns the exit code.
    pub(crate) fn error(&self, error: &anyhow::Error) -> ExitCode {
        let mut text = format!("error: {error}");
        for cause in error.chain().skip(1) {
            text.push_str(&format!("\n  caused by: {cause}"));
        }
        if let Some(hint) = hint(error) {
            text.push_str(&format!("\n\nhint: {hint}"));
        }
        self.note(&text);
        ExitCode::from(if is_usage_error(error) { 2 } else { 1 })
    }
}

/// Returns whether the arguments, not the environment, caused the error.
fn is_usage_error(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<RecipeError>()
            || cause.is::<UsageError>()
            || cause.is::<UnknownSource>()
            || matches!(
                cause.downcast_ref(),
                Some(PredictError::Exists { .. } | PredictError::ColumnTaken { .. })
            )
            || matches!(
                cause.downcast_ref(),
                Some(RunError::Exists { .. } | RunError::NotARun { .. })
            )
            || cause.downcast_ref::<SweepError>().is_some_and(SweepError::is_usage_error)
            || matches!(
                cause.downcast_ref(),
                Some(
                    ExplainError::OutOfRange { .. }
                        | ExplainError::SmilesUnsupported { .. }
                        | ExplainError::Molecule(_)
                )
            )
    })
}

fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        if let Some(error) = cause.downcast_ref::<RecipeError>() {
            return error.hint();
        }
        if let Some(error) = cause.downcast_ref::<SweepError>() {
            return error.hint();
        }
        if let Some(error) = cause.downcast_ref::<PredictError>() {
            return error.hint();
        }
        if let Some(error) = cause.downcast_ref::<PrepareError>() {
            return error.hint();
        }
        if let Some(error) = cause.downcast_ref::<LocatedError>() {
            return error.hint();
        }
        if let Some(error) = cause.downcast_ref::<UnknownSource>() {
            return error.hint();
        }
        if let Some(error) = cause.downcast_ref::<UsageError>() {
            return Some(error.hint.clone());
        }
        if let Some(error) = cause.downcast_ref::<ExplainError>() {
            return error.hint();
        }
        cause.downcast_ref::<RunError>()?.hint()
    })
}

/// Formats a count with its noun, such as `1 run` or `2 runs`.
pub(crate) fn counted(count: usize, singular: &str, plural: &str) -> String {
    format!("{} {}", thousands(count), if count == 1 { singular } else { plural })
}

/// Formats an integer with thousands separators, such as `12,345`.
pub(crate) fn thousands(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_by_commas() {
        let formatted = [0, 999, 1000, 12_345, 1_234_567].map(thousands);
        assert_eq!(formatted, ["0", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!(counted(1, "batch", "batches"), "1 batch");
        assert_eq!(counted(2000, "batch", "batches"), "2,000 batches");
    }
}
