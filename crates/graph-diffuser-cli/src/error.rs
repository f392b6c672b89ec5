//! Errors of commands: every [`Diagnostic`] of the library, and failures of the program itself.

use std::error::Error;
use std::fmt;

use graph_diffuser_data::Diagnostic;

/// Result of a command.
pub(crate) type Result<T, E = CommandError> = std::result::Result<T, E>;

/// Error of a command; `?` converts any [`Diagnostic`] into it.
#[derive(Debug)]
pub(crate) struct CommandError(Box<dyn Diagnostic>);

impl<E: Diagnostic> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl CommandError {
    /// Returns the messages of the error and its causes.
    pub(crate) fn messages(&self) -> Vec<String> {
        let mut messages = vec![self.0.to_string()];
        let mut cause = self.0.source();
        while let Some(error) = cause {
            messages.push(error.to_string());
            cause = error.source();
        }
        messages
    }

    /// Returns a suggestion that fixes the error, if there is one.
    pub(crate) fn hint(&self) -> Option<String> {
        self.0.hint()
    }

    /// Returns whether the arguments, not the environment, caused the error.
    pub(crate) fn is_usage_error(&self) -> bool {
        self.0.is_usage_error()
    }
}

/// Error of arguments that are valid individually, but not in combination or with existing files.
#[derive(Debug)]
pub(crate) struct UsageError {
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl fmt::Display for UsageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl Error for UsageError {}

impl Diagnostic for UsageError {
    fn hint(&self) -> Option<String> {
        Some(self.hint.clone())
    }

    fn is_usage_error(&self) -> bool {
        true
    }
}

/// Failure of the program or the operating system, with its cause if there is one.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    cause: Option<std::io::Error>,
}

impl Failure {
    /// Creates a failure without a cause.
    pub(crate) fn new(message: &str) -> Self {
        Self { message: message.to_owned(), cause: None }
    }

    /// Returns a function that turns an I/O error into the cause of a failure.
    pub(crate) fn caused(message: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let message = message.into();
        move |cause| Self { message, cause: Some(cause) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

impl Diagnostic for Failure {}
