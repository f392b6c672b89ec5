//! File formats of user data: SMILES in a CSV file, graphs in JSON Lines, OGB CSV files, TU datasets.

mod detect;
pub mod inference_input;
pub mod jsonl;
pub mod ogb_csv;
pub mod smiles_csv;
pub mod tu;

pub use detect::{Format, FormatError};
pub use inference_input::Featurizer;
