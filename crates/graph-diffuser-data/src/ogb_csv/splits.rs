//! Which graphs are for what: `split/{train,valid,test}.csv.gz`, or the same in a folder named by the kind of split.

use std::path::Path;
use std::sync::Arc;

use super::{OgbCsvError, csv_file};
use crate::dataset::Splits;
use crate::error::LocatedError;
use crate::numeric_csv::{NumericCsvError, NumericCsvReader, whole};

/// Reads the split of so many graphs; none when the data has no split.
///
/// Without a kind, the files stand under `split` itself or in its only folder.
///
/// # Errors
/// When a file is wrong, names a graph that does not exist or one that another part has, or when there are several
/// splits to choose from.
pub fn read_splits(
    directory: &Path,
    kind: Option<&str>,
    graphs: usize,
) -> Result<Option<Splits>, LocatedError> {
    let split = directory.join("split");
    let folder = match kind {
        Some(kind) => split.join(kind),
        None if csv_file(&split, "train").is_some() || !split.is_dir() => split,
        None => match folders(&split).as_slice() {
            [] => split,
            [only] => split.join(only),
            several => {
                return Err(LocatedError::new(
                    &split,
                    OgbCsvError::SeveralSplits { kinds: several.to_vec() },
                ));
            }
        },
    };
    if !folder.is_dir() {
        return Ok(None);
    }
    let mut taken: Vec<Option<&'static str>> = vec![None; graphs];
    let mut part = |name: &'static str| {
        let path = csv_file(&folder, name).unwrap_or_else(|| folder.join(format!("{name}.csv.gz")));
        let mut rows = NumericCsvReader::open(&path, &Arc::default())?;
        let mut numbers = vec![];
        let mut row = vec![];
        while let Some(found) = rows.next_row(&mut row, |_, cell| whole(cell))? {
            if found != 1 {
                return Err(rows.problem(NumericCsvError::Columns { expected: 1, found }));
            }
            let graph = row[0];
            row.clear();
            let number = graph as usize;
            match taken.get_mut(number) {
                None => return Err(rows.problem(OgbCsvError::SplitOutOfRange { graph, graphs })),
                Some(Some(first)) => {
                    return Err(rows.problem(OgbCsvError::SplitTwice { graph: number, first }));
                }
                Some(free) => *free = Some(name),
            }
            numbers.push(number);
        }
        Ok(numbers)
    };
    Ok(Some(Splits { train: part("train")?, valid: part("valid")?, test: part("test")? }))
}

/// Folders in order of their names.
fn folders(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
