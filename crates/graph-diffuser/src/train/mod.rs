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
pub use batches::{BatchSize, evaluation_batches, recalibration_batches, training_batches};
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
    /// Number of training batches from which batch-norm statistics are re-estimated, without dropout,
    /// before each evaluation; 0 evaluates with the running averages collected during training.
    ///
    /// The batches are the same for every evaluation of a run, so that scores of two epochs differ
    /// only by their weights.
    #[serde(default = "default_statistics_batches")]
    pub statistics_batches: usize,
    /// Criterion by which the best epoch is selected.
    #[serde(default, skip_serializing_if = "Selection::is_default")]
    pub select_by: Selection,
    /// Decay of an exponential moving average of the weights, which is then what is evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_decay: Option<f64>,
    /// Stops after so many evaluations without a better one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<usize>,
}

/// Criterion by which the best epoch is selected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// The task's metric on the validation split.
    #[default]
    Metric,
    /// The loss on the validation split: less noisy than ranking metrics on few positives.
    Loss,
}

impl Selection {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn one() -> usize {
    1
}

fn default_statistics_batches() -> usize {
    50
}
