//! Finds the SMILES, target and split columns of a CSV file.

use std::path::Path;

use super::{SmilesCsvError, SmilesCsvOptions};
use crate::chem::Molecule;
use crate::error::LocatedError;
use crate::io::csv_records::CsvRecord;

/// Default names of the SMILES column, ignoring case.
const SMILES_NAMES: [&str; 2] = ["smiles", "smi"];

/// Names of row index columns, which are targets only if requested.
const INDEX_NAMES: [&str; 5] = ["", "index", "idx", "id", "unnamed: 0"];

/// Columns of a CSV file.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) names: Vec<String>,
    pub(super) smiles: usize,
    pub(super) split: Option<usize>,
    /// Target columns or candidates.
    pub(super) targets: Vec<usize>,
    /// `true` if the targets were requested by name.
    pub(super) targets_requested: bool,
}

/// Finds the SMILES column.
pub(crate) fn smiles_column(
    path: &Path,
    header: &CsvRecord,
    name: Option<&str>,
) -> Result<usize, LocatedError> {
    let names = &header.fields;
    if let Some(name) = name {
        return find_column(path, header, name);
    }
    let matches =
        |name: &String| SMILES_NAMES.iter().any(|known| known.eq_ignore_ascii_case(name.trim()));
    let found: Vec<usize> = (0..names.len()).filter(|&column| matches(&names[column])).collect();
    match found[..] {
        [column] => Ok(column),
        [_, second, ..] => Err(LocatedError::new(path, SmilesCsvError::DuplicateColumn)
            .at_line(header.line)
            .in_column(names[second].trim())),
        // A file without a header has a molecule in its first line.
        [] if names.iter().any(|cell| is_molecule(cell)) => {
            Err(LocatedError::new(path, SmilesCsvError::NoHeader).at_line(header.line))
        }
        [] => Err(LocatedError::new(path, SmilesCsvError::NoSmilesColumn { names: names.clone() })
            .at_line(header.line)),
    }
}

/// Finds all columns, or returns every error in them.
pub(super) fn find_columns(
    path: &Path,
    header: &CsvRecord,
    options: &SmilesCsvOptions,
) -> Result<Columns, Vec<LocatedError>> {
    let mut errors = Vec::new();
    let mut keep =
        |found: Result<usize, LocatedError>| found.map_err(|error| errors.push(error)).ok();
    let smiles = keep(smiles_column(path, header, options.smiles_column.as_deref()));
    let names: Vec<String> = header.fields.iter().map(|name| name.trim().to_owned()).collect();
    let split = match &options.split_column {
        Some(name) => keep(find_column(path, header, name)),
        None => names.iter().position(|name| name.eq_ignore_ascii_case("split")),
    };
    let targets: Vec<usize> = match &options.target_columns {
        Some(requested) => {
            requested.iter().filter_map(|name| keep(find_column(path, header, name))).collect()
        }
        None => (0..names.len())
            .filter(|&column| {
                let is_index =
                    INDEX_NAMES.iter().any(|known| known.eq_ignore_ascii_case(&names[column]));
                Some(column) != smiles && Some(column) != split && !is_index
            })
            .collect(),
    };
    for (column, name) in names.iter().enumerate() {
        if targets.contains(&column) && names[..column].contains(name) {
            let error = LocatedError::new(path, SmilesCsvError::DuplicateColumn)
                .at_line(header.line)
                .in_column(name);
            errors.push(error);
        }
    }
    match smiles {
        Some(smiles) if errors.is_empty() => Ok(Columns {
            names,
            smiles,
            split,
            targets,
            targets_requested: options.target_columns.is_some(),
        }),
        _ => Err(errors),
    }
}

/// Finds a column by name: an exact match, or else a unique match ignoring case.
fn find_column(path: &Path, header: &CsvRecord, requested: &str) -> Result<usize, LocatedError> {
    let names: Vec<&str> = header.fields.iter().map(|name| name.trim()).collect();
    let exact: Vec<usize> = (0..names.len()).filter(|&column| names[column] == requested).collect();
    let ignoring_case: Vec<usize> =
        (0..names.len()).filter(|&column| names[column].eq_ignore_ascii_case(requested)).collect();
    let error = match (&exact[..], &ignoring_case[..]) {
        ([column], _) | ([], [column]) => return Ok(*column),
        ([], []) => SmilesCsvError::ColumnNotFound {
            names: names.into_iter().filter(|name| !name.is_empty()).map(Into::into).collect(),
        },
        _ => SmilesCsvError::DuplicateColumn,
    };
    Err(LocatedError::new(path, error).at_line(header.line).in_column(requested))
}

/// Returns `true` if a cell of the first line is a molecule; column names rarely are valid SMILES.
fn is_molecule(cell: &str) -> bool {
    cell.len() > 1 && Molecule::from_smiles(cell).is_ok()
}
