//! Parquet files: flat columns of strings, numbers and booleans.
//!
//! Without the cargo feature `parquet`, every file is rejected with [`ParquetFileError::Disabled`].

mod error;

#[cfg(not(feature = "parquet"))]
mod disabled;
#[cfg(feature = "parquet")]
mod pages;
#[cfg(feature = "parquet")]
mod reader;

#[cfg(not(feature = "parquet"))]
pub(crate) use disabled::ParquetRecords;
pub(crate) use error::ParquetFileError;
#[cfg(feature = "parquet")]
pub(crate) use reader::ParquetRecords;
