//! Creation of run directories.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use graph_diffuser_data::{AtomicFile, WriteError};
use sha2::{Digest as _, Sha256};

use crate::recipe::Recipe;

use super::files::{reject_symlink, to_json};
use super::transfer::{INITIAL_WEIGHTS, InitialWeights};
use super::{Environment, Run, RunError};

impl Run {
    /// Creates a run directory, which is locked as long as the run or its [lock](Run::lock) exists.
    ///
    /// The directory is filled under a temporary name and renamed. Creating a run again after the
    /// process was killed in between reuses the temporary directory.
    ///
    /// # Errors
    /// Returns an error if the directory exists or cannot be written.
    pub fn create(
        directory: &Path,
        recipe: Recipe,
        environment: &Environment,
    ) -> Result<Self, RunError> {
        Self::create_from(directory, recipe, environment, None)
    }

    /// Creates a run directory like [`Run::create`], for a model that starts from the given weights
    /// of another run; the run can be resumed without the other one.
    ///
    /// # Errors
    /// Returns an error if the directory exists or cannot be written.
    pub fn create_from(
        directory: &Path,
        recipe: Recipe,
        environment: &Environment,
        initial_weights: Option<&InitialWeights>,
    ) -> Result<Self, RunError> {
        Self::check_new(directory)?;
        let new = new_directory(directory);
        fs::create_dir_all(&new).map_err(WriteError::at(&new))?;
        reject_symlink(&new).map_err(WriteError::at(&new))?;
        let run = Self::at(&new, recipe);
        let lock = run.lock()?;
        // Another process may have completed the directory before it was locked.
        lock.check()?;
        run.check_incomplete()?;
        match initial_weights {
            Some(weights) => run.write(INITIAL_WEIGHTS, &weights.0)?,
            // An interrupted creation may have left other weights.
            None => run.remove(INITIAL_WEIGHTS)?,
        }
        run.write("environment.json", &to_json(environment))?;
        run.write("recipe.toml", run.recipe.to_toml().as_bytes())?;
        run.remove_temporary_files();
        Self::check_new(directory)?;
        fs::rename(&new, directory).map_err(WriteError::at(directory))?;
        let creation_lock = Mutex::new(Some(lock.moved_to(directory)));
        Ok(Self { directory: directory.to_owned(), creation_lock, ..run })
    }

    /// Checks that a directory has no files except those of an interrupted [`Run::create`].
    fn check_incomplete(&self) -> Result<(), RunError> {
        let entries = fs::read_dir(&self.directory).map_err(WriteError::at(&self.directory))?;
        let mut names = entries.flatten().map(|entry| entry.file_name());
        let is_known = |name: &OsString| {
            let known = ["environment.json", "recipe.toml", "lock", INITIAL_WEIGHTS];
            known.iter().any(|known| name == known) || AtomicFile::is_temporary(name)
        };
        if names.all(|name| is_known(&name)) {
            return Ok(());
        }
        Err(RunError::Exists { directory: self.directory.clone(), is_run: false })
    }

    /// Checks that a run can be created at `directory`.
    ///
    /// # Errors
    /// Returns an error if the directory exists.
    pub fn check_new(directory: &Path) -> Result<(), RunError> {
        if directory.exists() || directory.is_symlink() {
            let is_run = directory.join("recipe.toml").exists();
            return Err(RunError::Exists { directory: directory.to_owned(), is_run });
        }
        Ok(())
    }
}

/// Returns the temporary directory of a new run.
fn new_directory(directory: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(directory.file_name().unwrap_or_default());
    // A name may have up to 255 bytes.
    if name.len() > 240 {
        let digest = Sha256::digest(name.as_encoded_bytes());
        name = format!(".{:02x?}", &digest[..8]).replace([',', ' ', '[', ']'], "").into();
    }
    name.push(".new");
    directory.with_file_name(name)
}
