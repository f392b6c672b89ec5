//! Results of a finished run.

use std::path::PathBuf;

use graph_diffuser_data::Schema;
use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;
use crate::task::{
    EvalMetrics, Metric, MetricAccumulator, Predictions, TargetScores, UncertaintyCalibration,
};
use crate::train::{BestEpoch, EnsembleAccumulators, EpochRecord};

use super::{DataRecord, Environment};

/// Result of a finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Seed of the run.
    pub seed: u64,
    /// Metric by which epochs are compared.
    pub metric: Metric,
    /// Number of trainable parameters, of all members of an ensemble.
    pub parameters: usize,
    /// Epoch with the best validation score; for an ensemble, the latest such epoch of its members
    /// and the validation scores of their average.
    pub best: BestEpoch,
    /// Test scores of the weights of that epoch, or of the average of an ensemble.
    pub test: EvalMetrics,
    /// Test scores of each target; empty in files of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetScores>,
    /// Number of epochs trained, of all members of an ensemble.
    pub epochs: usize,
    /// Wall time of training and validation, in seconds, of all members of an ensemble.
    pub seconds: f64,
    /// Results of the members, if the run is an ensemble.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ensemble: Option<EnsembleResult>,
    /// Average with a random forest, if `train.forest_blend` is set; the test scores are those of
    /// the average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blend: Option<BlendResult>,
}

/// Average of a model, or of an ensemble, and a random forest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlendResult {
    /// Weight of the forest, from 0 to 1, with the lowest validation loss.
    pub forest_weight: f64,
    /// SHA-256 hash of the file of the forest.
    pub forest_sha256: String,
    /// Test scores of the model, or ensemble, alone.
    pub model_test: EvalMetrics,
}

/// Results of the members of an ensemble, and the calibration of their spread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnsembleResult {
    /// Result of each member.
    pub members: Vec<MemberResult>,
    /// Standard deviation over members against test errors, for every regression target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncertainty: Vec<UncertaintyCalibration>,
}

/// Result of one member of an ensemble.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberResult {
    /// Seed of the member.
    pub seed: u64,
    /// Epoch with the best validation score.
    pub best: BestEpoch,
    /// Test scores of the weights of that epoch.
    pub test: EvalMetrics,
    /// Number of epochs trained.
    pub epochs: usize,
    /// Wall time of training and validation, in seconds.
    pub seconds: f64,
}

/// Scores of the members of an ensemble on one split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnsembleEvaluation {
    /// Scores of each member.
    pub members: Vec<EvalMetrics>,
    /// Standard deviation over members against errors, for every regression target.
    pub uncertainty: Vec<UncertaintyCalibration>,
}

impl EnsembleEvaluation {
    pub(super) fn new(accumulators: &EnsembleAccumulators, schema: &Schema) -> Self {
        let EnsembleAccumulators { average, members } = accumulators;
        let predictions: Vec<Predictions> =
            members.iter().map(MetricAccumulator::predictions).collect();
        Self {
            members: members.iter().map(MetricAccumulator::scores).collect(),
            uncertainty: UncertaintyCalibration::compute(
                &average.predictions(),
                &predictions,
                schema,
            ),
        }
    }
}

/// Scores of a run on one split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Metric by which epochs are compared.
    pub metric: Metric,
    /// Scores over all targets.
    pub scores: EvalMetrics,
    /// Scores of each target.
    pub targets: Vec<TargetScores>,
    /// Scores of the members, if the run is an ensemble.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ensemble: Option<EnsembleEvaluation>,
}

/// Finished run, read from its directory.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedRun {
    /// Path of the run directory.
    pub directory: PathBuf,
    /// Recipe of the run.
    pub recipe: Recipe,
    /// Features and targets of the dataset; absent if they were not saved.
    pub schema: Option<Schema>,
    /// Size, split and fingerprint of the dataset; absent in runs of older versions.
    pub data: Option<DataRecord>,
    /// Scores and cost.
    pub result: RunResult,
    /// Records of its epochs; empty if they were not saved, or the run is an ensemble.
    pub history: Vec<EpochRecord>,
    /// Records of the epochs of each member, if the run is an ensemble.
    pub member_histories: Vec<Vec<EpochRecord>>,
    /// True if it has fingerprints of its training molecules, with which molecules are compared.
    pub has_fingerprints: bool,
    /// Environment of its first session, if known.
    pub environment: Option<Environment>,
    /// Predictions for the test graphs, if they were saved.
    pub test_predictions: Option<Predictions>,
}

impl FinishedRun {
    /// Returns the name of the run: that of its directory.
    pub fn name(&self) -> String {
        let path = self.directory.canonicalize();
        let path = path.as_deref().unwrap_or(&self.directory);
        path.file_name()
            .map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
    }
}
