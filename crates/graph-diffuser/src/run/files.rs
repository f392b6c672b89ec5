//! Files of a run directory.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use graph_diffuser_data::{AtomicFile, Split, WriteError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::domain::TrainingDomain;
use crate::task::Predictions;
use crate::task::predictions::from_safetensors;
use crate::train::EpochRecord;

use super::{FinishedRun, Run, RunError, RunResult, RunSchema};

/// Name of the file with the fingerprints of the training molecules.
pub(super) const FINGERPRINTS: &str = "fingerprints.bin";

impl Run {
    /// Reads the result; `None` if training is not finished.
    ///
    /// # Errors
    /// Returns an error if the file is corrupt or cannot be read.
    pub fn result(&self) -> Result<Option<RunResult>, RunError> {
        self.read_json("result.json")
    }

    /// Reads the schema of inputs and targets.
    ///
    /// # Errors
    /// Returns an error if training has not started, or the file is corrupt or cannot be read.
    pub fn schema(&self) -> Result<RunSchema, RunError> {
        let schema = self.read_json("schema.json")?;
        schema.ok_or_else(|| RunError::NoSchema { directory: self.directory.clone() })
    }

    /// Reads the training molecules; `None` if the graphs are not molecules, or the run was trained
    /// by a version that did not save them.
    ///
    /// # Errors
    /// Returns an error if the file is corrupt.
    pub fn training_domain(&self) -> Result<Option<TrainingDomain>, RunError> {
        // Members are trained on the same molecules.
        let member = self.members()?.into_iter().next();
        let run = member.as_ref().unwrap_or(self);
        let Some(bytes) = run.read(FINGERPRINTS)? else { return Ok(None) };
        let domain = TrainingDomain::from_bytes(&bytes);
        domain.map(Some).ok_or_else(|| run.corrupt(FINGERPRINTS, "invalid content"))
    }

    /// Reads the records of the epochs trained so far.
    pub fn history(&self) -> Vec<EpochRecord> {
        let text = fs::read_to_string(self.directory.join("metrics.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Reads the predictions of the best epoch for one split; `None` if they were not saved.
    pub fn predictions(&self, split: Split) -> Option<Predictions> {
        let name = match split {
            Split::Train => "train",
            Split::Valid => "valid",
            Split::Test => "test",
        };
        from_safetensors(&fs::read(self.directory.join("predictions.safetensors")).ok()?, name)
    }

    /// Reads everything that reports use; `None` if training is not finished.
    ///
    /// # Errors
    /// Returns an error if `result.json` or `data.json` is corrupt or cannot be read.
    pub fn finished(&self) -> Result<Option<FinishedRun>, RunError> {
        let environment = fs::read(self.directory.join("environment.json"));
        let environment = environment.ok().and_then(|text| serde_json::from_slice(&text).ok());
        let members = self.members()?;
        let member_histories = members.iter().map(Self::history).collect();
        let fingerprints = members.first().unwrap_or(self).directory.join(FINGERPRINTS);
        let Some(result) = self.result()? else { return Ok(None) };
        Ok(Some(FinishedRun {
            directory: self.directory.clone(),
            recipe: self.recipe.clone(),
            schema: self.schema().ok().map(|schema| schema.schema),
            data: self.data()?,
            result,
            history: self.history(),
            member_histories,
            has_fingerprints: fingerprints.is_file(),
            environment,
            test_predictions: self.predictions(Split::Test),
        }))
    }

    /// Reads and parses a file; `None` if it does not exist.
    pub(super) fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, RunError> {
        let parse = |text: Vec<u8>| {
            serde_json::from_slice(&text).map_err(|error| self.corrupt(name, error))
        };
        self.read(name)?.map(parse).transpose()
    }

    /// Reads a file; `None` if it does not exist.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, RunError> {
        match fs::read(self.directory.join(name)) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RunError::Unreadable { path: self.directory.join(name), error }),
        }
    }

    /// Removes a file if it exists.
    pub(super) fn remove(&self, name: &str) -> Result<(), WriteError> {
        let path = self.directory.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(WriteError::at(&path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Returns the error of a corrupt file.
    pub(super) fn corrupt(&self, name: &str, reason: impl Display) -> RunError {
        RunError::Corrupt { path: self.directory.join(name), reason: reason.to_string() }
    }

    pub(super) fn write_history(&self, history: &[EpochRecord]) -> Result<(), RunError> {
        let mut lines = Vec::new();
        for record in history {
            serde_json::to_writer(&mut lines, record).expect("plain data can be serialized");
            lines.push(b'\n');
        }
        self.write("metrics.jsonl", &lines)
    }

    pub(super) fn append_history(&self, record: &EpochRecord) -> Result<(), RunError> {
        let path = self.directory.join("metrics.jsonl");
        reject_symlink(&path).map_err(WriteError::at(&path))?;
        let mut line = serde_json::to_vec(record).expect("plain data can be serialized");
        line.push(b'\n');
        let appended = File::options()
            .append(true)
            .create(true)
            .open(&path)
            .and_then(|mut file| file.write_all(&line));
        Ok(appended.map_err(WriteError::at(&path))?)
    }

    /// Writes a file of the run directory atomically.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written; a previous version is kept.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), RunError> {
        Ok(AtomicFile::replace(&self.directory.join(name), content)?)
    }

    /// Removes the temporary files of a killed process; the run must be locked.
    pub(super) fn remove_temporary_files(&self) {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| AtomicFile::is_temporary(&entry.file_name())) {
            // A file that cannot be removed does no harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns an error if a file of a run directory is a symbolic link, whose target would be changed.
pub(super) fn reject_symlink(path: &Path) -> io::Result<()> {
    if path.is_symlink() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is a symbolic link"));
    }
    Ok(())
}

pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec_pretty(value).expect("plain data can be serialized")
}
