//! What can be wrong with a table of molecules.

use crate::error::Diagnostic;

/// What can be wrong with a table of molecules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SmilesCsvError {
    /// No column is called `smiles` or `smi`.
    #[error("no column is called `smiles`; there are {}", listed(names))]
    NoSmilesColumn {
        /// What the columns are called.
        names: Vec<String>,
    },
    /// The first line is a row and not names.
    #[error("the first line holds a molecule, not the names of columns")]
    NoHeader,
    /// A column that was asked for does not exist.
    #[error("there is no such column; there are {}", listed(names))]
    NoColumn {
        /// What the columns are called.
        names: Vec<String>,
    },
    /// Two columns have one name.
    #[error("two columns have this name")]
    DuplicateColumn,
    /// No column holds what could be learned.
    #[error("no other column holds numbers or a few classes")]
    NoTargets,
    /// There are names of columns, and no rows.
    #[error("there are no rows that can be used")]
    NoRows,
    /// A number was expected.
    #[error("`{cell}` is not a number")]
    NotANumber {
        /// What stands there.
        cell: String,
    },
    /// An infinite number, or one too large for single precision.
    #[error("`{cell}` is not a finite number of single precision")]
    NotFinite {
        /// What stands there.
        cell: String,
    },
    /// A label was expected.
    #[error("`{cell}` is not a label: 0, 1 or nothing")]
    NotALabel {
        /// What stands there.
        cell: String,
    },
    /// A row without a class.
    #[error("the class is missing")]
    NoClass,
    /// Classes were asked for, out of more than one column.
    #[error("classes come from one column, not from {columns}")]
    OneClassColumn {
        /// How many there are.
        columns: usize,
    },
    /// A part of the split that is none.
    #[error("`{cell}` is no part of a split: train, valid or test")]
    NotASplit {
        /// What stands there.
        cell: String,
    },
    /// There were more problems than are listed.
    #[error("there are {count} more problems")]
    More {
        /// How many are left out.
        count: usize,
    },
}

impl Diagnostic for SmilesCsvError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoSmilesColumn { .. } => {
                "name the column of SMILES with `--smiles COLUMN`, or to train with `--set data.smiles_column=COLUMN`"
            }
            Self::NoHeader => "put a line such as `smiles,target` before the first row",
            Self::NoTargets => "name the columns to be learned",
            Self::NotANumber { .. } => "leave a cell empty where a value is missing",
            Self::NoClass => "leave the row out",
            Self::OneClassColumn { .. } => "name the one column of classes",
            _ => return None,
        };
        Some(hint.into())
    }
}

/// A few names for a message.
fn listed(names: &[String]) -> String {
    const MOST: usize = 8;
    let shown: Vec<String> = names.iter().take(MOST).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > MOST {
        format!(" and {} more", names.len() - MOST)
    } else {
        String::new()
    };
    shown.join(", ") + &more
}
