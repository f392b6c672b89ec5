//! Lines of a text file with their numbers.

use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};

use crate::error::LocatedError;
use crate::io::csv_records::{CsvRecordError, MAX_RECORD_BYTES, len_without_line_ending};
use crate::io::text_file::TextReader;

/// Reader of lines up to [`MAX_RECORD_BYTES`].
pub(crate) struct LineReader {
    path: PathBuf,
    reader: TextReader,
    line: u64,
    failed: bool,
}

impl LineReader {
    /// Reads lines from `reader`; `path` is only used in errors.
    pub(crate) fn new(path: &Path, reader: TextReader) -> Self {
        Self { path: path.to_owned(), reader, line: 0, failed: false }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of the last line, starting at 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Reads the next line without its line ending and without a byte-order mark; returns `false`
    /// at the end of the file and after an error.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or the line is too long.
    pub(crate) fn read_line(&mut self, line: &mut Vec<u8>) -> Result<bool, LocatedError> {
        line.clear();
        if self.failed {
            return Ok(false);
        }
        let read = self.reader.by_ref().take(MAX_RECORD_BYTES).read_until(b'\n', line);
        let error = match read {
            Ok(0) => return Ok(false),
            Ok(_) if line.len() as u64 >= MAX_RECORD_BYTES => CsvRecordError::TooLong,
            Ok(_) => {
                self.line += 1;
                line.truncate(len_without_line_ending(line));
                if self.line == 1 && line.starts_with(b"\xef\xbb\xbf") {
                    line.drain(..3);
                }
                return Ok(true);
            }
            Err(error) => CsvRecordError::Read(error),
        };
        self.failed = true;
        Err(self.error_at(self.line + 1, error))
    }

    /// Stops reading: the following calls of [`LineReader::read_line`] return `false`.
    pub(crate) fn stop(&mut self) {
        self.failed = true;
    }

    /// Decodes a part of the last line.
    ///
    /// # Errors
    /// Returns an error with the number of the line if it is not valid UTF-8.
    pub(crate) fn decode<'a>(&self, line: &'a [u8]) -> Result<&'a str, LocatedError> {
        std::str::from_utf8(line).map_err(|error| {
            let byte = error.valid_up_to() + 1;
            self.error_at(self.line, CsvRecordError::NotUtf8 { byte })
        })
    }

    /// Locates an error at a line.
    pub(crate) fn error_at(&self, line: u64, error: CsvRecordError) -> LocatedError {
        LocatedError::new(&self.path, error).at_line(line)
    }
}
