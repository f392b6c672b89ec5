//! Attention of a trained model on a single graph.
//!
//! An [`Explainer`] records an [`AttentionTrace`], which is plain data. [`figure`] draws a trace
//! and [`faithfulness`] measures how well attention agrees with the model's behavior. A trace is
//! written as JSON or as `NumPy` arrays; `docs/attention-trace.md` describes both formats.

mod atoms;
mod canvas;
mod explainer;
pub mod faithfulness;
pub mod figure;
pub mod layout;
mod molecule_layout;
mod npz;
mod png;
mod scores;
mod stroke_font;
mod trace;

pub use canvas::Canvas;
pub use explainer::{ExplainError, Explainer};
pub use scores::GraphScore;
pub use trace::{
    AttentionTrace, HeadAttention, LayerAttention, NestedMatrix, PredictionAndTarget, Structure,
    TracedGraph,
};
