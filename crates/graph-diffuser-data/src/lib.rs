//! Graphs and datasets for Graph Diffuser, independent of any tensor library.
//!
//! A [`Dataset`] holds [`Graph`]s, a [`Schema`] of their features and targets, and the train,
//! validation and test [`Splits`]. All randomness comes from named [`RandomStream`]s derived from
//! one seed, so the same seed gives the same data on every machine.
//!
//! ```
//! use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;
//!
//! let config = GridHistogram { train: 2, valid: 1, test: 1, ..GridHistogram::default() };
//! let dataset = config.generate();
//! assert_eq!(dataset.graphs.len(), 4);
//! assert_eq!(dataset.graphs.nodes(0) % 10, 0);
//! ```

mod dataset;
mod error;
mod graph;
mod random;
mod split;

pub mod benchmarks;
pub mod chem;
pub mod download;
pub mod formats;
#[doc(hidden)]
pub mod io;
pub mod summary;

pub use dataset::{
    Dataset, DatasetError, FeatureSchema, Graphs, Names, Schema, Split, Splits, TargetSchema,
};
pub use error::{Diagnostic, LocatedError};
pub use graph::{Features, Graph, GraphError, Targets};
pub use io::cache::CachedGraphs;
pub use io::progress::ProgressFn;
pub use random::{RandomStream, SeedTree};
pub use split::{DEFAULT_FRACTIONS, SplitError};
