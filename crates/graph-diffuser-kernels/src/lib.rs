//! Fused CPU kernels of Graph Diffuser: forward and backward passes on plain slices, without
//! tensors.
//!
//! Every kernel is written once against a trait of vector operations and compiled for AVX-512,
//! AVX2, NEON and any other processor; [`Isa::best`] selects a version at run time. Work is split
//! into tasks whose boundaries do not depend on the number of threads, and partial sums are added
//! in task order, so results are bit-identical for any number of threads.
//!
//! # Threads and state
//!
//! Kernels are functions of their arguments. The threads that run them, and the memory that they
//! reuse between calls, belong to a [`ThreadPool`]: a caller that wants its own creates one and
//! [installs](ThreadPool::install) it around its calls. All other calls use the default pool, which
//! is the only process-wide state of this crate; it is created on first use with one thread per
//! core, or by [`set_num_threads`].
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

// In reading order: a module refers only to modules above it.
mod simd;

mod buffer;

mod parallel;

mod shards;

mod offsets;

#[cfg(test)]
mod testing;

mod edges;

mod channel_blocks;
mod tile;

pub mod diffusion_stack;

pub mod diffusion_rows;

pub mod edge_ffn;

pub mod attention;

pub mod attention_rows;

pub mod linear;

pub mod batch_norm;

pub mod message;

pub mod adamw;

pub use edges::{Csr, EdgeIndex, EdgeTypes};
pub use offsets::GraphOffsets;
pub use parallel::{ThreadPool, num_threads, parallel_map, set_num_threads};
pub use shards::{Exchange, Reduction};
pub use simd::{Dropout, Isa, hash32};
