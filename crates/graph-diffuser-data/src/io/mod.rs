//! File access shared by the readers: CSV, pickle and PyTorch files, the graph cache, progress.

pub mod cache;
pub mod csv_records;
pub mod numeric_csv;
pub mod numpy_random;
pub mod par_chunks;
pub mod pickle;
pub mod progress;
pub mod torch_file;
