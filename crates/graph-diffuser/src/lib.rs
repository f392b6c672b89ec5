//! Graph Transformers whose attention is directed by learned diffusion.
//!
//! An implementation of "Diffusing Graph Attention". Walks along a graph's edges, weighted as the
//! model learns to, say how every node relates to every other; these *virtual edges* direct the
//! attention of a Transformer.
//!
//! ```text
//! dataset ─► graph batch ─► virtual edges ─► transformer ─► head ─► loss, metric ─► run directory ─► report
//!  -data      batch          virtual_edges    transformer    head    task            run              report
//!                            Eq. 1–5          Eq. 6–9
//! ```
//!
//! # Shapes
//! One alphabet everywhere: `b` graphs, `n` nodes of one graph, `r` nodes of the batch, `m` edges,
//! `p` pairs of the batch (all ordered pairs inside each graph), `d` width, `h` heads, `k` steps,
//! `c` channels of a virtual edge.
//!
//! # Through all of it
//! ```
//! use graph_diffuser::batch::GraphBatch;
//! use graph_diffuser::nn::{ParamInit, ForwardContext};
//! use graph_diffuser::{Device, recipe::Recipe, task::Task};
//! use graph_diffuser_data::SeedTree;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let smaller = ["data.train=4", "data.valid=1", "data.test=1"].map(String::from);
//! let recipe = Recipe::find("grid-diffuser", &smaller)?;
//! let dataset = recipe.dataset()?;
//! let device = Device::flex().autodiff();
//!
//! let batcher = recipe.model.batcher(&device, graph_diffuser::DType::F32);
//! let batch: GraphBatch = batcher.collate(&dataset, &dataset.splits.train);
//! let model = recipe.model.init(&dataset, &mut ParamInit::new(SeedTree::new(recipe.seed), &device));
//! let output = model.forward(&batch, &ForwardContext::train(0)); // one row a node, one column a class
//! let loss = Task::of(dataset.schema.targets).loss(output, &batch.targets);
//! let gradients = loss.backward();
//! # assert!(!graph_diffuser::parameters::gradients(&model, &mut { gradients }).is_empty());
//! # Ok(())
//! # }
//! ```

// In reading order: from a batch of graphs to a report.
pub mod batch;

pub mod encode;

pub mod virtual_edges;

pub mod transformer;

pub mod head;

pub mod model;

pub mod task;

pub mod recipe;

pub mod train;

pub mod run;

pub mod pretrained;

pub mod predict;

pub mod explain;

pub mod sweep;

pub mod report;

// What the parts are made of, and how fast they are.
pub mod nn;

pub mod ops;

pub mod parameters;

pub mod bench;

pub use burn::tensor::{DType, Device};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
