//! Graphs and datasets for Graph Diffuser, without tensors.
//!
//! A [`Dataset`] is a list of [`Graph`]s, what their features and targets mean, and which of them
//! are for training, validation and test. Everything random is drawn from a named [`Stream`] of
//! one seed, so the same seed gives the same data on every machine.
//!
//! ```
//! use graph_diffuser_data::grid_histogram::GridHistogram;
//!
//! let dataset = GridHistogram { train: 2, valid: 1, test: 1, ..GridHistogram::default() }.generate();
//! assert_eq!(dataset.graphs.len(), 4);
//! assert_eq!(dataset.graphs.nodes(0) % 10, 0);
//! ```

pub mod archive;
pub mod cache;
pub mod catalogue;
pub mod chunks;
pub mod csv_layout;
pub mod dataset;
pub mod delimited;
pub mod fetch;
pub mod format;
pub mod graph;
pub mod grid_histogram;
pub mod input;
pub mod install;
pub mod json_lines;
pub mod meter;
pub mod molecule;
pub mod number_rows;
pub mod numpy_random;
pub mod ogbg_code2;
pub mod ogbg_mol;
pub mod ogbg_ppa;
pub mod pcqm4mv2;
pub mod pcqm_contact;
pub mod peptides;
pub mod pickle;
pub mod problem;
pub mod random;
pub mod split;
pub mod summary;
pub mod synthetic_molecules;
pub mod table;
pub mod torch_file;
pub mod tu;
pub mod warnings;
pub mod zinc;
pub mod zinc_smiles;

pub use cache::CachedGraphs;
pub use dataset::{Dataset, FeatureSchema, Graphs, Names, Schema, Split, Splits, TargetSchema};
pub use graph::{Features, Graph, GraphError, Targets};
pub use problem::{Fault, Problem};
pub use random::{Seeds, Stream};
