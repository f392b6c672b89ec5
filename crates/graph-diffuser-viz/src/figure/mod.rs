//! Figures of graphs and of attention.

mod attention;
mod graph;
mod nodes;
mod panel;
mod structure;
#[cfg(test)]
pub(crate) mod traces;

pub use attention::{FigureView, draw_attention};
pub use graph::{MAX_NODES, draw_graph};
pub use nodes::{NodeLayout, node_fills};
pub use structure::{MAX_STRUCTURE_NODES, draw_structure};
