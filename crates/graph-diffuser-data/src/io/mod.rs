//! File access shared by the readers: text, CSV, SDF, Parquet, pickle and PyTorch files, the graph
//! cache, progress.

pub(crate) mod text_file;
pub(crate) mod numeric_csv;
pub(crate) mod progress;
pub(crate) mod cache;
pub(crate) mod utf16;
pub(crate) mod csv_records;
pub(crate) mod line_reader;
pub(crate) mod numpy_random;
pub(crate) mod par_chunks;
pub(crate) mod parquet_records;
pub(crate) mod pickle;
pub(crate) mod sdf_records;
pub(crate) mod smi_records;
pub(crate) mod torch_file;
