//! Errors of the SMILES CSV reader.

use super::cells::has_decimal_comma;
use super::notes::{IgnoredColumn, IgnoredReason};
use crate::error::Diagnostic;

/// Error in a CSV file of molecules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SmilesCsvError {
    /// There is no SMILES column.
    #[error("no `smiles` column; found {}", list(names))]
    NoSmilesColumn {
        /// Names of the columns.
        names: Vec<String>,
    },
    /// The first line is a row instead of a header.
    #[error("no header: the first line contains a molecule")]
    NoHeader,
    /// A requested column does not exist.
    #[error("column not found; available columns: {}", list(names))]
    ColumnNotFound {
        /// Names of the columns.
        names: Vec<String>,
    },
    /// Two columns have the same name.
    #[error("duplicate column name")]
    DuplicateColumn,
    /// There is no target column.
    #[error("no target column{}", ignored_columns(ignored))]
    NoTargets {
        /// Number of columns that were considered.
        candidates: usize,
        /// Columns that are not targets.
        ignored: Vec<IgnoredColumn>,
    },
    /// The commas of a column are decimal commas or separate thousands.
    #[error("ambiguous number `{cell}`: the comma is a decimal comma or separates thousands")]
    AmbiguousComma {
        /// The first such cell.
        cell: String,
    },
    /// A class column has fewer than two classes.
    #[error("expected at least two classes, found {classes}")]
    TooFewClasses {
        /// Number of classes.
        classes: usize,
    },
    /// A text column has too many values to be classes.
    #[error("column is text with {classes} distinct values")]
    TooManyClasses {
        /// Number of distinct values.
        classes: usize,
    },
    /// There are no rows after the header.
    #[error("no usable rows")]
    NoRows,
    /// A cell is not a number.
    #[error("`{cell}` is not a number")]
    NotANumber {
        /// Content of the cell.
        cell: String,
    },
    /// A number is infinite or exceeds the range of `f32`.
    #[error("`{cell}` is not a finite 32-bit float")]
    NotFinite {
        /// Content of the cell.
        cell: String,
    },
    /// A cell is not a binary label.
    #[error("`{cell}` is not a binary label; expected 0, 1 or an empty cell")]
    NotALabel {
        /// Content of the cell.
        cell: String,
    },
    /// A cell of the split column is not a split.
    #[error("invalid split `{cell}`; expected train, valid or test")]
    NotASplit {
        /// Content of the cell.
        cell: String,
    },
    /// There are more errors than the limit.
    #[error("{count} more errors not shown")]
    Omitted {
        /// Number of errors that are not shown.
        count: usize,
    },
}

impl Diagnostic for SmilesCsvError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoSmilesColumn { names } if has_other_delimiter(names) => {
                "columns must be separated by commas, semicolons, tabs or pipes"
            }
            Self::NoSmilesColumn { .. } => "pass `--smiles-column COLUMN`",
            Self::NoHeader => "add a header such as `smiles,target`",
            Self::NoTargets { candidates: 0, .. } => {
                "add a column with the values to predict, such as `smiles,target`"
            }
            Self::NoTargets { .. } => "select a target column with `--target COLUMN`",
            Self::AmbiguousComma { cell } => {
                let [decimal, thousands] = [".", ""].map(|with| cell.replace(',', with));
                return Some(format!("write `{decimal}` or `{thousands}`"));
            }
            Self::TooManyClasses { .. } => {
                "if they are classes, pass `--task multiclass`; if they are numbers, write them \
                 with a decimal point"
            }
            Self::NotANumber { cell } if has_decimal_comma(cell) => {
                return Some(decimal_point_hint(cell));
            }
            Self::NotANumber { .. } => "leave the cell empty if the value is missing",
            _ => return None,
        };
        Some(hint.into())
    }
}

/// Lists columns that are not targets, with the reasons.
fn ignored_columns(ignored: &[IgnoredColumn]) -> String {
    const MAX_COLUMNS: usize = 8;
    let reason = |column: &IgnoredColumn| {
        let reason = match &column.reason {
            IgnoredReason::Identifier => "is an identifier".to_owned(),
            IgnoredReason::Date => "is a date".to_owned(),
            IgnoredReason::AmbiguousComma { cell } => {
                format!("has ambiguous numbers such as `{cell}`")
            }
            other => format!("is {other}"),
        };
        format!("`{}` {reason}", column.name)
    };
    let reasons: Vec<String> = ignored.iter().take(MAX_COLUMNS).map(reason).collect();
    match ignored.len() {
        0 => String::new(),
        1..=MAX_COLUMNS => format!(": {}", reasons.join(", ")),
        count => format!(": {} and {} more", reasons.join(", "), count - MAX_COLUMNS),
    }
}

fn decimal_point_hint(cell: &str) -> String {
    format!("use a decimal point: `{}`", cell.replace(',', "."))
}

/// Returns `true` if a header of one column contains `smiles` next to an unsupported delimiter.
fn has_other_delimiter(names: &[String]) -> bool {
    let [name] = names else { return false };
    let mut parts = name.split([':', ' ']);
    name.contains([':', ' '])
        && parts.any(|part| ["smiles", "smi"].iter().any(|known| known.eq_ignore_ascii_case(part)))
}

/// Joins at most eight quoted names.
fn list(names: &[String]) -> String {
    const MAX_NAMES: usize = 8;
    let shown: Vec<String> = names.iter().take(MAX_NAMES).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > MAX_NAMES {
        format!(" and {} more", names.len() - MAX_NAMES)
    } else {
        String::new()
    };
    shown.join(", ") + &more
}
