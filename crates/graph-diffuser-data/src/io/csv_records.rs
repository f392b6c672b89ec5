//! Streaming CSV reader: comma, semicolon, tab or pipe delimiters, quoted fields.
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
use crate::io::utf16::detect_utf16;

/// Maximum length of a record in bytes; bounds the memory taken by an unclosed quote.
pub(crate) const MAX_RECORD_BYTES: u64 = 64 << 20;

/// A record of a table and its line number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TableRecord {
    /// Line on which the record starts, starting at 1.
    pub(crate) line: u64,
    /// Bytes of the record, without the line ending; empty if the file is not a CSV file.
    pub(crate) raw: Vec<u8>,
    /// Fields, without quotes.
    pub(crate) fields: Vec<String>,
    /// Molfile of an SDF record.
    pub(crate) molfile: Option<String>,
}

impl TableRecord {
    /// Returns `true` if the record has no content, such as a row of delimiters alone.
    pub(crate) fn is_blank(&self) -> bool {
        self.molfile.is_none() && self.fields.iter().all(|field| field.trim().is_empty())
    }

    /// Returns the size of the content in bytes.
    pub(crate) fn num_bytes(&self) -> usize {
        self.raw.len()
            + self.fields.iter().map(String::len).sum::<usize>()
            + self.molfile.as_ref().map_or(0, String::len)
    }
}

/// Syntax and I/O errors of a table.
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
    /// The records have too many different fields.
    #[error("more than {max} different data fields")]
    TooManyFields {
        /// Maximum number of fields.
        max: usize,
    },
}

impl Diagnostic for CsvRecordError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NotUtf8 { .. } => Some(
                "save the file as UTF-8; in Excel, choose `CSV UTF-8 (Comma delimited)`".into(),
            ),
            Self::OpenQuote | Self::AfterQuote => {
                Some("write a literal quote inside a quoted field as two quotes (`\"\"`)".into())
            }
            Self::Ragged { .. } => Some("quote fields that contain the delimiter".into()),
            _ => None,
        }
    }
}

/// Opens a text file, decompresses it if it starts with the gzip magic number, and converts UTF-16
/// with a byte-order mark to UTF-8; adds the number of bytes read from disk to `read`.
///
/// # Errors
/// Returns an error if the file does not exist or cannot be read.
pub(crate) fn open_text(path: &Path, read: &Arc<AtomicU64>) -> Result<TextReader, LocatedError> {
    Counted::open(path, read)
        .and_then(detect_gzip)
        .and_then(|(reader, _)| detect_utf16(reader))
        .map_err(|error| LocatedError::new(path, CsvRecordError::Read(error)))
}

/// Iterator over the records of a CSV file after its header.
pub(crate) struct CsvRecords {
    path: PathBuf,
    reader: TextReader,
    delimiter: u8,
    line: u64,
    header: TableRecord,
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
    /// Reads CSV from `reader`, and its header; `path` is only used in errors.
    ///
    /// The delimiter is the most frequent of comma, semicolon, tab and pipe in the header, unless
    /// it is given.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is empty, or if the header is malformed.
    pub(crate) fn new(
        path: &Path,
        reader: TextReader,
        delimiter: Option<u8>,
    ) -> Result<Self, LocatedError> {
        let header = TableRecord { line: 1, ..TableRecord::default() };
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
    pub(crate) fn header(&self) -> &TableRecord {
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

    /// Reads the next record; after a malformed record, reading continues with the next one.
    fn read_record(&mut self) -> Result<Option<TableRecord>, LocatedError> {
        let mut raw = Vec::new();
        loop {
            raw.clear();
            if self.read_line(&mut raw)? == 0 {
                return Ok(None);
            }
            let line = self.line;
            if len_without_line_ending(&raw) > 0 {
                let mut record = self.finish_record(raw, line)?;
                let (found, expected) = (record.fields.len(), self.header.fields.len());
                if found != expected && record.is_blank() {
                    record.fields = vec![String::new(); expected];
                    record.raw = vec![self.delimiter; expected - 1];
                } else if found != expected {
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
    fn finish_record(&mut self, mut raw: Vec<u8>, line: u64) -> Result<TableRecord, LocatedError> {
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
            Ok(fields) => Ok(TableRecord { line, raw, fields, molfile: None }),
            Err(byte) => Err(self.error_at(line, CsvRecordError::NotUtf8 { byte })),
        }
    }

    fn error_at(&self, line: u64, error: CsvRecordError) -> LocatedError {
        LocatedError::new(&self.path, error).at_line(line)
    }
}

impl Iterator for CsvRecords {
    type Item = Result<TableRecord, LocatedError>;

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
pub(crate) fn len_without_line_ending(line: &[u8]) -> usize {
    let line =
        line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
    line.len()
}

/// Returns the most frequent of comma, semicolon, tab and pipe outside quotes; a comma if none
/// occurs.
fn delimiter_of(header: &[u8]) -> u8 {
    let mut counts = [(0, b','), (0, b';'), (0, b'\t'), (0, b'|')];
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
        assert_eq!(fields("a|b\n1,5|\"C |$R1$|\"\n"), [["1,5", "C |$R1$|"]]);
        assert_eq!(fields("a,b\n1,\"two\nlines\"\n,\n"), [["1", "two\nlines"], ["", ""]]);
        assert_eq!(records(b"\xef\xbb\xbfsmiles\nC\n").unwrap().header().fields, ["smiles"]);
    }

    #[test]
    fn line_numbers_count_quoted_lines_and_raw_bytes_are_kept() {
        let rows: Vec<TableRecord> =
            records(b"a,b\n1,\"x\r\ny\"\n2,z\r\n").unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(rows[0].raw, b"1,\"x\r\ny\"");
        assert_eq!(rows[1].raw, b"2,z");
    }

    #[test]
    fn blank_rows_of_any_length_get_the_fields_of_the_header() {
        let rows: Vec<TableRecord> =
            records(b"a,b,c\n,,\n,\n\"\", ,,,,\n1,,\n").unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.iter().filter(|row| row.is_blank()).count(), 3);
        assert_eq!(rows[1].raw, b",,");
        assert!(rows.iter().all(|row| row.fields.len() == 3));
    }

    #[test]
    fn reading_continues_after_a_malformed_record() {
        let text = b"a,b\n1\n\xff,2\n\"x\"y,2\n3,4\n\"5,6\n";
        let rows: Vec<Result<TableRecord, LocatedError>> = records(text).unwrap().collect();
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
        let open = |path: &Path| {
            CsvRecords::new(path, open_text(path, &Arc::default()).unwrap(), None).unwrap()
        };
        assert_eq!(open(&path).count(), 50_000);
        std::fs::write(&path, &compressed[..compressed.len() / 2]).unwrap();
        assert_eq!(open(&path).filter(Result::is_err).count(), 1);
    }
}
