//! SDF files: molfiles followed by data fields.
//!
//! ```text
//! ethanol
//!   …
//! M  END
//! > <solubility>
//! 1.10
//!
//! $$$$
//! ```
//!
//! A record becomes a row: the title, the data fields and the molfile itself. Records may lack
//! fields, so the columns are the fields of all records, found in a first pass over the file.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::LocatedError;
use crate::io::csv_records::{CsvRecordError, MAX_RECORD_BYTES, TableRecord, open_text};
use crate::io::line_reader::LineReader;

/// Maximum number of different data fields; bounds the size of a row.
const MAX_FIELDS: usize = 1000;

/// Number of lines before the atoms of a molfile: title, program, comment, counts.
const HEADER_LINES: u64 = 4;

/// Iterator over the records of an SDF file.
pub(crate) struct SdfRecords {
    lines: LineReader,
    header: TableRecord,
    /// Column of each data field.
    fields: HashMap<String, usize>,
    /// Column of the title, unless a data field has its name.
    title: Option<usize>,
}

/// Role of a line in a record.
enum Line {
    Title,
    Molfile,
    /// Start of a data field.
    FieldName,
    /// Line of the value of a data field.
    FieldValue,
    /// Text between data fields.
    Other,
    /// `$$$$`
    End,
}

/// State machine that classifies the lines of a record.
#[derive(Default)]
struct Scanner {
    lines: u64,
    after_molfile: bool,
    in_field: bool,
}

impl Scanner {
    fn classify(&mut self, line: &[u8]) -> Line {
        if line.starts_with(b"$$$$") {
            *self = Self::default();
            return Line::End;
        }
        self.lines += 1;
        if self.lines == 1 {
            return Line::Title;
        }
        // A molfile without `M  END` is rejected when it is parsed.
        if !self.after_molfile && (self.lines <= HEADER_LINES || !line.starts_with(b">")) {
            self.after_molfile = line.starts_with(b"M  END");
            return Line::Molfile;
        }
        self.after_molfile = true;
        let is_blank = line.trim_ascii().is_empty();
        if self.in_field && !is_blank {
            return Line::FieldValue;
        }
        self.in_field = line.starts_with(b">");
        if self.in_field { Line::FieldName } else { Line::Other }
    }
}

impl SdfRecords {
    /// Opens an SDF file and finds its data fields; adds the number of bytes read from disk while
    /// iterating to `read`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is empty or has too many different fields.
    pub(crate) fn open(path: &Path, read: &Arc<AtomicU64>) -> Result<Self, LocatedError> {
        let names = field_names(path)?;
        let has = |known: &str| names.iter().any(|name| name.eq_ignore_ascii_case(known));
        let mut columns: Vec<String> =
            ["name", "smiles"].into_iter().filter(|known| !has(known)).map(str::to_owned).collect();
        let title = columns.iter().position(|name| name == "name");
        let start = columns.len();
        columns.extend(names.iter().cloned());
        let fields =
            names.into_iter().enumerate().map(|(index, name)| (name, start + index)).collect();
        let lines = LineReader::new(path, open_text(path, read)?);
        let header = TableRecord { line: 1, fields: columns, ..TableRecord::default() };
        Ok(Self { lines, header, fields, title })
    }

    /// Returns the columns: `name` (the title), `smiles` and the data fields; a field called `name`
    /// or `smiles` replaces that column.
    pub(crate) fn header(&self) -> &TableRecord {
        &self.header
    }

    /// Returns the column of the title, if there is one.
    pub(crate) fn name_column(&self) -> Option<usize> {
        self.title
    }

    fn read_record(&mut self) -> Result<Option<TableRecord>, LocatedError> {
        let mut scanner = Scanner::default();
        let mut record = TableRecord {
            line: self.lines.line() + 1,
            fields: vec![String::new(); self.header.fields.len()],
            ..TableRecord::default()
        };
        let mut molfile = String::new();
        let mut error = None;
        let (mut column, mut value_lines) = (None, 0);
        let (mut has_content, mut bytes) = (false, 0);
        let mut line = Vec::new();
        while self.lines.read_line(&mut line)? {
            let role = scanner.classify(&line);
            if matches!(role, Line::End) {
                has_content = true;
                break;
            }
            has_content |= !line.trim_ascii().is_empty();
            bytes += line.len() as u64 + 1;
            if bytes > MAX_RECORD_BYTES {
                self.lines.stop();
                return Err(self.lines.error_at(record.line, CsvRecordError::TooLong));
            }
            let text = match self.lines.decode(&line) {
                Ok(text) => text,
                Err(invalid) => {
                    error.get_or_insert(invalid);
                    continue;
                }
            };
            match role {
                Line::Title | Line::Molfile => {
                    if let (Line::Title, Some(title)) = (&role, self.title) {
                        text.trim().clone_into(&mut record.fields[title]);
                    }
                    molfile.push_str(text);
                    molfile.push('\n');
                }
                Line::FieldName => {
                    column = field_name(text).and_then(|name| self.fields.get(name)).copied();
                    value_lines = 0;
                    // The last of several fields with one name wins.
                    column.inspect(|&column| record.fields[column].clear());
                }
                Line::FieldValue => {
                    if let Some(column) = column {
                        let value = &mut record.fields[column];
                        if value_lines > 0 {
                            value.push('\n');
                        }
                        value.push_str(text);
                        value_lines += 1;
                    }
                }
                Line::Other | Line::End => {}
            }
        }
        match error {
            Some(error) => Err(error),
            None if !has_content => Ok(None),
            None => Ok(Some(TableRecord { molfile: Some(molfile), ..record })),
        }
    }
}

impl Iterator for SdfRecords {
    type Item = Result<TableRecord, LocatedError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_record().transpose()
    }
}

/// Returns the names of the data fields of all records, in the order of their first occurrence.
fn field_names(path: &Path) -> Result<Vec<String>, LocatedError> {
    let mut lines = LineReader::new(path, open_text(path, &Arc::default())?);
    let mut scanner = Scanner::default();
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    let (mut line, mut has_content) = (Vec::new(), false);
    while lines.read_line(&mut line)? {
        has_content |= !line.trim_ascii().is_empty();
        if let Line::FieldName = scanner.classify(&line) {
            // Invalid UTF-8 is an error of the record.
            let Ok(text) = std::str::from_utf8(&line) else { continue };
            if let Some(name) = field_name(text).filter(|name| !known.contains(*name)) {
                if names.len() == MAX_FIELDS {
                    let error = CsvRecordError::TooManyFields { max: MAX_FIELDS };
                    return Err(lines.error_at(lines.line(), error));
                }
                known.insert(name.to_owned());
                names.push(name.to_owned());
            }
        }
    }
    has_content.then_some(names).ok_or_else(|| LocatedError::new(path, CsvRecordError::Empty))
}

/// Returns the name in a line such as `> 25 <solubility> (7)`.
fn field_name(line: &str) -> Option<&str> {
    let (_, name) = line.strip_prefix('>')?.split_once('<')?;
    let (name, _) = name.rsplit_once('>')?;
    Some(name.trim()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "ethanol\n\n\n  0  0  0     0  0            999 V2000\nM  END\n> <logS>\n1.10\n\n>  <note>  (7)\ntwo\n> lines\n\nstray\n$$$$\n\n\n\n  0  0  0     0  0            999 V2000\nM  END\n> 25 <id>\nX<1>\n\n> DT12\n3\n\n$$$$\n";

    fn open(text: &[u8]) -> Result<SdfRecords, LocatedError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.sdf");
        std::fs::write(&path, text).unwrap();
        SdfRecords::open(&path, &Arc::default())
    }

    fn fields(text: &str) -> Vec<Vec<String>> {
        open(text.as_bytes()).unwrap().map(|record| record.unwrap().fields).collect()
    }

    #[test]
    fn columns_are_the_fields_of_all_records() {
        let records = open(TWO.as_bytes()).unwrap();
        assert_eq!(records.header().fields, ["name", "smiles", "logS", "note", "id"]);
        let records: Vec<TableRecord> = records.map(Result::unwrap).collect();
        assert_eq!(records[0].fields, ["ethanol", "", "1.10", "two\n> lines", ""]);
        assert_eq!(records[1].fields, ["", "", "", "", "X<1>"]);
        assert_eq!(records.iter().map(|record| record.line).collect::<Vec<_>>(), [1, 15]);
        let molfile = records[0].molfile.as_ref().unwrap();
        assert!(molfile.starts_with("ethanol\n\n\n") && molfile.ends_with("M  END\n"));
    }

    #[test]
    fn crlf_and_a_missing_last_delimiter_change_nothing() {
        let expected = fields(TWO);
        assert_eq!(fields(&TWO.replace('\n', "\r\n")), expected);
        assert_eq!(fields(TWO.strip_suffix("$$$$\n").unwrap()), expected);
        assert_eq!(fields(&format!("{TWO}\n \n")), expected);
    }

    #[test]
    fn fields_called_name_and_smiles_replace_the_generated_columns() {
        let records = open(TWO.replace("logS", "SMILES").replace("note", "Name").as_bytes());
        let records = records.unwrap();
        assert_eq!(records.header().fields, ["SMILES", "Name", "id"]);
        assert_eq!(records.name_column(), None);
    }

    #[test]
    fn malformed_files_are_errors() {
        assert!(open(b"\n\n").err().unwrap().to_string().ends_with("file is empty"));
        let broken = TWO.replace("two", "tw\u{e9}");
        let latin1: Vec<u8> = broken.chars().map(|char| char as u8).collect();
        let records: Vec<Result<TableRecord, LocatedError>> = open(&latin1).unwrap().collect();
        let message = records[0].as_ref().unwrap_err().to_string();
        assert!(message.ends_with("line 10: invalid UTF-8 at byte 3 of the row"), "{message}");
        assert_eq!(records[1].as_ref().unwrap().fields[4], "X<1>");
        let mut many = String::new();
        (0..=MAX_FIELDS).for_each(|field| many += &format!("> <f{field}>\n1\n\n"));
        let many = open(format!("\n\n\n\nM  END\n{many}").as_bytes()).err().unwrap().to_string();
        assert!(many.contains("line 3006: more than 1000 different data fields"), "{many}");
    }
}
