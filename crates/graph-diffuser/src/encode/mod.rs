//! Raw node and edge features become `x` and `e`.

mod features;
mod random_walk;

pub use features::FeatureEncoder;
pub use random_walk::{RandomWalkEncoding, ReturnProbabilities};
