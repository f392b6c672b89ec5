//! Errors of the SMILES CSV reader.

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
    #[error("no target column{}", match candidates {
        0 => "",
        _ => ": no other column contains numbers or a small number of classes",
    })]
    NoTargets {
        /// Number of columns that were considered.
        candidates: usize,
    },
    /// Several text columns could be the classes to predict.
    #[error("ambiguous target column: {} could be classes", list(names))]
    AmbiguousTargets {
        /// Names of the columns.
        names: Vec<String>,
    },
    /// The numbers of a column have decimal commas.
    #[error("`{cell}` has a decimal comma, which is not supported")]
    DecimalComma {
        /// The first such cell.
        cell: String,
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
    /// A row has no class.
    #[error("missing class")]
    MissingClass,
    /// A multi-class task has several target columns.
    #[error("a multi-class task needs one target column, found {columns}")]
    MultipleClassColumns {
        /// Number of target columns.
        columns: usize,
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
            Self::NoSmilesColumn { .. } => {
                "pass `--smiles-column COLUMN`; for training, `--set data.smiles_column=COLUMN`"
            }
            Self::NoHeader => "add a header such as `smiles,target`",
            Self::NoTargets { candidates: 0 } => {
                "add a column with the values to predict, such as `smiles,target`"
            }
            Self::NoTargets { .. } | Self::AmbiguousTargets { .. } => {
                "select the target columns with `--set 'data.target_columns=[\"COLUMN\"]'`"
            }
            Self::DecimalComma { cell } => return Some(decimal_point_hint(cell)),
            Self::NotANumber { cell } if has_decimal_comma(cell) => {
                return Some(decimal_point_hint(cell));
            }
            Self::NotANumber { .. } => "leave the cell empty if the value is missing",
            Self::MissingClass => "fill the cell or remove the row",
            Self::MultipleClassColumns { .. } => {
                "select one target column with `--set 'data.target_columns=[\"COLUMN\"]'`"
            }
            _ => return None,
        };
        Some(hint.into())
    }
}

/// Returns `true` for a number with a decimal comma, such as `-1,5`.
pub(super) fn has_decimal_comma(cell: &str) -> bool {
    cell.split_once(',').is_some_and(|(integer, fraction)| {
        fraction.starts_with(|first: char| first.is_ascii_digit())
            && format!("{integer}.{fraction}").parse::<f64>().is_ok()
    })
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
