//! File formats of user data.
//!
//! | module | content |
//! | --- | --- |
//! | [`smiles_csv`] | CSV, SMILES, SDF or Parquet file with molecules and target columns |
//! | [`jsonl`] | JSON or JSON Lines file of graphs, also of PyTorch Geometric and NetworkX |
//! | [`ogb_csv`] | directory of CSV files in the layout of the Open Graph Benchmark |
//! | [`tu`] | directory of a TU dataset |
//! | [`inference_input`] | rows of a file or directory, for a trained model |
//!
//! [`Format`] detects the format of a path. [`Featurizer`] converts SMILES to graphs, the same way
//! for training and inference.

mod csv_text;
mod featurizer;
mod known_categories;
mod row_labels;
mod table;

pub mod jsonl;
pub mod ogb_csv;
pub mod smiles_csv;
pub mod tu;

mod detect;
mod graph_directory;
mod read_report;
pub mod inference_input;

pub use csv_text::{csv_line, csv_quote};
pub use detect::{Format, FormatError};
pub use featurizer::Featurizer;
pub use read_report::ReadReport;
pub use row_labels::RowLabels;
pub(crate) use table::Table;
