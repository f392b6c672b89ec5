//! Atomic file writes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::train::checkpoint::sync_directory;

use super::PredictError;

/// File that is written under a temporary name and renamed by [`AtomicFile::persist`].
///
/// The temporary file is removed on drop.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    replace: bool,
}

impl AtomicFile {
    /// Creates a temporary file that will replace `path`.
    ///
    /// # Errors
    /// Returns an error if `path` exists and `replace` is not set, or if the file cannot be
    /// created.
    pub fn create(path: &Path, replace: bool) -> Result<Self, PredictError> {
        if path.exists() && !replace {
            return Err(PredictError::Exists { path: path.to_owned() });
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&temporary);
        let file = file.map_err(|source| PredictError::Write { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), temporary, file, replace })
    }

    /// Returns the temporary file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the final path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the file and renames it to its final path.
    ///
    /// # Errors
    /// Returns an error if the path exists by now and must not be replaced, or on an I/O error.
    pub fn persist(self) -> Result<(), PredictError> {
        if self.path.exists() && !self.replace {
            return Err(PredictError::Exists { path: self.path.clone() });
        }
        let directory = self
            .path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let persisted: io::Result<()> = (|| {
            self.file.sync_all()?;
            fs::rename(&self.temporary, &self.path)?;
            sync_directory(directory)
        })();
        persisted.map_err(|source| PredictError::Write { path: self.path.clone(), source })
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // Fails if the file was persisted.
        let _ = fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn file_appears_when_persisted_and_replaces_none_without_permission() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("out.csv");
        let count = || fs::read_dir(directory.path()).expect("a directory").count();
        drop(AtomicFile::create(&path, false).expect("created"));
        assert_eq!(count(), 0);
        let new = AtomicFile::create(&path, false).expect("created");
        new.file().write_all(b"one").expect("written");
        assert!(!path.exists());
        new.persist().expect("persisted");
        assert_eq!((fs::read(&path).expect("there"), count()), (b"one".to_vec(), 1));
        assert!(matches!(AtomicFile::create(&path, false), Err(PredictError::Exists { .. })));
        AtomicFile::create(&path, true).expect("created").persist().expect("persisted");
        assert_eq!((fs::read(&path).expect("there"), count()), (vec![], 1));
    }
}
