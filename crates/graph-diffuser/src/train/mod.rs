//! Training loop with exact resume and results that do not depend on the number of threads.

mod available_memory;
mod batches;
mod checkpoint_error;
mod lock;
mod progress;
mod checkpoint;
mod checkpoint_message;
mod deal;
mod error;
mod eval_batcher;
mod shards;
mod evaluate;
mod memory;
mod schema;
mod weights;
mod state;
mod trainer;

pub use available_memory::{available_bytes, available_bytes_on};
pub(crate) use batches::with_encoding_cache;
pub use batches::{BatchSize, recalibration_batches, training_batches};
pub use checkpoint::{Checkpoint, Checkpoints, LoadedCheckpoint};
pub use checkpoint_error::CheckpointError;
pub use deal::deal;
pub use error::TrainError;
pub use eval_batcher::EvalBatcher;
pub use evaluate::{EnsembleAccumulators, Evaluator, recalibrate};
pub use lock::RunLock;
pub use memory::{BatchShape, check_memory, largest_step, step_bytes};
pub use progress::{BestEpoch, EpochRecord, TrainEvent, TrainOutcome, TrainProgress};
pub use schema::RunSchema;
pub use shards::{ShardedBatch, ShardedGradient, Shards};
pub use state::check_loss;
pub(crate) use trainer::interruption;
pub use trainer::{Trainer, check_selection};
pub(crate) use weights::{
    WEIGHTS, WeightsMetadata, check_shapes, check_weights, has_schema, load_model, load_part,
    load_weights, serialize_tensors,
};
