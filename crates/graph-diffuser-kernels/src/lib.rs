//! The heavy operations of Graph Diffuser on plain slices: no tensors, no allocation a pair.
//!
//! Every kernel is written once over one trait of vector operations and compiled for AVX-512, for AVX2 and
//! for any processor; [`Isa::best`] is chosen at run time. Work is cut into pieces that do not depend
//! on the number of threads, and sums over pieces are taken in their order, so results do not either.

pub mod adamw;
pub mod attention;
pub mod attention_rows;
pub mod batch_norm;
pub mod diffusion_rows;
pub mod diffusion_stack;
pub mod edge_ffn;
mod fresh;
pub mod linear;
pub mod message;
mod parallel;
mod simd;
mod tile;

pub use parallel::{Threads, use_threads};
pub use simd::{Dropout, Isa, hash32};

/// Where the nodes and pairs of each graph of a batch begin.
///
/// Nodes of all graphs follow one another, and so do their pairs: all ordered pairs of a graph's
/// nodes, row after row.
#[derive(Debug, Clone, Copy)]
pub struct Graphs<'a> {
    /// Number of nodes of each graph.
    pub sizes: &'a [usize],
    /// First node of each graph, and the number of all nodes.
    pub node_starts: &'a [usize],
    /// First pair of each graph, and the number of all pairs.
    pub pair_starts: &'a [usize],
}

impl Graphs<'_> {
    /// Number of graphs.
    pub fn count(&self) -> usize {
        self.sizes.len()
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.node_starts[self.count()]
    }

    /// Number of pairs.
    pub fn pairs(&self) -> usize {
        self.pair_starts[self.count()]
    }
}
