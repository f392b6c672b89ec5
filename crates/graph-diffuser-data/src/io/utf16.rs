//! Conversion of UTF-16 text with a byte-order mark to UTF-8.
//!
//! Excel writes "Unicode Text" in this encoding.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use crate::io::text_file::TextReader;

/// Number of input bytes that are converted at a time.
const CHUNK_BYTES: usize = 1 << 13;

/// Converts the text to UTF-8 if it starts with the byte-order mark of UTF-16.
///
/// # Errors
/// Returns an error if the start cannot be read; the reader fails if the text is not valid UTF-16.
pub(crate) fn detect_utf16(mut reader: TextReader) -> io::Result<TextReader> {
    let mut mark = Vec::with_capacity(2);
    reader.by_ref().take(2).read_to_end(&mut mark)?;
    let to_unit = match mark[..] {
        [0xff, 0xfe] => u16::from_le_bytes,
        [0xfe, 0xff] => u16::from_be_bytes,
        _ => return Ok(Box::new(Cursor::new(mark).chain(reader))),
    };
    Ok(Box::new(BufReader::new(Utf16Reader {
        reader,
        to_unit,
        bytes: Vec::new(),
        surrogate: None,
        text: Cursor::default(),
    })))
}

/// Reader that yields the UTF-8 form of UTF-16 text.
struct Utf16Reader {
    reader: TextReader,
    to_unit: fn([u8; 2]) -> u16,
    /// Bytes that are not converted yet.
    bytes: Vec<u8>,
    /// First half of a surrogate pair whose second half is not read yet.
    surrogate: Option<u16>,
    /// Converted text.
    text: Cursor<Vec<u8>>,
}

impl Utf16Reader {
    /// Converts the next chunk; `text` stays empty at the end of the input.
    fn fill(&mut self) -> io::Result<()> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "invalid UTF-16");
        let mut text = String::new();
        while text.is_empty() {
            let read =
                self.reader.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut self.bytes)?;
            if read == 0 {
                let is_complete = self.bytes.is_empty() && self.surrogate.is_none();
                self.bytes.clear();
                self.surrogate = None;
                self.text = Cursor::default();
                return if is_complete { Ok(()) } else { Err(invalid()) };
            }
            let even = self.bytes.len() & !1;
            let new =
                self.bytes[..even].chunks_exact(2).map(|pair| (self.to_unit)([pair[0], pair[1]]));
            let mut units: Vec<u16> = self.surrogate.take().into_iter().chain(new).collect();
            self.surrogate = units.pop_if(|last| (0xd800..0xdc00).contains(last));
            self.bytes.drain(..even);
            text = String::from_utf16(&units).map_err(|_| invalid())?;
        }
        self.text = Cursor::new(text.into_bytes());
        Ok(())
    }
}

impl Read for Utf16Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.text.fill_buf()?.is_empty() {
            self.fill()?;
        }
        self.text.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: Vec<u8>) -> io::Result<String> {
        let mut text = String::new();
        detect_utf16(Box::new(Cursor::new(bytes)))?.read_to_string(&mut text)?;
        Ok(text)
    }

    fn encode(text: &str, to_bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        format!("\u{feff}{text}").encode_utf16().flat_map(to_bytes).collect()
    }

    #[test]
    fn both_byte_orders_are_converted_across_chunks() {
        // The surrogate pair starts at the end of a chunk.
        let text = "x".repeat(CHUNK_BYTES / 2 - 1) + "\u{1f600}\u{e9},\r\n" + &"y".repeat(10_000);
        assert_eq!(decode(encode(&text, u16::to_le_bytes)).unwrap(), text);
        assert_eq!(decode(encode(&text, u16::to_be_bytes)).unwrap(), text);
        assert_eq!(decode(encode("", u16::to_le_bytes)).unwrap(), "");
    }

    #[test]
    fn text_without_mark_is_unchanged_and_invalid_utf16_is_an_error() {
        for text in ["", "a", "\u{feff}smiles,y\n"] {
            assert_eq!(decode(text.as_bytes().to_vec()).unwrap(), text);
        }
        let odd = decode(vec![0xff, 0xfe, b'a', 0, b'b']);
        assert_eq!(odd.unwrap_err().to_string(), "invalid UTF-16");
        assert!(decode(vec![0xff, 0xfe, 0x00, 0xd8]).is_err());
        assert!(decode(vec![0xfe, 0xff, 0xdc, 0x00, 0, b'a']).is_err());
    }
}
