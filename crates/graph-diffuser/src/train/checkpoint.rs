//! Atomic checkpoints.
//!
//! A checkpoint is a directory that is written under a temporary name, synced, completed by a
//! manifest of SHA-256 hashes, and renamed. The previous checkpoint is kept beside it, so that a
//! valid checkpoint exists even if the process is killed while saving.
//!
//! A corrupt `last` may be replaced by its predecessor, from which training repeats the same steps.
//! The weights of `best` are a result and never replaced by those of another epoch.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use graph_diffuser_data::WriteError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{CheckpointError, RunLock, TrainProgress};

const MANIFEST: &str = "manifest.json";

/// Files that checkpoints consist of; removed even if an incomplete checkpoint does not list them.
const FILES: [&str; 3] = ["weights.safetensors", "optimizer.safetensors", PROGRESS];

/// Name of the file with the progress of the run.
pub(super) const PROGRESS: &str = "progress.json";

/// Checkpoints of a run under one name, such as `last`.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    directory: PathBuf,
    name: &'static str,
    lock: Option<RunLock>,
}

/// Files of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Number of completed epochs.
    pub epoch: usize,
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

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    epoch: usize,
    sha256: BTreeMap<String, String>,
}

impl Checkpoints {
    /// Creates a handle to the checkpoints at `directory/name`; no file is accessed.
    pub fn new(directory: &Path, name: &'static str) -> Self {
        Self { directory: directory.to_owned(), name, lock: None }
    }

    /// Checks before every [`save`](Self::save) that the run directory is still the locked one.
    #[must_use]
    pub fn with_lock(self, lock: &RunLock) -> Self {
        Self { lock: Some(lock.clone()), ..self }
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
        if let Some(lock) = &self.lock {
            lock.check()?;
        }
        match fs::create_dir(&self.directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(WriteError::at(&self.directory)(error).into());
            }
            _ => {}
        }
        // Files of a link's target would be overwritten or removed.
        for path in [&self.directory, &current, &previous, &new] {
            if path.is_symlink() {
                return Err(CheckpointError::SymbolicLink { path: path.clone() });
            }
        }
        self.remove(&new)?;
        fs::create_dir(&new).map_err(WriteError::at(&new))?;
        let mut manifest = Manifest { epoch: checkpoint.epoch, sha256: BTreeMap::new() };
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
            self.remove(&previous)?;
            fs::rename(&current, &previous).map_err(WriteError::at(&previous))?;
        }
        fs::rename(&new, &current).map_err(WriteError::at(&current))?;
        Ok(sync_directory(&self.directory).map_err(WriteError::at(&self.directory))?)
    }

    /// Completes a [`save`](Self::save) that was interrupted between its two renames.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be written.
    pub fn finish_interrupted_save(&self) -> Result<(), CheckpointError> {
        let (current, new) = (self.path(""), self.path(".new"));
        if !current.exists() && read(&new).is_ok() {
            fs::rename(&new, &current).map_err(WriteError::at(&current))?;
        }
        Ok(())
    }

    /// Returns the existing checkpoint directories, the newest first.
    ///
    /// `.new` is newer than the plain name only between the two renames of `save`, when the plain
    /// name does not exist; incomplete checkpoints have no valid manifest.
    fn existing(&self) -> impl Iterator<Item = PathBuf> {
        [self.path(""), self.path(".new"), self.path(".previous")]
            .into_iter()
            .filter(|path| path.exists())
    }

    /// Reads the newest checkpoint, which must be valid; `None` if none was ever completed.
    ///
    /// # Errors
    /// Returns an error if the newest checkpoint is corrupt or was removed.
    pub fn open_newest(&self) -> Result<Option<LoadedCheckpoint>, CheckpointError> {
        let (current, unfinished) = (self.path(""), self.path(".new"));
        let corrupt = |reason: &str| {
            let reason = format!("`{}` {reason}", current.display());
            Err(CheckpointError::Corrupt { reason })
        };
        for path in [&current, &unfinished] {
            match read(path) {
                Ok(checkpoint) => return Ok(Some(LoadedCheckpoint::new(checkpoint, path.clone()))),
                Err(reason) if path.exists() && *path == current => return corrupt(&reason),
                Err(_) => {}
            }
        }
        // `save` leaves it alone only after another process has removed the newer ones.
        if self.path(".previous").exists() {
            return corrupt("is missing");
        }
        Ok(None)
    }

    /// Reads the best checkpoint of a run whose state is `progress`; `None` if no epoch has been
    /// evaluated yet.
    ///
    /// A process that was killed after it saved `best` and before it saved `last` leaves a best
    /// checkpoint of a later epoch. Resuming repeats that epoch.
    ///
    /// # Errors
    /// Returns an error if no valid checkpoint is of the best epoch.
    pub fn open_best(
        &self,
        progress: &TrainProgress,
    ) -> Result<Option<LoadedCheckpoint>, CheckpointError> {
        match (self.open_newest(), &progress.best) {
            (Ok(Some(found)), _) if found.checkpoint.epoch > progress.epoch => Ok(Some(found)),
            (_, Some(best)) => self.open_epoch(best.epoch).map(Some),
            (newest, None) => newest.map(|_| None),
        }
    }

    /// Reads the checkpoint of an epoch.
    ///
    /// # Errors
    /// Returns an error if no valid checkpoint is of this epoch.
    pub fn open_epoch(&self, epoch: usize) -> Result<LoadedCheckpoint, CheckpointError> {
        let mut reasons = Vec::new();
        for path in self.existing() {
            let reason = match read(&path) {
                Ok(checkpoint) if checkpoint.epoch == epoch => {
                    return Ok(LoadedCheckpoint::new(checkpoint, path));
                }
                Ok(checkpoint) => format!("is of epoch {}", checkpoint.epoch),
                Err(reason) => reason,
            };
            reasons.push(format!("`{}` {reason}", path.display()));
        }
        if reasons.is_empty() {
            reasons.push(format!("`{}` is missing", self.path("").display()));
        }
        Err(CheckpointError::NotOfEpoch { epoch, reasons })
    }

    /// Reads the newest valid checkpoint, skipping corrupt ones; `None` if none was ever completed.
    ///
    /// # Errors
    /// Returns an error if checkpoints exist but none is valid.
    pub fn open(&self) -> Result<Option<LoadedCheckpoint>, CheckpointError> {
        let mut reasons = Vec::new();
        for path in self.existing() {
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

    /// Removes a checkpoint. Files that do not belong to it are kept in a directory beside it.
    fn remove(&self, path: &Path) -> Result<(), CheckpointError> {
        if remove_files(path).map_err(WriteError::at(path))? {
            return Ok(());
        }
        let mut kept = (1..).map(|number| self.path(&format!(".kept-{number}")));
        let kept = kept.find(|kept| !kept.exists()).expect("there is an unused name");
        Ok(fs::rename(path, &kept).map_err(WriteError::at(&kept))?)
    }
}

impl LoadedCheckpoint {
    fn new(checkpoint: Checkpoint, path: PathBuf) -> Self {
        Self { checkpoint, path, skipped: Vec::new() }
    }

    /// Returns the content of a file.
    ///
    /// # Errors
    /// Returns an error if the checkpoint has no such file.
    pub fn file(&self, name: &str) -> Result<&[u8], CheckpointError> {
        let file = self.checkpoint.files.get(name).map(Vec::as_slice);
        file.ok_or_else(|| self.incompatible(format!("missing `{name}`")))
    }

    /// Parses the progress of the run, which checkpoints named `last` have.
    ///
    /// # Errors
    /// Returns an error if it is missing or invalid.
    pub fn progress(&self) -> Result<TrainProgress, CheckpointError> {
        let invalid = |error| self.incompatible(format!("`{PROGRESS}`: {error}"));
        serde_json::from_slice(self.file(PROGRESS)?).map_err(invalid)
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
    Ok(Checkpoint { epoch: manifest.epoch, files })
}

/// Returns the SHA-256 digest in hexadecimal.
pub(super) fn hash(content: &[u8]) -> String {
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

/// Removes the files of a checkpoint and its directory; returns `false` if other files remain.
fn remove_files(path: &Path) -> std::io::Result<bool> {
    let manifest_path = path.join(MANIFEST);
    let names: Vec<String> = match fs::read(&manifest_path) {
        Ok(manifest) => serde_json::from_slice::<Manifest>(&manifest)
            .map(|manifest| manifest.sha256.into_keys().collect())
            .unwrap_or_default(),
        Err(_) if !path.exists() => return Ok(true),
        Err(_) => Vec::new(),
    };
    // The manifest is removed first: a directory without one is not a valid checkpoint.
    let removed = fs::remove_file(&manifest_path);
    for name in FILES.into_iter().map(str::to_owned).chain(names) {
        if Path::new(&name).file_name() == Some(name.as_ref()) {
            let _ = fs::remove_file(path.join(name));
        }
    }
    match fs::remove_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(false),
        },
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use crate::task::EvalMetrics;
    use crate::train::BestEpoch;

    use super::*;

    fn checkpoint(content: &str) -> Checkpoint {
        let files = [("weights".to_owned(), content.into()), ("state".to_owned(), b"{}".to_vec())];
        Checkpoint { epoch: content.len(), files: files.into() }
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
        let manifest = format!(r#"{{"epoch":1,"sha256":{{"../secret":"{}"}}}}"#, hash(b"secret"));
        fs::write(directory.path().join("last").join(MANIFEST), manifest).expect("written");
        assert!(checkpoints.open().is_err());
    }

    #[test]
    fn corrupt_weights_are_never_replaced_by_those_of_another_epoch() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let checkpoints = Checkpoints::new(directory.path(), "best");
        assert!(checkpoints.open_newest().expect("none").is_none());
        let error = checkpoints.open_epoch(5).expect_err("missing").to_string();
        assert!(error.ends_with("is missing"), "{error}");
        checkpoints.save(&checkpoint("one")).expect("saved");
        checkpoints.save(&checkpoint("three")).expect("saved");
        let found = checkpoints.open_epoch(5).expect("valid");
        assert_eq!(found.checkpoint, checkpoint("three"));
        // The previous checkpoint is available under its own epoch only.
        let found = checkpoints.open_epoch(3).expect("valid");
        assert_eq!(found.checkpoint, checkpoint("one"));
        fs::write(directory.path().join("best/weights"), b"thrEe").expect("changed one byte");
        let error = checkpoints.open_newest().expect_err("corrupt");
        assert!(error.to_string().ends_with("has a corrupt `weights`"), "{error}");
        let error = checkpoints.open_epoch(5).expect_err("corrupt").to_string();
        assert!(error.contains("has a corrupt `weights`; "), "{error}");
        assert!(error.ends_with("is of epoch 3"), "{error}");
    }

    #[test]
    fn best_checkpoint_agrees_with_the_progress_of_the_run() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let checkpoints = Checkpoints::new(directory.path(), "best");
        let progress = |epoch, best: Option<usize>| {
            let valid =
                EvalMetrics { metric: 0.5, loss: 0.5, samples: 1, metrics: BTreeMap::new() };
            let best = best.map(|epoch| BestEpoch { epoch, valid });
            TrainProgress { epoch, best, ..TrainProgress::new(0) }
        };
        let epoch = |epoch, best| {
            let found = checkpoints.open_best(&progress(epoch, best));
            found.map(|found| found.map(|found| found.checkpoint.epoch))
        };
        assert_eq!(epoch(2, None).expect("not evaluated yet"), None);
        assert!(epoch(3, Some(3)).is_err(), "missing");
        checkpoints.save(&checkpoint("one")).expect("saved");
        assert_eq!(epoch(4, Some(3)).expect("valid"), Some(3));
        assert_eq!(epoch(4, None).expect("valid"), None);
        checkpoints.save(&checkpoint("three")).expect("saved");
        // Killed before the state of epoch 5 was saved.
        assert_eq!(epoch(4, Some(3)).expect("valid"), Some(5));
        assert_eq!(epoch(6, Some(5)).expect("valid"), Some(5));
        assert!(epoch(6, Some(6)).is_err(), "neither is of epoch 6");
        // The previous one is no substitute.
        fs::rename(path("best"), path("moved")).expect("moved");
        let error = epoch(6, Some(5)).expect_err("missing").to_string();
        assert!(error.ends_with("is of epoch 3"), "{error}");
        let error = checkpoints.open_newest().expect_err("missing").to_string();
        assert!(error.ends_with("best` is missing"), "{error}");
        fs::rename(path("moved"), path("best.new")).expect("moved");
        assert_eq!(epoch(6, Some(5)).expect("between two renames"), Some(5));
    }

    #[test]
    fn interrupted_renames_are_finished() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let checkpoints = Checkpoints::new(directory.path(), "last");
        checkpoints.save(&checkpoint("one")).expect("saved");
        fs::rename(directory.path().join("last"), directory.path().join("last.new"))
            .expect("renamed");
        checkpoints.finish_interrupted_save().expect("renamed");
        assert!(directory.path().join("last").exists());
        // An incomplete checkpoint is not renamed.
        fs::rename(directory.path().join("last"), directory.path().join("last.new"))
            .expect("renamed");
        fs::remove_file(directory.path().join("last.new").join(MANIFEST)).expect("removed");
        checkpoints.finish_interrupted_save().expect("nothing to do");
        assert!(!directory.path().join("last").exists());
    }

    #[test]
    fn files_of_the_user_are_kept() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let checkpoints = Checkpoints::new(directory.path(), "last");
        for content in ["one", "two", "three", "four"] {
            checkpoints.save(&checkpoint(content)).expect("saved");
            fs::write(directory.path().join("last/notes.txt"), content).expect("written");
            fs::create_dir(directory.path().join("last/figures")).expect("created");
        }
        assert_eq!(opened(&checkpoints), Some((checkpoint("four"), 0)));
        for (number, content) in [(1, "one"), (2, "two")] {
            let kept = directory.path().join(format!("last.kept-{number}"));
            assert_eq!(fs::read_to_string(kept.join("notes.txt")).expect("kept"), content);
            assert!(!kept.join("weights").exists());
        }
    }

    #[test]
    fn saving_fails_if_the_run_directory_was_replaced() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let run = parent.path().join("run");
        fs::create_dir(&run).expect("created");
        let lock = RunLock::acquire(&run).expect("opened").expect("free");
        assert!(RunLock::acquire(&run).expect("opened").is_none());
        let checkpoints = Checkpoints::new(&run.join("checkpoints"), "last").with_lock(&lock);
        checkpoints.save(&checkpoint("one")).expect("saved");
        fs::rename(&run, parent.path().join("moved")).expect("moved");
        let removed = checkpoints.save(&checkpoint("two")).expect_err("removed");
        assert!(matches!(removed, CheckpointError::Replaced { .. }), "{removed}");
        assert!(!run.exists());
        fs::create_dir(&run).expect("created");
        let other = RunLock::acquire(&run).expect("opened").expect("free");
        let replaced = checkpoints.save(&checkpoint("two")).expect_err("replaced");
        assert!(matches!(replaced, CheckpointError::Replaced { .. }), "{replaced}");
        other.check().expect("not replaced");
    }

    #[cfg(unix)]
    #[test]
    fn symbolic_links_are_not_followed() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("target")).expect("created");
        fs::write(path("target/weights"), b"precious").expect("written");
        for name in ["last", "last.previous", "last.new"] {
            symlink(path("target"), path(name)).expect("linked");
            let checkpoints = Checkpoints::new(directory.path(), "last");
            let error = checkpoints.save(&checkpoint("one")).expect_err("a link");
            assert!(matches!(error, CheckpointError::SymbolicLink { .. }), "{error}");
            fs::remove_file(path(name)).expect("removed");
        }
        fs::write(path("precious"), b"precious").expect("written");
        symlink(path("precious"), path("lock")).expect("linked");
        assert!(RunLock::acquire(directory.path()).is_err());
        assert_eq!(fs::read(path("precious")).expect("readable"), b"precious");
        assert_eq!(fs::read(path("target/weights")).expect("readable"), b"precious");
    }
}
