//! `PCQM4Mv2`: HOMO–LUMO gaps of 3.7 million small molecules, in eV.
//!
//! `data.csv.gz` has columns `idx,smiles,homolumogap`; rows without a gap belong to the hidden test
//! sets. As is common for graph Transformers, the official validation set is used as the test set,
//! and 150,000 of the shuffled training rows form the validation set. Graphs are streamed in
//! chunks.

use std::path::Path;

use crate::chem::ogb_schema;
use crate::dataset::{Dataset, Graphs};
use crate::error::{Diagnostic, LocatedError};
use crate::formats::smiles_csv::{SmilesColumn, find_column, smiles_column};
use crate::formats::{Featurizer, Table};
use crate::graph::{Graph, Targets};
use crate::io::cache;
use crate::io::csv_records::TableRecord;
use crate::io::numpy_random::NumpyRandom;
use crate::io::par_chunks::par_chunks;
use crate::io::progress::ProgressFn;
use crate::io::torch_file::ArrayFile;
use crate::schema::{Names, Schema, TargetSchema};
use crate::split::Splits;

/// Number of rows of the official training set, which come first.
const OFFICIAL_TRAIN: usize = 3_378_606;
/// Number of rows of the official validation set, which follow.
const OFFICIAL_VALID: usize = 73_545;
/// Number of training rows used for validation.
const NUM_VALID: usize = 150_000;
/// Seed of the shuffle of the training rows.
const SEED: u64 = 42;

/// Error in the files of `PCQM4Mv2`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Pcqm4mv2Error {
    /// A gap is not a finite number.
    #[error("`{cell}` is not a finite number")]
    NotANumber {
        /// Content of the cell.
        cell: String,
    },
    /// There are too few training rows to hold out the validation set.
    #[error("cannot hold out {valid} of {train} training rows for validation")]
    TooFew {
        /// Number of training rows.
        train: usize,
        /// Number of held-out rows.
        valid: usize,
    },
    /// The official split contains a negative row index.
    #[error("negative row index {row} in the split")]
    NegativeRow {
        /// The row index.
        row: i64,
    },
}

impl Diagnostic for Pcqm4mv2Error {}

/// Returns the schema of the dataset.
pub fn schema() -> Schema {
    let names = Names { targets: vec!["homolumogap".into()], ..Names::default() };
    Schema { names, ..ogb_schema(TargetSchema::regression(1)) }
}

/// Iterates over the graphs in file order; hidden gaps are NaN.
///
/// # Errors
/// Returns an error if the file cannot be read or lacks a column; the iterator yields the errors of
/// single rows.
pub fn graphs(
    path: &Path,
) -> Result<impl Iterator<Item = Result<Graph, LocatedError>> + use<>, LocatedError> {
    let records = Table::open_csv(path, None)?;
    let smiles = smiles_column(&records, SmilesColumn::Named("smiles"))?;
    let gap = find_column(&records, "homolumogap")?;
    let graph = move |record: TableRecord| {
        let graph = smiles.parse(&record, |cell| {
            Featurizer::Ogb.featurize_smiles(cell, &TargetSchema::regression(1))
        })?;
        let value = gap.parse(&record, parse_gap)?;
        Ok(Graph { targets: Targets::GraphValues(vec![value]), ..graph })
    };
    Ok(par_chunks(records, move |record| record.and_then(&graph)))
}

fn parse_gap(cell: &str) -> Result<f32, Pcqm4mv2Error> {
    match cell {
        "" | "nan" => Ok(f32::NAN),
        cell => {
            let value = cell.parse::<f32>().ok().filter(|value| value.is_finite());
            value.ok_or_else(|| Pcqm4mv2Error::NotANumber { cell: cell.to_owned() })
        }
    }
}

/// Reads the CSV file and its split through a cache file in the directory `cache`.
///
/// Without the official split file, the split follows from the row order; it is empty if the file
/// is too short.
///
/// # Errors
/// Returns the first error of the files, or an error if the cache cannot be written.
pub fn read(
    table: &Path,
    split: Option<&Path>,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    let cached = cache::open_or_build_from_file(
        cache,
        "pcqm4mv2 1",
        table,
        schema(),
        3_746_620,
        || graphs(table),
        progress,
    )?;
    let splits = match split {
        Some(split) => read_official_splits(split)?,
        None if cached.len() >= OFFICIAL_TRAIN + OFFICIAL_VALID => splits(),
        None => Splits::default(),
    };
    Ok(Dataset { graphs: Graphs::Cached(cached), schema: schema(), splits })
}

/// Returns the split of the full dataset by row order.
fn splits() -> Splits {
    let valid = OFFICIAL_TRAIN..OFFICIAL_TRAIN + OFFICIAL_VALID;
    hold_out((0..OFFICIAL_TRAIN).collect(), valid.collect(), NUM_VALID)
}

/// Reads the split from the official `split_dict.pt` with arrays `train` and `valid`.
///
/// # Errors
/// Returns an error if the file cannot be read or lacks an array.
pub fn read_official_splits(path: &Path) -> Result<Splits, LocatedError> {
    let mut arrays = ArrayFile::read(path)?;
    let row = |row: i64| usize::try_from(row).map_err(|_| Pcqm4mv2Error::NegativeRow { row });
    let (train, valid) = (arrays.indices("train", row)?, arrays.indices("valid", row)?);
    if train.len() <= NUM_VALID {
        let error = Pcqm4mv2Error::TooFew { train: train.len(), valid: NUM_VALID };
        return Err(LocatedError::new(path, error).in_column("train"));
    }
    Ok(hold_out(train, valid, NUM_VALID))
}

/// Shuffles the training rows and holds out the first `count` of them for validation.
fn hold_out(mut train: Vec<usize>, test: Vec<usize>, count: usize) -> Splits {
    NumpyRandom::new(SEED).shuffle(&mut train);
    let rest = train.split_off(count);
    Splits { train: rest, valid: train, test }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "chem")]
    #[test]
    fn hidden_gaps_are_nan() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data.csv");
        std::fs::write(&path, "idx,smiles,homolumogap\n0,CCO,3.5\n1,C(,1\n2,O,wide\n3,N,\n")
            .unwrap();
        let read: Vec<_> = graphs(&path).unwrap().collect();
        assert_eq!(read[0].as_ref().unwrap().targets, Targets::GraphValues(vec![3.5]));
        assert!(read[1].as_ref().unwrap_err().to_string().contains("line 3, column `smiles`"));
        assert!(
            read[2].as_ref().unwrap_err().to_string().ends_with("`wide` is not a finite number")
        );
        assert!(
            matches!(&read[3].as_ref().unwrap().targets, Targets::GraphValues(gap) if gap[0].is_nan())
        );
    }

    #[test]
    fn validation_rows_are_the_first_shuffled_training_rows() {
        // numpy.random.default_rng(42).permutation([10, 11, 12, 13, 14]) is [14, 12, 13, 11, 10].
        let splits = hold_out(vec![10, 11, 12, 13, 14], vec![7], 2);
        assert_eq!(splits, Splits { train: vec![13, 11, 10], valid: vec![14, 12], test: vec![7] });
    }

    #[test]
    fn full_split_has_published_sizes() {
        let splits = splits();
        assert_eq!(
            [splits.train.len(), splits.valid.len(), splits.test.len()],
            [3_228_606, 150_000, 73_545]
        );
        assert_eq!(splits.test[0], OFFICIAL_TRAIN);
    }
}
