//! Streaming reader of numeric CSV files: comma-separated, without a header, optionally gzipped.
//!
//! Lines are read through one reused buffer, so memory does not grow with the file. Numbers are
//! parsed from bytes; a cell is only decoded to text for error messages.

mod cell;

use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub(crate) use cell::{parse_f32, parse_f32_or_nan, parse_u32};

use crate::error::{Diagnostic, LocatedError};
use crate::io::text_file::{Counted, TextReader, text_reader};

/// Maximum length of a line in bytes.
pub(crate) const MAX_LINE_BYTES: usize = 1 << 20;

/// Errors in a numeric CSV file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NumericCsvError {
    /// The file does not exist.
    #[error("file not found")]
    NotFound,
    /// The file cannot be read.
    #[error("cannot read the file")]
    Read(#[source] io::Error),
    /// The gzip file is truncated.
    #[error("gzip file is truncated")]
    Truncated,
    /// The file has a `.gz` extension but is not valid gzip.
    #[error("invalid gzip file")]
    Gzip(#[source] io::Error),
    /// A line is longer than [`MAX_LINE_BYTES`].
    #[error("line is longer than {MAX_LINE_BYTES} bytes")]
    LineTooLong,
    /// A blank line is followed by further rows.
    #[error("blank line between rows")]
    BlankLine,
    /// A line is not valid UTF-8.
    #[error("invalid UTF-8")]
    NotUtf8,
    /// A cell is not a number.
    #[error("`{cell}` is not a number")]
    NotANumber {
        /// Content of the cell.
        cell: String,
    },
    /// A cell is a number but not an integer.
    #[error("`{cell}` is not an integer")]
    NotAnInteger {
        /// Content of the cell.
        cell: String,
    },
    /// A cell is negative, but an index or count is expected.
    #[error("`{cell}` is negative")]
    Negative {
        /// Content of the cell.
        cell: String,
    },
    /// An integer does not fit into 32 bits.
    #[error("`{cell}` does not fit into 32 bits")]
    TooLarge {
        /// Content of the cell.
        cell: String,
    },
    /// A cell is NaN or infinite.
    #[error("`{cell}` is not finite")]
    NotFinite {
        /// Content of the cell.
        cell: String,
    },
    /// A cell is empty.
    #[error("missing value")]
    MissingValue,
    /// A row has an unexpected number of columns.
    #[error("expected {expected} columns, found {found}")]
    Columns {
        /// Expected number of columns.
        expected: usize,
        /// Number of columns of the row.
        found: usize,
    },
    /// A category index is out of range.
    #[error("category {value} is out of range for {size} categories")]
    CategoryOutOfRange {
        /// Category index.
        value: u32,
        /// Number of categories.
        size: usize,
    },
    /// A label is neither 0 nor 1.
    #[error("expected label 0, 1 or an empty cell, found {value}")]
    NotALabel {
        /// Value of the cell.
        value: f32,
    },
    /// A class is not an integer or out of range.
    #[error("class {value} is invalid for {classes} classes")]
    NotAClass {
        /// Value of the cell.
        value: f32,
        /// Number of classes.
        classes: usize,
    },
}

impl Diagnostic for NumericCsvError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound => {
                Some("the file can be plain (`.csv`) or gzip-compressed (`.csv.gz`)".into())
            }
            Self::Truncated | Self::Gzip(_) => Some("download or copy the file again".into()),
            Self::LineTooLong => Some("write one row per line".into()),
            Self::BlankLine => Some("remove the line, or write `nan` for a missing label".into()),
            Self::NotUtf8 => Some("save the file as UTF-8, without a header".into()),
            Self::NotANumber { .. } => {
                Some("the file must be comma-separated and have no header".into())
            }
            Self::Negative { .. } | Self::CategoryOutOfRange { .. } => Some(
                "number categories from 0 without gaps; write float features with a decimal point"
                    .into(),
            ),
            Self::NotALabel { .. } | Self::NotAClass { .. } => {
                Some("use `TargetSchema::Regression` if the targets are real values".into())
            }
            _ => None,
        }
    }
}

/// Line-by-line reader of a numeric CSV file.
#[derive(Debug)]
pub(crate) struct NumericCsvReader<R> {
    path: PathBuf,
    reader: R,
    line: u64,
    buffer: Vec<u8>,
    trailing_commas: bool,
}

impl NumericCsvReader<TextReader> {
    /// Opens a file, and decompresses it if its extension is `.gz`; adds the number of bytes read
    /// from disk to `read`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened.
    pub(crate) fn open(path: &Path, read: &Arc<AtomicU64>) -> Result<Self, LocatedError> {
        let file = Counted::open(path, read).map_err(|error| file_error(path, error))?;
        Ok(Self::new(path, text_reader(file, is_gzip(path))))
    }
}

impl<R: BufRead> NumericCsvReader<R> {
    /// Creates a reader; `path` is only used in errors.
    pub(crate) fn new(path: &Path, reader: R) -> Self {
        Self { path: path.to_owned(), reader, line: 0, buffer: Vec::new(), trailing_commas: false }
    }

    /// Ignores a comma at the end of a line.
    pub(crate) fn allow_trailing_commas(self) -> Self {
        Self { trailing_commas: true, ..self }
    }

    /// Reads the next line, without its line ending; returns `None` after the last line.
    ///
    /// Blank lines are only allowed at the end of the file.
    ///
    /// # Errors
    /// Returns an error if reading fails, if a blank line is followed by rows, or if the line is
    /// longer than [`MAX_LINE_BYTES`].
    pub(crate) fn next_line(&mut self) -> Result<Option<&[u8]>, LocatedError> {
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

    /// Reads the next line as text; returns `None` after the last line.
    ///
    /// # Errors
    /// Returns an error under the conditions of [`NumericCsvReader::next_line`], or if the line is
    /// not valid UTF-8.
    pub(crate) fn next_text(&mut self) -> Result<Option<&str>, LocatedError> {
        if self.next_line()?.is_none() {
            return Ok(None);
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(self.line_error(NumericCsvError::NotUtf8)),
        }
    }

    /// Appends the values of the next row to `into` and returns their number; `None` after the last
    /// row.
    ///
    /// `parse` receives the column index and the bytes of each cell.
    ///
    /// # Errors
    /// Returns an error under the conditions of [`NumericCsvReader::next_line`], or the error of
    /// `parse` with its line and column.
    pub(crate) fn next_row<T, E: Diagnostic>(
        &mut self,
        into: &mut Vec<T>,
        mut parse: impl FnMut(usize, &[u8]) -> Result<T, E>,
    ) -> Result<Option<usize>, LocatedError> {
        if self.next_line()?.is_none() {
            return Ok(None);
        }
        let mut columns = 0;
        for bytes in self.buffer.split(|&byte| byte == b',') {
            match parse(columns, bytes.trim_ascii()) {
                Ok(value) => into.push(value),
                Err(error) => {
                    return Err(self.line_error(error).in_column((columns + 1).to_string()));
                }
            }
            columns += 1;
        }
        Ok(Some(columns))
    }

    /// Returns the number of cells of the last line read.
    pub(crate) fn cells(&self) -> usize {
        self.buffer.split(|&byte| byte == b',').count()
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Locates an error at the last line read.
    pub(crate) fn line_error(&self, error: impl Diagnostic) -> LocatedError {
        LocatedError::new(&self.path, error).at_line(self.line)
    }

    /// Reads one line into the buffer, without its line ending; returns `false` at the end of the
    /// file.
    fn fill(&mut self) -> Result<bool, LocatedError> {
        self.buffer.clear();
        self.line += 1;
        let mut limited = self.reader.by_ref().take(MAX_LINE_BYTES as u64 + 1);
        let length = limited
            .read_until(b'\n', &mut self.buffer)
            .map_err(|error| file_error(&self.path, error).at_line(self.line))?;
        if length > MAX_LINE_BYTES {
            return Err(self.line_error(NumericCsvError::LineTooLong));
        }
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        if self.trailing_commas && self.buffer.trim_ascii_end().last() == Some(&b',') {
            let length = self.buffer.trim_ascii_end().len();
            self.buffer.truncate(length - 1);
        }
        Ok(length > 0)
    }
}

fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// Converts an I/O error of a file to an error that names its likely cause.
pub(crate) fn file_error(path: &Path, error: io::Error) -> LocatedError {
    let compressed = is_gzip(path);
    let error = match error.kind() {
        io::ErrorKind::NotFound => NumericCsvError::NotFound,
        io::ErrorKind::UnexpectedEof if compressed => NumericCsvError::Truncated,
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData if compressed => {
            NumericCsvError::Gzip(error)
        }
        _ => NumericCsvError::Read(error),
    };
    LocatedError::new(path, error)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &[u8]) -> Result<Vec<Vec<u32>>, LocatedError> {
        let mut rows = NumericCsvReader::new(Path::new("some.csv"), text);
        let mut all = vec![];
        let mut row = vec![];
        while rows.next_row(&mut row, |_, cell| parse_u32(cell))?.is_some() {
            all.push(std::mem::take(&mut row));
        }
        Ok(all)
    }

    fn message(text: &[u8]) -> String {
        all(text).expect_err("the text is invalid").to_string()
    }

    #[test]
    fn mixed_line_endings_bom_and_trailing_blank_lines_are_accepted() {
        let expected = vec![vec![1, 2], vec![3, 4], vec![5, 6]];
        assert_eq!(all(b"1,2\n3,4\n5,6").unwrap(), expected);
        assert_eq!(all(b"1,2\r\n3, 4\n5,6\r\n\n \r\n").unwrap(), expected);
        assert_eq!(all(b"\xEF\xBB\xBF1,2\n3,4\n5,6\n").unwrap(), expected);
        assert!(all(b"").unwrap().is_empty());
    }

    #[test]
    fn invalid_cells_are_reported_with_line_and_column() {
        assert_eq!(message(b"1\n2,x"), "`some.csv`, line 2, column `2`: `x` is not a number");
        assert_eq!(message(b"1\n\n3"), "`some.csv`, line 2: blank line between rows");
        assert_eq!(message(b"-3"), "`some.csv`, line 1, column `1`: `-3` is negative");
        assert_eq!(message(b"0.5"), "`some.csv`, line 1, column `1`: `0.5` is not an integer");
        assert_eq!(
            message(b"4294967296"),
            "`some.csv`, line 1, column `1`: `4294967296` does not fit into 32 bits"
        );
        assert_eq!(message(b"1,,2"), "`some.csv`, line 1, column `2`: missing value");
        assert_eq!(message(b"inf"), "`some.csv`, line 1, column `1`: `inf` is not finite");
        assert_eq!(message(b"1,\xff\xfe"), "`some.csv`, line 1, column `2`: invalid UTF-8");
        assert_eq!(
            message(&vec![b'1'; MAX_LINE_BYTES + 1]),
            "`some.csv`, line 1: line is longer than 1048576 bytes"
        );
        assert_eq!(
            message("ä".repeat(40).as_bytes()),
            format!("`some.csv`, line 1, column `1`: `{}…` is not a number", "ä".repeat(24))
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = all(&text);
        }

        #[test]
        fn almost_numeric_text_does_not_panic(text in "[0-9,.\\-\r\n e]{0,60}") {
            let _ = all(text.as_bytes());
            let mut rows = NumericCsvReader::new(Path::new("some.csv"), text.as_bytes());
            while let Ok(Some(_)) = rows.next_row(&mut vec![], |_, cell| parse_f32_or_nan(cell)) {}
        }
    }
}
