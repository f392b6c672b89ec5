//! Output: results to stdout, diagnostics to stderr.

use std::io::{StdoutLock, Write};
use std::process::ExitCode;

use serde::Serialize;

use crate::error::CommandError;

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
    pub(crate) fn error(&self, error: &CommandError) -> ExitCode {
        let mut text = format!("error: {}", error.messages().join("\n  caused by: "));
        if let Some(hint) = error.hint() {
            text.push_str(&format!("\n\nhint: {hint}"));
        }
        self.note(&text);
        ExitCode::from(if error.is_usage_error() { 2 } else { 1 })
    }
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
