//! Atomic writes: a file or directory is written under a temporary name beside its path and renamed
//! once it is complete, so that an existing path is always complete.
//!
//! ```
//! use std::io::Write as _;
//!
//! use graph_diffuser_data::AtomicFile;
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = &directory.path().join("scores.csv");
//! let file = AtomicFile::create(path, false)?;
//! file.file().write_all(b"seed,score\n")?;
//! assert!(!path.exists());
//! file.persist()?;
//! assert!(path.exists());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::error::Diagnostic;

/// File that is written under a temporary name and renamed by [`AtomicFile::persist`].
///
/// The temporary file is removed on drop. It is locked while it is open, and that of a killed
/// process is reused by the next writer of the same path.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    overwrite: bool,
    is_persisted: bool,
}

/// Error of writing a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file exists and must not be overwritten.
    #[error("`{path}` already exists")]
    Exists {
        /// Path of the file.
        path: PathBuf,
    },
    /// The path is a directory or a device.
    #[error("cannot write `{path}`: not a regular file")]
    NotAFile {
        /// Path of the directory or device.
        path: PathBuf,
    },
    /// Another process is writing the file.
    #[error("`{path}` is being written by another process")]
    Busy {
        /// Path of the unfinished file.
        path: PathBuf,
    },
    /// The file is the unfinished output of another command.
    #[error("`{path}` is the unfinished output of another command (different {differs})")]
    Unfinished {
        /// Path of the unfinished file.
        path: PathBuf,
        /// Properties in which the commands differ.
        differs: String,
    },
    /// The file or directory cannot be written.
    #[error("cannot write `{path}`")]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
}

impl WriteError {
    /// Returns a function that turns an I/O error into an error that names `path`.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Exists { .. } | WriteError::Unfinished { .. } => {
                io::ErrorKind::AlreadyExists.into()
            }
            WriteError::NotAFile { .. } => io::ErrorKind::InvalidInput.into(),
            WriteError::Busy { .. } => io::ErrorKind::ResourceBusy.into(),
            WriteError::Io { source, .. } => source,
        }
    }
}

impl Diagnostic for WriteError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Exists { .. } => {
                "choose another `--output`, or overwrite it with `--force`".into()
            }
            Self::NotAFile { .. } => "choose another `--output`".into(),
            Self::Busy { .. } => {
                "wait until the other process ends, or choose another `--output`".into()
            }
            Self::Unfinished { .. } => {
                "repeat that command to finish it, or discard its output with `--force`".into()
            }
            Self::Io { .. } => "check free disk space and permissions".into(),
        })
    }

    fn is_usage_error(&self) -> bool {
        !matches!(self, Self::Io { .. })
    }
}

/// Checks that `path` does not exist, or is a regular file that may be overwritten.
///
/// # Errors
/// Returns an error if `path` exists and `overwrite` is not set, or if it is a directory or device.
pub(crate) fn check_path(path: &Path, overwrite: bool) -> Result<(), WriteError> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(WriteError::NotAFile { path: path.to_owned() }),
        Ok(_) if !overwrite => Err(WriteError::Exists { path: path.to_owned() }),
        _ => Ok(()),
    }
}

impl AtomicFile {
    /// Creates a temporary file beside `path`.
    ///
    /// # Errors
    /// Returns an error if `path` exists and `overwrite` is not set, or if the file cannot be
    /// created.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, WriteError> {
        check_path(path, overwrite)?;
        let (temporary, file) = create_temporary(path).map_err(WriteError::at(path))?;
        let path = path.to_owned();
        Ok(Self { path, temporary, file, overwrite, is_persisted: false })
    }

    /// Writes `content` to `path`, replacing an existing file and creating its directory.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written; a previous version is kept.
    pub fn replace(path: &Path, content: &[u8]) -> Result<(), WriteError> {
        fs::create_dir_all(parent(path)).map_err(WriteError::at(path))?;
        let file = Self::create(path, true)?;
        file.file().write_all(content).map_err(WriteError::at(path))?;
        file.persist()
    }

    /// Returns whether this is the name of a temporary file, which a killed process leaves behind.
    pub fn is_temporary(name: &OsStr) -> bool {
        let name = name.as_encoded_bytes();
        name.starts_with(b".") && name.ends_with(b".part")
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
    /// Returns an error if the path exists by now and must not be overwritten, or on an I/O error.
    pub fn persist(mut self) -> Result<(), WriteError> {
        check_path(&self.path, self.overwrite)?;
        let synced = self.file.sync_all();
        synced
            .and_then(|()| rename_durably(&self.temporary, &self.path))
            .map_err(WriteError::at(&self.path))?;
        self.is_persisted = true;
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // After it was persisted, the name may belong to another writer.
        if !self.is_persisted {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Creates an empty file beside `path`, under a name that no other writer uses, or takes over that
/// of a killed process.
fn create_temporary(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = short_name(path, 200);
    for count in 0_u64.. {
        let mut temporary = OsString::from(".");
        temporary.push(&name);
        temporary.push(if count == 0 { ".part".to_owned() } else { format!(".{count}.part") });
        let temporary = path.with_file_name(temporary);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => match file.try_lock() {
                // On file systems without locks, the name alone reserves the file.
                Ok(()) | Err(TryLockError::Error(_)) if is_at(&file, &temporary) => {
                    return Ok((temporary, file));
                }
                // Another writer has taken it over before it was locked.
                _ => {}
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if let Some(file) = take_over(&temporary) {
                    return Ok((temporary, file));
                }
            }
            Err(error) => return Err(error),
        }
    }
    unreachable!("there is an unused name")
}

/// Opens and empties a temporary file that no other process has locked.
fn take_over(temporary: &Path) -> Option<File> {
    // The target of a link must not be changed.
    if !fs::symlink_metadata(temporary).ok()?.is_file() {
        return None;
    }
    let file = OpenOptions::new().write(true).open(temporary).ok()?;
    file.try_lock().ok()?;
    // The other writer may have renamed or removed the file before it was locked.
    (is_at(&file, temporary) && file.set_len(0).is_ok()).then_some(file)
}

/// Returns whether `path` is the name of an open file, and its only one.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (Ok(open), Ok(found)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (found.dev(), found.ino()) && open.nlink() == 1
}

/// Other operating systems do not rename open files.
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

/// Returns the file name of a path, which is replaced by a hash if it is longer than `limit` bytes:
/// file systems limit names to 255 bytes.
pub(crate) fn short_name(path: &Path, limit: usize) -> OsString {
    let name = path.file_name().unwrap_or_default();
    if name.len() <= limit {
        return name.to_owned();
    }
    let digest = Sha256::digest(name.as_encoded_bytes());
    let digits: Vec<String> = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat().into()
}

/// New directory that is filled under a temporary name and renamed by [`AtomicDirectory::persist`].
///
/// The temporary directory is removed on drop.
#[derive(Debug)]
pub struct AtomicDirectory {
    path: PathBuf,
    content: PathBuf,
    _temporary: TempDir,
}

impl AtomicDirectory {
    /// Creates a temporary directory beside `path`, and the parent directory if necessary.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent(path))?;
        let temporary = tempfile::Builder::new().prefix(".new-").tempdir_in(parent(path))?;
        // The temporary directory is only readable by its owner, so a subdirectory is renamed.
        let content = temporary.path().join("content");
        fs::create_dir(&content)?;
        Ok(Self { path: path.to_owned(), content, _temporary: temporary })
    }

    /// Returns the path of the directory to fill.
    pub fn content(&self) -> &Path {
        &self.content
    }

    /// Renames the directory to its final path.
    ///
    /// # Errors
    /// Returns an error if the path exists by now, or on an I/O error.
    pub fn persist(self) -> io::Result<()> {
        fs::rename(&self.content, &self.path)
    }
}

/// Renames a file and syncs its directory, so that the new name survives a power failure.
///
/// # Errors
/// Returns an error if the file cannot be renamed.
pub(crate) fn rename_durably(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    // Best effort: not every system can open directories.
    let _ = File::open(parent(to)).and_then(|directory| directory.sync_all());
    Ok(())
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_appears_when_persisted_and_replaces_none_without_permission() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("out.csv");
        let names = || {
            let entries = fs::read_dir(directory.path()).expect("a directory");
            entries.map(|entry| entry.expect("an entry").file_name()).collect::<Vec<_>>()
        };
        drop(AtomicFile::create(&path, false).expect("created"));
        assert!(names().is_empty());
        let new = AtomicFile::create(&path, false).expect("created");
        new.file().write_all(b"one").expect("written");
        assert!(!path.exists() && names().iter().all(|name| AtomicFile::is_temporary(name)));
        new.persist().expect("persisted");
        assert_eq!((fs::read(&path).expect("there"), names().len()), (b"one".to_vec(), 1));
        let late = AtomicFile::create(&directory.path().join("late.csv"), false).expect("created");
        fs::write(late.path(), b"other").expect("written");
        assert!(matches!(late.persist(), Err(WriteError::Exists { .. })));
        assert!(matches!(AtomicFile::create(&path, false), Err(WriteError::Exists { .. })));
        AtomicFile::create(&path, true).expect("created").persist().expect("persisted");
        assert_eq!((fs::read(&path).expect("there"), names().len()), (vec![], 2));
        let is_directory = AtomicFile::create(directory.path(), true);
        assert!(matches!(is_directory, Err(WriteError::NotAFile { .. })));
    }

    #[test]
    fn directory_is_created_for_written_files_and_two_writers_do_not_collide() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a/b/out.csv");
        AtomicFile::replace(&path, b"one").expect("written");
        let [first, second] = [(), ()].map(|()| AtomicFile::create(&path, true).expect("created"));
        first.file().write_all(b"first").expect("written");
        second.file().write_all(b"second").expect("written");
        second.persist().expect("persisted");
        assert_eq!(fs::read(&path).expect("there"), b"second");
        first.persist().expect("persisted");
        assert_eq!(fs::read(&path).expect("there"), b"first");
        assert_eq!(fs::read_dir(path.parent().expect("a parent")).expect("there").count(), 1);
    }

    #[test]
    fn temporary_file_of_a_killed_process_is_reused_unless_it_is_a_link() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("out.csv");
        let temporary = directory.path().join(".out.csv.part");
        fs::write(&temporary, "left over").expect("written");
        AtomicFile::replace(&path, b"new").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"new");
        assert!(!temporary.exists());
        let other = directory.path().join("other");
        fs::write(&other, "untouched").expect("written");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&other, &temporary).expect("linked");
            AtomicFile::replace(&path, b"newer").expect("written");
            fs::remove_file(&temporary).expect("removed");
        }
        fs::hard_link(&other, &temporary).expect("linked");
        AtomicFile::replace(&path, b"newest").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"newest");
        assert_eq!(fs::read(&other).expect("there"), b"untouched");
    }

    #[test]
    fn names_may_be_as_long_as_the_file_system_allows() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("x".repeat(255));
        AtomicFile::replace(&path, b"long").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"long");
    }

    #[test]
    fn directory_appears_when_persisted() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let path = parent.path().join("dataset");
        let new = AtomicDirectory::create(&path).expect("created");
        fs::write(new.content().join("file"), b"x").expect("written");
        assert!(!path.exists());
        new.persist().expect("renamed");
        drop(AtomicDirectory::create(&path).expect("created"));
        assert!(path.join("file").is_file());
        assert_eq!(fs::read_dir(parent.path()).expect("there").count(), 1);
    }
}
