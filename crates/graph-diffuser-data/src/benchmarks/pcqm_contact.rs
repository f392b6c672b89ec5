//! PCQM-Contact of the Long Range Graph Benchmark: prediction of atom pairs in spatial contact.
//!
//! The file has one column, `cxsmiles`. Every sixth row is used, and molecules without a contact
//! are skipped. Hydrogens are nodes. The split is a 90/5/5 shuffle by NumPy's generator.

use std::path::Path;

use crate::chem::{Molecule, ogb_schema};
use crate::dataset::{Dataset, Graphs};
use crate::error::LocatedError;
use crate::formats::Table;
use crate::formats::smiles_csv::{SmilesColumn, smiles_column};
use crate::graph::{Graph, Targets};
use crate::io::cache;
use crate::io::csv_records::TableRecord;
use crate::io::numpy_random::NumpyRandom;
use crate::io::par_chunks::par_chunks;
use crate::io::progress::ProgressFn;
use crate::io::torch_file::read_splits;
use crate::schema::{Schema, TargetSchema};
use crate::split::Splits;

/// Every `STEP`-th row is used.
const STEP: usize = 6;
/// Seed of the split.
const SEED: u64 = 42;

/// Returns the schema of the dataset.
pub fn schema() -> Schema {
    ogb_schema(TargetSchema::LinkPrediction)
}

/// Iterates over the graphs of rows 0, 6, 12, … that have a contact.
///
/// # Errors
/// Returns an error if the file cannot be read or lacks the column; the iterator yields the errors
/// of single rows.
pub fn graphs(
    path: &Path,
) -> Result<impl Iterator<Item = Result<Graph, LocatedError>> + use<>, LocatedError> {
    let records = Table::open_csv(path, Some(b'\t'))?;
    let column = smiles_column(&records, SmilesColumn::Named("cxsmiles"))?;
    let graph = move |record: TableRecord| {
        column.parse(&record, |cell| Molecule::from_cxsmiles_unsanitized(cell)?.contact_graph())
    };
    let graphs = par_chunks(records.step_by(STEP), move |record| record.and_then(&graph));
    Ok(graphs.filter(|graph| match graph {
        Ok(Graph { targets: Targets::Links(links), .. }) => !links.is_empty(),
        _ => true,
    }))
}

/// Reads and splits the dataset through a cache file in the directory `cache`.
///
/// Without the published file of the split, it is computed by the rule that the file follows.
///
/// # Errors
/// Returns the first error of a file, or an error if the cache cannot be written.
pub fn read(
    path: &Path,
    split: Option<&Path>,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    let cached = cache::open_or_build_from_file(
        cache,
        "pcqm-contact 1",
        path,
        schema(),
        529_434,
        || graphs(path),
        progress,
    )?;
    let splits = match split {
        Some(split) => read_splits(split, cached.len())?,
        None => splits(cached.len()),
    };
    Ok(Dataset { splits, schema: schema(), graphs: Graphs::Cached(cached) })
}

/// Returns the `shuffle` split of a dataset with `graphs` graphs; the full dataset has 529,434.
fn splits(graphs: usize) -> Splits {
    let mut order = NumpyRandom::new(SEED).permutation(graphs);
    // Integer arithmetic, so that rounding cannot move a graph to another split.
    let train = graphs * 90 / 100;
    let valid = (graphs - train) / 2;
    let test = order.split_off(train + valid);
    let valid = order.split_off(train);
    Splits { train: order, valid, test }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "chem")]
    #[test]
    fn every_sixth_row_with_a_contact_becomes_a_graph() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("contact.tsv");
        let with = "[H][O][C]([H])([H])[H] |atomProp:0.contact.0:5.contact.0|";
        let mut text = "cxsmiles\n".to_owned();
        for row in 0..19 {
            text += if row == 6 {
                "[H][O][H]\n"
            } else if row % 6 == 0 {
                with
            } else {
                "never read ("
            };
            text += if row == 6 { "" } else { "\n" };
        }
        std::fs::write(&path, text).unwrap();
        let read: Vec<Graph> = graphs(&path).unwrap().map(Result::unwrap).collect();
        assert_eq!(read.len(), 3);
        assert_eq!(read[0].targets, Targets::Links(vec![[0, 5], [5, 0]]));
    }

    #[cfg(feature = "chem")]
    #[test]
    fn published_split_is_used_if_present() {
        let directory = tempfile::tempdir().unwrap();
        let (table, split) =
            (directory.path().join("contact.tsv"), directory.path().join("split.pt"));
        let row = "[H][O][C]([H])([H])[H] |atomProp:0.contact.0:5.contact.0|\n";
        std::fs::write(&table, format!("cxsmiles\n{}", row.repeat(6 * 16))).unwrap();
        let arrays = include_bytes!("../../tests/fixtures/split_arrays.pt");
        std::fs::write(&split, arrays).unwrap();
        let cache = directory.path().join("cache");
        let read = |split| super::read(&table, split, &cache, &mut |_, _| {}).unwrap();
        assert_eq!(read(Some(&split)).splits.train, [3, 1, 4, 15, 9]);
        assert_eq!(read(None).splits.train.len(), 14);
    }

    #[test]
    fn full_split_has_published_sizes() {
        let splits = splits(529_434);
        assert_eq!(
            [splits.train.len(), splits.valid.len(), splits.test.len()],
            [476_490, 26_472, 26_472]
        );
        // numpy.random.default_rng(42).permutation(529434)[0]
        assert_eq!(splits.train[0], 125_454);
    }
}
