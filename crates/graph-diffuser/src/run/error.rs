//! Errors of run directories.

use std::io;
use std::path::PathBuf;

use graph_diffuser_data::{CacheModifiedError, Diagnostic, WriteError};

use crate::recipe::RecipeError;
use crate::shell::shell_quote;
use crate::train::{CheckpointError, TrainError};

/// Error of creating, opening or training a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The directory already exists.
    #[error("`{directory}` already exists")]
    Exists {
        /// Path of the directory.
        directory: PathBuf,
        /// True if it is a run directory.
        is_run: bool,
    },
    /// The directory is not a run directory.
    #[error("`{directory}` is not a run directory: {reason}")]
    NotARun {
        /// Path of the directory.
        directory: PathBuf,
        /// Missing file or other reason.
        reason: String,
    },
    /// A file of the run directory cannot be read.
    #[error("cannot read `{path}`")]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        error: io::Error,
    },
    /// A file of the run directory is corrupt.
    #[error("`{path}` is corrupt: {reason}")]
    Corrupt {
        /// Path of the file.
        path: PathBuf,
        /// Error of the parser.
        reason: String,
    },
    /// Another process holds the lock.
    #[error("`{directory}` is locked by another training process")]
    Busy {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// No checkpoint has been saved yet.
    #[error("`{directory}` has no trained weights: no epoch has been evaluated yet")]
    NoWeights {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// Members of an ensemble have no weights yet.
    #[error(
        "the ensemble `{directory}` is not complete: {trained} of {members} members are trained"
    )]
    IncompleteEnsemble {
        /// Path of the directory.
        directory: PathBuf,
        /// Number of members with weights.
        trained: usize,
        /// Number of members of the ensemble.
        members: usize,
    },
    /// An ensemble was used where one model is required.
    #[error("`{directory}` is an ensemble, not a single model")]
    IsEnsemble {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// The schema of the model's inputs has not been saved.
    #[error("`{directory}` has no `schema.json`")]
    NoSchema {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// The dataset of the run has changed.
    #[error("the dataset does not match `{directory}`: its features, targets or classes changed")]
    SchemaMismatch {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// The graphs, targets or splits of the dataset have changed.
    #[error("the dataset has changed since the training of `{directory}` was started")]
    DataChanged {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// The weights of a run do not fit the model that should start from them.
    #[error("cannot start from `{directory}`: it has no matching tensor for `{tensor}`")]
    CannotTransfer {
        /// Path of the directory.
        directory: PathBuf,
        /// First tensor without a counterpart.
        tensor: String,
    },
    /// A setting changes the model of a run that starts from another one.
    #[error("`{setting}` changes the model, which is that of the run that training starts from")]
    ModelIsFixed {
        /// `key=value`.
        setting: String,
    },
    /// The random forest of `train.forest_blend` has no training values for a target.
    #[error("`train.forest_blend` needs training values of every target, `{target}` has none")]
    NoForest {
        /// Name of the target.
        target: String,
    },
    /// No pretrained model has this name.
    #[error("there is no pretrained model `{name}`")]
    UnknownPretrained {
        /// The name.
        name: String,
        /// Names of the pretrained models.
        available: Vec<&'static str>,
    },
    /// Outputs of the model are NaN or infinite.
    #[error("predictions are not finite for {graphs} graphs, the first of which is graph {graph}")]
    NonFinite {
        /// Number of graphs.
        graphs: usize,
        /// Index of the first graph in the dataset.
        graph: usize,
    },
    /// The dataset of the run cannot be read.
    #[error(transparent)]
    Dataset(RecipeError),
    /// The cache of the dataset was modified while it was in use.
    #[error(transparent)]
    Cache(#[from] CacheModifiedError),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The recipe of the run is invalid.
    #[error("invalid recipe in the run directory")]
    Recipe(#[from] RecipeError),
    /// Training failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl Diagnostic for RunError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Exists { directory, is_run: true } => Some(format!(
                "resume it with `graph-diffuser train --resume {}`, or choose another directory with \
                 `--output`",
                shell_quote(directory)
            )),
            Self::Exists { .. } => Some("choose another directory with `--output`".into()),
            Self::NotARun { .. } => {
                Some("pass a directory written by `graph-diffuser train`".into())
            }
            Self::Unreadable { .. } => Some("check the permissions of the file".into()),
            Self::Corrupt { path, .. } if path.ends_with("result.json") => Some(format!(
                "write it again with `graph-diffuser train --resume {}`",
                shell_quote(path.parent().unwrap_or(path))
            )),
            Self::Corrupt { .. } => Some("restore the run directory from a backup".into()),
            Self::Busy { .. } => Some(
                "wait for it, or stop it with Ctrl-C: it saves a checkpoint and can be resumed"
                    .into(),
            ),
            Self::IsEnsemble { directory } => Some(format!(
                "use one of its members, such as `{}`",
                directory.join("members/0").display()
            )),
            Self::NoWeights { directory } | Self::IncompleteEnsemble { directory, .. } => {
                Some(format!(
                    "continue training with `graph-diffuser train --resume {}`",
                    shell_quote(directory)
                ))
            }
            Self::NoSchema { .. } => {
                Some("restore the directory from a backup, or train the run again".into())
            }
            Self::SchemaMismatch { .. } => {
                Some("restore the data that the run was trained on, or train a new run".into())
            }
            Self::CannotTransfer { .. } => Some(
                "use a run that was trained on graphs with the same node and edge features".into(),
            ),
            Self::ModelIsFixed { setting } => Some(format!("omit `{setting}`")),
            Self::NoForest { .. } => {
                Some("select other targets with `--target`, or omit `train.forest_blend`".into())
            }
            Self::UnknownPretrained { available, .. } => {
                let names = available.iter().map(|name| format!("`pretrained:{name}`"));
                Some(format!("use {}", names.collect::<Vec<_>>().join(" or ")))
            }
            Self::DataChanged { .. } => Some(
                "restore the data that the run was trained on, or use the present data with \
                 `--allow-changed-data`"
                    .into(),
            ),
            Self::NonFinite { .. } => {
                Some("check the features of these graphs with `graph-diffuser data check`".into())
            }
            Self::Write(error) => error.hint(),
            Self::Cache(error) => error.hint(),
            Self::Recipe(error) | Self::Dataset(error) => error.hint(),
            Self::Train(error) => error.hint(),
            Self::Checkpoint(error) => error.hint(),
        }
    }

    fn is_usage_error(&self) -> bool {
        match self {
            Self::Exists { .. }
            | Self::NotARun { .. }
            | Self::ModelIsFixed { .. }
            | Self::UnknownPretrained { .. } => true,
            Self::Dataset(error) => error.is_usage_error(),
            _ => false,
        }
    }
}
