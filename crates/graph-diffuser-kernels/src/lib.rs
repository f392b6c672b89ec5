//! Fused CPU kernels of Graph Diffuser: forward and backward passes on plain slices, without
//! tensors.
//!
//! Every kernel is written once against a trait of vector operations and compiled for AVX-512, for
//! AVX2 and for any other processor; [`Isa::best`] selects a version at run time. Work is split
//! into tasks whose boundaries do not depend on the number of threads, and partial sums are added
//! in task order, so results are bit-identical for any number of threads.
//!
//! # Examples
//!
//! ```
//! use graph_diffuser_kernels::Isa;
//! use graph_diffuser_kernels::linear::{self, LinearActivation, LinearParams};
//!
//! let activation = LinearActivation::Relu(None);
//! let params =
//!     LinearParams { inputs: 2, outputs: 1, weight: &[1.0, 2.0], bias: Some(&[0.5]), activation };
//! let y = linear::forward(Isa::best(), &params, &[3.0, 4.0, -3.0, -4.0]);
//! assert_eq!(y, [11.5, 0.0]);
//! ```

pub mod adamw;
pub mod attention;
pub mod attention_rows;
pub mod batch_norm;
pub mod diffusion_rows;
pub mod diffusion_stack;
pub mod edge_ffn;
pub mod linear;
pub mod message;
mod parallel;
mod simd;
mod tile;
mod uninit;

pub use parallel::{ThreadPool, set_num_threads};
pub use simd::{Dropout, Isa, hash32};

/// Offsets of the nodes and node pairs of each graph in a packed batch.
///
/// Nodes are stored graph after graph. The `n²` ordered node pairs of a graph are stored in
/// row-major order, also graph after graph.
#[derive(Debug, Clone, Copy)]
pub struct GraphOffsets<'a> {
    /// `[b]` number of nodes of each graph.
    pub sizes: &'a [usize],
    /// `[b + 1]` index of the first node of each graph, followed by the total number of nodes.
    pub node_starts: &'a [usize],
    /// `[b + 1]` index of the first pair of each graph, followed by the total number of pairs.
    pub pair_starts: &'a [usize],
}

impl GraphOffsets<'_> {
    /// Returns the number of graphs.
    pub fn num_graphs(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the total number of nodes.
    pub fn num_nodes(&self) -> usize {
        self.node_starts[self.num_graphs()]
    }

    /// Returns the total number of pairs.
    pub fn num_pairs(&self) -> usize {
        self.pair_starts[self.num_graphs()]
    }
}
