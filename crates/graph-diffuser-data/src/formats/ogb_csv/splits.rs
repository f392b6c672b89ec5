//! Splits: `split/{train,valid,test}.csv.gz`, or `split/<name>/{train,valid,test}.csv.gz`.

use std::path::Path;
use std::sync::Arc;

use super::{OgbCsvError, csv_file};
use crate::error::LocatedError;
use crate::io::numeric_csv::{NumericCsvError, NumericCsvReader, parse_u32};
use crate::split::Splits;

/// Reads the split of a dataset with `graphs` graphs; returns `None` if there is none.
///
/// Without `name`, the files are expected in `split` or in its only subdirectory.
///
/// # Errors
/// Returns an error if a file is invalid, a graph index is out of range or a duplicate, or there
/// are several splits and none is selected.
pub(crate) fn read_splits(
    directory: &Path,
    name: Option<&str>,
    graphs: usize,
) -> Result<Option<Splits>, LocatedError> {
    let split = directory.join("split");
    let split_directory = match name {
        Some(name) => split.join(name),
        None if csv_file(&split, "train").is_some() || !split.is_dir() => split,
        None => match subdirectories(&split).as_slice() {
            [] => split,
            [only] => split.join(only),
            several => {
                return Err(LocatedError::new(
                    &split,
                    OgbCsvError::AmbiguousSplit { names: several.to_vec() },
                ));
            }
        },
    };
    if !split_directory.is_dir() {
        return Ok(None);
    }
    let mut assigned: Vec<Option<&'static str>> = vec![None; graphs];
    let mut part = |name: &'static str| {
        let path = csv_file(&split_directory, name)
            .unwrap_or_else(|| split_directory.join(format!("{name}.csv.gz")));
        let mut rows = NumericCsvReader::open(&path, &Arc::default())?;
        let mut indices = vec![];
        let mut row = vec![];
        while let Some(found) = rows.next_row(&mut row, |_, cell| parse_u32(cell))? {
            if found != 1 {
                return Err(rows.line_error(NumericCsvError::Columns { expected: 1, found }));
            }
            let graph = row[0];
            row.clear();
            let index = graph as usize;
            match assigned.get_mut(index) {
                None => return Err(rows.line_error(OgbCsvError::SplitOutOfRange { graph, graphs })),
                Some(Some(first)) => {
                    return Err(
                        rows.line_error(OgbCsvError::DuplicateInSplit { graph: index, first })
                    );
                }
                Some(unassigned) => *unassigned = Some(name),
            }
            indices.push(index);
        }
        Ok(indices)
    };
    Ok(Some(Splits { train: part("train")?, valid: part("valid")?, test: part("test")? }))
}

/// Returns the sorted names of the subdirectories.
fn subdirectories(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
