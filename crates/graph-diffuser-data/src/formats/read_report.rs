//! Report of a reader: ignored columns, skipped rows and remarks.

use crate::error::LocatedError;
use crate::formats::row_labels::RowLabels;
use crate::formats::smiles_csv::{IgnoredColumn, SmilesCsv};

/// Report of a reader beyond the dataset it returns.
#[derive(Debug, Default)]
pub struct ReadReport {
    /// Columns that are not targets.
    pub ignored: Vec<IgnoredColumn>,
    /// Errors of the rows that were skipped.
    pub skipped: Vec<LocatedError>,
    /// SMILES and identifiers of the graphs.
    pub rows: RowLabels,
    /// Remarks about the interpretation of the data.
    pub notes: Vec<String>,
    /// Column or file that defines the split, if there is one.
    pub split: Option<String>,
    /// Number of graphs in the file, if the dataset has a copy of them per split of their nodes.
    pub node_split: Option<usize>,
}

impl ReadReport {
    /// Takes the report out of the contents of a CSV file.
    pub fn of_smiles_csv(csv: &mut SmilesCsv) -> Self {
        Self {
            ignored: std::mem::take(&mut csv.ignored),
            skipped: std::mem::take(&mut csv.skipped),
            rows: std::mem::take(&mut csv.rows),
            notes: csv.notes.iter().map(ToString::to_string).collect(),
            split: csv.split_column.as_ref().map(|column| format!("column `{column}`")),
            node_split: None,
        }
    }
}
