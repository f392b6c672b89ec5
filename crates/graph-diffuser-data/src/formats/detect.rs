//! Detection of the format of a file or directory, and reading in any supported format.

use std::io::BufRead as _;
use std::path::Path;
use std::sync::Arc;

use crate::dataset::{Dataset, Graphs};
use crate::error::{Diagnostic, LocatedError};
use crate::formats::jsonl;
use crate::formats::ogb_csv::{self, OgbCsvOptions, csv_file};
use crate::formats::smiles_csv::{self, SmilesCsvOptions};
use crate::formats::tu::{self, NodeFeatureSource};
use crate::io::csv_records::{CsvRecordError, open_text};
use crate::io::progress::ProgressFn;

/// Maximum number of errors that are collected; further ones are counted.
const MAX_ERRORS: usize = 1000;

/// Supported formats of user data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// CSV file with a SMILES column.
    SmilesCsv,
    /// JSON or JSON Lines file of graphs.
    Jsonl,
    /// Directory of OGB CSV files.
    OgbCsv,
    /// Directory of a TU dataset.
    Tu,
}

/// Errors of [`Format::detect`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The path does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// The directory holds none of the expected files.
    #[error("directory is not a supported dataset")]
    UnknownDirectory,
    /// The file is binary.
    #[error("file is binary, expected text")]
    NotText,
}

impl Diagnostic for FormatError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound => None,
            Self::UnknownDirectory => Some(
                "expected `raw/num-node-list.csv.gz` (OGB CSV files) or `NAME_A.txt` and \
                 `NAME_graph_indicator.txt` (TU dataset)"
                    .into(),
            ),
            Self::NotText => Some(
                "export spreadsheets as CSV and unpack archives; gzip files can be read".into(),
            ),
        }
    }
}

impl Format {
    /// Detects the format of the file or directory at `path` from its content.
    ///
    /// # Errors
    /// Returns an error if the path does not exist or its format is not supported.
    pub fn detect(path: &Path) -> Result<Self, LocatedError> {
        if path.is_dir() {
            return Self::detect_directory(path);
        }
        if !path.exists() {
            return Err(LocatedError::new(path, FormatError::NotFound));
        }
        let mut text = open_text(path, &Arc::default())?;
        let start = text
            .fill_buf()
            .map_err(|error| LocatedError::new(path, CsvRecordError::Read(error)))?;
        Self::detect_text(path, start)
    }

    /// Detects the format of a file from the start of its decompressed content.
    pub(crate) fn detect_text(path: &Path, start: &[u8]) -> Result<Self, LocatedError> {
        if start.starts_with(b"PK") || start.contains(&0) {
            return Err(LocatedError::new(path, FormatError::NotText));
        }
        let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
        // A list of objects; a SMILES string may start with a bracket as well.
        let start = start.trim_ascii_start();
        let is_list = start
            .strip_prefix(b"[")
            .is_some_and(|rest| matches!(rest.trim_ascii_start().first(), Some(b'{' | b']')));
        // The extension decides if the content is inconclusive, such as an empty file.
        let name = path.to_string_lossy();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let is_jsonl_name =
            [".json", ".jsonl", ".ndjson"].iter().any(|ending| name.ends_with(ending));
        let is_jsonl = start.first() == Some(&b'{') || is_list || is_jsonl_name;
        Ok(if is_jsonl { Self::Jsonl } else { Self::SmilesCsv })
    }

    fn detect_directory(path: &Path) -> Result<Self, LocatedError> {
        if csv_file(&path.join("raw"), "num-node-list").is_some() {
            return Ok(Self::OgbCsv);
        }
        let entries = path
            .read_dir()
            .map_err(|error| LocatedError::new(path, CsvRecordError::Read(error)))?;
        let mut names = entries
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
        let is_tu = names.any(|name| name.ends_with("_A.txt"));
        is_tu
            .then_some(Self::Tu)
            .ok_or_else(|| LocatedError::new(path, FormatError::UnknownDirectory))
    }

    /// Returns the name of the format for messages, with an article.
    pub fn name(self) -> &'static str {
        match self {
            Self::SmilesCsv => "a CSV file",
            Self::Jsonl => "a JSON file of graphs",
            Self::OgbCsv => "a directory of OGB CSV files",
            Self::Tu => "a TU dataset directory",
        }
    }

    /// Reads the graphs at `path`, with the splits given there or empty ones.
    ///
    /// # Errors
    /// Returns all errors that the reader of the format finds.
    pub fn read(
        self,
        path: &Path,
        options: &SmilesCsvOptions,
        cache: &Path,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, Vec<LocatedError>> {
        match self {
            Self::SmilesCsv => {
                let read = smiles_csv::read(
                    path,
                    &SmilesCsvOptions { max_errors: MAX_ERRORS, ..options.clone() },
                )?;
                let splits = read.splits.unwrap_or_default();
                Ok(Dataset { graphs: Graphs::InMemory(read.graphs), schema: read.schema, splits })
            }
            Self::Jsonl => {
                let options = jsonl::JsonlOptions {
                    max_errors: MAX_ERRORS,
                    ..jsonl::JsonlOptions::default()
                };
                Ok(jsonl::read(path, &options)?.into_dataset())
            }
            Self::OgbCsv => ogb_csv::read(path, &OgbCsvOptions::default(), cache, progress)
                .map_err(|error| vec![error]),
            Self::Tu => tu::read(path, NodeFeatureSource::default()).map_err(|error| vec![error]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_detected_from_the_content() {
        let directory = tempfile::tempdir().unwrap();
        let detect = |name: &str, content: &[u8]| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, content).unwrap();
            Format::detect(&path).map_err(|error| error.error.to_string())
        };
        assert_eq!(detect("a.csv", b"smiles,y\nC,1\n"), Ok(Format::SmilesCsv));
        assert_eq!(detect("graphs.txt", b"\xef\xbb\xbf\n {\"nodes\": 1}\n"), Ok(Format::Jsonl));
        assert_eq!(detect("list.jsonl", b"[1]"), Ok(Format::Jsonl));
        assert_eq!(detect("list.txt", b" [\n {\"x\": []}]"), Ok(Format::Jsonl));
        assert_eq!(detect("salts.smi", b"[Na+].[Cl-] salt\n"), Ok(Format::SmilesCsv));
        assert_eq!(
            detect("sheet.xlsx", b"PK\x03\x04"),
            Err("file is binary, expected text".into())
        );
        assert_eq!(detect("layout/raw/num-node-list.csv", b"1\n"), Ok(Format::SmilesCsv));
        detect("tu/X_A.txt", b"1, 2\n").unwrap();
        let detect_directory = |name: &str| {
            Format::detect(&directory.path().join(name)).map_err(|error| error.error.to_string())
        };
        assert_eq!(detect_directory("layout"), Ok(Format::OgbCsv));
        assert_eq!(detect_directory("tu"), Ok(Format::Tu));
        assert_eq!(
            detect_directory("layout/raw"),
            Err("directory is not a supported dataset".into())
        );
        assert_eq!(detect_directory("none"), Err("no such file or directory".into()));
    }
}
