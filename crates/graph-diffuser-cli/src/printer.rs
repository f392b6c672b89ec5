//! Output: results to stdout, diagnostics to stderr.

use std::io::{self, ErrorKind, StdoutLock, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::error::{CommandError, Failure};

/// Labels at the start of a line, in the colors that clap uses for them.
const LABELS: [(&str, Style); 3] = [
    ("error:", AnsiColor::Red.on_default().bold()),
    ("warning:", AnsiColor::Yellow.on_default().bold()),
    ("hint:", AnsiColor::Green.on_default()),
];

/// Prints results as text, or as JSON with `--json`.
#[derive(Debug)]
pub(crate) struct Printer {
    json: bool,
    /// First error of writing to stdout.
    stdout_error: Option<io::Error>,
}

impl Printer {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, stdout_error: None }
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

    /// Prints a line of text to stdout.
    pub(crate) fn raw(&mut self, text: &str) {
        self.bytes(format!("{text}\n").as_bytes());
    }

    /// Writes bytes to stdout unchanged.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
        if let Err(error) = written {
            self.stdout_error.get_or_insert(error);
        }
    }

    /// Returns stdout for results that are written incrementally.
    pub(crate) fn stream(&self) -> StdoutLock<'static> {
        io::stdout().lock()
    }

    /// Prints a diagnostic to stderr.
    pub(crate) fn note(&self, text: &str) {
        print_note(text);
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

    /// Returns the exit code of the program: `code`, or that of a failure to write to stdout.
    ///
    /// A closed pipe is no failure: its reader, such as `head`, needs no more output.
    pub(crate) fn finish(self, code: ExitCode) -> ExitCode {
        match self.stdout_error {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => Self::new(false)
                .error(&Failure::caused("cannot write to standard output")(error).into()),
            _ => code,
        }
    }
}

/// Prints a diagnostic to stderr, with colored labels if stderr is a terminal with colors.
pub(crate) fn print_note(text: &str) {
    let mut styled = String::with_capacity(text.len() + 16);
    for line in text.split_inclusive('\n') {
        match LABELS.iter().find(|(label, _)| line.starts_with(label)) {
            Some((label, style)) => {
                styled.push_str(&format!("{style}{label}{style:#}{}", &line[label.len()..]));
            }
            None => styled.push_str(line),
        }
    }
    let _ = writeln!(anstream::stderr().lock(), "{styled}");
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
