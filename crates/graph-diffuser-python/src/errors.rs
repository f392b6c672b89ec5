//! Conversion of errors to the Python exceptions of `graph_diffuser._errors`.

use graph_diffuser_data::{Diagnostic, LocatedError};
use pyo3::prelude::*;

/// Error of one input row.
#[derive(Debug)]
pub(crate) struct RowError {
    /// Index of the row, from 0.
    pub(crate) row: usize,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl RowError {
    pub(crate) fn new(row: usize, error: &dyn Diagnostic) -> Self {
        Self { row, message: format!("row {row}: {}", chain(error)), hint: error.hint() }
    }

    /// Describes an error in a graph that was not read from a file.
    pub(crate) fn in_memory(row: usize, located: &LocatedError) -> Self {
        let column = located.column.as_ref().map(|column| format!(", `{column}`"));
        let message =
            format!("row {row}{}: {}", column.unwrap_or_default(), chain(located.error.as_ref()));
        Self { row, message, hint: located.hint() }
    }

    /// Converts the error to `graph_diffuser.InvalidInputError`.
    pub(crate) fn into_python(self, py: Python<'_>) -> PyErr {
        exception(py, "InvalidInputError", (self.message, self.hint, Some(self.row)))
    }
}

/// Converts an error of the library to `graph_diffuser.Error`.
pub(crate) fn error(py: Python<'_>, error: &dyn Diagnostic) -> PyErr {
    let class = if error.is_usage_error() { "InvalidInputError" } else { "Error" };
    exception(py, class, (chain(error), error.hint().map(with_parameters), None))
}

/// Options of the program that hints name, and the corresponding parameters of the package.
const PARAMETERS: [(&str, &str); 6] = [
    ("`--allow-changed-data`", "`allow_changed_data=True`"),
    ("`--output`", "`out`"),
    ("`--target COLUMN`", "`targets=[\"COLUMN\"]`"),
    ("`--smiles-column COLUMN`", "`smiles_column=\"COLUMN\"`"),
    ("`--task multiclass`", "`task=\"multiclass\"`"),
    ("`--on-invalid skip`", "`on_invalid=\"skip\"`"),
];

/// Replaces options of the program by parameters of the package.
fn with_parameters(hint: String) -> String {
    PARAMETERS.iter().fold(hint, |hint, (option, parameter)| hint.replace(option, parameter))
}

/// Creates a `graph_diffuser.InvalidInputError`.
pub(crate) fn invalid_input(py: Python<'_>, message: &str, hint: Option<&str>) -> PyErr {
    exception(py, "InvalidInputError", (message.to_owned(), hint.map(str::to_owned), None))
}

fn exception(
    py: Python<'_>,
    class: &str,
    arguments: (String, Option<String>, Option<usize>),
) -> PyErr {
    let create = || py.import("graph_diffuser._errors")?.getattr(class)?.call1(arguments);
    create().map_or_else(|error| error, PyErr::from_value)
}

/// Joins the messages of an error and its sources, unless a message contains that of its source.
fn chain(error: &dyn Diagnostic) -> String {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let text = inner.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        source = inner.source();
    }
    message
}

/// Extension of results whose errors have hints.
pub(crate) trait OrRaise<T> {
    /// Converts the error to a Python exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: Diagnostic> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|found| error(py, &found))
    }
}
