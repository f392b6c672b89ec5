//! The rows of a table one after another, for files larger than memory.

use std::path::{Path, PathBuf};

use super::columns::smiles_column;
use super::molecule_of;
use crate::csv_records::{CsvRecord, CsvRecords};
use crate::error::LocatedError;
use crate::molecule::Molecule;
use crate::par_chunks::par_chunks;

/// One row: what stands in the file, and the molecule in it.
#[derive(Debug)]
pub struct SmilesRow {
    /// Its line, bytes and fields.
    pub record: CsvRecord,
    /// Its molecule, or what is wrong with it.
    pub molecule: Result<Molecule, LocatedError>,
}

/// A table that is read row by row; only the column of SMILES has to be there.
#[derive(Debug)]
pub struct SmilesRows {
    records: CsvRecords,
    smiles: usize,
}

impl SmilesRows {
    /// Opens a table; the column of SMILES is `smiles` or `smi` in any case unless it is named.
    ///
    /// # Errors
    /// The file cannot be read, or has no such column.
    pub fn open(path: &Path, smiles: Option<&str>) -> Result<Self, LocatedError> {
        let records = CsvRecords::open(path)?;
        let smiles = smiles_column(path, records.header(), smiles)?;
        Ok(Self { records, smiles })
    }

    /// The names of the columns as they stand in the file.
    pub fn header(&self) -> &CsvRecord {
        self.records.header()
    }

    /// What stands between fields.
    pub fn delimiter(&self) -> u8 {
        self.records.delimiter()
    }

    /// The rows in order; their molecules are read by all threads, a chunk at a time. An `Err` is a record that
    /// cannot be read at all.
    pub fn read(self) -> impl Iterator<Item = Result<SmilesRow, LocatedError>> {
        let path: PathBuf = self.records.path().to_owned();
        let names = self.records.header().fields.clone();
        let smiles = self.smiles;
        par_chunks(self.records, move |record| {
            record.map(|record| {
                let molecule = molecule_of(&path, &record, smiles, &names);
                SmilesRow { record, molecule }
            })
        })
    }
}
