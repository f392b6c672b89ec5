//! Data goes to stdout, everything else to stderr.

use std::io::{StdoutLock, Write};
use std::process::ExitCode;

use graph_diffuser::explain::ExplainError;
use graph_diffuser::predict::PredictError;
use graph_diffuser::recipe::RecipeError;
use graph_diffuser::run::RunError;
use graph_diffuser::sweep::SweepError;
use graph_diffuser_data::LocatedError;
use graph_diffuser_data::catalog::UnknownSource;
use graph_diffuser_data::prepare::PrepareError;
use serde::Serialize;

/// What no library can know to be wrong: options that do not go together.
#[derive(Debug)]
pub(crate) struct Misuse {
    pub(crate) what: String,
    pub(crate) hint: &'static str,
}

impl std::fmt::Display for Misuse {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl std::error::Error for Misuse {}

/// Writes for people or, with `--json`, for programs.
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

    /// Prints `value` as one line of JSON, or `text` for people.
    pub(crate) fn data(&mut self, value: &impl Serialize, text: impl FnOnce() -> String) {
        let text = if self.json {
            serde_json::to_string(value).expect("plain data serialises")
        } else {
            text()
        };
        self.raw(text.trim_end());
    }

    /// Prints text that is data by itself.
    pub(crate) fn raw(&mut self, text: &str) {
        // A closed pipe is the reader's wish to hear no more.
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    /// Where data goes that comes in a stream.
    pub(crate) fn stream(&self) -> StdoutLock<'static> {
        std::io::stdout().lock()
    }

    /// Says something that is not data.
    pub(crate) fn note(&self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Prints an error once, with its causes and what to do; the exit code.
    pub(crate) fn error(&self, error: &anyhow::Error) -> ExitCode {
        let mut text = format!("error: {error}");
        for cause in error.chain().skip(1) {
            text.push_str(&format!("\n  because: {cause}"));
        }
        if let Some(hint) = hint(error) {
            text.push_str(&format!("\n\nhint: {hint}"));
        }
        self.note(&text);
        // What the user asked for cannot be asked for: misuse.
        let misused = error.chain().any(|cause| {
            cause.is::<RecipeError>()
                || cause.is::<Misuse>()
                || cause.is::<UnknownSource>()
                || matches!(
                    cause.downcast_ref(),
                    Some(PredictError::Exists { .. } | PredictError::ColumnTaken { .. })
                )
                || matches!(
                    cause.downcast_ref(),
                    Some(RunError::Exists { .. } | RunError::NotARun { .. })
                )
                || cause.downcast_ref::<SweepError>().is_some_and(SweepError::is_misuse)
                || matches!(
                    cause.downcast_ref(),
                    Some(
                        ExplainError::OutOfRange { .. }
                            | ExplainError::NoMolecules { .. }
                            | ExplainError::Molecule(_)
                    )
                )
        });
        ExitCode::from(if misused { 2 } else { 1 })
    }
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
        if let Some(problem) = cause.downcast_ref::<LocatedError>() {
            return problem.hint();
        }
        if let Some(error) = cause.downcast_ref::<UnknownSource>() {
            return Some(error.hint());
        }
        if let Some(misuse) = cause.downcast_ref::<Misuse>() {
            return Some(misuse.hint.to_owned());
        }
        if let Some(error) = cause.downcast_ref::<ExplainError>() {
            return error.hint();
        }
        cause.downcast_ref::<RunError>()?.hint()
    })
}
