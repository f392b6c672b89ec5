//! The rows of a table one after another, for files larger than memory.

use std::path::{Path, PathBuf};

use super::columns::smiles_column;
use super::molecule_of;
use crate::chunks::in_chunks;
use crate::delimited::{Record, Records};
use crate::molecule::Molecule;
use crate::problem::Problem;

/// One row: what stands in the file, and the molecule in it.
#[derive(Debug)]
pub struct Row {
    /// Its line, bytes and fields.
    pub record: Record,
    /// Its molecule, or what is wrong with it.
    pub molecule: Result<Molecule, Problem>,
}

/// A table that is read row by row; only the column of SMILES has to be there.
#[derive(Debug)]
pub struct Rows {
    records: Records,
    smiles: usize,
}

impl Rows {
    /// Opens a table; the column of SMILES is `smiles` or `smi` in any case unless it is named.
    ///
    /// # Errors
    /// The file cannot be read, or has no such column.
    pub fn open(path: &Path, smiles: Option<&str>) -> Result<Self, Problem> {
        let records = Records::open(path)?;
        let smiles = smiles_column(path, records.header(), smiles)?;
        Ok(Self { records, smiles })
    }

    /// The names of the columns as they stand in the file.
    pub fn header(&self) -> &Record {
        self.records.header()
    }

    /// What stands between fields.
    pub fn delimiter(&self) -> u8 {
        self.records.delimiter()
    }

    /// The rows in order; their molecules are read by all threads, a chunk at a time. An `Err` is a record that
    /// cannot be read at all.
    pub fn read(self) -> impl Iterator<Item = Result<Row, Problem>> {
        let path: PathBuf = self.records.path().to_owned();
        let names = self.records.header().fields.clone();
        let smiles = self.smiles;
        in_chunks(self.records, move |record| {
            record.map(|record| {
                let molecule = molecule_of(&path, &record, smiles, &names);
                Row { record, molecule }
            })
        })
    }
}
