//! Training loop with exact resume and results that do not depend on the number of threads.

mod batches;
mod checkpoint;
mod error;
mod eval_batcher;
mod evaluate;
mod memory;
mod optimizer;
mod progress;
mod schedule;
mod state;
mod trainer;
mod weights;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use batches::with_encoding_cache;
pub use batches::{BatchSize, recalibration_batches, training_batches};
pub use checkpoint::{Checkpoint, CheckpointError, Checkpoints, LoadedCheckpoint};
pub use error::TrainError;
pub use eval_batcher::EvalBatcher;
pub use evaluate::{Evaluator, recalibrate};
pub use memory::{BatchShape, available_bytes, check_memory, largest_step, step_bytes};
pub use optimizer::{AdamW, OptimConfig, global_norm};
pub use progress::{BestEpoch, EpochRecord, TrainEvent, TrainOutcome, TrainProgress};
pub use schedule::{Interval, Schedule};
pub use state::check_loss;
pub use trainer::Trainer;
pub(crate) use weights::load_model;

/// Configuration of training: epochs, batches, evaluation and early stopping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Number of passes over the training graphs.
    pub epochs: usize,
    /// Maximum number of graphs per batch.
    pub batch_size: usize,
    /// Maximum number of node pairs per batch, which bounds memory for graphs of different sizes;
    /// default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pairs: Option<usize>,
    /// Number of epochs between evaluations on the validation split (the last epoch is always
    /// evaluated); default 1.
    #[serde(default = "one")]
    pub eval_every: usize,
    /// Number of training batches from which batch-norm statistics are re-estimated, without
    /// dropout, before each evaluation (0 uses the running averages of training); default 50.
    ///
    /// All evaluations of a run use the same batches, so that scores of two epochs differ only by
    /// their weights.
    #[serde(default = "default_bn_recalibration_batches")]
    pub bn_recalibration_batches: usize,
    /// Validation criterion that selects the best epoch; default `metric`.
    #[serde(default, skip_serializing_if = "SelectBy::is_default")]
    pub select_by: SelectBy,
    /// Decay per step of an exponential moving average of the weights, which is evaluated in place
    /// of the weights; default: no averaging.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ema_decay: Option<f64>,
    /// Number of evaluations without improvement after which training stops; default: no early
    /// stopping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<usize>,
}

impl TrainConfig {
    /// Returns the limits of a batch.
    pub fn batch(&self) -> BatchSize {
        BatchSize { graphs: self.batch_size, max_pairs: self.max_pairs }
    }
}

/// Validation criterion that selects the best epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SelectBy {
    /// The task's metric on the validation split.
    #[default]
    Metric,
    /// The loss on the validation split, which is less noisy than ranking metrics on few positives.
    Loss,
}

impl SelectBy {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn one() -> usize {
    1
}

fn default_bn_recalibration_batches() -> usize {
    50
}
