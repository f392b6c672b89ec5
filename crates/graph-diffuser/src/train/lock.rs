//! Exclusive lock of a run directory.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::CheckpointError;

/// Exclusive lock of a run directory, released when its last clone is dropped.
#[derive(Debug, Clone)]
pub struct RunLock {
    file: Arc<File>,
    path: PathBuf,
}

impl RunLock {
    /// Locks the file `lock` in a run directory; `None` if another process holds the lock.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or is a symbolic link.
    pub fn acquire(directory: &Path) -> io::Result<Option<Self>> {
        let path = directory.join("lock");
        if path.is_symlink() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "is a symbolic link"));
        }
        let file = File::options().write(true).create(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            // Training continues on file systems that do not support locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(Self { file: Arc::new(file), path })),
        }
    }

    /// Follows the run directory, which was renamed to `directory`.
    pub(crate) fn moved_to(self, directory: &Path) -> Self {
        Self { path: directory.join("lock"), ..self }
    }

    /// Checks that the run directory still contains the locked file.
    ///
    /// Another process may have removed the directory and started another run in its place, whose
    /// files must not be mixed with those of this run.
    ///
    /// # Errors
    /// Returns an error if the directory was removed or replaced.
    pub fn check(&self) -> Result<(), CheckpointError> {
        if self.is_current() {
            return Ok(());
        }
        let directory = self.path.parent().unwrap_or(&self.path).to_owned();
        Err(CheckpointError::Replaced { directory })
    }

    #[cfg(unix)]
    fn is_current(&self) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let (Ok(held), Ok(found)) = (self.file.metadata(), std::fs::metadata(&self.path)) else {
            return false;
        };
        (held.dev(), held.ino()) == (found.dev(), found.ino())
    }

    /// Other operating systems do not remove a directory with an open file.
    #[cfg(not(unix))]
    fn is_current(&self) -> bool {
        self.path.exists()
    }
}
