//! SMILES files (`.smi`): one `SMILES NAME` per line.
//!
//! ```text
//! # comment
//! CCO ethanol
//! c1ccccc1    benzene, a solvent
//! CC |$R1;$|  with a CXSMILES extension
//! ```
//!
//! A first line that names a column `smiles` is a header; its columns are separated by tabs or
//! spaces.

use crate::error::LocatedError;
use crate::io::csv_records::{CsvRecordError, TableRecord};
use crate::io::line_reader::LineReader;

/// Assignment of the parts of a line to columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// SMILES, then a name up to the end of the line.
    Name,
    /// Columns separated by tabs.
    Tabs,
    /// Columns separated by spaces, the SMILES first.
    SpacesAfterSmiles,
    /// Columns separated by spaces, the SMILES not first and without extension.
    Spaces,
}

/// Iterator over the records of a SMILES file.
pub(crate) struct SmiRecords {
    lines: LineReader,
    layout: Layout,
    header: TableRecord,
    /// Number of columns that every record must have.
    required: usize,
    /// First record, read in search of a header.
    first: Option<Vec<u8>>,
}

impl SmiRecords {
    /// Reads the header, if there is one.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has no lines other than comments.
    pub(crate) fn new(mut lines: LineReader) -> Result<Self, LocatedError> {
        let mut first = Vec::new();
        if !read_content(&mut lines, &mut first)? {
            return Err(LocatedError::new(lines.path(), CsvRecordError::Empty));
        }
        let text = lines.decode(&first)?;
        let header = |names: &[&str]| TableRecord {
            line: lines.line(),
            fields: names.iter().map(|&name| name.to_owned()).collect(),
            ..TableRecord::default()
        };
        let (header, layout) = if is_smi_header(text) {
            let names: Vec<&str> = if text.contains('\t') {
                text.split('\t').map(str::trim).collect()
            } else {
                text.split_whitespace().collect()
            };
            let layout = match names[..] {
                _ if text.contains('\t') => Layout::Tabs,
                [_] => Layout::Name,
                [smiles, _] if is_smiles_name(smiles) => Layout::Name,
                [smiles, ..] if is_smiles_name(smiles) => Layout::SpacesAfterSmiles,
                _ => Layout::Spaces,
            };
            (if names.len() == 1 { header(&[names[0], "name"]) } else { header(&names) }, layout)
        } else {
            (header(&["smiles", "name"]), Layout::Name)
        };
        let first = (!is_smi_header(text)).then_some(first);
        let columns = header.fields.len();
        // A name may be missing, a cell of a wider table may not.
        let required = if columns == 2 && layout != Layout::Spaces { 1 } else { columns };
        Ok(Self { lines, layout, header, required, first })
    }

    /// Returns the header; `smiles` and `name` if the file has none.
    pub(crate) fn header(&self) -> &TableRecord {
        &self.header
    }

    /// Returns the column with the SMILES.
    pub(crate) fn smiles_column(&self) -> usize {
        self.header.fields.iter().position(|name| is_smiles_name(name)).unwrap_or_default()
    }

    /// Returns the column with the names of the molecules, if there is one.
    pub(crate) fn name_column(&self) -> Option<usize> {
        self.header.fields.iter().position(|name| name.eq_ignore_ascii_case("name"))
    }

    fn read_record(&mut self) -> Result<Option<TableRecord>, LocatedError> {
        let mut bytes = Vec::new();
        match self.first.take() {
            Some(first) => bytes = first,
            None if !read_content(&mut self.lines, &mut bytes)? => return Ok(None),
            None => {}
        }
        let line = self.lines.line();
        let text = self.lines.decode(&bytes)?;
        let mut parts: Vec<&str> = match self.layout {
            Layout::Tabs => text.split('\t').map(str::trim).collect(),
            Layout::Spaces => text.split_whitespace().collect(),
            Layout::Name => <[&str; 2]>::from(split_smiles(text)).into(),
            Layout::SpacesAfterSmiles => {
                let (smiles, rest) = split_smiles(text);
                std::iter::once(smiles).chain(rest.split_whitespace()).collect()
            }
        };
        let (found, expected) = (parts.len(), self.header.fields.len());
        if found < self.required || found > expected {
            let error = CsvRecordError::Ragged { found, expected };
            return Err(self.lines.error_at(line, error));
        }
        parts.resize(expected, "");
        let fields = parts.into_iter().map(str::to_owned).collect();
        Ok(Some(TableRecord { line, fields, ..TableRecord::default() }))
    }
}

impl Iterator for SmiRecords {
    type Item = Result<TableRecord, LocatedError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_record().transpose()
    }
}

/// Returns `true` if a line is the header of a SMILES file: its first column is named after SMILES,
/// or another one is called `smiles`.
pub(crate) fn is_smi_header(line: &str) -> bool {
    let mut names = line.split_whitespace();
    names.next().is_some_and(is_smiles_name)
        || names.any(|name| ["smiles", "smi"].iter().any(|known| known.eq_ignore_ascii_case(name)))
}

fn is_smiles_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("smi") || name.to_ascii_lowercase().contains("smiles")
}

/// Splits a line into the SMILES with its CXSMILES extension and the rest.
pub(crate) fn split_smiles(line: &str) -> (&str, &str) {
    let line = line.trim();
    let end = line.find(char::is_whitespace).unwrap_or(line.len());
    let rest = line[end..].trim_start();
    let extension = rest.strip_prefix('|').and_then(|inside| inside.find('|'));
    let rest = extension.map_or(rest, |length| &rest[length + 2..]);
    (line[..line.len() - rest.len()].trim_end(), rest.trim_start())
}

/// Reads the next line that is neither blank nor a comment.
fn read_content(lines: &mut LineReader, line: &mut Vec<u8>) -> Result<bool, LocatedError> {
    while lines.read_line(line)? {
        let content = line.trim_ascii_start();
        if !content.is_empty() && !content.starts_with(b"#") {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use super::*;

    fn open(text: &str) -> Result<SmiRecords, LocatedError> {
        let reader = Box::new(Cursor::new(text.as_bytes().to_vec()));
        SmiRecords::new(LineReader::new(Path::new("mine.smi"), reader))
    }

    fn fields(text: &str) -> Vec<Vec<String>> {
        open(text).unwrap().map(|record| record.unwrap().fields).collect()
    }

    #[test]
    fn name_is_the_rest_of_the_line() {
        let text =
            "\u{feff}# comment\r\nCCO ethanol\r\n\n  CC\n#x\nc1ccccc1\tbenzene, a solvent \n";
        assert_eq!(
            fields(text),
            [["CCO", "ethanol"], ["CC", ""], ["c1ccccc1", "benzene, a solvent"]]
        );
        let lines: Vec<u64> = open(text).unwrap().map(|record| record.unwrap().line).collect();
        assert_eq!(lines, [2, 4, 6]);
        assert_eq!(open(text).unwrap().header().fields, ["smiles", "name"]);
        assert_eq!(open("# only\n").err().unwrap().to_string(), "`mine.smi`: file is empty");
    }

    #[test]
    fn cxsmiles_extension_belongs_to_the_smiles() {
        assert_eq!(
            fields("CC |$R1 x;$| a name\nCC |$;$|\nCC |open\n"),
            [["CC |$R1 x;$|", "a name"], ["CC |$;$|", ""], ["CC", "|open"]]
        );
    }

    #[test]
    fn header_sets_the_columns() {
        assert_eq!(open("SMILES\nC x\n").unwrap().header().fields, ["SMILES", "name"]);
        assert_eq!(fields("CC my_smiles\n"), [["CC", "my_smiles"]]);
        assert_eq!(fields("smiles name\nCC a b\nC\n"), [["CC", "a b"], ["C", ""]]);
        assert_eq!(fields("smiles id y\nCC |$;$| 1 2.5\n"), [["CC |$;$|", "1", "2.5"]]);
        assert_eq!(fields("id smiles\n1 CC\n"), [["1", "CC"]]);
        let table = "smiles\tname\ty\nCC\tthe name\t1.5\nC\t\t\n";
        assert_eq!(fields(table), [["CC", "the name", "1.5"], ["C", "", ""]]);
        assert_eq!(open(table).unwrap().name_column(), Some(1));
        let ragged = open("smiles\tname\ty\nCC\tx\n").unwrap().next().unwrap().unwrap_err();
        assert_eq!(
            ragged.to_string(),
            "`mine.smi`, line 2: row has 2 fields, but the header has 3"
        );
    }
}
