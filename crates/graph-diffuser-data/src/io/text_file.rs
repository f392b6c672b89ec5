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
        Ok(Self { inner: File::open(path)?, read: Arc::clone(read) })
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
    let mut start = Vec::new();
    reader.by_ref().take(PEEKED_BYTES).read_to_end(&mut start)?;
    let is_gzip = start.starts_with(&[0x1f, 0x8b]);
    Ok((text_reader(Cursor::new(start).chain(reader), is_gzip), is_gzip))
}
