//! Remarks about how the columns of a file were understood.

use std::fmt;

use serde::Serialize;

/// Column that is not a target, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IgnoredColumn {
    /// Name of the column.
    pub name: String,
    /// Reason why it is not a target.
    #[serde(flatten)]
    pub reason: IgnoredReason,
}

/// Reason why a column is not a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum IgnoredReason {
    /// Identifier or row index.
    Identifier,
    /// Dates or years.
    Date,
    /// Text with many different values.
    Text,
    /// Equal values in all rows.
    Constant,
    /// No values.
    Empty,
    /// Numbers whose comma is a decimal comma or separates thousands.
    AmbiguousComma {
        /// The first such cell.
        cell: String,
    },
    /// The targets were selected by name.
    NotSelected,
}

impl fmt::Display for IgnoredReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Identifier => "identifier",
            Self::Date => "date",
            Self::Text => "text",
            Self::Constant => "constant",
            Self::Empty => "empty",
            Self::AmbiguousComma { cell } => return write!(formatter, "ambiguous number `{cell}`"),
            Self::NotSelected => "not selected",
        })
    }
}

/// Remark about the interpretation of a target column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ColumnNote {
    /// Numbers were read with a decimal comma.
    DecimalCommas {
        /// Name of the column.
        column: String,
    },
    /// A regression target has few integer values, which may be classes.
    IntegerRegression {
        /// Name of the column.
        column: String,
        /// Number of distinct values.
        values: usize,
    },
}

impl fmt::Display for ColumnNote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DecimalCommas { column } => {
                write!(formatter, "`{column}` is read with decimal commas")
            }
            Self::IntegerRegression { column, values } => {
                let quote = if column.contains(' ') { "\"" } else { "" };
                write!(
                    formatter,
                    "`{column}` has only {values} distinct integers and is treated as regression; \
                     for classes, pass `--task {quote}{column}=multiclass{quote}`"
                )
            }
        }
    }
}
