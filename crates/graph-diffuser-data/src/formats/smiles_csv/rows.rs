//! Streams the rows of a CSV file of molecules, for files larger than memory.

use std::path::{Path, PathBuf};

use super::columns::smiles_column;
use super::parse_molecule;
use crate::chem::Molecule;
use crate::error::LocatedError;
use crate::io::csv_records::{CsvRecord, CsvRecords};
use crate::io::par_chunks::par_chunks;

/// A row and its molecule.
#[derive(Debug)]
pub struct SmilesRow {
    /// Line number, bytes and fields.
    pub record: CsvRecord,
    /// Molecule, or the error in its SMILES.
    pub molecule: Result<Molecule, LocatedError>,
}

/// Reader of a CSV file row by row; only the SMILES column is required.
#[derive(Debug)]
pub struct SmilesRows {
    records: CsvRecords,
    smiles: usize,
}

impl SmilesRows {
    /// Opens a CSV file; the SMILES column is `smiles` or `smi`, ignoring case, unless `smiles`
    /// names another one.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has no SMILES column.
    pub fn open(path: &Path, smiles: Option<&str>) -> Result<Self, LocatedError> {
        let records = CsvRecords::open(path)?;
        let smiles = smiles_column(path, records.header(), smiles)?;
        Ok(Self { records, smiles })
    }

    /// Returns the header.
    pub fn header(&self) -> &CsvRecord {
        self.records.header()
    }

    /// Returns the field delimiter.
    pub fn delimiter(&self) -> u8 {
        self.records.delimiter()
    }

    /// Iterates over the rows in file order; the SMILES of a chunk are parsed in parallel. An `Err`
    /// is a record that cannot be parsed.
    pub fn read(self) -> impl Iterator<Item = Result<SmilesRow, LocatedError>> {
        let path: PathBuf = self.records.path().to_owned();
        let names = self.records.header().fields.clone();
        let smiles = self.smiles;
        par_chunks(self.records, move |record| {
            record.map(|record| {
                let molecule = parse_molecule(&path, &record, smiles, &names);
                SmilesRow { record, molecule }
            })
        })
    }
}
