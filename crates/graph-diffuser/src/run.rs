//! Run directories: recipe, schema, metrics, checkpoints and result of one training run.
//!
//! ```text
//! runs/grid-quick-s0/
//!   recipe.toml               recipe, including defaults
//!   environment.json          version, platform, threads, command line
//!   initial.safetensors       weights that training started from, of a fine-tuned model
//!   schema.json               featurizer, feature and target schema
//!   fingerprints.bin          fingerprints of the training molecules, if the graphs are molecules
//!   data.json                 name, size, split and content hash of the dataset
//!   metrics.jsonl             one line per epoch
//!   checkpoints/              `last`, `best`, and the previous version of each
//!   tensorboard/              event file of losses and metrics, if `train.tensorboard` is set
//!   forest.safetensors        random forest, if `train.forest_blend` is set
//!   predictions.safetensors   predictions of the best epoch for validation and test graphs
//!   result.json               scores, written when training is finished
//!   report.md                 scores as a Markdown table, written by the program
//!   README.md                 model card, written by the program
//!   lock                      held while a process trains
//!   members/0/, 1/, ...       run directories of the members, if the run is an ensemble
//! ```
//!
//! An ensemble has no metrics and checkpoints of its own; its predictions and result are those of
//! the average of its members.
//!
//! A directory `NAME` is created under the name `.NAME.new` and renamed, and is never overwritten.
//! Inference needs no other file; evaluation also reads the dataset.

mod data;
mod environment;
mod error;
mod result;

mod files;
mod transfer;
mod create;
mod dataset;
mod evaluation;
mod blend;
mod tensorboard;
mod follow;
mod training;
mod ensemble;
mod saved_model;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::distributed::Group;
use crate::recipe::Recipe;

pub use crate::shell::shell_quote;
pub use crate::train::{RunLock, RunSchema};
pub use data::DataRecord;
pub use ensemble::member_seed;
pub use environment::Environment;
pub use error::RunError;
pub use follow::{follow, release};
pub use result::{
    BlendResult, EnsembleEvaluation, EnsembleResult, Evaluation, FinishedRun, MemberResult,
    RunResult,
};
pub use saved_model::{SavedForest, SavedModel, SavedModelError};
pub use transfer::InitialWeights;

/// Open run directory.
///
/// # Examples
/// ```no_run
/// use std::path::Path;
/// use graph_diffuser::run::Run;
///
/// let run = Run::open(Path::new("runs/grid-quick-s0"))?;
/// if let Some(result) = run.result()? {
///     println!("{} {}", result.metric.name(), result.test.metric);
/// }
/// # Ok::<(), graph_diffuser::run::RunError>(())
/// ```
#[derive(Debug)]
pub struct Run {
    directory: PathBuf,
    recipe: Recipe,
    encoding_cache: Option<PathBuf>,
    split_description: Option<String>,
    allows_changed_data: bool,
    /// Lock of a new run, until it is passed on by [`Run::lock`].
    creation_lock: Mutex<Option<RunLock>>,
    /// Processes that share the work of training.
    group: Arc<Group>,
    /// Parent directory that is removed with the run.
    _temporary: Option<TempDir>,
}

impl Run {
    /// Opens a run directory.
    ///
    /// # Errors
    /// Returns an error if it is not a run directory or its recipe is invalid.
    pub fn open(directory: &Path) -> Result<Self, RunError> {
        let path = directory.join("recipe.toml");
        if !path.is_file() {
            let reason =
                if directory.is_dir() { "`recipe.toml` not found" } else { "no such directory" };
            return Err(RunError::NotARun {
                directory: directory.to_owned(),
                reason: reason.into(),
            });
        }
        let recipe = Recipe::read(&path, &[])?;
        Ok(Self::at(directory, recipe))
    }

    fn at(directory: &Path, recipe: Recipe) -> Self {
        Self {
            directory: directory.to_owned(),
            recipe,
            encoding_cache: None,
            split_description: None,
            allows_changed_data: false,
            creation_lock: Mutex::default(),
            group: Arc::default(),
            _temporary: None,
        }
    }

    /// Caches raw positional encodings in `directory`; by default they are kept in memory.
    pub fn with_encoding_cache(self, directory: PathBuf) -> Self {
        Self { encoding_cache: Some(directory), ..self }
    }

    /// Describes the split of the dataset in `data.json`; by default it is not described.
    pub fn with_split_description(self, description: String) -> Self {
        Self { split_description: Some(description), ..self }
    }

    /// Continues training although the dataset has changed since it was started, and records the
    /// present dataset; by default this is an error.
    pub fn with_changed_data(self) -> Self {
        Self { allows_changed_data: true, ..self }
    }

    /// Shares the work of training and evaluation among the processes of a group. Training is
    /// started by the first one, and the others call [`follow`]; all of them call
    /// [`Run::evaluate`].
    pub fn with_group(self, group: Arc<Group>) -> Self {
        Self { group, ..self }
    }

    /// Removes a temporary directory, which contains that of the run, when the run is dropped.
    pub(crate) fn with_temporary_directory(self, temporary: TempDir) -> Self {
        Self { _temporary: Some(temporary), ..self }
    }

    /// Returns the path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the name of the directory, such as `grid-quick-s0`, or `mine-s0/members/0` for a
    /// member of an ensemble.
    pub fn name(&self) -> String {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let own = name(&self.directory).unwrap_or_default();
        let mut parents = self.directory.ancestors().skip(1).filter_map(name);
        match (parents.next().as_deref(), parents.next()) {
            (Some("members"), Some(ensemble)) => format!("{ensemble}/members/{own}"),
            _ => own,
        }
    }

    /// Returns the recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }
}
