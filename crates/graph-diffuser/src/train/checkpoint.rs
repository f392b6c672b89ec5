//! Atomic checkpoints.
//!
//! A checkpoint is a directory that is written under a temporary name, synced, completed by a
//! manifest of SHA-256 hashes, and renamed. The previous checkpoint is kept beside it, so that a
//! valid checkpoint exists even if the process is killed while saving.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use graph_diffuser_data::{Diagnostic, WriteError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const MANIFEST: &str = "manifest.json";

/// Checkpoints of a run under one name, such as `last`.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    directory: PathBuf,
    name: &'static str,
}

/// Files of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Content of each file, by name.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Checkpoint that was read and verified.
#[derive(Debug, Clone)]
pub struct LoadedCheckpoint {
    /// Files of the checkpoint.
    pub checkpoint: Checkpoint,
    /// Path of its directory.
    pub path: PathBuf,
    /// Reasons why newer checkpoints were skipped.
    pub skipped: Vec<String>,
}

/// Error of writing or reading a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file or directory cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// All checkpoints are incomplete or corrupt.
    #[error("no valid checkpoint in `{directory}`: {}", reasons.join("; "))]
    NoneValid {
        /// Directory of the checkpoints.
        directory: PathBuf,
        /// Problem of each checkpoint.
        reasons: Vec<String>,
    },
    /// The checkpoint is intact but does not match the model or this version of the program.
    #[error("checkpoint `{path}` is incompatible with this model or version: {reason}")]
    Incompatible {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Missing or unreadable content.
        reason: String,
    },
}

impl Diagnostic for CheckpointError {}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    sha256: BTreeMap<String, String>,
}

impl Checkpoints {
    /// Creates a handle to the checkpoints at `directory/name`; no file is accessed.
    pub fn new(directory: &Path, name: &'static str) -> Self {
        Self { directory: directory.to_owned(), name }
    }

    fn path(&self, suffix: &str) -> PathBuf {
        self.directory.join(format!("{}{suffix}", self.name))
    }

    /// Writes a checkpoint and keeps the previous one as `name.previous`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written; an older checkpoint is still valid then.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let (current, previous, new) = (self.path(""), self.path(".previous"), self.path(".new"));
        fs::create_dir_all(&self.directory).map_err(WriteError::at(&self.directory))?;
        remove(&new).map_err(WriteError::at(&new))?;
        fs::create_dir(&new).map_err(WriteError::at(&new))?;
        let mut manifest = Manifest { sha256: BTreeMap::new() };
        for (name, content) in &checkpoint.files {
            write_synced(&new.join(name), content).map_err(WriteError::at(&new.join(name)))?;
            manifest.sha256.insert(name.clone(), hash(content));
        }
        let manifest =
            serde_json::to_vec_pretty(&manifest).expect("a map of strings can be serialized");
        write_synced(&new.join(MANIFEST), &manifest)
            .map_err(WriteError::at(&new.join(MANIFEST)))?;
        sync_directory(&new).map_err(WriteError::at(&new))?;
        // From here on `new` is complete, and `open` finds it under any of its names.
        if current.exists() {
            remove(&previous).map_err(WriteError::at(&previous))?;
            fs::rename(&current, &previous).map_err(WriteError::at(&previous))?;
        }
        fs::rename(&new, &current).map_err(WriteError::at(&current))?;
        Ok(sync_directory(&self.directory).map_err(WriteError::at(&self.directory))?)
    }

    /// Reads the newest valid checkpoint; `None` if none was ever completed.
    ///
    /// # Errors
    /// Returns an error if checkpoints exist but none is valid.
    pub fn open(&self) -> Result<Option<LoadedCheckpoint>, CheckpointError> {
        let mut reasons = Vec::new();
        // `.new` is newer than the plain name only between the two renames of `save`, when the
        // plain name does not exist; incomplete checkpoints have no valid manifest.
        for path in [self.path(""), self.path(".new"), self.path(".previous")] {
            if !path.exists() {
                continue;
            }
            match read(&path) {
                Ok(checkpoint) => {
                    return Ok(Some(LoadedCheckpoint { checkpoint, path, skipped: reasons }));
                }
                Err(reason) => reasons.push(format!("`{}` {reason}", path.display())),
            }
        }
        // An incomplete first checkpoint counts as none.
        let only_unfinished = !self.path("").exists() && !self.path(".previous").exists();
        if reasons.is_empty() || only_unfinished {
            return Ok(None);
        }
        Err(CheckpointError::NoneValid { directory: self.directory.clone(), reasons })
    }
}

impl LoadedCheckpoint {
    /// Returns the content of a file.
    ///
    /// # Errors
    /// Returns an error if the checkpoint has no such file.
    pub fn file(&self, name: &str) -> Result<&[u8], CheckpointError> {
        let file = self.checkpoint.files.get(name).map(Vec::as_slice);
        file.ok_or_else(|| self.incompatible(format!("missing `{name}`")))
    }

    /// Creates an error that names this checkpoint.
    pub fn incompatible(&self, reason: String) -> CheckpointError {
        CheckpointError::Incompatible { path: self.path.clone(), reason }
    }
}

fn read(path: &Path) -> Result<Checkpoint, String> {
    let manifest = fs::read(path.join(MANIFEST)).map_err(|_| "is incomplete".to_owned())?;
    let manifest: Manifest =
        serde_json::from_slice(&manifest).map_err(|_| "has a corrupt manifest".to_owned())?;
    let mut files = BTreeMap::new();
    for (name, expected) in manifest.sha256 {
        // An untrusted manifest must not refer to files outside the directory.
        if Path::new(&name).file_name() != Some(name.as_ref()) {
            return Err("has a corrupt manifest".to_owned());
        }
        let content = fs::read(path.join(&name)).map_err(|_| format!("is missing `{name}`"))?;
        if hash(&content) != expected {
            return Err(format!("has a corrupt `{name}`"));
        }
        files.insert(name, content);
    }
    Ok(Checkpoint { files })
}

fn hash(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn write_synced(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn sync_directory(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

/// Removes the files of a checkpoint and its directory; fails if it contains subdirectories.
fn remove(path: &Path) -> std::io::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    // The manifest is removed first: a directory without one is not a valid checkpoint.
    match fs::remove_file(path.join(MANIFEST)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for entry in fs::read_dir(path)? {
        fs::remove_file(entry?.path())?;
    }
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(content: &str) -> Checkpoint {
        let files = [("weights".to_owned(), content.into()), ("state".to_owned(), b"{}".to_vec())];
        Checkpoint { files: files.into() }
    }

    fn opened(checkpoints: &Checkpoints) -> Option<(Checkpoint, usize)> {
        checkpoints
            .open()
            .expect("a valid checkpoint")
            .map(|found| (found.checkpoint, found.skipped.len()))
    }

    #[test]
    fn open_returns_the_newest_checkpoint() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let checkpoints = Checkpoints::new(directory.path(), "last");
        assert_eq!(opened(&checkpoints), None);
        for content in ["one", "two", "three"] {
            checkpoints.save(&checkpoint(content)).expect("saved");
            assert_eq!(opened(&checkpoints), Some((checkpoint(content), 0)));
        }
    }

    #[test]
    fn corrupt_checkpoints_are_skipped_with_a_reason() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let checkpoints = Checkpoints::new(directory.path(), "last");
        let newest = directory.path().join("last/weights");
        type Corruption = fn(&Path);
        let corruptions: [Corruption; 4] = [
            |path| fs::write(path, b"twO").expect("changed one byte"),
            |path| fs::write(path, b"tw").expect("truncated"),
            |path| fs::remove_file(path).expect("removed"),
            |path| fs::remove_file(path.with_file_name(MANIFEST)).expect("removed"),
        ];
        for corrupt in corruptions {
            checkpoints.save(&checkpoint("one")).expect("saved");
            checkpoints.save(&checkpoint("two")).expect("saved");
            corrupt(&newest);
            assert_eq!(opened(&checkpoints), Some((checkpoint("one"), 1)));
        }
        fs::remove_file(directory.path().join("last.previous/state")).expect("removed");
        let error = checkpoints.open().expect_err("both are corrupt").to_string();
        assert!(error.contains("is incomplete") && error.contains("is missing `state`"), "{error}");
    }

    #[test]
    fn valid_checkpoint_remains_if_saving_is_interrupted() {
        // Reproduces the states of the directory between the steps of `save`.
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let checkpoints = Checkpoints::new(directory.path(), "last");
        checkpoints.save(&checkpoint("one")).expect("saved");
        checkpoints.save(&checkpoint("two")).expect("saved");
        // Killed while writing: a directory without a manifest.
        fs::create_dir(path("last.new")).expect("created");
        fs::write(path("last.new/weights"), b"thr").expect("written");
        assert_eq!(opened(&checkpoints), Some((checkpoint("two"), 0)));
        // Killed between the two renames: the plain name is missing, `.new` is complete.
        checkpoints.save(&checkpoint("three")).expect("saved");
        fs::rename(path("last"), path("last.new")).expect("renamed");
        assert_eq!(opened(&checkpoints), Some((checkpoint("three"), 0)));
        // Killed while removing the oldest: its manifest goes first.
        fs::rename(path("last.new"), path("last")).expect("renamed");
        fs::remove_file(path("last.previous").join(MANIFEST)).expect("removed");
        assert_eq!(opened(&checkpoints), Some((checkpoint("three"), 0)));
        // An incomplete first checkpoint counts as none.
        let other = Checkpoints::new(directory.path(), "best");
        fs::create_dir(path("best.new")).expect("created");
        assert_eq!(opened(&other), None);
    }

    #[test]
    fn manifest_cannot_refer_to_files_outside_its_directory() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let checkpoints = Checkpoints::new(directory.path(), "last");
        checkpoints.save(&checkpoint("one")).expect("saved");
        let secret = directory.path().join("secret");
        fs::write(&secret, b"secret").expect("written");
        let manifest = format!(r#"{{"sha256":{{"../secret":"{}"}}}}"#, hash(b"secret"));
        fs::write(directory.path().join("last").join(MANIFEST), manifest).expect("written");
        assert!(checkpoints.open().is_err());
    }
}
