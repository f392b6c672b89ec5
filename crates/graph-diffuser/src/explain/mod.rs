//! Attention of a trained model on a single graph.
//!
//! An [`Explainer`] records an [`AttentionTrace`], which is plain data; [`faithfulness`] measures
//! how well attention agrees with the model's behavior. The crate `graph-diffuser-viz` draws traces
//! and exports them as `NumPy` arrays; `docs/attention-trace.md` describes the file formats.

mod structure;
mod atoms;
mod trace;
mod decode;
mod error;
mod traced_model;
mod explainer;
mod features;
pub mod faithfulness;
pub mod summary;
mod scores;

pub use error::ExplainError;
pub use explainer::Explainer;
pub use features::NamedFeatures;
pub use scores::{GraphScore, TargetScore};
pub use structure::Structure;
pub use trace::{
    AttentionTrace, HeadAttention, LayerAttention, NestedMatrix, PredictionAndTarget, TracedGraph,
    TracedTarget,
};
