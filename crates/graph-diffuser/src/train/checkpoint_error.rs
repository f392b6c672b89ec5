//! Errors of checkpoints.

use std::path::PathBuf;

use graph_diffuser_data::{Diagnostic, WriteError};

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
    /// The newest checkpoint is incomplete or corrupt.
    #[error("checkpoint {reason}")]
    Corrupt {
        /// Path and problem of the checkpoint.
        reason: String,
    },
    /// The checkpoint of an epoch is missing, incomplete or corrupt.
    #[error("no valid checkpoint of epoch {epoch}: {}", reasons.join("; "))]
    NotOfEpoch {
        /// The epoch.
        epoch: usize,
        /// Problem of each checkpoint.
        reasons: Vec<String>,
    },
    /// The directory was removed or replaced while the run was trained.
    #[error("`{directory}` was removed or replaced by another process")]
    Replaced {
        /// Directory of the run.
        directory: PathBuf,
    },
    /// A checkpoint is a symbolic link.
    #[error("`{path}` is a symbolic link")]
    SymbolicLink {
        /// Path of the link.
        path: PathBuf,
    },
    /// The weights contain NaN or infinite values.
    #[error("checkpoint `{path}` has values in `{tensor}` that are not finite")]
    NonFinite {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Name of the first such tensor.
        tensor: String,
    },
    /// The weights were trained with other features, targets or classes than those of
    /// `schema.json`.
    #[error("the weights of checkpoint `{path}` belong to another schema")]
    OtherSchema {
        /// Path of the checkpoint.
        path: PathBuf,
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

impl Diagnostic for CheckpointError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Corrupt { .. } | Self::NotOfEpoch { .. } | Self::NonFinite { .. } => {
                Some("restore the directory from a backup, or train the run again".into())
            }
            Self::OtherSchema { .. } => Some(
                "restore `schema.json` and the data of this run from a backup, or train the run \
                 again"
                    .into(),
            ),
            Self::SymbolicLink { .. } => Some("replace it by a copy of its target".into()),
            _ => None,
        }
    }
}
