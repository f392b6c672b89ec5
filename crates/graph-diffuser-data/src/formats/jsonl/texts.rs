//! Lines of a plain or gzip text file, with a limit on their length.

use std::fs::File;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use super::error::JsonlError;
use crate::error::LocatedError;
use crate::io::text_file::{TextReader, detect_gzip};

/// Maximum length of a line in bytes. The parsed value may take sixteen times as much memory.
pub(super) const MAX_LINE_BYTES: usize = 64 << 20;

/// Iterator over non-blank lines and their line numbers.
pub(super) struct Lines {
    pub(super) path: PathBuf,
    reader: TextReader,
    compressed: bool,
    line: u64,
    ended: bool,
    limit: usize,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self, LocatedError> {
        let file =
            File::open(path).map_err(|error| LocatedError::new(path, JsonlError::Read(error)))?;
        Self::new(path, file)
    }

    /// Creates a reader; `path` is the name used in errors. Gzip is detected by its magic bytes.
    pub(super) fn new(
        path: &Path,
        reader: impl Read + Send + 'static,
    ) -> Result<Self, LocatedError> {
        let (reader, compressed) = detect_gzip(reader)
            .map_err(|error| LocatedError::new(path, JsonlError::Read(error)))?;
        Ok(Self {
            path: path.to_owned(),
            reader,
            compressed,
            line: 0,
            ended: false,
            limit: MAX_LINE_BYTES,
        })
    }

    fn read_line(&mut self) -> Result<Option<String>, JsonlError> {
        let mut bytes = Vec::new();
        let limit = self.limit;
        let read = (&mut self.reader).take(limit as u64 + 1).read_until(b'\n', &mut bytes);
        read.map_err(|error| {
            self.ended = true;
            if self.compressed { JsonlError::Gzip(error) } else { JsonlError::Read(error) }
        })?;
        if bytes.is_empty() {
            self.ended = true;
            return Ok(None);
        }
        if bytes.len() > limit {
            self.ended = true;
            return Err(JsonlError::LineTooLong { limit });
        }
        while bytes.last().is_some_and(|&byte| byte == b'\n' || byte == b'\r') {
            bytes.pop();
        }
        let mut text = String::from_utf8(bytes)
            .map_err(|error| JsonlError::NotUtf8 { byte: error.utf8_error().valid_up_to() })?;
        if self.line == 1 && text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        Ok(Some(text))
    }
}

impl Iterator for Lines {
    type Item = (u64, Result<String, JsonlError>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            self.line += 1;
            match self.read_line() {
                Ok(None) => return None,
                Ok(Some(text)) if text.trim().is_empty() => {}
                Ok(Some(text)) => return Some((self.line, Ok(text))),
                Err(error) => return Some((self.line, Err(error))),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn lines(bytes: &[u8]) -> Vec<(u64, Result<String, String>)> {
        let mut lines =
            Lines::new(Path::new("mine.jsonl"), std::io::Cursor::new(bytes.to_vec())).unwrap();
        lines.limit = 20;
        lines.map(|(line, text)| (line, text.map_err(|error| error.to_string()))).collect()
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn blank_lines_are_skipped_but_counted() {
        let expected = vec![(1, Ok("one".into())), (4, Ok("four".into()))];
        assert_eq!(lines("\u{feff}one\r\n\n  \nfour".as_bytes()), expected);
        assert_eq!(lines(&gzip("one\n\n\nfour\n")), expected);
        let two_members = [gzip("one\n\n\n"), gzip("four")].concat();
        assert_eq!(lines(&two_members), expected);
    }

    #[test]
    fn line_after_invalid_utf8_is_still_read() {
        let found = lines(b"ab\xff\nnext\n");
        assert_eq!(found[0], (1, Err("invalid UTF-8 at byte 2 of the line".into())));
        assert_eq!(found[1], (2, Ok("next".into())));
    }

    #[test]
    fn reading_stops_at_a_line_over_the_limit() {
        let found = lines(&gzip(&"x".repeat(10_000)));
        assert_eq!(found, [(1, Err("line is longer than 20 bytes".into()))]);
        assert_eq!(lines("x".repeat(19).as_bytes()).len(), 1);
    }

    #[test]
    fn truncated_gzip_is_an_error() {
        let complete = gzip("one\ntwo\n");
        let found = lines(&complete[..complete.len() - 9]);
        assert_eq!(found.last().unwrap().1, Err("gzip data is corrupt or truncated".into()));
    }
}
