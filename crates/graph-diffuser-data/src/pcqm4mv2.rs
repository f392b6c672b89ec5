//! `PCQM4Mv2`: millions of small molecules and the gap between two of their orbitals, in eV.
//!
//! `data.csv.gz` has columns `idx,smiles,homolumogap`; rows without a gap are the hidden tests. As in the comparison
//! with other graph Transformers, the official validation rows are the test set, and 150,000 of the shuffled training
//! rows are for validation. Graphs are streamed: nothing is held but a chunk.

use std::path::Path;

use crate::cache;
use crate::csv_records::{CsvRecord, CsvRecordError, CsvRecords};
use crate::dataset::{Dataset, Graphs, Names, Schema, Splits, TargetSchema};
use crate::error::{Diagnostic, LocatedError};
use crate::graph::{Graph, Targets};
use crate::molecule::Molecule;
use crate::numpy_random::NumpyRandom;
use crate::ogbg_mol;
use crate::par_chunks::par_chunks;
use crate::pickle::PickleError;
use crate::progress::ProgressFn;
use crate::torch_file::read_torch_arrays;

/// Rows of the official training part, which come first.
pub const OFFICIAL_TRAIN: usize = 3_378_606;
/// Rows of the official validation part, which come next.
pub const OFFICIAL_VALID: usize = 73_545;
/// Training rows that are for validation.
const VALID: usize = 150_000;
/// Seeds the shuffle of the training rows.
const SEED: u64 = 42;

/// What can be wrong with the files of `PCQM4Mv2`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Pcqm4mv2Error {
    /// A column is missing.
    #[error("there is no such column")]
    NoColumn,
    /// A gap was expected.
    #[error("`{cell}` is not a finite number")]
    NotANumber {
        /// What stands there.
        cell: String,
    },
    /// The training rows are too few for the validation that is taken from them.
    #[error("of {train} training rows, {valid} cannot be set aside for validation")]
    TooFew {
        /// How many training rows there are.
        train: usize,
        /// How many are set aside.
        valid: usize,
    },
    /// A part of the official split names a row with a negative number.
    #[error("the split names row {row}")]
    Row {
        /// Which.
        row: i64,
    },
}

impl Diagnostic for Pcqm4mv2Error {}

/// What the graphs mean.
pub fn schema() -> Schema {
    let names = Names { targets: vec!["homolumogap".into()], ..Names::default() };
    Schema { names, ..ogbg_mol::schema(TargetSchema::Regression(1)) }
}

/// The graphs in the order of the file; a gap that is hidden is NaN.
///
/// # Errors
/// The file cannot be read or lacks a column; later, the problem of each row.
pub fn graphs(
    path: &Path,
) -> Result<impl Iterator<Item = Result<Graph, LocatedError>> + use<>, LocatedError> {
    let records = CsvRecords::open(path)?;
    let find = |name: &str| {
        let place = records.header().fields.iter().position(|column| column == name);
        place.ok_or_else(|| {
            LocatedError::new(path, Pcqm4mv2Error::NoColumn).at_line(1).in_column(name)
        })
    };
    let (smiles, gap) = (find("smiles")?, find("homolumogap")?);
    let path = path.to_owned();
    let graph = move |record: CsvRecord| {
        let graph = Molecule::from_smiles(&record.fields[smiles])
            .map_err(|fault| {
                LocatedError::new(&path, fault).at_line(record.line).in_column("smiles")
            })?
            .ogb_graph();
        let cell = record.fields[gap].trim();
        let value = match cell {
            "" | "nan" => f32::NAN,
            cell => {
                cell.parse::<f32>().ok().filter(|value| value.is_finite()).ok_or_else(|| {
                    let fault = Pcqm4mv2Error::NotANumber { cell: cell.to_owned() };
                    LocatedError::new(&path, fault).at_line(record.line).in_column("homolumogap")
                })?
            }
        };
        Ok(Graph { targets: Targets::GraphValues(vec![value]), ..graph })
    };
    Ok(par_chunks(records, move |record| record.and_then(&graph)))
}

/// Reads the table and its split, through a cached file in the directory `cache`.
///
/// Without the official split the order of the rows decides; a table that is too short for that gets an empty split,
/// to be filled by the caller.
///
/// # Errors
/// The first problem of the files, and what keeps the cache from being written.
pub fn read(
    table: &Path,
    split: Option<&Path>,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    let cached =
        cache::keep(cache, "pcqm4mv2 1", table, schema(), 3_746_620, || graphs(table), progress)?;
    let splits = match split {
        Some(split) => splits_of(split)?,
        None if cached.len() >= OFFICIAL_TRAIN + OFFICIAL_VALID => splits(),
        None => Splits { train: vec![], valid: vec![], test: vec![] },
    };
    Ok(Dataset { graphs: Graphs::Cached(cached), schema: schema(), splits })
}

/// The split of the whole set by the order of its rows.
pub fn splits() -> Splits {
    let valid = OFFICIAL_TRAIN..OFFICIAL_TRAIN + OFFICIAL_VALID;
    set_aside((0..OFFICIAL_TRAIN).collect(), valid.collect(), VALID)
}

/// The split by the official `split_dict.pt`: arrays `train` and `valid`.
///
/// # Errors
/// The file cannot be read, or is not such a dictionary.
pub fn splits_of(path: &Path) -> Result<Splits, LocatedError> {
    let bytes = std::fs::read(path)
        .map_err(|error| LocatedError::new(path, CsvRecordError::Read(error)))?;
    let mut arrays = read_torch_arrays(&bytes).map_err(|fault| LocatedError::new(path, fault))?;
    let mut part = |name: &str| {
        let array = arrays
            .remove(name)
            .ok_or_else(|| LocatedError::new(path, PickleError::Missing { name: name.into() }))?;
        let rows = array.into_iter().map(|row| {
            usize::try_from(row)
                .map_err(|_| LocatedError::new(path, Pcqm4mv2Error::Row { row }).in_column(name))
        });
        rows.collect::<Result<Vec<usize>, LocatedError>>()
    };
    let (train, valid) = (part("train")?, part("valid")?);
    if train.len() <= VALID {
        let fault = Pcqm4mv2Error::TooFew { train: train.len(), valid: VALID };
        return Err(LocatedError::new(path, fault).in_column("train"));
    }
    Ok(set_aside(train, valid, VALID))
}

/// Shuffles the training rows and takes the first of them for validation; the official validation is the test.
fn set_aside(mut train: Vec<usize>, test: Vec<usize>, count: usize) -> Splits {
    NumpyRandom::new(SEED).shuffle(&mut train);
    let rest = train.split_off(count);
    Splits { train: rest, valid: train, test }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_read_and_hidden_ones_are_missing() {
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
    fn validation_is_taken_from_the_shuffled_training_rows() {
        // numpy.random.default_rng(42).permutation([10, 11, 12, 13, 14]) is [14, 12, 13, 11, 10].
        let splits = set_aside(vec![10, 11, 12, 13, 14], vec![7], 2);
        assert_eq!(splits, Splits { train: vec![13, 11, 10], valid: vec![14, 12], test: vec![7] });
    }

    #[test]
    fn the_whole_split_has_the_published_sizes() {
        let splits = splits();
        assert_eq!(
            [splits.train.len(), splits.valid.len(), splits.test.len()],
            [3_228_606, 150_000, 73_545]
        );
        assert_eq!(splits.test[0], OFFICIAL_TRAIN);
    }
}
