//! Figures of graphs and of attention.

mod nodes;
mod attention_layout;
mod panel;
mod attention;
mod graph;
mod structure;
#[cfg(test)]
pub(crate) mod traces;

pub use attention::draw_attention;
pub use attention_layout::FigureView;
pub use graph::{MAX_NODES, draw_graph};
pub use nodes::{NodeLayout, node_fills};
pub use structure::{MAX_STRUCTURE_NODES, draw_structure};
