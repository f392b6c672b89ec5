//! Which format a file or folder is in, seen from what is in it, and its graphs.

use std::io::BufRead as _;
use std::path::Path;

use crate::csv_records::{CsvRecordError, open_text};
use crate::dataset::{Dataset, Graphs, Splits};
use crate::error::{Diagnostic, LocatedError};
use crate::jsonl;
use crate::ogb_csv::{self, OgbCsvOptions, csv_file};
use crate::progress::ProgressFn;
use crate::smiles_csv::{self, SmilesCsvOptions};
use crate::tu::{self, NodeFeatureSource};

/// Most problems that are listed; the rest is counted.
const MOST_PROBLEMS: usize = 1000;

/// A format that can be told from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A table of molecules.
    SmilesCsv,
    /// Graphs, one JSON object a line.
    Jsonl,
    /// A folder in the csv layout of OGB.
    OgbCsv,
    /// A folder of the TU collection.
    Tu,
}

/// Why a format is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// There is nothing of that name.
    #[error("there is no such file or folder")]
    NotFound,
    /// A folder without any of the files that are read.
    #[error("the folder holds no graphs that can be read")]
    UnknownFolder,
    /// A file of a program, an archive or a picture.
    #[error("the file is not text")]
    NotText,
}

impl Diagnostic for FormatError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound => None,
            Self::UnknownFolder => Some(
                "a folder holds `raw/num-node-list.csv.gz` and its like, or the files `NAME_A.txt`, \
                 `NAME_graph_indicator.txt` of a TU dataset"
                    .into(),
            ),
            Self::NotText => Some("export a spreadsheet as csv, and unpack an archive; gzip is read as it is".into()),
        }
    }
}

impl Format {
    /// The format of what is at `path`.
    ///
    /// # Errors
    /// Where there is nothing, or nothing that is known.
    pub fn of(path: &Path) -> Result<Self, LocatedError> {
        if path.is_dir() {
            return Self::of_folder(path);
        }
        if !path.exists() {
            return Err(LocatedError::new(path, FormatError::NotFound));
        }
        let mut text = open_text(path)?;
        let start = text
            .fill_buf()
            .map_err(|error| LocatedError::new(path, CsvRecordError::Read(error)))?;
        if start.starts_with(b"PK") || start.contains(&0) {
            return Err(LocatedError::new(path, FormatError::NotText));
        }
        let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
        let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
        // The extension decides where the content is neither: an empty file, or a list in place of lines.
        let name = path.to_string_lossy();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let said = [".json", ".jsonl", ".ndjson"].iter().any(|ending| name.ends_with(ending));
        Ok(if first == Some(&b'{') || said { Self::Jsonl } else { Self::SmilesCsv })
    }

    fn of_folder(path: &Path) -> Result<Self, LocatedError> {
        if csv_file(&path.join("raw"), "num-node-list").is_some() {
            return Ok(Self::OgbCsv);
        }
        let entries = path
            .read_dir()
            .map_err(|error| LocatedError::new(path, CsvRecordError::Read(error)))?;
        let mut names = entries
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
        let is_tu = names.any(|name| name.ends_with("_A.txt"));
        is_tu.then_some(Self::Tu).ok_or_else(|| LocatedError::new(path, FormatError::UnknownFolder))
    }

    /// What it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::SmilesCsv => "a table",
            Self::Jsonl => "a file of graphs",
            Self::OgbCsv => "a folder in the csv layout",
            Self::Tu => "a folder of the TU collection",
        }
    }

    /// The graphs at `path`, with the split that is stated there or an empty one.
    ///
    /// # Errors
    /// Every problem that the reader of the format finds.
    pub fn read(
        self,
        path: &Path,
        table: &SmilesCsvOptions,
        cache: &Path,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, Vec<LocatedError>> {
        let no_split = || Splits { train: vec![], valid: vec![], test: vec![] };
        match self {
            Self::SmilesCsv => {
                let read = smiles_csv::read(
                    path,
                    &SmilesCsvOptions { most_problems: MOST_PROBLEMS, ..table.clone() },
                )?;
                let splits = read.given_split.unwrap_or_else(no_split);
                Ok(Dataset { graphs: Graphs::Listed(read.graphs), schema: read.schema, splits })
            }
            Self::Jsonl => {
                let options = jsonl::JsonlOptions {
                    problems: MOST_PROBLEMS,
                    ..jsonl::JsonlOptions::default()
                };
                Ok(jsonl::read(path, &options)?.into_dataset(|_| no_split()))
            }
            Self::OgbCsv => ogb_csv::read(path, &OgbCsvOptions::default(), cache, progress)
                .map_err(|problem| vec![problem]),
            Self::Tu => {
                tu::read(path, NodeFeatureSource::default()).map_err(|problem| vec![problem])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_seen_from_the_content() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str, content: &[u8]| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, content).unwrap();
            Format::of(&path).map_err(|problem| problem.fault.to_string())
        };
        assert_eq!(of("a.csv", b"smiles,y\nC,1\n"), Ok(Format::SmilesCsv));
        assert_eq!(of("graphs.txt", b"\xef\xbb\xbf\n {\"nodes\": 1}\n"), Ok(Format::Jsonl));
        assert_eq!(of("list.jsonl", b"[1]"), Ok(Format::Jsonl));
        assert_eq!(of("sheet.xlsx", b"PK\x03\x04"), Err("the file is not text".into()));
        assert_eq!(of("layout/raw/num-node-list.csv", b"1\n"), Ok(Format::SmilesCsv));
        of("tu/X_A.txt", b"1, 2\n").unwrap();
        let folder = |name: &str| {
            Format::of(&directory.path().join(name)).map_err(|problem| problem.fault.to_string())
        };
        assert_eq!(folder("layout"), Ok(Format::OgbCsv));
        assert_eq!(folder("tu"), Ok(Format::Tu));
        assert_eq!(folder("layout/raw"), Err("the folder holds no graphs that can be read".into()));
        assert_eq!(folder("none"), Err("there is no such file or folder".into()));
    }
}
