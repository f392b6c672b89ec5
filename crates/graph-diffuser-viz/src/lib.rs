//! Attention figures and reports of Graph Diffuser.
//!
//! [`figure`] draws an [`AttentionTrace`](graph_diffuser::explain::AttentionTrace) and [`npz`]
//! exports it as `NumPy` arrays; [`report`] compares finished runs with the results of the paper.

mod canvas;
pub mod figure;
pub mod layout;
mod molecule_layout;
pub mod npz;
mod png;
pub mod report;
mod stroke_font;

pub use canvas::Canvas;
