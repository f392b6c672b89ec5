//! Trained models inside the program.
//!
//! Each is a run directory like any other, with its recipe, seed, curve and scores. It is put where caches are
//! kept when it is first asked for, and mended when something there was damaged.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::run::{Run, RunError};
use crate::train::checkpoint::write_synced;

/// A trained model inside the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pretrained {
    /// Grid Histogram Counting: the recipe `grid-diffuser`, of three seeds the one best in validation.
    Grid,
    /// Constrained solubility of drug-like molecules: the recipe `zinc-short`.
    Zinc,
}

/// The files of a run directory; the recipe comes last, it makes a directory a run.
macro_rules! run_files {
    ($folder:literal) => {
        [
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
        include_bytes!(concat!("../../../pretrained/", $folder, "/", $file)) as &[u8]
    };
}

impl Pretrained {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Grid, Self::Zinc];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grid => "grid",
            Self::Zinc => "zinc",
        }
    }

    fn files(self) -> [(&'static str, &'static [u8]); 8] {
        match self {
            Self::Grid => run_files!("grid"),
            Self::Zinc => run_files!("zinc"),
        }
    }

    /// Its run, put into a directory under `cache` where it is not there yet.
    ///
    /// # Errors
    /// Where the directory cannot be written.
    pub fn open(self, cache: &Path) -> Result<Run, RunError> {
        let files = self.files();
        let mut hash = Sha256::new();
        for (_, content) in &files {
            hash.update(content);
        }
        let mark =
            hash.finalize()[..6].iter().fold(0_u64, |mark, &byte| mark << 8 | u64::from(byte));
        let directory = cache.join("pretrained").join(format!("{}-{mark:012x}", self.name()));
        for (name, content) in files {
            let path = directory.join(name);
            if fs::read(&path).is_ok_and(|found| found == content) {
                continue;
            }
            let new = path.with_extension(format!("{}.new", std::process::id()));
            let written = fs::create_dir_all(path.parent().expect("it is in the directory"))
                .and_then(|()| write_synced(&new, content))
                .and_then(|()| fs::rename(&new, &path));
            written.map_err(|source| RunError::Write { path, source })?;
        }
        Run::open(&directory)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::recipe::Recipe;

    #[test]
    fn every_model_is_a_whole_run_of_a_built_in_recipe_and_is_mended() {
        for pretrained in Pretrained::ALL {
            let cache = tempfile::tempdir().expect("a directory");
            let run = pretrained.open(cache.path()).expect("it can be unpacked");
            let result = run.result().expect("it can be read").expect("it is finished");
            let seed = format!("seed={}", result.seed);
            assert_eq!(
                *run.recipe(),
                Recipe::find(&run.recipe().name, &[seed]).expect("a built-in recipe")
            );
            assert_eq!(run.history().len(), result.epochs);
            let schema = run.schema().expect("it has one").schema;
            let model = run.best_model_for(&schema, &Device::flex()).expect("its weights fit");
            assert_eq!(crate::parameters::count(&model), result.parameters);

            let weights = run.directory().join("checkpoints/best/weights.safetensors");
            fs::write(&weights, "damaged").expect("it can be written");
            let again = pretrained.open(cache.path()).expect("it is mended");
            assert_eq!(again.directory(), run.directory());
            again.best_model_for(&schema, &Device::flex()).expect("its weights fit again");
        }
    }
}
