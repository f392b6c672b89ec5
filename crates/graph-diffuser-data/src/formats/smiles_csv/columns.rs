//! Finds the SMILES, target and split columns of a CSV file.

use std::collections::HashSet;

use super::notes::{IgnoredColumn, IgnoredReason};
use super::{SmilesCsvError, SmilesCsvOptions, TargetTasks};
use crate::chem::{Molecule, MoleculeError};
use crate::error::LocatedError;
use crate::formats::row_labels::is_label_column;
use crate::formats::table::{Table, TableColumn};
use crate::io::csv_records::TableRecord;

/// Default names of the SMILES column, ignoring case.
const SMILES_NAMES: [&str; 2] = ["smiles", "smi"];

/// Columns of a CSV file.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) smiles: TableColumn,
    pub(super) split: Option<TableColumn>,
    /// Columns that identify the molecules, at most two.
    labels: Vec<TableColumn>,
    /// Target columns or candidates.
    pub(super) targets: Vec<TableColumn>,
    /// `true` if the targets were requested by name.
    pub(super) targets_requested: bool,
    /// Columns that were not requested.
    pub(super) unused: Vec<IgnoredColumn>,
}

impl Columns {
    /// Returns the identifiers of a row, separated by commas.
    pub(super) fn label(&self, record: &TableRecord) -> String {
        let cells = self.labels.iter().map(|column| column.cell(record));
        cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(", ")
    }
}

/// Column of the molecules in a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SmilesColumn<'a> {
    /// The column that the file format defines, or else `smiles` or `smi`.
    #[default]
    Auto,
    /// The column with this name.
    Named(&'a str),
    /// The column with the name that the training file had. A file in a format that defines the
    /// column, such as SDF, may lack it.
    OfTraining(&'a str),
}

/// Finds the column of the molecules.
pub(crate) fn smiles_column(
    records: &Table,
    column: SmilesColumn<'_>,
) -> Result<TableColumn, LocatedError> {
    if cfg!(not(feature = "chem")) {
        return Err(LocatedError::new(records.path(), MoleculeError::Disabled));
    }
    match (column, records.molecule_column()) {
        (SmilesColumn::Named(name), _) | (SmilesColumn::OfTraining(name), None) => {
            return find_column(records, name);
        }
        (SmilesColumn::OfTraining(name), Some(column)) => {
            return find_column(records, name).or(Ok(column));
        }
        (SmilesColumn::Auto, Some(column)) => return Ok(column),
        (SmilesColumn::Auto, None) => {}
    }
    let names = &records.header().fields;
    let matches =
        |name: &String| SMILES_NAMES.iter().any(|known| known.eq_ignore_ascii_case(name.trim()));
    let found: Vec<usize> = (0..names.len()).filter(|&column| matches(&names[column])).collect();
    match found[..] {
        [column] => Ok(TableColumn::new(records, column)),
        [_, second, ..] => {
            Err(header_error(records, SmilesCsvError::DuplicateColumn)
                .in_column(names[second].trim()))
        }
        // A file without a header has a molecule in its first line.
        [] if names.iter().any(|cell| is_molecule(cell)) => {
            Err(header_error(records, SmilesCsvError::NoHeader))
        }
        [] => Err(header_error(records, SmilesCsvError::NoSmilesColumn { names: names.clone() })),
    }
}

/// Finds all columns, or returns every error in them.
pub(super) fn find_columns(
    records: &Table,
    options: &SmilesCsvOptions,
) -> Result<Columns, Vec<LocatedError>> {
    let mut errors = Vec::new();
    let mut keep =
        |found: Result<TableColumn, LocatedError>| found.map_err(|error| errors.push(error)).ok();
    let smiles = options.smiles_column.as_deref().map_or(SmilesColumn::Auto, SmilesColumn::Named);
    let smiles = keep(smiles_column(records, smiles));
    let all: Vec<TableColumn> = (0..records.header().fields.len())
        .map(|column| TableColumn::new(records, column))
        .collect();
    let split = match &options.split_column {
        Some(name) => keep(find_column(records, name)),
        None => all.iter().find(|column| column.name().eq_ignore_ascii_case("split")).cloned(),
    };
    let targets: Vec<TableColumn> = if let Some(requested) = &options.target_columns {
        requested.iter().filter_map(|name| keep(find_column(records, name))).collect()
    } else {
        let is_other = |column: &TableColumn| {
            [&smiles, &split].into_iter().flatten().all(|used| used.index() != column.index())
                && records.name_column() != Some(column.index())
        };
        all.iter().filter(|column| is_other(column)).cloned().collect()
    };
    for name in options.task.iter().flat_map(TargetTasks::columns) {
        if all.iter().all(|column| column.name() != name) {
            errors.extend(find_column(records, name).err().or_else(|| {
                Some(column_not_found(records, name)) // its name differs in case
            }));
        }
    }
    // Of the columns by position; a table may have a million columns.
    let mut is_used = vec![false; all.len()];
    for target in &targets {
        is_used[target.index()] = true;
    }
    let mut names = HashSet::new();
    for column in &all {
        let is_duplicate = !names.insert(column.name());
        if is_used[column.index()] && is_duplicate && !column.name().is_empty() {
            let error = header_error(records, SmilesCsvError::DuplicateColumn);
            errors.push(error.in_column(column.name()));
        }
    }
    match smiles {
        Some(smiles) if errors.is_empty() => {
            let requested = if options.target_columns.is_some() { &targets[..] } else { &[] };
            for column in [Some(&smiles), split.as_ref()].into_iter().flatten() {
                is_used[column.index()] = true;
            }
            let unused = all.iter().filter(|column| !is_used[column.index()]);
            let unused = unused.map(|column| IgnoredColumn {
                name: column.name().to_owned(),
                reason: IgnoredReason::NotSelected,
            });
            let is_label = |column: &&TableColumn| {
                let is_used = [Some(&smiles), split.as_ref()].into_iter().flatten();
                !is_used.chain(requested).any(|used| used.index() == column.index())
                    && (records.name_column() == Some(column.index())
                        || is_label_column(column.name()))
            };
            let labels = all.iter().filter(is_label).take(2).cloned().collect();
            Ok(Columns {
                labels,
                unused: unused.collect(),
                smiles,
                split,
                targets,
                targets_requested: options.target_columns.is_some(),
            })
        }
        _ => Err(errors),
    }
}

/// Finds a column by name: an exact match, or else a unique match ignoring case.
pub(crate) fn find_column(records: &Table, requested: &str) -> Result<TableColumn, LocatedError> {
    let names: Vec<&str> = records.header().fields.iter().map(|name| name.trim()).collect();
    let exact: Vec<usize> = (0..names.len()).filter(|&column| names[column] == requested).collect();
    let ignoring_case: Vec<usize> =
        (0..names.len()).filter(|&column| names[column].eq_ignore_ascii_case(requested)).collect();
    match (&exact[..], &ignoring_case[..]) {
        ([column], _) | ([], [column]) => Ok(TableColumn::new(records, *column)),
        ([], []) => Err(column_not_found(records, requested)),
        _ => Err(header_error(records, SmilesCsvError::DuplicateColumn).in_column(requested)),
    }
}

fn column_not_found(records: &Table, requested: &str) -> LocatedError {
    let names = records.header().fields.iter().map(|name| name.trim().to_owned());
    let names = names.filter(|name| !name.is_empty()).collect();
    header_error(records, SmilesCsvError::ColumnNotFound { names }).in_column(requested)
}

/// Locates an error in the header.
fn header_error(records: &Table, error: SmilesCsvError) -> LocatedError {
    LocatedError::new(records.path(), error).at_line(records.header().line)
}

/// Returns `true` if a cell of the first line is a molecule; column names rarely are valid SMILES.
fn is_molecule(cell: &str) -> bool {
    cell.len() > 1 && Molecule::from_smiles(cell).is_ok()
}
