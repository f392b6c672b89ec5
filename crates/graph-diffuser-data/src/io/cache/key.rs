//! Key of a cache file: a hash of the source files and of the reader that parsed them.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::Ordering;

use sha2::{Digest, Sha256};

use crate::error::LocatedError;
use crate::io::numeric_csv::file_error;
use crate::io::progress::ProgressMeter;

/// SHA-256 of the name and version of a reader, and of the names and contents of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheKey(pub [u8; 32]);

impl CacheKey {
    /// Computes the key by reading all files once.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub(crate) fn compute<'p>(
        reader: &str,
        files: impl Iterator<Item = &'p Path>,
        meter: &mut ProgressMeter<'_>,
    ) -> Result<Self, LocatedError> {
        let mut all = Sha256::new();
        all.update((reader.len() as u64).to_le_bytes());
        all.update(reader);
        let read = meter.bytes_read();
        let mut buffer = vec![0; 1 << 18];
        for path in files {
            let unreadable = |error| file_error(path, error);
            let mut content = Sha256::new();
            let mut file = File::open(path).map_err(unreadable)?;
            loop {
                let length = file.read(&mut buffer).map_err(unreadable)?;
                if length == 0 {
                    break;
                }
                content.update(&buffer[..length]);
                read.fetch_add(length as u64, Ordering::Relaxed);
                meter.tick();
            }
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            all.update((name.len() as u64).to_le_bytes());
            all.update(name);
            all.update(content.finalize());
        }
        Ok(Self(all.finalize().into()))
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}
