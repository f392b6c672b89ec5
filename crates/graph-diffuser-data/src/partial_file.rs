//! Output files that an interrupted process can continue.
//!
//! `OUT` is written as `OUT.partial` and renamed once it is complete. Beside it, the JSON Lines
//! file `OUT.partial.jsonl` describes the job in its first line and holds one line per checkpoint:
//! a length up to which the partial file is valid, and the state of the writer at that point. A
//! checkpoint is recorded after the bytes before it are on disk; when the file is opened again, the
//! bytes after the last checkpoint are discarded.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::atomic_file::{AtomicFile, WriteError, check_path, rename_durably, short_name};

/// File that is written under the name `OUT.partial`, continued after an interruption and renamed
/// by [`PartialFile::persist`].
///
/// # Examples
/// ```
/// use std::io::Write as _;
///
/// use graph_diffuser_data::PartialFile;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = &directory.path().join("rows.csv");
/// let job = serde_json::json!({ "input": "rows.txt" });
/// let (mut file, state) = PartialFile::open::<u64>(path, false, &job)?;
/// assert_eq!(state, None);
/// file.file().write_all(b"first,")?;
/// file.checkpoint(&1_u64)?;
/// file.file().write_all(b"sec")?;
/// drop(file); // interrupted
///
/// let (file, state) = PartialFile::open::<u64>(path, false, &job)?;
/// assert_eq!(state, Some(1));
/// file.file().write_all(b"second")?;
/// file.persist()?;
/// assert_eq!(std::fs::read(path)?, b"first,second");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PartialFile {
    path: PathBuf,
    partial: PathBuf,
    journal_path: PathBuf,
    /// Locked while it is open.
    file: File,
    journal: File,
    overwrite: bool,
    /// If `false`, the files are removed on drop.
    has_checkpoint: bool,
}

impl PartialFile {
    /// Opens the partial file of `path`, and returns the state of its last checkpoint, if any.
    ///
    /// `job` is an object that describes the content of the file; a partial file of another job is
    /// discarded only if `overwrite` is set.
    ///
    /// # Errors
    /// Returns an error if `path` exists and `overwrite` is not set, if the partial file belongs to
    /// another job or process, or on an I/O error.
    pub fn open<S: DeserializeOwned>(
        path: &Path,
        overwrite: bool,
        job: &Value,
    ) -> Result<(Self, Option<S>), WriteError> {
        check_path(path, overwrite)?;
        // Together with the temporary name of the journal, at most 255 bytes.
        let partial = with_suffix(&path.with_file_name(short_name(path, 220)), ".partial");
        let journal_path = with_suffix(&partial, ".jsonl");
        let file = lock(&partial)?;
        let length = file.metadata().map_err(WriteError::at(&partial))?.len();
        let records = read_journal(&journal_path);
        let differs = match records.first() {
            Some(first) => differences(first, job),
            None if length > 0 => Some("format".to_owned()),
            None => None,
        };
        let checkpoint = match differs {
            Some(differs) if length > 0 && !overwrite => {
                return Err(WriteError::Unfinished { path: partial, differs });
            }
            Some(_) => None,
            None => records.iter().skip(1).rev().find_map(|record| {
                let bytes = record["bytes"].as_u64().filter(|bytes| *bytes <= length)?;
                Some((bytes, serde_json::from_value(record["state"].clone()).ok()?))
            }),
        };
        let (bytes, state) = checkpoint.map_or((0, None), |(bytes, state)| (bytes, Some(state)));
        let valid: Vec<Value> = records
            .into_iter()
            .skip(1)
            .filter(|record| record["bytes"].as_u64().is_some_and(|other| other <= bytes))
            .collect();
        let lines = std::iter::once(job).chain(&valid).map(|record| format!("{record}\n"));
        AtomicFile::replace(&journal_path, lines.collect::<String>().as_bytes())?;
        let opened = (|| {
            file.set_len(bytes)?;
            (&file).seek(SeekFrom::Start(bytes))?;
            File::options().append(true).open(&journal_path)
        })();
        let journal = opened.map_err(WriteError::at(&partial))?;
        let has_checkpoint = state.is_some();
        let path = path.to_owned();
        let file = Self { path, partial, journal_path, file, journal, overwrite, has_checkpoint };
        Ok((file, state))
    }

    /// Returns the partial file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the final path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the file, and records its length and `state` as the point to continue from.
    ///
    /// # Errors
    /// Returns an error if one of the files cannot be written.
    pub fn checkpoint(&mut self, state: &impl Serialize) -> io::Result<()> {
        let bytes = (&self.file).stream_position()?;
        self.file.sync_data()?;
        let record = json!({ "bytes": bytes, "state": state });
        self.journal.write_all(format!("{record}\n").as_bytes())?;
        self.journal.sync_data()?;
        self.has_checkpoint = true;
        Ok(())
    }

    /// Syncs the file and renames it to its final path.
    ///
    /// # Errors
    /// Returns an error if the path exists by now and must not be overwritten, or on an I/O error.
    pub fn persist(mut self) -> Result<(), WriteError> {
        check_path(&self.path, self.overwrite)?;
        let synced = self.file.sync_all();
        synced
            .and_then(|()| rename_durably(&self.partial, &self.path))
            .map_err(WriteError::at(&self.path))?;
        // Only the other file is left; another process may already write the next partial file.
        self.has_checkpoint = true;
        let _ = fs::remove_file(&self.journal_path);
        Ok(())
    }

    /// Removes the partial file.
    pub fn discard(mut self) {
        self.has_checkpoint = false;
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.has_checkpoint {
            let _ = fs::remove_file(&self.partial);
            let _ = fs::remove_file(&self.journal_path);
        }
    }
}

/// Opens or creates the partial file and locks it.
fn lock(partial: &Path) -> Result<File, WriteError> {
    loop {
        // The target of a link must not be changed.
        if fs::symlink_metadata(partial).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(WriteError::NotAFile { path: partial.to_owned() });
        }
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(partial);
        let file = file.map_err(WriteError::at(partial))?;
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => {
                return Err(WriteError::Busy { path: partial.to_owned() });
            }
            // Not every file system supports locks.
            Ok(()) | Err(fs::TryLockError::Error(_)) => {}
        }
        // A process that finished in between has renamed or removed the file.
        if partial.exists() {
            return Ok(file);
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Reads the complete lines of a journal; the last line of a killed process may be incomplete.
fn read_journal(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the keys in which two jobs differ.
fn differences(left: &Value, right: &Value) -> Option<String> {
    let empty = Map::new();
    let [left, right] = [left, right].map(|job| job.as_object().unwrap_or(&empty));
    let keys = left.keys().chain(right.keys().filter(|key| !left.contains_key(*key)));
    let keys: Vec<&str> =
        keys.filter(|key| left.get(*key) != right.get(*key)).map(String::as_str).collect();
    (!keys.is_empty()).then(|| keys.join(" and ").replace('_', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_continues_after_the_last_checkpoint_that_it_contains() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.csv");
        let partial = directory.path().join("out.csv.partial");
        let job = json!({ "input": "a.csv" });
        let start = || {
            let (mut file, _) = PartialFile::open::<u64>(&path, true, &job).unwrap();
            for state in [1_u64, 2] {
                file.file().write_all(b"chunk\n").unwrap();
                file.checkpoint(&state).unwrap();
            }
            file.file().write_all(b"incom").unwrap();
        };
        // Length of the partial file after the interruption, and the state it continues from.
        for (length, expected) in
            [(17, Some(2)), (12, Some(2)), (11, Some(1)), (6, Some(1)), (5, None), (0, None)]
        {
            start();
            File::options().write(true).open(&partial).unwrap().set_len(length).unwrap();
            let (file, state) = PartialFile::open::<u64>(&path, true, &job).unwrap();
            assert_eq!(state, expected, "{length} bytes");
            let done = "chunk\n".repeat(state.unwrap_or(0) as usize);
            assert_eq!(fs::read_to_string(&partial).unwrap(), done);
            file.file().write_all(b"end").unwrap();
            file.persist().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{done}end"));
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn names_may_be_as_long_as_the_file_system_allows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x".repeat(255));
        let (file, _) = PartialFile::open::<u64>(&path, false, &json!({})).unwrap();
        file.file().write_all(b"rows").unwrap();
        file.persist().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"rows");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn link_at_the_place_of_the_partial_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.csv");
        let target = directory.path().join("target");
        fs::write(&target, "untouched").unwrap();
        std::os::unix::fs::symlink(&target, directory.path().join("out.csv.partial")).unwrap();
        let opened = PartialFile::open::<u64>(&path, true, &json!({}));
        assert!(matches!(opened.unwrap_err(), WriteError::NotAFile { .. }));
        assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
    }

    #[test]
    fn partial_file_of_another_job_is_kept_unless_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.csv");
        let open = |input: &str, overwrite| {
            PartialFile::open::<u64>(&path, overwrite, &json!({ "input": input, "model": 1 }))
        };
        let (mut file, _) = open("a.csv", false).unwrap();
        file.file().write_all(b"chunk\n").unwrap();
        file.checkpoint(&1_u64).unwrap();
        assert!(matches!(open("a.csv", false).unwrap_err(), WriteError::Busy { .. }));
        drop(file);
        let error = open("b.csv", false).unwrap_err();
        assert!(error.to_string().ends_with("(different input)"), "{error}");
        assert_eq!(open("a.csv", false).unwrap().1, Some(1));
        assert_eq!(open("b.csv", true).unwrap().1, None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was written");
        fs::write(&path, "").unwrap();
        assert!(matches!(open("a.csv", false).unwrap_err(), WriteError::Exists { .. }));
        assert!(matches!(
            PartialFile::open::<u64>(directory.path(), true, &json!({})).unwrap_err(),
            WriteError::NotAFile { .. }
        ));
    }
}
