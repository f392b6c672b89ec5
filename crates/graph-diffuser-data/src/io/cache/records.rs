//! Bytes of the records of a cache file, in memory or read on demand.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Range;

/// Bytes from the start of a file.
#[derive(Debug)]
pub(super) enum Records {
    Memory(Vec<u8>),
    File(SharedFile),
}

impl Records {
    /// Returns a range of bytes.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has become too short.
    pub(super) fn read(&self, range: Range<u64>) -> io::Result<Cow<'_, [u8]>> {
        match self {
            Self::Memory(bytes) => {
                let bytes = bytes.get(range.start as usize..range.end as usize);
                bytes.map(Cow::Borrowed).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
            }
            Self::File(file) => {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                file.read_exact_at(&mut bytes, range.start)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

/// File that several threads read at different offsets.
#[derive(Debug)]
pub(super) struct SharedFile(#[cfg(unix)] File, #[cfg(not(unix))] std::sync::Mutex<File>);

impl SharedFile {
    pub(super) fn new(file: File) -> Self {
        #[cfg(not(unix))]
        let file = std::sync::Mutex::new(file);
        Self(file)
    }

    #[cfg(unix)]
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, bytes, offset)
    }

    #[cfg(not(unix))]
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(bytes)
    }
}
