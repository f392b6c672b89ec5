//! Pretrained models embedded in the program.
//!
//! Each is a complete run directory with its recipe, seed, metrics and scores. It is unpacked into
//! the cache directory on first use; missing or corrupt files are restored. If the cache directory
//! cannot be written, the run is in a temporary directory.

use std::fs;
use std::path::Path;

use graph_diffuser_data::AtomicFile;
use sha2::{Digest, Sha256};

use crate::run::{Run, RunError};

/// Embedded pretrained model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pretrained {
    /// Grid Histogram Counting: recipe `grid-diffuser`, the best of three seeds by validation
    /// score.
    Grid,
    /// Penalized logP of drug-like molecules: recipe `zinc-short`.
    Zinc,
}

/// Files of a run directory, and further ones by name; the recipe is last because it marks a
/// directory as a run.
macro_rules! run_files {
    ($folder:literal $(with $further:literal)*) => {
        vec![
            $(($further, run_files!($folder, $further)),)*
            ("environment.json", run_files!($folder, "environment.json")),
            ("schema.json", run_files!($folder, "schema.json")),
            ("metrics.jsonl", run_files!($folder, "metrics.jsonl")),
            ("report.md", run_files!($folder, "report.md")),
            ("result.json", run_files!($folder, "result.json")),
            ("checkpoints/best/weights.safetensors", run_files!($folder, "weights.safetensors")),
            ("checkpoints/best/manifest.json", run_files!($folder, "manifest.json")),
            ("recipe.toml", run_files!($folder, "recipe.toml")),
        ]
    };
    ($folder:literal, $file:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/pretrained/", $folder, "/", $file))
            as &[u8]
    };
}

impl Pretrained {
    /// All pretrained models.
    pub const ALL: [Self; 2] = [Self::Grid, Self::Zinc];

    /// Returns the model with a name.
    ///
    /// # Errors
    /// Returns an error if there is no such model.
    pub fn find(name: &str) -> Result<Self, RunError> {
        Self::ALL.into_iter().find(|model| model.name() == name).ok_or_else(|| {
            let available = Self::ALL.map(Self::name).to_vec();
            RunError::UnknownPretrained { name: name.to_owned(), available }
        })
    }

    /// Returns the name of the model.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grid => "grid",
            Self::Zinc => "zinc",
        }
    }

    fn files(self) -> Vec<(&'static str, &'static [u8])> {
        match self {
            Self::Grid => run_files!("grid"),
            Self::Zinc => run_files!("zinc" with "fingerprints.bin"),
        }
    }

    /// Opens the run of the model, unpacking it into a directory under `cache` if necessary, or
    /// into a temporary directory that exists as long as the run.
    ///
    /// # Errors
    /// Returns an error if neither directory can be written.
    pub fn open(self, cache: &Path) -> Result<Run, RunError> {
        let error = match self.unpack(cache) {
            Err(error @ RunError::Write(_)) => error,
            opened => return opened,
        };
        let Ok(temporary) = tempfile::tempdir() else { return Err(error) };
        match self.unpack(temporary.path()) {
            Ok(run) => Ok(run.with_temporary_directory(temporary)),
            Err(_) => Err(error),
        }
    }

    fn unpack(self, cache: &Path) -> Result<Run, RunError> {
        let files = self.files();
        let mut hash = Sha256::new();
        for (_, content) in &files {
            hash.update(content);
        }
        let digest =
            hash.finalize()[..6].iter().fold(0_u64, |digest, &byte| digest << 8 | u64::from(byte));
        let directory = cache.join("pretrained").join(format!("{}-{digest:012x}", self.name()));
        for (name, content) in files {
            let path = directory.join(name);
            if fs::read(&path).is_ok_and(|found| found == content) {
                continue;
            }
            AtomicFile::replace(&path, content)?;
        }
        Run::open(&directory)
    }
}

/// Opens a run directory, or the pretrained model that a path `pretrained:NAME` names.
///
/// # Errors
/// Returns an error if there is no such run or model, or it cannot be unpacked under `cache`.
pub fn open_run(path: &Path, cache: &Path) -> Result<Run, RunError> {
    match path.to_str().and_then(|path| path.strip_prefix("pretrained:")) {
        Some(name) => Pretrained::find(name)?.open(cache),
        None => Run::open(path),
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::recipe::Recipe;
    use crate::train::WeightsMetadata;

    #[test]
    fn temporary_directory_is_used_if_the_cache_cannot_be_written() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let run = Pretrained::Grid.open(&file.path().join("below")).expect("unpacked");
        let directory = run.directory().to_owned();
        assert!(directory.is_dir() && run.result().expect("readable").is_some());
        drop(run);
        assert!(!directory.exists());
    }

    #[test]
    fn pretrained_models_are_finished_runs_of_built_in_recipes_and_are_restored() {
        for pretrained in Pretrained::ALL {
            let cache = tempfile::tempdir().expect("a temporary directory");
            let run = pretrained.open(cache.path()).expect("unpacked");
            let result = run.result().expect("a readable result").expect("a finished run");
            // Recorded before the built-in recipes changed their batch-norm statistics.
            let recorded = run.recipe();
            let batches = recorded.train.bn_recalibration_batches;
            let settings = [
                format!("seed={}", result.seed),
                format!("train.bn_recalibration_batches={batches}"),
            ];
            let built_in = Recipe::find(&recorded.name, &settings).expect("a built-in recipe");
            assert_eq!(*recorded, built_in);
            assert_eq!(run.history().len(), result.epochs);
            let schema = run.schema().expect("a schema").schema;
            let model =
                run.best_model_for(&schema, &Device::flex()).expect("weights match the model");
            assert_eq!(crate::parameters::count(&model), result.parameters);
            let metadata = WeightsMetadata::new(recorded, &schema);
            let weights = run.saved_model().expect("readable").weights.remove(0);
            assert_eq!(WeightsMetadata::read(&weights), Some(metadata));

            let weights = run.directory().join("checkpoints/best/weights.safetensors");
            fs::write(&weights, "damaged").expect("written");
            let restored = pretrained.open(cache.path()).expect("restored");
            assert_eq!(restored.directory(), run.directory());
            restored.best_model_for(&schema, &Device::flex()).expect("weights match the model");
        }
    }
}
