//! Attention figures and reports of Graph Diffuser.
//!
//! [`figure`] draws an [`AttentionTrace`](graph_diffuser::explain::AttentionTrace) as SVG or PNG
//! and [`npz`] exports it as `NumPy` arrays; [`report`] compares finished runs with the results of
//! the paper. Everything is drawn on a [`Canvas`] with an embedded font, so figures do not depend
//! on the fonts of the machine.
//!
//! # Examples
//! Attention of an untrained model on a generated grid:
//!
//! ```
//! use std::sync::Arc;
//!
//! use graph_diffuser::explain::Explainer;
//! use graph_diffuser::nn::ParamInit;
//! use graph_diffuser::recipe::{DataDirs, Recipe};
//! use graph_diffuser::{DType, Device};
//! use graph_diffuser_data::SeedTree;
//! use graph_diffuser_viz::figure::{FigureView, draw_attention};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let overrides = ["data.train=1", "data.valid=1", "data.test=1"].map(String::from);
//! let recipe = Recipe::find("grid-quick", &overrides)?;
//! let dataset = Arc::new(recipe.dataset(&DataDirs::from_env())?);
//! let device = Device::flex();
//! let model = recipe.model.init(&dataset, &mut ParamInit::new(SeedTree::new(0), &device));
//!
//! let batcher = recipe.model.batcher(&device, DType::F32);
//! let explainer = Explainer::new(recipe, dataset.clone(), model, batcher)?;
//! let trace = explainer.trace(&dataset.graphs.get(0), Some(0), &[5]);
//! let canvas = draw_attention(&trace, FigureView { node: 5, layer: 0, head: None });
//! assert!(canvas.to_svg().starts_with("<svg"));
//! assert!(canvas.to_png().starts_with(b"\x89PNG"));
//! # Ok(())
//! # }
//! ```

// In reading order: modules import only from modules above them.
pub mod color;

mod font;

mod canvas;

mod chart;

pub mod layout;

pub mod figure;

pub mod npz;

pub mod report;

#[cfg(test)]
mod snapshot;

pub use canvas::{Canvas, Point};
