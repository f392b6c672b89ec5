//! A file that is there whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::train::checkpoint::sync_directory;

use super::PredictError;

/// Written beside its place under another name, which it loses when it is kept; removed when it is dropped.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    part: PathBuf,
    file: File,
    replace: bool,
}

impl AtomicFile {
    /// Begins a file that will be at `path`, where one is only with `replace`.
    ///
    /// # Errors
    /// Where there is one already, or none can be written.
    pub fn create(path: &Path, replace: bool) -> Result<Self, PredictError> {
        if path.exists() && !replace {
            return Err(PredictError::Exists { path: path.to_owned() });
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let part = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&part);
        let file = file.map_err(|source| PredictError::Write { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), part, file, replace })
    }

    /// What is written to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// Where another took it meanwhile, or the disk fails.
    pub fn keep(self) -> Result<(), PredictError> {
        if self.path.exists() && !self.replace {
            return Err(PredictError::Exists { path: self.path.clone() });
        }
        let directory = self
            .path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let kept: io::Result<()> = (|| {
            self.file.sync_all()?;
            fs::rename(&self.part, &self.path)?;
            sync_directory(directory)
        })();
        kept.map_err(|source| PredictError::Write { path: self.path.clone(), source })
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // Gone already where the file was kept.
        let _ = fs::remove_file(&self.part);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_appears_when_it_is_kept_and_never_in_the_place_of_another() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("out.csv");
        let count = || fs::read_dir(directory.path()).expect("a directory").count();
        drop(AtomicFile::create(&path, false).expect("begun"));
        assert_eq!(count(), 0);
        let new = AtomicFile::create(&path, false).expect("begun");
        new.file().write_all(b"one").expect("written");
        assert!(!path.exists());
        new.keep().expect("kept");
        assert_eq!((fs::read(&path).expect("there"), count()), (b"one".to_vec(), 1));
        assert!(matches!(AtomicFile::create(&path, false), Err(PredictError::Exists { .. })));
        AtomicFile::create(&path, true).expect("begun").keep().expect("kept");
        assert_eq!((fs::read(&path).expect("there"), count()), (vec![], 1));
    }
}
