//! Molecules with the nine atom and three bond features of OGB: ogbg-molpcba, ogbg-molhiv, and other sets in their
//! layout, such as Peptides-func and the contacts of PCQM-Contact.
//!
//! Every feature is a number in a table; the last entry stands for whatever is not listed. Bonds are stored once.

use std::path::Path;
use std::sync::Arc;

use crate::dataset::{Dataset, FeatureSchema, Names, Schema, TargetSchema};
use crate::error::LocatedError;
use crate::molecule::ogb_features::{ATOM_FEATURES, BOND_FEATURES};
use crate::numeric_csv::NumericCsvReader;
use crate::ogb_csv::{self, OgbCsvOptions, csv_file};
use crate::progress::ProgressFn;

/// What is predicted in ogbg-molhiv.
pub const HIV: TargetSchema = TargetSchema::Multilabel(1);
/// What is predicted in ogbg-molpcba.
pub const PCBA: TargetSchema = TargetSchema::Multilabel(128);

/// What the numbers of such molecules mean.
pub fn schema(targets: TargetSchema) -> Schema {
    Schema {
        node_features: FeatureSchema::Categorical(ATOM_FEATURES.to_vec()),
        edge_features: FeatureSchema::Categorical(BOND_FEATURES.to_vec()),
        targets,
        names: Names::default(),
    }
}

/// Reads molecules and what is to be predicted of each, through a cached file in the directory `cache`.
///
/// ogbg-molpcba has `GraphLabels(128)`, ogbg-molhiv `GraphLabels(1)`, Peptides-func `GraphLabels(10)`; targets that
/// are not said are taken from the data. Where `tasks.csv` or the header of `mapping/mol.csv` names the tasks, the
/// targets have names. Data without a split gets an empty one, to be filled by the caller.
///
/// # Errors
/// What is wrong with the files, with its place, and what keeps the cache from being written.
pub fn read(
    directory: &Path,
    targets: Option<TargetSchema>,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    let layout = OgbCsvOptions {
        add_reverse_edges: true,
        node_features: Some(FeatureSchema::Categorical(ATOM_FEATURES.to_vec())),
        edge_features: Some(FeatureSchema::Categorical(BOND_FEATURES.to_vec())),
        targets,
        split: None,
    };
    let mut dataset = ogb_csv::read(directory, &layout, cache, progress)?;
    let named =
        matches!(dataset.schema.targets, TargetSchema::Multilabel(_) | TargetSchema::Regression(_));
    // Names are a courtesy: a file of names that is missing, damaged or of other tasks takes nothing away.
    if named
        && let Ok(Some(names)) = task_names(directory)
        && names.len() == dataset.schema.targets.outputs()
    {
        dataset.schema.names.targets = names;
    }
    Ok(dataset)
}

/// Reads molecules and the pairs of atoms in contact (`contact.csv`, `num-contact-list.csv`), each pair in both
/// directions, through a cached file in the directory `cache`.
///
/// # Errors
/// As [`read`].
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
