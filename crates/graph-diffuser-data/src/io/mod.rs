//! File access shared by the readers: CSV, pickle and PyTorch files, the graph cache, progress.

pub(crate) mod cache;
pub(crate) mod csv_records;
pub(crate) mod numeric_csv;
pub(crate) mod numpy_random;
pub(crate) mod par_chunks;
pub(crate) mod pickle;
pub(crate) mod progress;
pub(crate) mod text_file;
pub(crate) mod torch_file;
