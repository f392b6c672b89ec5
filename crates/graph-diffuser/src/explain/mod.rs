//! Attention of a trained model on a single graph.
//!
//! An [`Explainer`] records an [`AttentionTrace`], which is plain data; [`faithfulness`] measures
//! how well attention agrees with the model's behavior. The crate `graph-diffuser-viz` draws traces
//! and exports them as `NumPy` arrays; `docs/attention-trace.md` describes the file formats.

mod atoms;
mod decode;
mod error;
mod explainer;
mod features;
pub mod faithfulness;
mod scores;
pub mod summary;
mod trace;
mod traced_model;

pub use error::ExplainError;
pub use explainer::Explainer;
pub use features::NamedFeatures;
pub use scores::{GraphScore, TargetScore};
pub use trace::{
    AttentionTrace, HeadAttention, LayerAttention, NestedMatrix, PredictionAndTarget, Structure,
    TracedGraph, TracedTarget,
};
