//! Graph Transformers whose attention is directed by learned diffusion.
pub mod batch;
pub mod encode;
pub mod virtual_edges;
pub mod transformer;
pub mod head;
pub mod model;
pub mod task;
pub mod recipe;
pub mod train;
pub mod ops;
pub mod nn;
pub mod parameters;
pub mod run;
pub mod report;
pub mod bench;

pub use burn::tensor::Device;
