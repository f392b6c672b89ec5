//! GPU kernels of Graph Diffuser, written in CubeCL: buffers in, buffers out.
//!
//! One source serves every runtime of CubeCL: Vulkan, Metal and DirectX 12 through wgpu, and CUDA.
//! The kernels compute what those of `graph-diffuser-kernels` compute on the CPU, with the same
//! dropout masks.
//!
//! - **Ragged batches.** A kernel covers all graphs of a batch with one launch. The number of
//!   launches does not depend on the number of graphs or on their sizes.
//! - **Deterministic sums.** Sums over several units are trees in shared memory; there are no
//!   atomics. Results are equal in every run on one device, but differ between devices.
//! - **No subgroups.** No kernel depends on the width of a subgroup (warp).
//!
//! The crate is empty without its feature `kernels`, because CubeCL takes long to compile. The
//! feature `wgpu` adds a runtime for the tests.

#![cfg(feature = "kernels")]

mod buffer;
mod dropout;
mod moments;
mod reduce;
mod sums;

pub mod adamw;
pub mod attention;
pub mod batch_norm;
pub mod diffusion;
pub mod edge_ffn;
pub mod edges;
pub mod launches;
pub mod message;

#[cfg(all(test, feature = "wgpu"))]
mod testing;

pub use buffer::{Buffer, device_memory};
pub use dropout::CubeDropout;
pub use moments::NormStatistics;

pub use cubecl::client::Client;

/// Usual number of units of a cube (threads of a workgroup): a power of two, and a multiple of the
/// subgroup widths of current hardware.
pub const UNITS: usize = 64;

/// Largest number of cubes in one dimension that every runtime supports.
pub const MAX_CUBES: usize = 65_535;
