//! ZINC-12k: penalized logP of small molecules.
//!
//! The dataset is read from OGB CSV files, which contain both directions of every edge, or from a
//! CSV file with columns `smiles`, `y` and `split`. The target is used as stored. The published
//! files are read by [`read_archive`], and converted to OGB CSV files when they are downloaded.

mod archive;

use std::path::Path;

pub use archive::{ZincError, read_archive, read_bare_pickle};

use crate::chem::zinc_schema;
use crate::dataset::{Dataset, Graphs};
use crate::error::LocatedError;
use crate::formats::Featurizer;
use crate::formats::ogb_csv::{self, OgbCsvOptions};
use crate::formats::smiles_csv::{self, SmilesCsvOptions, TargetTask, TargetTasks};
use crate::io::progress::ProgressFn;
use crate::schema::{Schema, TargetSchema};

/// Returns the schema of the dataset.
pub fn schema() -> Schema {
    let mut schema = zinc_schema(TargetSchema::regression(1));
    schema.names.targets = vec!["penalized_logp".into()];
    schema
}

/// Reads the directory with `raw/` and `split/` through a cache file in the directory `cache`.
///
/// # Errors
/// Returns an error with its location if a file is invalid or the cache cannot be written.
pub fn read(
    directory: &Path,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    let options = OgbCsvOptions::with_schema(schema(), false);
    let mut dataset = ogb_csv::read_named("zinc", directory, &options, cache, progress)?;
    dataset.schema.names = schema().names;
    Ok(dataset)
}

/// Reads a CSV file with columns `smiles`, `y` and `split`.
///
/// # Errors
/// Returns the first error with its location.
pub fn read_smiles(path: &Path) -> Result<Dataset, LocatedError> {
    let options = SmilesCsvOptions {
        smiles_column: Some("smiles".into()),
        target_columns: Some(vec!["y".into()]),
        split_column: Some("split".into()),
        task: Some(TargetTasks::All(TargetTask::Regression)),
        featurizer: Featurizer::Zinc,
        ..SmilesCsvOptions::default()
    };
    let csv = smiles_csv::read(path, &options).map_err(|mut errors| errors.swap_remove(0))?;
    Ok(Dataset {
        graphs: Graphs::InMemory(csv.graphs),
        schema: schema(),
        splits: csv.splits.unwrap_or_default(),
    })
}

#[cfg(all(test, feature = "chem"))]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_or_error_names_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("smiles.csv");
        let text = "smiles,y,split\nCCO,1.5,train\nc1ccccc1,-2,valid\nC#N,0,test\n";
        std::fs::write(&path, text).unwrap();
        let dataset = read_smiles(&path).unwrap();
        assert_eq!(dataset.check(), Ok(()));
        assert_eq!(dataset.splits.valid, [1]);
        std::fs::write(&path, text.replace("C#N", "C[SiH3]")).unwrap();
        let message = read_smiles(&path).unwrap_err().to_string();
        assert!(message.contains("line 4, column `smiles`: atom 1 has type `Si"), "{message}");
    }
}
