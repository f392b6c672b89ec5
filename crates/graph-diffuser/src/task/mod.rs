//! Tasks: target collation, head, loss, metrics and form of predictions, one task per file.

// In reading order: metrics and losses, predictions, the interface of tasks, the tasks, and what
// covers all of them.
mod metric;
mod sample_rows;
pub mod regression;
pub mod binary;
pub mod curves;
pub mod multiclass;
pub mod predictions;
mod prediction;
mod average;
mod kind;
mod pooling;
mod graph_targets;
pub mod node_classification;
pub mod sub_tokens;
pub mod link_prediction;
mod compute;
mod head;
mod config;
mod metric_accumulator;
mod scores;
mod uncertainty;

pub use config::{TaskConfig, TaskError};
pub use graph_targets::{GraphHead, GraphTargets};
pub use head::{Head, HeadConfig};
pub use kind::{OutputRows, Task, TaskKind};
pub use metric::Metric;
pub(crate) use metric::null_as_nan;
pub use metric_accumulator::{EvalMetrics, MetricAccumulator};
pub use pooling::Pooling;
pub(crate) use prediction::sigmoid;
pub use prediction::{ClassPrediction, PredictedLink, Prediction, TargetPrediction, csv_columns};
pub use predictions::Predictions;
pub use regression::RegressionLoss;
pub use sample_rows::SampleRows;
pub use scores::{Baseline, Score, TargetScores};
pub use uncertainty::{UncertaintyBin, UncertaintyCalibration};
