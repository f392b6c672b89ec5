//! Progress of a run: epochs, events and outcome.

use serde::{Deserialize, Serialize};

use crate::task::{EvalMetrics, Predictions, null_as_nan};

/// Record of one epoch, a line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Epoch, counted from 1.
    pub epoch: usize,
    /// Number of optimizer steps since the start of the run.
    pub step: u64,
    /// Learning rate of the last step of the epoch.
    pub lr: f64,
    /// Mean training loss over the targets of the epoch.
    #[serde(deserialize_with = "null_as_nan")]
    pub train_loss: f64,
    /// Validation scores; `None` if the epoch was not evaluated.
    pub valid: Option<EvalMetrics>,
    /// True if the scores are the best so far.
    pub best: bool,
    /// Wall time of the epoch in seconds.
    pub seconds: f64,
}

/// Best epoch so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestEpoch {
    /// Epoch, counted from 1.
    pub epoch: usize,
    /// Validation scores of the epoch.
    pub valid: EvalMetrics,
}

/// Progress of a run; together with weights and optimizer moments the complete state of training.
///
/// Random streams have no state of their own: dropout masks are determined by `step`, the order of
/// graphs by `epoch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainProgress {
    /// Seed of the run.
    pub seed: u64,
    /// Number of completed epochs.
    pub epoch: usize,
    /// Number of completed batches of the current epoch.
    pub batch: usize,
    /// Number of completed steps.
    pub step: u64,
    /// Weighted sum of the losses of the current epoch.
    pub loss_sum: f64,
    /// Total weight of that sum: number of targets, or sum of their class weights.
    pub samples: f64,
    /// Wall time of the current epoch in earlier sessions, in seconds.
    pub seconds: f64,
    /// Best epoch so far.
    pub best: Option<BestEpoch>,
    /// Records of all completed epochs.
    pub history: Vec<EpochRecord>,
}

impl TrainProgress {
    /// Returns the progress before the first step.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            epoch: 0,
            batch: 0,
            step: 0,
            loss_sum: 0.0,
            samples: 0.0,
            seconds: 0.0,
            best: None,
            history: Vec::new(),
        }
    }
}

/// Progress event of a [`Trainer`](super::Trainer).
#[derive(Debug)]
#[non_exhaustive]
pub enum TrainEvent<'a> {
    /// A member of an ensemble is next.
    Member {
        /// Index of the member, from 0.
        index: usize,
        /// Number of members.
        members: usize,
        /// Seed of the member.
        seed: u64,
        /// True if the member was trained in an earlier session.
        is_finished: bool,
    },
    /// Training resumes from a checkpoint.
    Resumed {
        /// Number of completed epochs.
        epoch: usize,
        /// Number of completed batches of the current epoch.
        batch: usize,
        /// Reasons why newer checkpoints were skipped.
        skipped: &'a [String],
        /// Reason why the weights of the best epoch so far cannot be read. Training fails at its
        /// end, unless a later epoch is better.
        lost_best: Option<&'a str>,
    },
    /// A step is completed.
    Step {
        /// Epoch, counted from 1.
        epoch: usize,
        /// Number of completed batches of this epoch, and of all its batches.
        batches: (usize, usize),
        /// Number of graphs in the batch.
        graphs: usize,
        /// Loss of the batch.
        loss: f64,
    },
    /// Evaluation starts.
    Evaluating,
    /// A batch of an evaluation, or of the batch-norm recalibration before it, is completed.
    EvaluatedBatch {
        /// Number of completed batches, and of all batches.
        batches: (usize, usize),
    },
    /// An epoch is completed.
    Epoch(&'a EpochRecord),
}

/// Outcome of a training session.
#[derive(Debug, Clone, PartialEq)]
pub enum TrainOutcome {
    /// All epochs are completed, or training stopped early.
    Finished {
        /// Best epoch.
        best: BestEpoch,
        /// Test scores of the weights of the best epoch.
        test: EvalMetrics,
        /// Predictions of the best epoch for the validation and test graphs.
        predictions: Box<[Predictions; 2]>,
    },
    /// Interrupted after saving a checkpoint.
    Stopped {
        /// Number of completed epochs.
        epoch: usize,
        /// Number of completed batches of the current epoch.
        batch: usize,
    },
}
