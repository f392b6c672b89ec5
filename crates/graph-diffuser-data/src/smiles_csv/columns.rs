//! Which column of a table is what.

use std::path::Path;

use super::{SmilesCsvError, SmilesCsvOptions};
use crate::csv_records::CsvRecord;
use crate::error::LocatedError;
use crate::molecule::Molecule;

/// Names of a column of SMILES, without regard to case.
const SMILES_NAMES: [&str; 2] = ["smiles", "smi"];

/// Names of a column that numbers the rows: never a target unless it is asked for.
const ROW_NAMES: [&str; 5] = ["", "index", "idx", "id", "unnamed: 0"];

/// The columns that a table is read by.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) names: Vec<String>,
    pub(super) smiles: usize,
    pub(super) split: Option<usize>,
    /// Columns that may be targets.
    pub(super) targets: Vec<usize>,
    /// Whether these were asked for by name.
    pub(super) targets_named: bool,
}

/// Finds the column of SMILES.
pub(crate) fn smiles_column(
    path: &Path,
    header: &CsvRecord,
    name: Option<&str>,
) -> Result<usize, LocatedError> {
    let names = &header.fields;
    if let Some(name) = name {
        return named(path, header, name);
    }
    let matches =
        |name: &String| SMILES_NAMES.iter().any(|known| known.eq_ignore_ascii_case(name.trim()));
    let found: Vec<usize> = (0..names.len()).filter(|&column| matches(&names[column])).collect();
    match found[..] {
        [column] => Ok(column),
        [_, second, ..] => Err(LocatedError::new(path, SmilesCsvError::DuplicateColumn)
            .at_line(header.line)
            .in_column(names[second].trim())),
        // Without a header the first line is a row like the others.
        [] if names.iter().any(|cell| looks_like_a_molecule(cell)) => {
            Err(LocatedError::new(path, SmilesCsvError::NoHeader).at_line(header.line))
        }
        [] => Err(LocatedError::new(path, SmilesCsvError::NoSmilesColumn { names: names.clone() })
            .at_line(header.line)),
    }
}

/// Finds all columns, or every problem with them.
pub(super) fn find(
    path: &Path,
    header: &CsvRecord,
    options: &SmilesCsvOptions,
) -> Result<Columns, Vec<LocatedError>> {
    let mut problems = Vec::new();
    let mut keep =
        |found: Result<usize, LocatedError>| found.map_err(|problem| problems.push(problem)).ok();
    let smiles = keep(smiles_column(path, header, options.smiles_column.as_deref()));
    let names: Vec<String> = header.fields.iter().map(|name| name.trim().to_owned()).collect();
    let split = match &options.split_column {
        Some(name) => keep(named(path, header, name)),
        None => names.iter().position(|name| name.eq_ignore_ascii_case("split")),
    };
    let targets: Vec<usize> = match &options.target_columns {
        Some(wanted) => wanted.iter().filter_map(|name| keep(named(path, header, name))).collect(),
        None => (0..names.len())
            .filter(|&column| {
                let numbers_rows =
                    ROW_NAMES.iter().any(|known| known.eq_ignore_ascii_case(&names[column]));
                Some(column) != smiles && Some(column) != split && !numbers_rows
            })
            .collect(),
    };
    for (column, name) in names.iter().enumerate() {
        if targets.contains(&column) && names[..column].contains(name) {
            let problem = LocatedError::new(path, SmilesCsvError::DuplicateColumn)
                .at_line(header.line)
                .in_column(name);
            problems.push(problem);
        }
    }
    match smiles {
        Some(smiles) if problems.is_empty() => Ok(Columns {
            names,
            smiles,
            split,
            targets,
            targets_named: options.target_columns.is_some(),
        }),
        _ => Err(problems),
    }
}

/// The column of a name that was asked for: as written, or else without regard to case.
fn named(path: &Path, header: &CsvRecord, wanted: &str) -> Result<usize, LocatedError> {
    let names: Vec<&str> = header.fields.iter().map(|name| name.trim()).collect();
    let exact: Vec<usize> = (0..names.len()).filter(|&column| names[column] == wanted).collect();
    let alike: Vec<usize> =
        (0..names.len()).filter(|&column| names[column].eq_ignore_ascii_case(wanted)).collect();
    let fault = match (&exact[..], &alike[..]) {
        ([column], _) | ([], [column]) => return Ok(*column),
        ([], []) => SmilesCsvError::NoColumn {
            names: names.into_iter().filter(|name| !name.is_empty()).map(Into::into).collect(),
        },
        _ => SmilesCsvError::DuplicateColumn,
    };
    Err(LocatedError::new(path, fault).at_line(header.line).in_column(wanted))
}

/// Whether a cell of the first line is a molecule rather than a name: a name of a column seldom is.
fn looks_like_a_molecule(cell: &str) -> bool {
    cell.len() > 1 && Molecule::from_smiles(cell).is_ok()
}
