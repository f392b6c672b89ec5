//! Splits a plain or gzip file into the texts of its JSON values, with a limit on their length.
//!
//! A file has one value per line, is a list of values, or has values that span several lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use super::error::{JsonlError, Position};
use crate::error::LocatedError;
use crate::io::text_file::{TextReader, detect_gzip};

/// Maximum length of a value in bytes.
pub(super) const MAX_VALUE_BYTES: usize = 64 << 20;
/// Number of bytes from which the layout is detected.
const PEEKED_BYTES: u64 = 1 << 12;

/// Layout of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// One value per line.
    Lines,
    /// Values that may span several lines, without separators.
    Values,
    /// A list of values.
    List(ListState),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListState {
    BeforeList,
    BeforeFirst,
    AfterComma,
    AfterElement,
    Closed,
}

/// Iterator over the positions and texts of the values of a file.
pub(super) struct JsonTexts {
    pub(super) path: PathBuf,
    reader: TextReader,
    compressed: bool,
    layout: Layout,
    line: u64,
    column: usize,
    elements: usize,
    ended: bool,
    /// Value over the limit whose rest is skipped before the next one is read.
    too_long: Option<Nesting>,
    limit: usize,
}

impl JsonTexts {
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
        let (mut reader, compressed) = detect_gzip(reader)
            .map_err(|error| LocatedError::new(path, JsonlError::Read(error)))?;
        let mut start = Vec::new();
        // An error is reported after the values before it.
        let failure = (&mut reader).take(PEEKED_BYTES).read_to_end(&mut start).err();
        if start.starts_with(b"\xef\xbb\xbf") {
            start.drain(..3);
        }
        let layout = Layout::detect(&start);
        let rest: TextReader = match failure {
            Some(error) => Box::new(BufReader::new(FailedReader(Some(error)))),
            None => reader,
        };
        Ok(Self {
            path: path.to_owned(),
            reader: Box::new(Cursor::new(start).chain(rest)),
            compressed,
            layout,
            line: 1,
            column: 0,
            elements: 0,
            ended: false,
            too_long: None,
            limit: MAX_VALUE_BYTES,
        })
    }

    fn here(&self) -> Position {
        let index = matches!(self.layout, Layout::List(_)).then_some(self.elements);
        Position { line: self.line, column: self.column, index }
    }

    fn failure(&mut self, error: io::Error) -> JsonlError {
        self.ended = true;
        if self.compressed { JsonlError::Gzip(error) } else { JsonlError::Read(error) }
    }

    /// Reads the next line without its terminator.
    fn next_line(&mut self) -> Option<(Position, Result<String, JsonlError>)> {
        if self.too_long.take().is_some() {
            match self.reader.skip_until(b'\n') {
                Ok(_) => self.line += 1,
                Err(error) => return Some((self.here(), Err(self.failure(error)))),
            }
        }
        while !self.ended {
            let position = self.here();
            let mut bytes = Vec::new();
            let read = (&mut self.reader).take(self.limit as u64 + 1).read_until(b'\n', &mut bytes);
            if let Err(error) = read {
                return Some((position, Err(self.failure(error))));
            }
            if bytes.is_empty() {
                self.ended = true;
                break;
            }
            if bytes.len() > self.limit {
                if bytes.last() == Some(&b'\n') {
                    self.line += 1;
                } else {
                    self.too_long = Some(Nesting::default());
                }
                return Some((position, Err(JsonlError::TooLong { limit: self.limit })));
            }
            self.line += 1;
            while bytes.last().is_some_and(|&byte| byte == b'\n' || byte == b'\r') {
                bytes.pop();
            }
            match utf8(bytes) {
                Ok(text) if text.trim().is_empty() => {}
                text => return Some((position, text)),
            }
        }
        None
    }

    /// Reads the next value of a list or of a file with values that span several lines.
    fn next_value(&mut self) -> Option<(Position, Result<String, JsonlError>)> {
        while let Some(nesting) = self.too_long.take() {
            match self.read_value(nesting) {
                Ok(_) | Err(JsonlError::TooLong { .. }) => {}
                Err(error) => return Some((self.here(), Err(error))),
            }
        }
        while !self.ended {
            let next = match self.skip_whitespace() {
                Ok(next) => next,
                Err(error) => return Some((self.here(), Err(error))),
            };
            match self.expect(next) {
                Ok(Step::Value) => {
                    let position = self.here();
                    let text = self.read_value(Nesting::default()).and_then(utf8);
                    self.elements += 1;
                    if let Layout::List(state) = &mut self.layout {
                        *state = ListState::AfterElement;
                    }
                    return Some((position, text));
                }
                Ok(Step::Separator) => self.consume(1),
                Ok(Step::End) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Some((self.here(), Err(error)));
                }
            }
        }
        None
    }

    /// Returns what the next byte is, and changes the state of the list if it is a separator.
    fn expect(&mut self, next: Option<u8>) -> Result<Step, JsonlError> {
        use ListState::{AfterComma, AfterElement, BeforeFirst, BeforeList, Closed};
        let Layout::List(state) = &mut self.layout else {
            return match next {
                None => Ok(Step::End),
                Some(b',' | b']' | b'}') => Err(unexpected("an object", next)),
                Some(_) => Ok(Step::Value),
            };
        };
        let (step, new_state) = match (*state, next) {
            (BeforeList, _) => (Step::Separator, BeforeFirst),
            (AfterElement, Some(b',')) => (Step::Separator, AfterComma),
            (BeforeFirst | AfterElement, Some(b']')) => (Step::Separator, Closed),
            (AfterElement, _) => return Err(unexpected("`,` or `]`", next)),
            (BeforeFirst | AfterComma, None | Some(b',' | b']' | b'}')) => {
                return Err(unexpected("an object", next));
            }
            (BeforeFirst | AfterComma, Some(_)) => (Step::Value, *state),
            (Closed, None) => (Step::End, Closed),
            (Closed, Some(_)) => return Err(unexpected("the end of the file", next)),
        };
        *state = new_state;
        Ok(step)
    }

    fn skip_whitespace(&mut self) -> Result<Option<u8>, JsonlError> {
        loop {
            match self.reader.fill_buf() {
                Err(error) => return Err(self.failure(error)),
                Ok([]) => return Ok(None),
                Ok([byte, ..]) if byte.is_ascii_whitespace() => self.consume(1),
                Ok([byte, ..]) => return Ok(Some(*byte)),
            }
        }
    }

    /// Reads up to the closing bracket of an object or list, or up to the end of a scalar.
    fn read_value(&mut self, mut nesting: Nesting) -> Result<Vec<u8>, JsonlError> {
        let mut bytes = Vec::new();
        let mut is_complete = false;
        while !is_complete {
            let buffer = match self.reader.fill_buf() {
                Err(error) => return Err(self.failure(error)),
                // The JSON parser reports an incomplete value.
                Ok([]) => return Ok(bytes),
                Ok(buffer) => buffer,
            };
            let mut used = 0;
            for &byte in buffer {
                let is_delimiter = byte.is_ascii_whitespace() || byte == b',' || byte == b']';
                if nesting.kind == ValueKind::Scalar && is_delimiter {
                    is_complete = true;
                    break;
                }
                used += 1;
                nesting.push(byte);
                if nesting.is_closed() {
                    is_complete = true;
                    break;
                }
            }
            bytes.extend_from_slice(&buffer[..used]);
            self.consume(used);
            if bytes.len() > self.limit {
                self.too_long = (!is_complete).then_some(nesting);
                return Err(JsonlError::TooLong { limit: self.limit });
            }
        }
        Ok(bytes)
    }

    /// Consumes bytes of the buffer and moves the position.
    fn consume(&mut self, length: usize) {
        if let Ok(buffer) = self.reader.fill_buf() {
            for &byte in &buffer[..length] {
                (self.line, self.column) =
                    if byte == b'\n' { (self.line + 1, 0) } else { (self.line, self.column + 1) };
            }
        }
        self.reader.consume(length);
    }
}

impl Iterator for JsonTexts {
    type Item = (Position, Result<String, JsonlError>);

    fn next(&mut self) -> Option<Self::Item> {
        match self.layout {
            Layout::Lines => self.next_line(),
            Layout::Values | Layout::List(_) => self.next_value(),
        }
    }
}

/// Next part of a file with values that span several lines.
enum Step {
    Value,
    Separator,
    End,
}

impl Layout {
    /// Detects the layout from the start of a file.
    fn detect(start: &[u8]) -> Self {
        let start = start.trim_ascii_start();
        match start.first() {
            Some(b'[') => return Self::List(ListState::BeforeList),
            Some(b'{') => {}
            _ => return Self::Lines,
        }
        let mut nesting = Nesting::default();
        for (index, &byte) in start.iter().enumerate() {
            if byte == b'\n' {
                // An object at the start of the next line means that this line is incomplete.
                let next = start[index..].trim_ascii_start().first();
                return if next == Some(&b'{') { Self::Lines } else { Self::Values };
            }
            nesting.push(byte);
            if nesting.is_closed() {
                break;
            }
        }
        Self::Lines
    }
}

/// Brackets and quotes that are open in a value.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    quote: Quote,
    kind: ValueKind,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Quote {
    #[default]
    Closed,
    Open,
    /// After a backslash.
    Escaped,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum ValueKind {
    #[default]
    Unknown,
    /// Number, true, false or null, which a delimiter ends.
    Scalar,
    /// Object, list or string.
    Delimited,
}

impl Nesting {
    fn push(&mut self, byte: u8) {
        if self.kind == ValueKind::Unknown {
            let is_delimited = matches!(byte, b'{' | b'[' | b'"');
            self.kind = if is_delimited { ValueKind::Delimited } else { ValueKind::Scalar };
        }
        match (&self.quote, byte) {
            (Quote::Escaped, _) | (Quote::Closed, b'"') => self.quote = Quote::Open,
            (Quote::Open, b'\\') => self.quote = Quote::Escaped,
            (Quote::Open, b'"') => self.quote = Quote::Closed,
            (Quote::Closed, b'{' | b'[') => self.depth += 1,
            (Quote::Closed, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// Returns `true` if an object, list or string ends at the last byte.
    fn is_closed(&self) -> bool {
        self.kind == ValueKind::Delimited && self.depth == 0 && self.quote == Quote::Closed
    }
}

/// Reader that fails.
struct FailedReader(Option<io::Error>);

impl Read for FailedReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

fn utf8(bytes: Vec<u8>) -> Result<String, JsonlError> {
    String::from_utf8(bytes)
        .map_err(|error| JsonlError::NotUtf8 { byte: error.utf8_error().valid_up_to() })
}

fn unexpected(expected: &'static str, found: Option<u8>) -> JsonlError {
    let found = match found {
        None => "the end of the file".to_owned(),
        Some(byte) => format!("`{}`", byte.escape_ascii()),
    };
    JsonlError::Separator { expected, found }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn texts(bytes: &[u8]) -> Vec<(Position, Result<String, String>)> {
        let mut texts =
            JsonTexts::new(Path::new("mine.jsonl"), Cursor::new(bytes.to_vec())).unwrap();
        texts.limit = 20;
        texts.map(|(position, text)| (position, text.map_err(|error| error.to_string()))).collect()
    }

    fn lines(bytes: &[u8]) -> Vec<(u64, Result<String, String>)> {
        texts(bytes).into_iter().map(|(position, text)| (position.line, text)).collect()
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
        assert_eq!(found[0], (1, Err("invalid UTF-8 at byte 2 of the graph".into())));
        assert_eq!(found[1], (2, Ok("next".into())));
    }

    #[test]
    fn values_after_one_over_the_limit_are_read() {
        let too_long = || Err("graph is longer than 20 bytes".to_owned());
        let next = || Ok("2".to_owned());
        for length in [20, 21, 30, 100_000] {
            let found = lines(&gzip(&format!("{}\n2\n", "x".repeat(length))));
            assert_eq!(found, [(1, too_long()), (2, next())], "{length}");
            let list = format!("[\"{}\",\n2]", "x".repeat(length));
            assert_eq!(lines(list.as_bytes()), [(1, too_long()), (2, next())], "{length}");
        }
        assert_eq!(lines("x".repeat(100).as_bytes()), [(1, too_long())]);
        assert_eq!(lines("x".repeat(19).as_bytes()).len(), 1);
    }

    #[test]
    fn truncated_gzip_is_an_error() {
        let complete = gzip("one\ntwo\n");
        let found = lines(&complete[..complete.len() - 9]);
        assert_eq!(found.last().unwrap().1, Err("gzip data is corrupt or truncated".into()));
    }

    #[test]
    fn elements_of_a_list_have_line_column_and_index() {
        let at = |line, column, index| Position { line, column, index: Some(index) };
        assert_eq!(
            texts(b" [{\"a\": [1]},\n  {\"]\\\"\": 2} , 3]\n"),
            [
                (at(1, 2, 0), Ok("{\"a\": [1]}".into())),
                (at(2, 2, 1), Ok("{\"]\\\"\": 2}".into())),
                (at(2, 15, 2), Ok("3".into())),
            ]
        );
        assert_eq!(texts(b"[]"), []);
    }

    #[test]
    fn objects_may_span_several_lines() {
        assert_eq!(
            lines(b"{\n\"a\": 1\n}\n\n{\"b\":\n2}"),
            [(1, Ok("{\n\"a\": 1\n}".into())), (5, Ok("{\"b\":\n2}".into()))]
        );
        // The first line of a JSON Lines file may be incomplete.
        assert_eq!(lines(b"{\"a\": 1\n{\"b\": 2}").len(), 2);
    }

    #[test]
    fn errors_between_values_name_what_is_expected() {
        let last = |text: &str| texts(text.as_bytes()).pop().unwrap().1.unwrap_err();
        assert_eq!(last("[{} {}]"), "expected `,` or `]`, found `{`");
        assert_eq!(last("[{}"), "expected `,` or `]`, found the end of the file");
        assert_eq!(last("[{},]"), "expected an object, found `]`");
        assert_eq!(last("[{}] x"), "expected the end of the file, found `x`");
        assert_eq!(last("{\n}\n]"), "expected an object, found `]`");
    }
}
