//! Checkpoints: directories that are either whole or not there.
//!
//! A checkpoint is written to a temporary name, synced, sealed by a manifest of hashes written
//! last, and renamed into place; the one before it is kept beside it. Whatever moment a kill
//! comes, a whole one remains.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const MANIFEST: &str = "manifest.json";

/// The checkpoints of one run under one name, such as `last`.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    directory: PathBuf,
    name: &'static str,
}

/// Files of one checkpoint, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Content of each file.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// A checkpoint that was found whole.
#[derive(Debug, Clone)]
pub struct LoadedCheckpoint {
    /// Its files.
    pub checkpoint: Checkpoint,
    /// Where it was.
    pub path: PathBuf,
    /// What was wrong with newer ones, if anything.
    pub skipped: Vec<String>,
}

/// Why a checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file system refused.
    #[error("cannot write `{path}`")]
    Write {
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// None of the checkpoints is whole.
    #[error("no whole checkpoint in `{directory}`: {}", faults.join("; "))]
    NoneWhole {
        /// Where they were looked for.
        directory: PathBuf,
        /// What is wrong with each.
        faults: Vec<String>,
    },
    /// A whole checkpoint does not hold what the program expects.
    #[error("the checkpoint `{path}` was written by another version of the program: {what}")]
    Foreign {
        /// Which.
        path: PathBuf,
        /// What is missing or cannot be read.
        what: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    sha256: BTreeMap<String, String>,
}

impl Checkpoints {
    /// Those under `directory/name`.
    pub fn new(directory: &Path, name: &'static str) -> Self {
        Self { directory: directory.to_owned(), name }
    }

    fn path(&self, suffix: &str) -> PathBuf {
        self.directory.join(format!("{}{suffix}", self.name))
    }

    /// Writes a checkpoint; the one before stays as `name.previous`.
    ///
    /// # Errors
    /// Where the file system refuses; an older checkpoint is then still in place.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let (current, previous, new) = (self.path(""), self.path(".previous"), self.path(".new"));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| CheckpointError::Write { path, source }
        };
        fs::create_dir_all(&self.directory).map_err(failed(&self.directory))?;
        remove(&new).map_err(failed(&new))?;
        fs::create_dir(&new).map_err(failed(&new))?;
        let mut manifest = Manifest { sha256: BTreeMap::new() };
        for (name, content) in &checkpoint.files {
            write_synced(&new.join(name), content).map_err(failed(&new.join(name)))?;
            manifest.sha256.insert(name.clone(), hash(content));
        }
        let manifest = serde_json::to_vec_pretty(&manifest).expect("a map of strings serialises");
        write_synced(&new.join(MANIFEST), &manifest).map_err(failed(&new.join(MANIFEST)))?;
        sync_directory(&new).map_err(failed(&new))?;
        // From here on `new` is whole, and `open` would find it under any of its names.
        if current.exists() {
            remove(&previous).map_err(failed(&previous))?;
            fs::rename(&current, &previous).map_err(failed(&previous))?;
        }
        fs::rename(&new, &current).map_err(failed(&current))?;
        sync_directory(&self.directory).map_err(failed(&self.directory))
    }

    /// The newest checkpoint that is whole; `None` where none was ever written.
    ///
    /// # Errors
    /// Where there are checkpoints, but none is whole.
    pub fn open(&self) -> Result<Option<LoadedCheckpoint>, CheckpointError> {
        let mut faults = Vec::new();
        // `.new` is only newer than the plain name between the two renames of `save`, when the
        // plain name does not exist; and half-written ones fail their manifest.
        for path in [self.path(""), self.path(".new"), self.path(".previous")] {
            if !path.exists() {
                continue;
            }
            match read(&path) {
                Ok(checkpoint) => {
                    return Ok(Some(LoadedCheckpoint { checkpoint, path, skipped: faults }));
                }
                Err(fault) => faults.push(format!("`{}` {fault}", path.display())),
            }
        }
        // A first checkpoint that was never finished is as good as none.
        let only_unfinished = !self.path("").exists() && !self.path(".previous").exists();
        if faults.is_empty() || only_unfinished {
            return Ok(None);
        }
        Err(CheckpointError::NoneWhole { directory: self.directory.clone(), faults })
    }
}

impl LoadedCheckpoint {
    /// A file that every checkpoint of this program has.
    ///
    /// # Errors
    /// Where it does not.
    pub fn file(&self, name: &str) -> Result<&[u8], CheckpointError> {
        let file = self.checkpoint.files.get(name).map(Vec::as_slice);
        file.ok_or_else(|| self.incompatible(format!("it has no `{name}`")))
    }

    /// An error that names this checkpoint.
    pub fn incompatible(&self, what: String) -> CheckpointError {
        CheckpointError::Foreign { path: self.path.clone(), what }
    }
}

fn read(path: &Path) -> Result<Checkpoint, String> {
    let manifest = fs::read(path.join(MANIFEST)).map_err(|_| "was not finished".to_owned())?;
    let manifest: Manifest =
        serde_json::from_slice(&manifest).map_err(|_| "has a damaged manifest".to_owned())?;
    let mut files = BTreeMap::new();
    for (name, expected) in manifest.sha256 {
        // A manifest from elsewhere must not lead out of the directory.
        if Path::new(&name).file_name() != Some(name.as_ref()) {
            return Err("has a damaged manifest".to_owned());
        }
        let content = fs::read(path.join(&name)).map_err(|_| format!("lacks `{name}`"))?;
        if hash(&content) != expected {
            return Err(format!("has a damaged `{name}`"));
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

pub(crate) fn write_synced(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

pub(crate) fn sync_directory(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

/// Removes a checkpoint's files and then its directory; anything else in it stays and is an error.
fn remove(path: &Path) -> std::io::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    // The manifest first: what is left without one is not taken for a checkpoint.
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
            .expect("one is whole")
            .map(|found| (found.checkpoint, found.skipped.len()))
    }

    #[test]
    fn the_newest_whole_checkpoint_is_found() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let checkpoints = Checkpoints::new(directory.path(), "last");
        assert_eq!(opened(&checkpoints), None);
        for content in ["one", "two", "three"] {
            checkpoints.save(&checkpoint(content)).expect("saved");
            assert_eq!(opened(&checkpoints), Some((checkpoint(content), 0)));
        }
    }

    #[test]
    fn a_damaged_checkpoint_is_passed_over_with_a_message() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let checkpoints = Checkpoints::new(directory.path(), "last");
        let newest = directory.path().join("last/weights");
        type Damage = fn(&Path);
        let damages: [Damage; 4] = [
            |path| fs::write(path, b"twO").expect("changed one byte"),
            |path| fs::write(path, b"tw").expect("cut short"),
            |path| fs::remove_file(path).expect("removed"),
            |path| fs::remove_file(path.with_file_name(MANIFEST)).expect("removed"),
        ];
        for damage in damages {
            checkpoints.save(&checkpoint("one")).expect("saved");
            checkpoints.save(&checkpoint("two")).expect("saved");
            damage(&newest);
            assert_eq!(opened(&checkpoints), Some((checkpoint("one"), 1)));
        }
        fs::remove_file(directory.path().join("last.previous/state")).expect("removed");
        let error = checkpoints.open().expect_err("both are damaged").to_string();
        assert!(error.contains("was not finished") && error.contains("lacks `state`"), "{error}");
    }

    #[test]
    fn a_kill_at_any_moment_of_saving_leaves_a_whole_checkpoint() {
        // The states of the directory between the steps of `save`, made by hand.
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let checkpoints = Checkpoints::new(directory.path(), "last");
        checkpoints.save(&checkpoint("one")).expect("saved");
        checkpoints.save(&checkpoint("two")).expect("saved");
        // Killed while writing: a directory without a manifest.
        fs::create_dir(path("last.new")).expect("made");
        fs::write(path("last.new/weights"), b"thr").expect("written");
        assert_eq!(opened(&checkpoints), Some((checkpoint("two"), 0)));
        // Killed between the two renames: the plain name is gone, the new one whole.
        checkpoints.save(&checkpoint("three")).expect("saved over the rest of the killed one");
        fs::rename(path("last"), path("last.new")).expect("renamed");
        assert_eq!(opened(&checkpoints), Some((checkpoint("three"), 0)));
        // Killed while removing the oldest: its manifest goes first.
        fs::rename(path("last.new"), path("last")).expect("renamed");
        fs::remove_file(path("last.previous").join(MANIFEST)).expect("removed");
        assert_eq!(opened(&checkpoints), Some((checkpoint("three"), 0)));
        // A first checkpoint that was never finished is none.
        let other = Checkpoints::new(directory.path(), "best");
        fs::create_dir(path("best.new")).expect("made");
        assert_eq!(opened(&other), None);
    }

    #[test]
    fn a_manifest_cannot_lead_out_of_its_directory() {
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
