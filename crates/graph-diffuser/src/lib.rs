//! Graph Transformers with attention guided by learned diffusion.
//!
//! An implementation of "Diffusing Graph Attention". Powers of a learned, row-normalized adjacency
//! matrix give every node pair of a graph a feature vector, its *virtual edge*; virtual edges and
//! node features together determine the attention weights of a Transformer.
//!
//! ```text
//! dataset ─► batch ─► virtual edges ─► transformer ─► head ─► loss, metrics ─► run ─► report
//!  -data     batch    virtual_edges    transformer    task    task             run    -viz
//!                     Eq. 1–6, 9       Eq. 7–8
//! ```
//!
//! # Shapes
//! Shapes are written with the same letters in the whole crate: `b` graphs, `n` nodes of one graph,
//! `r` nodes of the batch, `m` edges, `p` node pairs of the batch (all ordered pairs within each
//! graph), `d` hidden dimension, `h` heads, `k` diffusion steps, `c` channels of a virtual edge.
//!
//! # Examples
//! Forward and backward pass of a built-in recipe on its training graphs:
//!
//! ```
//! use std::sync::Arc;
//!
//! use graph_diffuser::batch::GraphBatch;
//! use graph_diffuser::nn::{ParamInit, ForwardContext};
//! use graph_diffuser::recipe::{DataDirs, Recipe};
//! use graph_diffuser::{DType, Device};
//! use graph_diffuser_data::SeedTree;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let overrides = ["data.train=4", "data.valid=1", "data.test=1"].map(String::from);
//! let recipe = Recipe::find("grid-diffuser", &overrides)?;
//! let dataset = recipe.dataset(&DataDirs::from_env())?;
//! let device = Device::flex().autodiff();
//!
//! let task = recipe.task_for(&dataset.schema);
//! let batcher = recipe.model.batcher(&device, DType::F32).with_targets(Arc::new(task.clone()));
//! let batch: GraphBatch = batcher.collate(&dataset, &dataset.splits.train);
//! let mut init = ParamInit::new(SeedTree::new(recipe.seed), &device);
//! let model = recipe.model.init(&dataset, &mut init);
//! let output = model.forward(&batch, &ForwardContext::train(0)); // [r, classes]
//! let loss = task.loss(output, &batch);
//! let gradients = loss.backward();
//! # assert!(!graph_diffuser::parameters::gradients(&model, &mut { gradients }).is_empty());
//! # Ok(())
//! # }
//! ```

// In reading order: modules import only from modules above them.
pub mod device;

pub mod raw_encoding;

pub mod batch;

pub mod ops;

pub mod nn;

pub mod encode;

pub mod virtual_edges;

pub mod transformer;

pub mod statistics;

pub mod task;

pub mod model;

pub mod parameters;

pub mod optim;

pub mod distributed;

mod shell;

pub mod npy;

pub mod domain;

pub mod forest;

pub mod recipe;

pub mod train;

pub mod run;

pub mod pretrained;

pub mod predict;

pub mod explain;

pub mod sweep;

pub mod bench;

pub use burn::tensor::{DType, Device, Tensor};
/// Graphs and datasets, independent of tensors.
pub use graph_diffuser_data as data;
