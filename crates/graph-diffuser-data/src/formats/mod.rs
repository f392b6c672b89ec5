//! File formats of user data.
//!
//! | module | content |
//! | --- | --- |
//! | [`smiles_csv`] | CSV, SMILES, SDF or Parquet file with molecules and target columns |
//! | [`jsonl`] | JSON Lines file with one graph per line |
//! | [`ogb_csv`] | directory of CSV files in the layout of the Open Graph Benchmark |
//! | [`tu`] | directory of a TU dataset |
//! | [`inference_input`] | rows of a file of molecules or graphs, for a trained model |
//!
//! [`Format`] detects the format of a path. [`Featurizer`] converts SMILES to graphs, the same way
//! for training and inference.

mod featurizer;
mod table;

pub mod jsonl;
pub mod ogb_csv;
pub mod smiles_csv;
pub mod tu;

mod detect;
pub mod inference_input;

pub use detect::{Format, FormatError};
pub use featurizer::Featurizer;
pub(crate) use table::Table;
