//! Detection of the format of a table.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use crate::chem::Molecule;
use crate::error::LocatedError;
use crate::io::csv_records::{CsvRecordError, open_text};
use crate::io::smi_records::{is_smi_header, split_smiles};

/// Number of bytes that the format is detected from.
const START_BYTES: u64 = 1 << 16;

/// File formats of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableFormat {
    /// Text with a delimiter.
    Csv,
    /// One SMILES string per line.
    Smi,
    /// Molfiles with data fields.
    Sdf,
    /// Parquet file.
    Parquet,
}

/// Format that the name of a file suggests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extension {
    Csv,
    Smi,
    Sdf,
    Parquet,
    Json,
    Other,
}

impl Extension {
    /// Returns the format that the name of a file suggests, ignoring `.gz`.
    pub(crate) fn of(path: &Path) -> Self {
        let name = path.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
            "csv" | "tsv" | "tab" | "psv" => Self::Csv,
            "smi" | "smiles" | "cxsmiles" | "ism" | "can" => Self::Smi,
            "sdf" | "sd" | "mol" | "mdl" => Self::Sdf,
            "parquet" | "pq" => Self::Parquet,
            "json" | "jsonl" | "ndjson" => Self::Json,
            _ => Self::Other,
        }
    }
}

impl TableFormat {
    /// Detects the format from the start of the file; the extension decides between CSV and SMILES
    /// files and if the content is inconclusive.
    pub(crate) fn detect(start: &[u8], extension: Extension) -> Self {
        let text = String::from_utf8_lossy(start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start));
        if start.starts_with(b"PAR1") {
            return Self::Parquet;
        }
        if is_sdf(&text) {
            return Self::Sdf;
        }
        match extension {
            Extension::Sdf => Self::Sdf,
            Extension::Parquet => Self::Parquet,
            Extension::Smi if has_csv_header(&text) => Self::Csv,
            Extension::Smi => Self::Smi,
            Extension::Other if is_smi(&text) => Self::Smi,
            Extension::Csv | Extension::Json | Extension::Other => Self::Csv,
        }
    }
}

/// Returns the start of a file as UTF-8 text, decompressed if necessary; raw bytes if the file is
/// binary.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub(crate) fn read_start(path: &Path) -> Result<Vec<u8>, LocatedError> {
    let mut start = Vec::new();
    match open_text(path, &Arc::default())?.take(START_BYTES).read_to_end(&mut start) {
        // A damaged file is reported by its reader, with the line.
        Err(error) if start.is_empty() => Err(LocatedError::new(path, CsvRecordError::Read(error))),
        _ => Ok(start),
    }
}

/// Returns `true` for the counts line or the end of a molfile.
fn is_sdf(text: &str) -> bool {
    let counts = text.lines().nth(3).unwrap_or_default();
    let is_end = |line: &str| line.starts_with("M  END") || line.trim_end() == "$$$$";
    counts.ends_with("V2000") || counts.ends_with("V3000") || text.lines().any(is_end)
}

/// Iterates over the lines that are neither blank nor comments.
fn content(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Returns `true` if the first line is a header with commas, semicolons or pipes.
fn has_csv_header(text: &str) -> bool {
    let Some(first) = content(text).next() else { return false };
    let is_smiles = |name: &str| {
        let name = name.trim_matches([' ', '"']);
        ["smiles", "smi"].iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    [',', ';', '|']
        .iter()
        .any(|&delimiter| first.contains(delimiter) && first.split(delimiter).any(is_smiles))
}

/// Returns `true` if the first lines consist of a molecule and possibly a name, or if the columns
/// of the header are separated by spaces.
fn is_smi(text: &str) -> bool {
    let mut lines = content(text);
    let Some(first) = lines.next() else { return false };
    if first.contains([',', ';', '\t']) && is_smi_header(first) {
        return false;
    }
    let mut words = first.split_whitespace();
    let is_smiles =
        |word: &str| ["smiles", "smi"].iter().any(|name| name.eq_ignore_ascii_case(word));
    if words.next().is_some_and(is_smiles) {
        return words.next().is_some() && !first.contains('|');
    }
    // Two lines: a column name such as `CNS` may be a valid SMILES string.
    let is_molecule = |line: &str| {
        let (smiles, name) = split_smiles(line);
        smiles.len() > 1 && !name.contains([',', ';']) && Molecule::from_smiles(smiles).is_ok()
    };
    is_molecule(first) && lines.next().is_none_or(is_molecule)
}

#[cfg(test)]
#[cfg(feature = "chem")]
mod tests {
    use super::*;

    #[test]
    fn content_decides_before_the_extension() {
        let detect = |text: &str, name: &str| {
            TableFormat::detect(text.as_bytes(), Extension::of(Path::new(name)))
        };
        let molfile = "x\n\n\n  1  0  0  0  0  0  0  0  0  0999 V2000\n";
        for name in ["a.sdf", "a.csv", "a.smi", "a"] {
            assert_eq!(detect(molfile, name), TableFormat::Sdf);
            assert_eq!(detect("PAR1", name), TableFormat::Parquet);
        }
        assert_eq!(detect("x\n\n\n  0  0\nM  END\n", "a.txt"), TableFormat::Sdf);
        assert_eq!(detect("x", "a.SDF.gz"), TableFormat::Sdf);
        assert_eq!(detect("x", "a.parquet"), TableFormat::Parquet);
        for headerless in ["CCO ethanol\nCC\n", "# x\nCC |$R1;$| a\n", "CCO\t1.5\nCC\t2\n"] {
            assert_eq!(detect(headerless, "a.txt"), TableFormat::Smi, "{headerless}");
            assert_eq!(detect(headerless, "a.smi"), TableFormat::Smi, "{headerless}");
            assert_eq!(detect(headerless, "a.tsv"), TableFormat::Csv, "{headerless}");
        }
        for csv in ["smiles,y\nCC,1\n", "CCO,1\nCC,2\n", "CNS score\n1.5\n", "smiles\nCC\n"] {
            assert_eq!(detect(csv, "a.txt"), TableFormat::Csv, "{csv}");
        }
        assert_eq!(detect("smiles\ty\nCC\t1\n", "a.txt"), TableFormat::Csv);
        assert_eq!(detect("smiles\tname\ty\n", "a.smi"), TableFormat::Smi);
        assert_eq!(detect("smiles,name\nCC,x\n", "a.smi"), TableFormat::Csv);
        assert_eq!(detect("SMILES|name\nCC|x\n", "a.smi"), TableFormat::Csv);
        assert_eq!(detect("smiles name\nCC x\n", "a.txt"), TableFormat::Smi);
    }
}
