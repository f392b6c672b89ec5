//! Replacement of the reader in builds without the cargo feature `parquet`.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::ParquetFileError;
use crate::error::LocatedError;
use crate::io::csv_records::TableRecord;

/// Iterator over the rows of a Parquet file; there is none in this build.
pub(crate) struct ParquetRecords(Infallible);

impl ParquetRecords {
    /// Returns [`ParquetFileError::Disabled`].
    pub(crate) fn open(path: &Path, _read: &Arc<AtomicU64>) -> Result<Self, LocatedError> {
        Err(LocatedError::new(path, ParquetFileError::Disabled))
    }

    /// Returns the column names.
    pub(crate) fn header(&self) -> &TableRecord {
        match self.0 {}
    }
}

impl Iterator for ParquetRecords {
    type Item = Result<TableRecord, LocatedError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0 {}
    }
}
