//! Graphs and datasets for Graph Diffuser, independent of any tensor library.
//!
//! A [`Dataset`] holds [`Graph`]s, a [`Schema`] of their features and targets, and the train,
//! validation and test [`Splits`]. All randomness comes from named [`RandomStream`]s derived from
//! one seed, so the same seed gives the same data on every machine.
//!
//! | module | content |
//! | --- | --- |
//! | [`summary`] | statistics of a dataset, and warnings about suspicious data |
//! | [`chem`] | molecules from SMILES and molfiles, their features and scaffolds |
//! | [`formats`] | user files: tables of molecules, JSON graphs, OGB CSV, TU datasets |
//! | [`benchmarks`] | published and generated datasets, one module each |
//! | [`examples`] | small datasets for demonstrations |
//! | `download` | catalog and download of published datasets |
//!
//! A module imports only from those above it and from the core types at the root.
//!
//! ```
//! use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;
//!
//! let config = GridHistogram { train: 2, valid: 1, test: 1, ..GridHistogram::default() };
//! let dataset = config.generate();
//! assert_eq!(dataset.graphs.len(), 4);
//! assert_eq!(dataset.graphs.num_nodes(0) % 10, 0);
//! ```
//!
//! # Features
//!
//! All are enabled by default.
//!
//! - `chem`: SMILES. Without it, readers of SMILES return [`chem::MoleculeError::Disabled`].
//! - `download`: the module `download`.
//! - `parquet`: Parquet files of molecules. Without it, they are rejected with an error.

mod error;

mod caught_panic;

mod atomic_file;
mod partial_file;
mod threads;

mod graph;
mod random;
mod schema;
mod split;

mod io;

mod dataset;
mod fingerprint;
pub mod summary;

pub mod chem;

pub mod formats;

mod report;

pub mod benchmarks;

pub mod examples;

#[cfg(feature = "download")]
pub mod download;

pub use atomic_file::{AtomicDirectory, AtomicFile, WriteError};
pub use caught_panic::silence_caught_panics;
pub use dataset::{Dataset, DatasetError, Graphs};
pub use error::{Diagnostic, LocatedError};
pub use graph::{Features, Graph, GraphError, MISSING_CLASS, Targets};
pub use io::cache::{CacheModifiedError, CachedGraphs};
pub use io::progress::ProgressFn;
pub use partial_file::PartialFile;
pub use random::{RandomStream, SeedTree};
pub use report::{DatasetReport, Duplicates, SkippedRows};
pub use schema::{
    ColumnSchema, FeatureSchema, Names, Schema, Standardization, TargetKind, TargetSchema,
};
pub use split::{Split, SplitError, Splits};
pub use threads::{ThreadError, map_on_threads, map_ranges, max_threads, set_max_threads};
