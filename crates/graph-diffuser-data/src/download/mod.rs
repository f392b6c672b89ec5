//! Published datasets: catalog, resumable download and unpacking.

#[cfg(test)]
mod test_server;

mod archive;
mod catalog;
mod fetch;
mod prepare;

pub use archive::ArchiveError;
pub use catalog::{DatasetSource, PackageFormat, RemoteFile, SOURCES, UnknownSource, find_source};
pub use fetch::{DownloadProgress, FetchError, Fetcher};
pub use prepare::{PrepareError, PrepareEvent, is_prepared, prepare_dataset};
