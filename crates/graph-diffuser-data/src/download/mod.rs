//! Published datasets: catalog, resumable download and unpacking.

mod archive;
mod catalog;
mod fetch;
mod prepare;

pub use archive::ArchiveError;
pub use catalog::{DatasetSource, PackageFormat, RemoteFile, SOURCES, UnknownSource, find_source};
pub use fetch::{DownloadProgress, FetchError, Fetcher};
pub use prepare::{PrepareError, PrepareEvent, is_prepared, prepare_dataset};
