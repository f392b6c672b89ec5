//! Opens plain and gzip-compressed text files and counts the bytes read from disk.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

/// Buffered reader of text.
pub(crate) type TextReader = Box<dyn BufRead + Send>;

const BUFFER_BYTES: usize = 1 << 16;

/// Reader that counts the bytes read.
pub(crate) struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl Counted<File> {
    /// Opens a file; adds the number of bytes read to `read`.
    pub(crate) fn open(path: &Path, read: &Arc<AtomicU64>) -> io::Result<Self> {
        Ok(Self::new(File::open(path)?, read))
    }
}

impl<R> Counted<R> {
    /// Wraps a reader; adds the number of bytes read to `read`.
    pub(crate) fn new(inner: R, read: &Arc<AtomicU64>) -> Self {
        Self { inner, read: Arc::clone(read) }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// Buffers a reader, and decompresses it if `is_gzip` is set.
pub(crate) fn text_reader(reader: impl Read + Send + 'static, is_gzip: bool) -> TextReader {
    let buffered = BufReader::with_capacity(BUFFER_BYTES, reader);
    if is_gzip {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(buffered)))
    } else {
        Box::new(buffered)
    }
}

/// Number of bytes that are read ahead, so that the first buffer of an uncompressed text is long
/// enough to detect its format.
const PEEKED_BYTES: u64 = 1 << 12;

/// Buffers a reader, and decompresses it if it starts with the gzip magic number; also returns
/// `true` if it does.
pub(crate) fn detect_gzip(
    mut reader: impl Read + Send + 'static,
) -> io::Result<(TextReader, bool)> {
    let start = read_start(&mut reader)?;
    let is_gzip = is_gzip(&start);
    Ok((text_reader(Cursor::new(start).chain(reader), is_gzip), is_gzip))
}

/// Reads ahead, and returns the start of the decompressed text and a reader of everything.
///
/// Unlike a file, a pipe cannot be opened again after its format has been detected.
pub(crate) fn peek_text<R: Read>(mut reader: R) -> io::Result<(Vec<u8>, impl Read + use<R>)> {
    let start = read_start(&mut reader)?;
    let mut text = Vec::new();
    if is_gzip(&start) {
        // Fails at the end of `start`, after everything up to it has been decompressed.
        let _ = MultiGzDecoder::new(&start[..]).take(PEEKED_BYTES).read_to_end(&mut text);
    } else {
        text.clone_from(&start);
    }
    Ok((text, Cursor::new(start).chain(reader)))
}

fn read_start(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    reader.take(PEEKED_BYTES).read_to_end(&mut start)?;
    Ok(start)
}

fn is_gzip(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b])
}
