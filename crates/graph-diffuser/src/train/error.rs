//! Errors of training.

use graph_diffuser_data::Diagnostic;

use crate::distributed::ExchangeError;

use super::{BatchSize, CheckpointError};

/// Error of training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The loss or gradient is NaN or infinite.
    #[error("step {step}: {what} is not finite (first in `{tensor}`, graphs {graphs:?})")]
    NonFinite {
        /// Step, counted from 1.
        step: u64,
        /// `loss` or `gradient`.
        what: &'static str,
        /// Name of the first tensor that is not finite.
        tensor: String,
        /// Indices of the graphs of the batch.
        graphs: Vec<usize>,
    },
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The checkpoint belongs to a run with another seed.
    #[error("the checkpoint has seed {found}, but the recipe has seed {expected}")]
    SeedMismatch {
        /// Seed of the recipe.
        expected: u64,
        /// Seed of the checkpoint.
        found: u64,
    },
    /// A step needs more memory than is available.
    #[error(
        "a training step needs about {} of memory, but {} is available (batch of {graphs} graphs \
         with up to {nodes} nodes)",
        format_bytes(*needed),
        format_bytes(*available)
    )]
    Memory {
        /// Number of graphs of the largest batch.
        graphs: usize,
        /// Number of nodes of its largest graph.
        nodes: usize,
        /// Estimated memory in bytes.
        needed: u64,
        /// Available memory in bytes.
        available: u64,
        /// Batch size that fits, if any.
        fits: Option<BatchSize>,
    },
    /// The validation split has a single class, so that its ranking metric is undefined.
    #[error(
        "the validation split has a single class, so that {metric} cannot select the best epoch"
    )]
    OneClass {
        /// Name of the metric.
        metric: &'static str,
    },
    /// The model cannot be evaluated, because the training graphs have no variance.
    #[error(
        "the validation loss is NaN: all training graphs give the same input to the batch norm \
         `{norm}`, so that it has no variance to divide by"
    )]
    NoVariance {
        /// Name of the batch norm.
        norm: String,
    },
    /// Another process or shard failed.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The validation score is NaN in every epoch.
    #[error("the validation score is NaN in every epoch")]
    NoScore,
}

impl Diagnostic for TrainError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NonFinite { .. } => Some(
                "start a new run with a lower `optim.lr` or a longer warmup; the last checkpoint is kept"
                    .into(),
            ),
            Self::SeedMismatch { found, .. } => {
                Some(format!("set `seed = {found}` in the run's `recipe.toml`, or start a new run"))
            }
            Self::Memory { fits: Some(BatchSize { max_pairs: Some(max_pairs), .. }), .. } => {
                Some(format!("set `train.max_pairs` to {max_pairs}"))
            }
            Self::Memory { fits: Some(BatchSize { graphs, max_pairs: None }), .. } => {
                Some(format!("set `train.batch_size` to {graphs}"))
            }
            Self::Memory { nodes, fits: None, .. } => Some(format!(
                "a single graph of {nodes} nodes does not fit: lower `model.virtual_edges.num_steps` or \
                 `model.layers`, or remove it from the training split (`graph-diffuser eval` \
                 supports graphs of any size)"
            )),
            Self::Checkpoint(CheckpointError::Write(_)) => {
                Some("check free disk space and permissions, then resume the run".into())
            }
            Self::Checkpoint(error) => error.hint(),
            Self::OneClass { .. } => Some(
                "add rows of the rare class, choose another split, or select the best epoch by its \
                 loss with `--set train.select_by=loss`"
                    .into(),
            ),
            Self::NoVariance { .. } => Some(
                "add training graphs whose nodes differ; a single atom or one symmetric molecule \
                 is not enough"
                    .into(),
            ),
            Self::Exchange(error) => error.hint(),
            Self::NoScore => None,
        }
    }
}

/// Formats a number of bytes with a decimal unit.
fn format_bytes(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes >= 1e9 => format!("{:.1} GB", bytes / 1e9),
        bytes => format!("{:.0} MB", (bytes / 1e6).ceil()),
    }
}
