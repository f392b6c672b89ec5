//! Graphs and datasets for Graph Diffuser, independent of any tensor library.
//!
//! A [`Dataset`] holds [`Graph`]s, a [`Schema`] of their features and targets, and the train,
//! validation and test [`Splits`]. All randomness comes from named [`RandomStream`]s derived from
//! one seed, so the same seed gives the same data on every machine.
//!
//! ```
//! use graph_diffuser_data::grid_histogram::GridHistogram;
//!
//! let config = GridHistogram { train: 2, valid: 1, test: 1, ..GridHistogram::default() };
//! let dataset = config.generate();
//! assert_eq!(dataset.graphs.len(), 4);
//! assert_eq!(dataset.graphs.nodes(0) % 10, 0);
//! ```

pub mod archive;
pub mod cache;
pub mod catalog;
pub mod csv_records;
pub mod dataset;
pub mod error;
pub mod fetch;
pub mod format;
pub mod graph;
pub mod grid_histogram;
pub mod inference_input;
pub mod jsonl;
pub mod molecule;
pub mod numeric_csv;
pub mod numpy_random;
pub mod ogb_csv;
pub mod ogbg_code2;
pub mod ogbg_mol;
pub mod ogbg_ppa;
pub mod par_chunks;
pub mod pcqm4mv2;
pub mod pcqm_contact;
pub mod peptides;
pub mod pickle;
pub mod prepare;
pub mod progress;
pub mod random;
pub mod smiles_csv;
pub mod split;
pub mod summary;
pub mod synthetic_molecules;
pub mod torch_file;
pub mod tu;
pub mod warnings;
pub mod zinc;
pub mod zinc_smiles;

pub use cache::CachedGraphs;
pub use dataset::{Dataset, FeatureSchema, Graphs, Names, Schema, Split, Splits, TargetSchema};
pub use error::{Diagnostic, LocatedError};
pub use graph::{Features, Graph, GraphError, Targets};
pub use random::{RandomStream, SeedTree};
