//! Output: results to stdout, diagnostics to stderr.

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal as _, StdoutLock, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};
use serde::{Serialize, Serializer};

use crate::error::{CommandError, Failure};

/// Labels at the start of a line, in the colors that clap uses for them.
const LABELS: [(&str, Style); 3] = [
    ("error:", AnsiColor::Red.on_default().bold()),
    ("warning:", AnsiColor::Yellow.on_default().bold()),
    ("hint:", AnsiColor::Green.on_default()),
];

/// True in all but the first process of a distributed command, which print nothing.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Sets whether this process prints results and diagnostics.
#[cfg(feature = "mpi")]
pub(crate) fn set_silent(is_silent: bool) {
    IS_SILENT.store(is_silent, Ordering::Relaxed);
}

fn is_silent() -> bool {
    IS_SILENT.load(Ordering::Relaxed)
}

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

    /// Prints a line of text to stdout, with control characters escaped on a terminal.
    pub(crate) fn raw(&mut self, text: &str) {
        let text = if io::stdout().is_terminal() { printable(text) } else { text.into() };
        self.bytes(format!("{text}\n").as_bytes());
    }

    /// Writes bytes to stdout unchanged.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        if is_silent() {
            return;
        }
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

/// Serializes a path, of which invalid UTF-8 is replaced; for `serialize_with`.
pub(crate) fn path_text<P: AsRef<Path>, S: Serializer>(
    path: &P,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.as_ref().to_string_lossy())
}

/// Escapes control characters, except line breaks and tabs, and characters that change the
/// direction of text.
///
/// Names and cells of a file may contain sequences that move the cursor or rename the terminal.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_unsafe = |char: char| {
        char.is_control() && char != '\n' && char != '\t'
            || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_unsafe) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_unsafe(char) {
            escaped.extend(char.escape_default());
        } else {
            escaped.push(char);
        }
    }
    escaped.into()
}

/// Prints a diagnostic to stderr, with colored labels if stderr is a terminal with colors, and with
/// control characters escaped.
pub(crate) fn print_note(text: &str) {
    if is_silent() {
        return;
    }
    let text = &*printable(text);
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
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\tb\nµ"), "a\tb\nµ");
        assert_eq!(printable("a\x1b[2Jb\r\u{9b}\x7f"), "a\\u{1b}[2Jb\\r\\u{9b}\\u{7f}");
        assert_eq!(printable("\u{202e}abc"), "\\u{202e}abc");
    }

    #[test]
    fn thousands_are_separated_by_commas() {
        let formatted = [0, 999, 1000, 12_345, 1_234_567].map(thousands);
        assert_eq!(formatted, ["0", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!(counted(1, "batch", "batches"), "1 batch");
        assert_eq!(counted(2000, "batch", "batches"), "2,000 batches");
    }
}
