//! Training: our own loop, because exact resume and equal bits on any number of threads need it.

mod batches;
pub(crate) mod checkpoint;
mod evaluate;
mod memory;
mod optimiser;
mod schedule;
mod trainer;

use serde::{Deserialize, Serialize};

pub(crate) use batches::for_each_packed;
pub use batches::{BatchSize, evaluation_batches, training_batches};
pub use checkpoint::{Checkpoint, CheckpointError, Checkpoints, Found};
pub use evaluate::{Evaluator, recalibrate};
pub use memory::{BatchShape, available_bytes, check_memory, largest_step, step_bytes};
pub use optimiser::{AdamW, OptimConfig, global_norm};
pub use schedule::{Every, Schedule};
pub(crate) use trainer::load_model;
pub use trainer::{Best, EpochRecord, Event, Outcome, Progress, TrainError, Trainer, check_loss};

/// How long to train, on what batches, and how to judge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Passes over the training graphs.
    pub epochs: usize,
    /// How graphs are grouped into batches.
    pub batch: BatchSize,
    /// Epochs between two evaluations; the last epoch is always evaluated.
    #[serde(default = "one")]
    pub evaluate_every: usize,
    /// So many training batches re-estimate the batch-norm statistics before each evaluation; 0
    /// keeps the running ones, which lag behind at high learning rates.
    #[serde(default)]
    pub statistics_batches: usize,
    /// Decay of an exponential moving average of the weights, which is then what is evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_decay: Option<f64>,
    /// Stops after so many evaluations without a better one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<usize>,
}

fn one() -> usize {
    1
}
