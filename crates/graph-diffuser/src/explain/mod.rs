//! What a trained model looks at: for one graph, where attention comes from and where it goes.
//!
//! An [`Explainer`] makes an [`AttentionTrace`], which is plain data; [`picture`] draws it, [`check`] puts
//! numbers on it. The trace is written as JSON or as arrays for `NumPy`; `docs/attention-trace.md` describes both.

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
    AttentionTrace, HeadAttention, LayerAttention, Matrix, PredictionAndTarget, Structure,
    TracedGraph,
};
