//! Rows of numbers in text files: separated by commas, without a header, plain or compressed.
//!
//! A file is read line by line through one buffer, so its size does not matter. Numbers are read from the bytes of a
//! cell; a cell becomes text only when it has to be shown in a message.

mod cell;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

pub use cell::{parse_f32_or_nan, real, whole};

use crate::error::{Diagnostic, LocatedError};

/// Longest line that is read, in bytes.
pub const LONGEST_LINE: usize = 1 << 20;

/// What can be wrong with a line of numbers, or with the file it stands in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NumericCsvError {
    /// There is no such file.
    #[error("the file is missing")]
    NotFound,
    /// The file cannot be read.
    #[error("cannot be read")]
    Read(#[source] io::Error),
    /// The compressed file stops before its end.
    #[error("the compressed file ends too early")]
    Truncated,
    /// The file is not what its name says.
    #[error("is not a sound gzip file")]
    Gzip(#[source] io::Error),
    /// A line is longer than any sensible row.
    #[error("the line is longer than {LONGEST_LINE} bytes")]
    LineTooLong,
    /// A blank line has rows after it.
    #[error("the line is blank, but rows follow")]
    BlankLine,
    /// The bytes are not text.
    #[error("is not UTF-8 text")]
    NotUtf8,
    /// A cell holds something else than a number.
    #[error("`{cell}` is not a number")]
    NotANumber {
        /// What stands there.
        cell: String,
    },
    /// A cell holds a number that is not whole.
    #[error("`{cell}` is not a whole number")]
    NotWhole {
        /// What stands there.
        cell: String,
    },
    /// A cell holds a negative number where things are counted.
    #[error("`{cell}` is negative")]
    Negative {
        /// What stands there.
        cell: String,
    },
    /// A cell holds a number beyond 32 bits.
    #[error("`{cell}` is too large")]
    TooLarge {
        /// What stands there.
        cell: String,
    },
    /// A cell holds a number that is infinite or not a number.
    #[error("`{cell}` is not a finite number")]
    NotFinite {
        /// What stands there.
        cell: String,
    },
    /// A cell is empty.
    #[error("the value is missing")]
    MissingValue,
    /// A row is longer or shorter than the ones before.
    #[error("the row has {found} columns instead of {expected}")]
    Columns {
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A category lies beyond its table.
    #[error("category {value} does not exist: there are {size}, numbered from 0")]
    OutOfTable {
        /// What stands there.
        value: u32,
        /// How many there are.
        size: usize,
    },
    /// A label is neither yes nor no.
    #[error("the label is {value} instead of 0, 1 or missing")]
    NotALabel {
        /// What stands there.
        value: f32,
    },
    /// A class lies beyond the last, or is none.
    #[error("the class is {value}, but there are {classes}, numbered from 0")]
    NotAClass {
        /// What stands there.
        value: f32,
        /// How many there are.
        classes: usize,
    },
}

impl Diagnostic for NumericCsvError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound => Some("a file may stand there compressed (`.csv.gz`) or plain (`.csv`)".into()),
            Self::Truncated | Self::Gzip(_) => Some("fetch or copy the file again".into()),
            Self::LineTooLong => Some("write one row a line".into()),
            Self::BlankLine => Some("remove the line, or write `nan` for a missing label".into()),
            Self::NotUtf8 => Some("save the file as UTF-8 text, without a header".into()),
            Self::NotANumber { .. } => Some("the file has no header line and cells are separated by commas".into()),
            Self::Negative { .. } | Self::OutOfTable { .. } => {
                Some("categories are counted from 0 without gaps; write real numbers with a decimal point".into())
            }
            Self::NotALabel { .. } | Self::NotAClass { .. } => Some("say that the targets are values".into()),
            _ => None,
        }
    }
}

/// The lines of one file.
#[derive(Debug)]
pub struct NumericCsvReader<R> {
    path: PathBuf,
    reader: R,
    line: u64,
    buffer: Vec<u8>,
    comma_may_end: bool,
}

/// The reader of a file on disk.
pub type FileReader = Box<dyn BufRead + Send>;

/// Opens a file, decompressing it when its name ends in `.gz`; `read` grows by the bytes taken from disk.
///
/// # Errors
/// When the file cannot be opened.
pub fn open(path: &Path, read: &Arc<AtomicU64>) -> Result<FileReader, LocatedError> {
    let file = File::open(path).map_err(|error| file_problem(path, error))?;
    let counted =
        BufReader::with_capacity(1 << 16, Counted { inner: file, read: Arc::clone(read) });
    Ok(if path.extension().is_some_and(|extension| extension == "gz") {
        Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(counted)))
    } else {
        Box::new(counted)
    })
}

impl NumericCsvReader<FileReader> {
    /// The lines of a file, as [`open`] reads it.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path, read: &Arc<AtomicU64>) -> Result<Self, LocatedError> {
        Ok(Self::new(path, open(path, read)?))
    }
}

impl<R: BufRead> NumericCsvReader<R> {
    /// The lines of any reader; the path is for messages.
    pub fn new(path: &Path, reader: R) -> Self {
        Self { path: path.to_owned(), reader, line: 0, buffer: Vec::new(), comma_may_end: false }
    }

    /// The same, where a comma at the end of a line opens no cell.
    pub fn with_commas_at_ends(self) -> Self {
        Self { comma_may_end: true, ..self }
    }

    /// The next line without its end, or none after the last; blank lines may only stand at the end.
    ///
    /// # Errors
    /// When the file cannot be read on, or a blank line or an endless one is met.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, LocatedError> {
        if !self.fill()? {
            return Ok(None);
        }
        if self.buffer.iter().all(u8::is_ascii_whitespace) {
            let blank = self.line;
            while self.fill()? {
                if !self.buffer.iter().all(u8::is_ascii_whitespace) {
                    return Err(
                        LocatedError::new(&self.path, NumericCsvError::BlankLine).at_line(blank)
                    );
                }
            }
            return Ok(None);
        }
        if self.line == 1 && self.buffer.starts_with(b"\xEF\xBB\xBF") {
            self.buffer.drain(..3);
        }
        Ok(Some(&self.buffer))
    }

    /// The same as text.
    ///
    /// # Errors
    /// As [`NumericCsvReader::next_line`], and when the line is not UTF-8.
    pub fn next_text(&mut self) -> Result<Option<&str>, LocatedError> {
        if self.next_line()?.is_none() {
            return Ok(None);
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(self.problem(NumericCsvError::NotUtf8)),
        }
    }

    /// Reads the next row into `into` and returns how many cells it has; `None` after the last row.
    ///
    /// # Errors
    /// As [`NumericCsvReader::next_line`], and what `cell` says of a cell, with its place.
    pub fn next_row<T, E: Diagnostic>(
        &mut self,
        into: &mut Vec<T>,
        mut cell: impl FnMut(usize, &[u8]) -> Result<T, E>,
    ) -> Result<Option<usize>, LocatedError> {
        if self.next_line()?.is_none() {
            return Ok(None);
        }
        let mut columns = 0;
        for bytes in self.buffer.split(|&byte| byte == b',') {
            match cell(columns, bytes.trim_ascii()) {
                Ok(value) => into.push(value),
                Err(fault) => return Err(self.problem(fault).in_column((columns + 1).to_string())),
            }
            columns += 1;
        }
        Ok(Some(columns))
    }

    /// How many cells the line read last has.
    pub fn cells(&self) -> usize {
        self.buffer.split(|&byte| byte == b',').count()
    }

    /// Number of the line read last, counted from one.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A fault in the line read last.
    pub fn problem(&self, fault: impl Diagnostic) -> LocatedError {
        LocatedError::new(&self.path, fault).at_line(self.line)
    }

    /// Reads one line into the buffer, without its end.
    fn fill(&mut self) -> Result<bool, LocatedError> {
        self.buffer.clear();
        self.line += 1;
        let mut limited = self.reader.by_ref().take(LONGEST_LINE as u64 + 1);
        let length = limited
            .read_until(b'\n', &mut self.buffer)
            .map_err(|error| file_problem(&self.path, error).at_line(self.line))?;
        if length > LONGEST_LINE {
            return Err(self.problem(NumericCsvError::LineTooLong));
        }
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        if self.comma_may_end && self.buffer.trim_ascii_end().last() == Some(&b',') {
            let length = self.buffer.trim_ascii_end().len();
            self.buffer.truncate(length - 1);
        }
        Ok(length > 0)
    }
}

/// What an input error means for a file of this name.
pub(crate) fn file_problem(path: &Path, error: io::Error) -> LocatedError {
    let compressed = path.extension().is_some_and(|extension| extension == "gz");
    let fault = match error.kind() {
        io::ErrorKind::NotFound => NumericCsvError::NotFound,
        io::ErrorKind::UnexpectedEof if compressed => NumericCsvError::Truncated,
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData if compressed => {
            NumericCsvError::Gzip(error)
        }
        _ => NumericCsvError::Read(error),
    };
    LocatedError::new(path, fault)
}

/// Counts what goes through it.
pub(crate) struct Counted<R> {
    pub(crate) inner: R,
    pub(crate) read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &[u8]) -> Result<Vec<Vec<u32>>, LocatedError> {
        let mut rows = NumericCsvReader::new(Path::new("some.csv"), text);
        let mut all = vec![];
        let mut row = vec![];
        while rows.next_row(&mut row, |_, cell| whole(cell))?.is_some() {
            all.push(std::mem::take(&mut row));
        }
        Ok(all)
    }

    fn message(text: &[u8]) -> String {
        all(text).expect_err("the text is wrong").to_string()
    }

    #[test]
    fn line_ends_may_be_mixed_and_blank_lines_may_end_the_file() {
        let expected = vec![vec![1, 2], vec![3, 4], vec![5, 6]];
        assert_eq!(all(b"1,2\n3,4\n5,6").unwrap(), expected);
        assert_eq!(all(b"1,2\r\n3, 4\n5,6\r\n\n \r\n").unwrap(), expected);
        assert_eq!(all(b"\xEF\xBB\xBF1,2\n3,4\n5,6\n").unwrap(), expected);
        assert!(all(b"").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_count_is_named_with_its_place() {
        assert_eq!(message(b"1\n2,x"), "`some.csv`, line 2, column `2`: `x` is not a number");
        assert_eq!(message(b"1\n\n3"), "`some.csv`, line 2: the line is blank, but rows follow");
        assert_eq!(message(b"-3"), "`some.csv`, line 1, column `1`: `-3` is negative");
        assert_eq!(message(b"0.5"), "`some.csv`, line 1, column `1`: `0.5` is not a whole number");
        assert_eq!(
            message(b"4294967296"),
            "`some.csv`, line 1, column `1`: `4294967296` is too large"
        );
        assert_eq!(message(b"1,,2"), "`some.csv`, line 1, column `2`: the value is missing");
        assert_eq!(message(b"inf"), "`some.csv`, line 1, column `1`: `inf` is not a finite number");
        assert_eq!(message(b"1,\xff\xfe"), "`some.csv`, line 1, column `2`: is not UTF-8 text");
        assert_eq!(
            message(&vec![b'1'; LONGEST_LINE + 1]),
            "`some.csv`, line 1: the line is longer than 1048576 bytes"
        );
        assert_eq!(
            message("ä".repeat(40).as_bytes()),
            format!("`some.csv`, line 1, column `1`: `{}…` is not a number", "ä".repeat(24))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_rows_or_a_problem(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = all(&text);
        }

        #[test]
        fn nearly_numbers_are_rows_or_a_problem(text in "[0-9,.\\-\r\n e]{0,60}") {
            let _ = all(text.as_bytes());
            let mut rows = NumericCsvReader::new(Path::new("some.csv"), text.as_bytes());
            while let Ok(Some(_)) = rows.next_row(&mut vec![], |_, cell| parse_f32_or_nan(cell)) {}
        }
    }
}
