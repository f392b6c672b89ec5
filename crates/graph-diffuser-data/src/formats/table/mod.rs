//! Tables of molecules: a header and records, whatever the file format.
//!
//! Everything after the records, such as finding columns, inferring targets and handling invalid
//! rows, is the same for CSV, SMILES, SDF and Parquet files.

mod column;
mod format;

pub(crate) use column::TableColumn;
pub(crate) use format::{Extension, TableFormat, read_start};

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::LocatedError;
use crate::io::csv_records::{CsvRecords, TableRecord, open_text};
use crate::io::line_reader::LineReader;
use crate::io::parquet_records::ParquetRecords;
use crate::io::sdf_records::SdfRecords;
use crate::io::smi_records::SmiRecords;
use crate::io::text_file::TextReader;

/// An open table: its columns and an iterator over its records.
pub(crate) struct Table {
    path: PathBuf,
    records: Records,
}

/// Records of a file format.
enum Records {
    Csv(CsvRecords),
    Smi(SmiRecords),
    Sdf(SdfRecords),
    Parquet(Box<ParquetRecords>),
}

impl std::fmt::Debug for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Table")
            .field("path", &self.path)
            .field("header", self.header())
            .finish_non_exhaustive()
    }
}

impl Table {
    /// Opens a file in the format that its content indicates.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is empty, or if its header is malformed.
    pub(crate) fn open(path: &Path) -> Result<Self, LocatedError> {
        // Detecting the format consumes the start of a pipe, which cannot be read again.
        let format = if path.is_file() {
            TableFormat::detect(&read_start(path)?, Extension::of(path))
        } else {
            TableFormat::Csv
        };
        Self::open_format(path, format, &Arc::default())
    }

    /// Opens a file in a known format; adds the number of bytes read from disk to `read`.
    ///
    /// # Errors
    /// Returns an error under the conditions of [`Table::open`].
    pub(crate) fn open_format(
        path: &Path,
        format: TableFormat,
        read: &Arc<AtomicU64>,
    ) -> Result<Self, LocatedError> {
        let records = match format {
            TableFormat::Csv => Records::Csv(CsvRecords::new(path, open_text(path, read)?, None)?),
            TableFormat::Smi => {
                Records::Smi(SmiRecords::new(LineReader::new(path, open_text(path, read)?))?)
            }
            TableFormat::Sdf => Records::Sdf(SdfRecords::open(path, read)?),
            TableFormat::Parquet => Records::Parquet(Box::new(ParquetRecords::open(path, read)?)),
        };
        Ok(Self { path: path.to_owned(), records })
    }

    /// Reads a CSV or SMILES table from text; `path` is only used in errors.
    ///
    /// # Errors
    /// Returns an error if the text is empty or its header is malformed.
    pub(crate) fn from_text(
        path: &Path,
        format: TableFormat,
        text: TextReader,
    ) -> Result<Self, LocatedError> {
        let records = match format {
            TableFormat::Smi => Records::Smi(SmiRecords::new(LineReader::new(path, text))?),
            _ => Records::Csv(CsvRecords::new(path, text, None)?),
        };
        Ok(Self { path: path.to_owned(), records })
    }

    /// Opens a CSV file with the given delimiter, or else the most frequent one in its header.
    ///
    /// # Errors
    /// Returns an error under the conditions of [`Table::open`].
    pub(crate) fn open_csv(path: &Path, delimiter: Option<u8>) -> Result<Self, LocatedError> {
        let reader = open_text(path, &Arc::default())?;
        let records = Records::Csv(CsvRecords::new(path, reader, delimiter)?);
        Ok(Self { path: path.to_owned(), records })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the header: the column names and their line.
    pub(crate) fn header(&self) -> &TableRecord {
        match &self.records {
            Records::Csv(records) => records.header(),
            Records::Smi(records) => records.header(),
            Records::Sdf(records) => records.header(),
            Records::Parquet(records) => records.header(),
        }
    }

    /// Returns the delimiter between fields; a comma if the file is not a CSV file.
    pub(crate) fn delimiter(&self) -> u8 {
        match &self.records {
            Records::Csv(records) => records.delimiter(),
            _ => b',',
        }
    }

    /// Returns the line ending, `"\n"` or `"\r\n"`.
    pub(crate) fn line_ending(&self) -> &'static str {
        match &self.records {
            Records::Csv(records) => records.line_ending(),
            _ => "\n",
        }
    }

    /// Returns the column that the format itself defines as the name of a molecule: the second
    /// column of a SMILES file or the title of an SDF record. It is an identifier, even if it
    /// contains numbers.
    pub(crate) fn name_column(&self) -> Option<usize> {
        match &self.records {
            Records::Smi(records) => records.name_column(),
            Records::Sdf(records) => records.name_column(),
            Records::Csv(_) | Records::Parquet(_) => None,
        }
    }

    /// Returns the column of the molecules, if the format itself defines it: the molfiles of an SDF
    /// file or the SMILES of a SMILES file.
    pub(crate) fn molecule_column(&self) -> Option<TableColumn> {
        match &self.records {
            Records::Smi(records) => Some(TableColumn::new(self, records.smiles_column())),
            Records::Sdf(records) => {
                let mut names = records.header().fields.iter();
                let index = names.position(|name| name.eq_ignore_ascii_case("smiles"))?;
                Some(TableColumn::of_molfiles(self, index))
            }
            Records::Csv(_) | Records::Parquet(_) => None,
        }
    }
}

impl Iterator for Table {
    type Item = Result<TableRecord, LocatedError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.records {
            Records::Csv(records) => records.next(),
            Records::Smi(records) => records.next(),
            Records::Sdf(records) => records.next(),
            Records::Parquet(records) => records.next(),
        }
    }
}
