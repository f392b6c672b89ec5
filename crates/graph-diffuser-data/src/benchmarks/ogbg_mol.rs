//! Molecules with the nine atom and three bond features of OGB: ogbg-molpcba, ogbg-molhiv and other
//! datasets in their layout, such as Peptides-func and PCQM-Contact.
//!
//! Every feature is a category index; the last index is used for unlisted values. Bonds are stored
//! once.

use std::path::Path;
use std::sync::Arc;

use crate::chem::ogb_schema;
use crate::dataset::Dataset;
use crate::error::LocatedError;
use crate::formats::ogb_csv::{self, OgbCsvOptions, csv_file};
use crate::io::numeric_csv::NumericCsvReader;
use crate::io::progress::ProgressFn;
use crate::schema::TargetSchema;

/// Number of labels of ogbg-molhiv.
pub const HIV_LABELS: usize = 1;
/// Number of labels of ogbg-molpcba.
pub const PCBA_LABELS: usize = 128;

/// Reads molecules and their targets through a cache file in the directory `cache`.
///
/// The targets are binary labels: 128 of ogbg-molpcba, one of ogbg-molhiv and ten of Peptides-func;
/// they are inferred if not given. Target names are read from `tasks.csv` or from the header of
/// `mapping/mol.csv`, if present. The split is empty if the directory has none.
///
/// # Errors
/// Returns an error with its location if a file is invalid or the cache cannot be written.
pub fn read(
    directory: &Path,
    targets: Option<TargetSchema>,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    let schema = ogb_schema(TargetSchema::regression(0));
    let options = OgbCsvOptions { targets, ..OgbCsvOptions::with_schema(schema, true) };
    let mut dataset = ogb_csv::read(directory, &options, cache, progress)?;
    // Target names are optional: a missing, corrupt or mismatching file is ignored.
    if let Ok(Some(names)) = task_names(directory)
        && names.len() == dataset.schema.targets.graph_targets().len()
    {
        dataset.schema.names.targets = names;
    }
    Ok(dataset)
}

/// Reads molecules and their contacts (`contact.csv`, `num-contact-list.csv`), each in both
/// directions, through a cache file in the directory `cache`.
///
/// # Errors
/// Returns the errors of [`read`].
pub fn read_contacts(
    directory: &Path,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    read(directory, Some(TargetSchema::LinkPrediction), cache, progress)
}

fn task_names(directory: &Path) -> Result<Option<Vec<String>>, LocatedError> {
    if let Some(path) = csv_file(directory, "tasks") {
        let mut rows = NumericCsvReader::open(&path, &Arc::default())?;
        let mut names = vec![];
        while let Some(name) = rows.next_text()? {
            names.push(name.trim().to_owned());
        }
        return Ok(Some(names));
    }
    let Some(path) = csv_file(&directory.join("mapping"), "mol") else { return Ok(None) };
    let mut rows = NumericCsvReader::open(&path, &Arc::default())?;
    let header = rows.next_text()?.unwrap_or_default();
    let tasks =
        header.split(',').map(str::trim).filter(|name| !["smiles", "mol_id"].contains(name));
    Ok(Some(tasks.map(String::from).collect()))
}
