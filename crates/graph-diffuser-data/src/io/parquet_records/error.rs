//! Errors of Parquet files.

use std::io;

use crate::error::Diagnostic;

/// Error of a Parquet file; no row after it can be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "constructed by the reader"))]
pub(crate) enum ParquetFileError {
    /// The file cannot be read.
    #[error("cannot read the file")]
    Read(#[source] io::Error),
    /// The file is truncated or malformed, or uses an unsupported codec or encoding.
    #[error("invalid Parquet file: {reason}")]
    Invalid {
        /// Message of the decoder.
        reason: String,
    },
    /// No column has a supported type.
    #[error("no column of strings, numbers or booleans")]
    NoColumns,
    /// The crate was compiled without the cargo feature `parquet`.
    #[cfg_attr(feature = "parquet", expect(dead_code, reason = "constructed without the feature"))]
    #[error("this build does not support Parquet files")]
    Disabled,
}

impl Diagnostic for ParquetFileError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Read(_) => return None,
            Self::Invalid { .. } => {
                "write the file again with snappy, zstd, gzip, lz4 or no compression".into()
            }
            Self::NoColumns => "nested columns, such as lists, are not supported".into(),
            Self::Disabled => {
                "convert the file to CSV, or enable the cargo feature `parquet`".into()
            }
        })
    }
}
