//! Training: our own loop, because exact resume and equal bits on any number of threads need it.

mod batches;
pub(crate) mod checkpoint;
mod evaluate;
mod memory;
mod optimizer;
mod schedule;
mod trainer;

use serde::{Deserialize, Serialize};

pub(crate) use batches::for_each_batch;
pub use batches::{BatchSize, evaluation_batches, recalibration_batches, training_batches};
pub use checkpoint::{Checkpoint, CheckpointError, Checkpoints, LoadedCheckpoint};
pub use evaluate::{Evaluator, recalibrate};
pub use memory::{BatchShape, available_bytes, check_memory, largest_step, step_bytes};
pub use optimizer::{AdamW, OptimConfig, global_norm};
pub use schedule::{Interval, Schedule};
pub(crate) use trainer::load_model;
pub use trainer::{
    BestEpoch, EpochRecord, TrainError, TrainEvent, TrainOutcome, TrainProgress, Trainer,
    check_loss,
};

/// How long to train, on what batches, and how to judge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Passes over the training graphs.
    pub epochs: usize,
    /// Number of graphs per batch.
    pub batch_size: usize,
    /// Maximum number of node pairs per batch, which bounds memory where graphs differ in size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pairs: Option<usize>,
    /// Epochs between two evaluations; the last epoch is always evaluated.
    #[serde(default = "one")]
    pub eval_every: usize,
    /// Number of training batches from which batch-norm statistics are re-estimated, without dropout,
    /// before each evaluation; 0 evaluates with the running averages collected during training.
    ///
    /// The batches are the same for every evaluation of a run, so that scores of two epochs differ
    /// only by their weights.
    #[serde(default = "default_bn_recalibration_batches")]
    pub bn_recalibration_batches: usize,
    /// Criterion by which the best epoch is selected.
    #[serde(default, skip_serializing_if = "SelectBy::is_default")]
    pub select_by: SelectBy,
    /// Decay of an exponential moving average of the weights, which is then what is evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ema_decay: Option<f64>,
    /// Stops after so many evaluations without a better one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<usize>,
}

impl TrainConfig {
    /// Limits of a batch.
    pub fn batch(&self) -> BatchSize {
        BatchSize { graphs: self.batch_size, max_pairs: self.max_pairs }
    }
}

/// Criterion by which the best epoch is selected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectBy {
    /// The task's metric on the validation split.
    #[default]
    Metric,
    /// The loss on the validation split: less noisy than ranking metrics on few positives.
    Loss,
}

impl SelectBy {
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
