//! Detection of the format of a file or directory.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::error::{Diagnostic, LocatedError};
use crate::formats::ogb_csv::csv_file;
use crate::formats::table::{Extension, TableFormat, read_start};
use crate::io::csv_records::CsvRecordError;

/// Supported formats of user data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// CSV file with a SMILES column.
    SmilesCsv,
    /// SMILES file with one molecule per line.
    Smi,
    /// SDF file.
    Sdf,
    /// Parquet file with a SMILES column.
    Parquet,
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
    /// The file is binary and not a Parquet file.
    #[error("unsupported binary file")]
    UnsupportedBinary,
    /// The file is a Parquet file inside a gzip file.
    #[error("gzip-compressed Parquet files are not supported")]
    CompressedParquet,
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
            Self::UnsupportedBinary => Some(
                "supported are CSV, SMILES, SDF and JSON Lines files, plain or gzip-compressed, \
                 and Parquet files; export spreadsheets as CSV and unpack archives"
                    .into(),
            ),
            Self::CompressedParquet => Some("decompress the file first".into()),
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
        let start = read_start(path)?;
        if start.starts_with(b"PAR1") && is_gzip(path) {
            return Err(LocatedError::new(path, FormatError::CompressedParquet));
        }
        Self::detect_text(path, &start)
    }

    /// Detects the format of a file from the start of its decompressed content.
    pub(crate) fn detect_text(path: &Path, start: &[u8]) -> Result<Self, LocatedError> {
        let extension = Extension::of(path);
        let table = TableFormat::detect(start, extension);
        if start.starts_with(b"PAR1") {
            return Ok(Self::Parquet);
        }
        // UTF-16 text that has not been converted.
        if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
            return Ok(Self::SmilesCsv);
        }
        if start.starts_with(b"PK") || start.contains(&0) {
            return Err(LocatedError::new(path, FormatError::UnsupportedBinary));
        }
        let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
        // A list of objects; a SMILES string may start with a bracket as well.
        let is_list = text
            .strip_prefix(b"[")
            .is_some_and(|rest| matches!(rest.trim_ascii_start().first(), Some(b'{' | b']')));
        let is_json = text.first() == Some(&b'{') || is_list;
        // The extension decides if the content is inconclusive, such as an empty file.
        Ok(match table {
            TableFormat::Sdf => Self::Sdf,
            _ if is_json || extension == Extension::Json => Self::Jsonl,
            TableFormat::Csv => Self::SmilesCsv,
            TableFormat::Smi => Self::Smi,
            TableFormat::Parquet => Self::Parquet,
        })
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
            Self::Smi => "a SMILES file",
            Self::Sdf => "an SDF file",
            Self::Parquet => "a Parquet file",
            Self::Jsonl => "a JSON file of graphs",
            Self::OgbCsv => "a directory of OGB CSV files",
            Self::Tu => "a TU dataset directory",
        }
    }

    /// Returns the format of the table, if the format holds molecules.
    pub(crate) fn table(self) -> Option<TableFormat> {
        match self {
            Self::SmilesCsv => Some(TableFormat::Csv),
            Self::Smi => Some(TableFormat::Smi),
            Self::Sdf => Some(TableFormat::Sdf),
            Self::Parquet => Some(TableFormat::Parquet),
            Self::Jsonl | Self::OgbCsv | Self::Tu => None,
        }
    }
}

/// Returns `true` if a file starts with the gzip magic number.
fn is_gzip(path: &Path) -> bool {
    let mut magic = [0; 2];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == [0x1f, 0x8b]
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

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
        assert_eq!(detect("salts.smi", b"[Na+].[Cl-] salt\n"), Ok(Format::Smi));
        assert_eq!(detect("sheet.xlsx", b"PK\x03\x04"), Err("unsupported binary file".into()));
        let molfile = b"x\n\n\n  1  0  0  0  0  0  0  0  0  0999 V2000\n";
        assert_eq!(detect("a.json", molfile), Ok(Format::Sdf));
        assert_eq!(detect("names.smi", b"CCO ethanol\n"), Ok(Format::Smi));
        assert_eq!(detect("a.dat", b"PAR1\0"), Ok(Format::Parquet));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"PAR1\0").unwrap();
        assert_eq!(
            detect("a.parquet.gz", &gzip.finish().unwrap()),
            Err("gzip-compressed Parquet files are not supported".into())
        );
        let utf16: Vec<u8> =
            "\u{feff}smiles\ty\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(detect("excel.txt", &utf16), Ok(Format::SmilesCsv));
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
