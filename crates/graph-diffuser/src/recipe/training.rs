//! Training section of a recipe.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::ModelPart;

/// Configuration of training: epochs, batches, evaluation and early stopping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Number of passes over the training graphs.
    pub epochs: usize,
    /// Maximum number of training graphs over all epochs, which reduces the number of epochs on
    /// large datasets; default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_samples: Option<usize>,
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
    /// of the weights; default: no averaging. In step `s`, the decay is at most
    /// `(1 + s) / (10 + s)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ema_decay: Option<f64>,
    /// Number of minutes after which a checkpoint is also saved within an epoch; default: only at
    /// the end of each epoch and when training is interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save_minutes: Option<f64>,
    /// Number of evaluations without improvement after which training stops; default: no early
    /// stopping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<usize>,
    /// Number of shards that each batch is split into, a power of two; default 1, or the
    /// number of processes of the command that starts the run. Shards are computed by concurrent
    /// threads or processes. Results depend on the number of shards, but not on the number of
    /// threads and processes that share them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub shards: usize,
    /// Number of graphs among which the order of training is random, which keeps reads from a
    /// network file system nearly sequential; default: all training graphs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_window: Option<usize>,
    /// Number of models that are trained with different seeds and averaged; default 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub ensemble: usize,
    /// Parts of the model whose weights are not changed, as in fine-tuning: `encoder`,
    /// `message_passing`, `virtual_edges`, `layers` or `molecule_features`; default: none. Their
    /// batch-norm statistics are updated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frozen: Vec<ModelPart>,
    /// Averages predictions with those of a random forest on fingerprints and descriptors of
    /// molecules; its weight, from 0 to 1, has the lowest validation loss. Default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub forest_blend: bool,
    /// Writes losses, metrics and learning rate of every epoch as a TensorBoard event file to the
    /// directory `tensorboard` of the run; default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tensorboard: bool,
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(count: &usize) -> bool {
    *count == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

fn default_bn_recalibration_batches() -> usize {
    50
}
