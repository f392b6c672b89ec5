//! Records of a text table, one at a time: commas, semicolons or tabs, quoted fields, gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flate2::bufread::MultiGzDecoder;

use crate::error::{Diagnostic, LocatedError};
use crate::numeric_csv::Counted;

/// The longest record that is read, in bytes: what a quote that is never closed may swallow.
const LONGEST_RECORD: u64 = 64 << 20;

/// One record and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvRecord {
    /// The line on which it starts, counted from one.
    pub line: u64,
    /// Its bytes in the file, without the end of the line.
    pub raw: Vec<u8>,
    /// Its fields, without quotes.
    pub fields: Vec<String>,
}

/// What can be wrong with the text of a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CsvRecordError {
    /// It cannot be read from the disk, or its compression is broken.
    #[error("the file cannot be read")]
    Read(#[source] io::Error),
    /// There is nothing in it.
    #[error("the file is empty")]
    Empty,
    /// A byte is no part of UTF-8.
    #[error("byte {byte} of the line is not UTF-8")]
    NotUtf8 {
        /// Which byte, counted from one.
        byte: usize,
    },
    /// A quote is opened and never closed.
    #[error("a quote is opened here and never closed")]
    OpenQuote,
    /// Text follows a closing quote.
    #[error("text follows a closing quote")]
    AfterQuote,
    /// The record does not end.
    #[error("the record is longer than {LONGEST_RECORD} bytes")]
    TooLong,
    /// A record has more or fewer fields than the header.
    #[error("the row has {found} fields, but the header has {expected}")]
    Ragged {
        /// Of this record.
        found: usize,
        /// Of the header.
        expected: usize,
    },
}

impl Diagnostic for CsvRecordError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NotUtf8 { .. } => Some("save the file as UTF-8".into()),
            Self::OpenQuote | Self::AfterQuote => {
                Some("write a quote inside a quoted field twice".into())
            }
            Self::Ragged { .. } => {
                Some("put quotes around a field that holds the delimiter".into())
            }
            _ => None,
        }
    }
}

/// Opens a text file, through gzip if its first bytes say so.
///
/// # Errors
/// The file is not there or cannot be read.
pub fn open_text(path: &Path) -> Result<Box<dyn BufRead + Send>, LocatedError> {
    open_text_counted(path, &Arc::default())
}

/// The same; `read` grows by the bytes taken from disk.
///
/// # Errors
/// The same.
pub fn open_text_counted(
    path: &Path,
    read: &Arc<AtomicU64>,
) -> Result<Box<dyn BufRead + Send>, LocatedError> {
    let fault = |error| LocatedError::new(path, CsvRecordError::Read(error));
    let file = Counted { inner: File::open(path).map_err(fault)?, read: Arc::clone(read) };
    let mut file = BufReader::with_capacity(1 << 16, file);
    if file.fill_buf().map_err(fault)?.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file))));
    }
    Ok(Box::new(file))
}

/// The records of a table after its header.
pub struct CsvRecords {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    delimiter: u8,
    line: u64,
    header: CsvRecord,
    line_end: &'static str,
    finished: bool,
}

impl std::fmt::Debug for CsvRecords {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Records")
            .field("path", &self.path)
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

impl CsvRecords {
    /// Opens a table and reads its header, from which the delimiter is guessed: the most frequent of comma, semicolon
    /// and tab.
    ///
    /// # Errors
    /// The file cannot be read or is empty, or its first line is no record.
    pub fn open(path: &Path) -> Result<Self, LocatedError> {
        Self::new(path, open_text(path)?, None)
    }

    /// The same with a known delimiter.
    ///
    /// # Errors
    /// As [`CsvRecords::open`].
    pub fn open_delimited(path: &Path, delimiter: u8) -> Result<Self, LocatedError> {
        Self::new(path, open_text(path)?, Some(delimiter))
    }

    /// The same of an open file; `path` is what problems name.
    ///
    /// # Errors
    /// As [`CsvRecords::open`].
    pub fn new(
        path: &Path,
        reader: Box<dyn BufRead + Send>,
        delimiter: Option<u8>,
    ) -> Result<Self, LocatedError> {
        let header = CsvRecord { line: 1, raw: Vec::new(), fields: Vec::new() };
        let path_kept = path.to_owned();
        let mut records = Self {
            path: path_kept,
            reader,
            delimiter: b',',
            line: 0,
            header,
            line_end: "\n",
            finished: false,
        };
        let mut raw = Vec::new();
        while before_line_end(&raw) == 0 {
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
            records.line_end = "\r\n";
        }
        records.header = records.finish_record(raw, records.line)?;
        Ok(records)
    }

    /// The names of the columns, and their line as it stands in the file.
    pub fn header(&self) -> &CsvRecord {
        &self.header
    }

    /// What stands between fields.
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// What ends the line of the header: a line feed, or a carriage return and one.
    pub fn line_end(&self) -> &'static str {
        self.line_end
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next record; a fault of one record leaves the ones after it readable.
    fn read_record(&mut self) -> Result<Option<CsvRecord>, LocatedError> {
        let mut raw = Vec::new();
        loop {
            raw.clear();
            if self.read_line(&mut raw)? == 0 {
                return Ok(None);
            }
            let line = self.line;
            if before_line_end(&raw) > 0 {
                let record = self.finish_record(raw, line)?;
                let (found, expected) = (record.fields.len(), self.header.fields.len());
                if found != expected {
                    return Err(self.problem(line, CsvRecordError::Ragged { found, expected }));
                }
                return Ok(Some(record));
            }
        }
    }

    /// Appends one line with its end; 0 at the end of the file.
    fn read_line(&mut self, raw: &mut Vec<u8>) -> Result<usize, LocatedError> {
        let left = LONGEST_RECORD.saturating_sub(raw.len() as u64);
        let read = self.reader.by_ref().take(left).read_until(b'\n', raw);
        let read = read.map_err(|error| {
            self.finished = true;
            LocatedError::new(&self.path, CsvRecordError::Read(error)).at_line(self.line + 1)
        })?;
        self.line += u64::from(read > 0);
        if raw.len() as u64 >= LONGEST_RECORD {
            self.finished = true;
            return Err(self.problem(self.line, CsvRecordError::TooLong));
        }
        Ok(read)
    }

    /// Splits a line into fields, and reads on while a quote is open.
    fn finish_record(&mut self, mut raw: Vec<u8>, line: u64) -> Result<CsvRecord, LocatedError> {
        let mut splitter = Splitter::default();
        let mut start = 0;
        loop {
            let end = before_line_end(&raw[start..]) + start;
            splitter.take(&raw[start..end], self.delimiter);
            if splitter.place != Place::Quoted {
                raw.truncate(end);
                break;
            }
            // The end of the line is a part of the field.
            splitter.take(&raw[end..], self.delimiter);
            start = raw.len();
            if self.read_line(&mut raw)? == 0 {
                return Err(self.problem(line, CsvRecordError::OpenQuote));
            }
        }
        if splitter.stray {
            return Err(self.problem(line, CsvRecordError::AfterQuote));
        }
        match splitter.finish() {
            Ok(fields) => Ok(CsvRecord { line, raw, fields }),
            Err(byte) => Err(self.problem(line, CsvRecordError::NotUtf8 { byte })),
        }
    }

    fn problem(&self, line: u64, fault: CsvRecordError) -> LocatedError {
        LocatedError::new(&self.path, fault).at_line(line)
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

/// How many bytes of a line stand before its end.
fn before_line_end(line: &[u8]) -> usize {
    let line =
        line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
    line.len()
}

/// The most frequent of comma, semicolon and tab outside quotes; a comma if there is none.
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
    // The first of equals: a comma before the others.
    counts
        .into_iter()
        .rev()
        .max_by_key(|(count, _)| *count)
        .map_or(b',', |(_, delimiter)| delimiter)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Start,
    Plain,
    Quoted,
    /// After a quote inside a quoted field: its end, or the first of two.
    Quote,
}

/// Fields out of bytes.
#[derive(Debug, Default)]
struct Splitter {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    place: Place,
    stray: bool,
}

impl Splitter {
    fn take(&mut self, bytes: &[u8], delimiter: u8) {
        for &byte in bytes {
            match (self.place, byte) {
                (Place::Start, b'"') => self.place = Place::Quoted,
                (Place::Quoted, b'"') => self.place = Place::Quote,
                (Place::Quote, b'"') => {
                    self.bytes.push(b'"');
                    self.place = Place::Quoted;
                }
                (Place::Start | Place::Plain | Place::Quote, byte) if byte == delimiter => {
                    self.ends.push(self.bytes.len());
                    self.place = Place::Start;
                }
                (place, byte) => {
                    self.stray |= place == Place::Quote;
                    self.bytes.push(byte);
                    if place == Place::Start {
                        self.place = Place::Plain;
                    }
                }
            }
        }
    }

    /// The fields, or the first byte that is not UTF-8.
    fn finish(mut self) -> Result<Vec<String>, usize> {
        self.ends.push(self.bytes.len());
        let mut start = 0;
        // Field by field: what ends one and begins the next may be a letter only without the delimiter between them.
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
    fn a_letter_broken_by_a_delimiter_is_no_letter() {
        // Found by fuzzing: the two bytes of one letter, one in each field.
        let broken = records(b"a,b\n\xc5,\xaa\n").unwrap().next().unwrap();
        assert!(broken.is_err());
    }

    #[test]
    fn delimiters_quotes_marks_and_line_ends_are_understood() {
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
    fn lines_are_counted_through_quotes_and_raw_bytes_are_kept() {
        let rows: Vec<CsvRecord> =
            records(b"a,b\n1,\"x\r\ny\"\n2,z\r\n").unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(rows[0].raw, b"1,\"x\r\ny\"");
        assert_eq!(rows[1].raw, b"2,z");
    }

    #[test]
    fn a_bad_record_is_a_problem_and_the_next_is_read() {
        let text = b"a,b\n1\n\xff,2\n\"x\"y,2\n3,4\n\"5,6\n";
        let rows: Vec<Result<CsvRecord, LocatedError>> = records(text).unwrap().collect();
        let problems: Vec<String> =
            rows.iter().filter_map(|row| row.as_ref().err().map(ToString::to_string)).collect();
        assert_eq!(
            problems,
            [
                "`mine.csv`, line 2: the row has 1 fields, but the header has 2",
                "`mine.csv`, line 3: byte 1 of the line is not UTF-8",
                "`mine.csv`, line 4: text follows a closing quote",
                "`mine.csv`, line 6: a quote is opened here and never closed",
            ]
        );
        assert_eq!(rows[3].as_ref().unwrap().fields, ["3", "4"]);
        assert_eq!(records(b"\n\n").unwrap_err().to_string(), "`mine.csv`: the file is empty");
    }

    #[test]
    fn a_gzip_file_is_read_and_a_broken_one_is_refused_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.csv.gz");
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"a,b\n").unwrap();
        (0..50_000).for_each(|row| writeln!(encoder, "{row},x").unwrap());
        let packed = encoder.finish().unwrap();
        std::fs::write(&path, &packed).unwrap();
        assert_eq!(CsvRecords::open(&path).unwrap().count(), 50_000);
        std::fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        assert_eq!(CsvRecords::open(&path).unwrap().filter(Result::is_err).count(), 1);
    }
}
