//! What a trained model looks at: for one graph, where attention comes from and where it goes.
//!
//! An [`Explainer`] makes an [`AttentionTrace`], which is plain data; [`picture`] draws it, [`check`] puts
//! numbers on it. The trace is written as JSON or as arrays for `NumPy`; `docs/attention-trace.md` describes both.

mod archive;
mod atoms;
mod canvas;
pub mod check;
mod explainer;
pub mod layout;
mod letters;
mod molecule_layout;
pub mod picture;
mod png;
mod scores;
mod trace;

pub use canvas::Canvas;
pub use explainer::{ExplainError, Explainer};
pub use scores::GraphScore;
pub use trace::{AttentionTrace, HeadAttention, LayerAttention, Matrix, Outcome, Structure, TracedGraph};
