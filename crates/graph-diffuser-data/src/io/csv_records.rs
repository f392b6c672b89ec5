//! Streaming CSV reader: comma, semicolon or tab delimiters, quoted fields, gzip compression.
//!
//! Unlike `csv-core`, it reports unclosed quotes and text after a closing quote with their line,
//! resumes after a malformed record, and keeps the bytes of each record, which predictions are
//! appended to.

use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::{Diagnostic, LocatedError};
use crate::io::text_file::{Counted, TextReader, detect_gzip};

/// Maximum length of a record in bytes; bounds the memory taken by an unclosed quote.
const MAX_RECORD_BYTES: u64 = 64 << 20;

/// A CSV record and its line number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CsvRecord {
    /// Line on which the record starts, starting at 1.
    pub(crate) line: u64,
    /// Bytes of the record, without the line ending.
    pub(crate) raw: Vec<u8>,
    /// Fields, without quotes.
    pub(crate) fields: Vec<String>,
}

/// A column of a CSV file: reads its cells and locates errors in them.
#[derive(Debug, Clone)]
pub(crate) struct CsvColumn {
    path: PathBuf,
    index: usize,
    name: String,
}

impl CsvColumn {
    /// Returns the column at `index` of an open file.
    pub(crate) fn new(records: &CsvRecords, index: usize) -> Self {
        let name = records.header.fields[index].trim().to_owned();
        Self { path: records.path.clone(), index, name }
    }

    /// Returns the position of the column in the file.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Returns the name of the column.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the cell of a record, without surrounding whitespace.
    pub(crate) fn cell<'r>(&self, record: &'r CsvRecord) -> &'r str {
        record.fields[self.index].trim()
    }

    /// Parses the cell of a record; an error names its line and this column.
    ///
    /// # Errors
    /// Returns the error of `parse` with its location.
    pub(crate) fn parse<T, E: Diagnostic>(
        &self,
        record: &CsvRecord,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, LocatedError> {
        parse(self.cell(record)).map_err(|error| {
            LocatedError::new(&self.path, error).at_line(record.line).in_column(self.name.clone())
        })
    }
}

/// Syntax and I/O errors of a CSV file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CsvRecordError {
    /// The file cannot be read or decompressed.
    #[error("cannot read the file")]
    Read(#[source] io::Error),
    /// The file is empty.
    #[error("file is empty")]
    Empty,
    /// A field is not valid UTF-8.
    #[error("invalid UTF-8 at byte {byte} of the row")]
    NotUtf8 {
        /// Position of the invalid byte, starting at 1.
        byte: usize,
    },
    /// A quoted field is not closed.
    #[error("unclosed quote")]
    OpenQuote,
    /// Text follows a closing quote.
    #[error("unexpected text after a closing quote")]
    AfterQuote,
    /// The record is longer than the limit.
    #[error("row is longer than {MAX_RECORD_BYTES} bytes")]
    TooLong,
    /// The number of fields differs from the header.
    #[error("row has {found} fields, but the header has {expected}")]
    Ragged {
        /// Number of fields of the record.
        found: usize,
        /// Number of fields of the header.
        expected: usize,
    },
}

impl Diagnostic for CsvRecordError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NotUtf8 { .. } => Some("save the file as UTF-8".into()),
            Self::OpenQuote | Self::AfterQuote => {
                Some("write a literal quote inside a quoted field as two quotes (`\"\"`)".into())
            }
            Self::Ragged { .. } => Some("quote fields that contain the delimiter".into()),
            _ => None,
        }
    }
}

/// Opens a text file and decompresses it if it starts with the gzip magic number; adds the number
/// of bytes read from disk to `read`.
///
/// # Errors
/// Returns an error if the file does not exist or cannot be read.
pub(crate) fn open_text(path: &Path, read: &Arc<AtomicU64>) -> Result<TextReader, LocatedError> {
    let (reader, _) = Counted::open(path, read)
        .and_then(detect_gzip)
        .map_err(|error| LocatedError::new(path, CsvRecordError::Read(error)))?;
    Ok(reader)
}

/// Iterator over the records of a CSV file after its header.
pub(crate) struct CsvRecords {
    path: PathBuf,
    reader: TextReader,
    delimiter: u8,
    line: u64,
    header: CsvRecord,
    line_ending: &'static str,
    finished: bool,
}

impl std::fmt::Debug for CsvRecords {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CsvRecords")
            .field("path", &self.path)
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

impl CsvRecords {
    /// Opens a CSV file and reads its header.
    ///
    /// The delimiter is the most frequent of comma, semicolon and tab in the header.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is empty, or if the header is malformed.
    pub(crate) fn open(path: &Path) -> Result<Self, LocatedError> {
        Self::new(path, open_text(path, &Arc::default())?, None)
    }

    /// Opens a CSV file with a known delimiter.
    ///
    /// # Errors
    /// Returns an error under the conditions of [`CsvRecords::open`].
    pub(crate) fn open_delimited(path: &Path, delimiter: u8) -> Result<Self, LocatedError> {
        Self::new(path, open_text(path, &Arc::default())?, Some(delimiter))
    }

    /// Reads CSV from `reader`; `path` is only used in errors.
    ///
    /// # Errors
    /// Returns an error under the conditions of [`CsvRecords::open`].
    pub(crate) fn new(
        path: &Path,
        reader: TextReader,
        delimiter: Option<u8>,
    ) -> Result<Self, LocatedError> {
        let header = CsvRecord { line: 1, raw: Vec::new(), fields: Vec::new() };
        let mut records = Self {
            path: path.to_owned(),
            reader,
            delimiter: b',',
            line: 0,
            header,
            line_ending: "\n",
            finished: false,
        };
        let mut raw = Vec::new();
        while len_without_line_ending(&raw) == 0 {
            raw.clear();
            if records.read_line(&mut raw)? == 0 {
                return Err(LocatedError::new(path, CsvRecordError::Empty));
            }
            if records.line == 1 && raw.starts_with(b"\xef\xbb\xbf") {
                raw.drain(..3);
            }
        }
        records.delimiter = delimiter.unwrap_or_else(|| delimiter_of(&raw));
        if raw.ends_with(b"\r\n") {
            records.line_ending = "\r\n";
        }
        records.header = records.finish_record(raw, records.line)?;
        Ok(records)
    }

    /// Returns the header record.
    pub(crate) fn header(&self) -> &CsvRecord {
        &self.header
    }

    /// Returns the delimiter between fields.
    pub(crate) fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// Returns the line ending of the header, `"\n"` or `"\r\n"`.
    pub(crate) fn line_ending(&self) -> &'static str {
        self.line_ending
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the next record; after a malformed record, reading continues with the next one.
    fn read_record(&mut self) -> Result<Option<CsvRecord>, LocatedError> {
        let mut raw = Vec::new();
        loop {
            raw.clear();
            if self.read_line(&mut raw)? == 0 {
                return Ok(None);
            }
            let line = self.line;
            if len_without_line_ending(&raw) > 0 {
                let record = self.finish_record(raw, line)?;
                let (found, expected) = (record.fields.len(), self.header.fields.len());
                if found != expected {
                    return Err(self.error_at(line, CsvRecordError::Ragged { found, expected }));
                }
                return Ok(Some(record));
            }
        }
    }

    /// Appends one line with its line ending, and returns its length; 0 at the end of the file.
    fn read_line(&mut self, raw: &mut Vec<u8>) -> Result<usize, LocatedError> {
        let left = MAX_RECORD_BYTES.saturating_sub(raw.len() as u64);
        let read = self.reader.by_ref().take(left).read_until(b'\n', raw);
        let read = read.map_err(|error| {
            self.finished = true;
            LocatedError::new(&self.path, CsvRecordError::Read(error)).at_line(self.line + 1)
        })?;
        self.line += u64::from(read > 0);
        if raw.len() as u64 >= MAX_RECORD_BYTES {
            self.finished = true;
            return Err(self.error_at(self.line, CsvRecordError::TooLong));
        }
        Ok(read)
    }

    /// Splits a line into fields, and reads further lines while a quote is open.
    fn finish_record(&mut self, mut raw: Vec<u8>, line: u64) -> Result<CsvRecord, LocatedError> {
        let mut splitter = Splitter::default();
        let mut start = 0;
        loop {
            let end = len_without_line_ending(&raw[start..]) + start;
            splitter.take(&raw[start..end], self.delimiter);
            if splitter.state != FieldState::Quoted {
                raw.truncate(end);
                break;
            }
            // The line ending belongs to the quoted field.
            splitter.take(&raw[end..], self.delimiter);
            start = raw.len();
            if self.read_line(&mut raw)? == 0 {
                return Err(self.error_at(line, CsvRecordError::OpenQuote));
            }
        }
        if splitter.stray {
            return Err(self.error_at(line, CsvRecordError::AfterQuote));
        }
        match splitter.finish() {
            Ok(fields) => Ok(CsvRecord { line, raw, fields }),
            Err(byte) => Err(self.error_at(line, CsvRecordError::NotUtf8 { byte })),
        }
    }

    fn error_at(&self, line: u64, error: CsvRecordError) -> LocatedError {
        LocatedError::new(&self.path, error).at_line(line)
    }
}

impl Iterator for CsvRecords {
    type Item = Result<CsvRecord, LocatedError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let record = self.read_record().transpose();
        self.finished |= record.is_none();
        record
    }
}

/// Returns the length of a line without its line ending.
fn len_without_line_ending(line: &[u8]) -> usize {
    let line =
        line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
    line.len()
}

/// Returns the most frequent of comma, semicolon and tab outside quotes; a comma if none occurs.
fn delimiter_of(header: &[u8]) -> u8 {
    let mut counts = [(0, b','), (0, b';'), (0, b'\t')];
    let mut quoted = false;
    for &byte in header {
        quoted ^= byte == b'"';
        if let Some((count, _)) =
            counts.iter_mut().find(|(_, delimiter)| *delimiter == byte && !quoted)
        {
            *count += 1;
        }
    }
    // `max_by_key` returns the last maximum, so reversing prefers the comma in a tie.
    counts
        .into_iter()
        .rev()
        .max_by_key(|(count, _)| *count)
        .map_or(b',', |(_, delimiter)| delimiter)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum FieldState {
    #[default]
    Start,
    Plain,
    Quoted,
    /// After a quote inside a quoted field: the end of the field, or the first of two quotes.
    Quote,
}

/// State machine that splits a line into fields.
#[derive(Debug, Default)]
struct Splitter {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    state: FieldState,
    stray: bool,
}

impl Splitter {
    fn take(&mut self, bytes: &[u8], delimiter: u8) {
        for &byte in bytes {
            match (self.state, byte) {
                (FieldState::Start, b'"') => self.state = FieldState::Quoted,
                (FieldState::Quoted, b'"') => self.state = FieldState::Quote,
                (FieldState::Quote, b'"') => {
                    self.bytes.push(b'"');
                    self.state = FieldState::Quoted;
                }
                (FieldState::Start | FieldState::Plain | FieldState::Quote, byte)
                    if byte == delimiter =>
                {
                    self.ends.push(self.bytes.len());
                    self.state = FieldState::Start;
                }
                (state, byte) => {
                    self.stray |= state == FieldState::Quote;
                    self.bytes.push(byte);
                    if state == FieldState::Start {
                        self.state = FieldState::Plain;
                    }
                }
            }
        }
    }

    /// Returns the fields, or the position of the first invalid UTF-8 byte.
    fn finish(mut self) -> Result<Vec<String>, usize> {
        self.ends.push(self.bytes.len());
        let mut start = 0;
        // Decoded field by field: bytes of adjacent fields must not combine to one character.
        let field = |&end: &usize| {
            let begin = std::mem::replace(&mut start, end);
            let text = std::str::from_utf8(&self.bytes[begin..end]);
            text.map(str::to_owned).map_err(|error| begin + error.valid_up_to() + 1)
        };
        self.ends.iter().map(field).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;

    fn records(text: &[u8]) -> Result<CsvRecords, LocatedError> {
        CsvRecords::new(Path::new("mine.csv"), Box::new(Cursor::new(text.to_owned())), None)
    }

    fn fields(text: &str) -> Vec<Vec<String>> {
        records(text.as_bytes()).unwrap().map(|record| record.unwrap().fields).collect()
    }

    #[test]
    fn character_split_by_a_delimiter_is_invalid_utf8() {
        // Found by fuzzing: the two bytes of one character, one in each field.
        let broken = records(b"a,b\n\xc5,\xaa\n").unwrap().next().unwrap();
        assert!(broken.is_err());
    }

    #[test]
    fn delimiters_quotes_bom_and_line_endings_are_parsed() {
        assert_eq!(fields("a,b\n1,2\n"), [["1", "2"]]);
        assert_eq!(
            fields("\u{feff}a;b\r\n1;\"x;\"\"y\"\"\"\r\n\r\n3;4"),
            [["1", "x;\"y\""], ["3", "4"]]
        );
        assert_eq!(fields("a\tb\n1,5\t2;5\n"), [["1,5", "2;5"]]);
        assert_eq!(fields("a,b\n1,\"two\nlines\"\n,\n"), [["1", "two\nlines"], ["", ""]]);
        assert_eq!(records(b"\xef\xbb\xbfsmiles\nC\n").unwrap().header().fields, ["smiles"]);
    }

    #[test]
    fn line_numbers_count_quoted_lines_and_raw_bytes_are_kept() {
        let rows: Vec<CsvRecord> =
            records(b"a,b\n1,\"x\r\ny\"\n2,z\r\n").unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(rows[0].raw, b"1,\"x\r\ny\"");
        assert_eq!(rows[1].raw, b"2,z");
    }

    #[test]
    fn reading_continues_after_a_malformed_record() {
        let text = b"a,b\n1\n\xff,2\n\"x\"y,2\n3,4\n\"5,6\n";
        let rows: Vec<Result<CsvRecord, LocatedError>> = records(text).unwrap().collect();
        let errors: Vec<String> =
            rows.iter().filter_map(|row| row.as_ref().err().map(ToString::to_string)).collect();
        assert_eq!(
            errors,
            [
                "`mine.csv`, line 2: row has 1 fields, but the header has 2",
                "`mine.csv`, line 3: invalid UTF-8 at byte 1 of the row",
                "`mine.csv`, line 4: unexpected text after a closing quote",
                "`mine.csv`, line 6: unclosed quote",
            ]
        );
        assert_eq!(rows[3].as_ref().unwrap().fields, ["3", "4"]);
        assert_eq!(records(b"\n\n").unwrap_err().to_string(), "`mine.csv`: file is empty");
    }

    #[test]
    fn gzip_is_decompressed_and_a_truncated_file_is_one_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.csv.gz");
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"a,b\n").unwrap();
        (0..50_000).for_each(|row| writeln!(encoder, "{row},x").unwrap());
        let compressed = encoder.finish().unwrap();
        std::fs::write(&path, &compressed).unwrap();
        assert_eq!(CsvRecords::open(&path).unwrap().count(), 50_000);
        std::fs::write(&path, &compressed[..compressed.len() / 2]).unwrap();
        assert_eq!(CsvRecords::open(&path).unwrap().filter(Result::is_err).count(), 1);
    }
}
