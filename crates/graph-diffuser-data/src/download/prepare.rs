//! Downloads and unpacks published datasets into the directory where recipes expect them.
//!
//! ```text
//! data/
//!   peptides-func/             downloaded files
//!   ogbg-molhiv/               content of the archive: raw/ split/ mapping/
//!   downloads/ogbg-molhiv/     the archive itself
//! ```
//!
//! An archive is unpacked into a temporary directory that is renamed last, so an existing directory
//! is complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::archive::{ArchiveError, UnpackLimits, unpack};
use super::catalog::{DatasetSource, PackageFormat, RemoteFile};
use super::fetch::{DownloadProgress, FetchError, Fetcher};
use crate::atomic_file::AtomicDirectory;
use crate::error::Diagnostic;
use crate::formats::ogb_csv::csv_file;

/// Maximum size of the unpacked files, as a multiple of the maximum size of the archive.
const MAX_UNPACKED_RATIO: u64 = 20;

/// Progress of [`prepare_dataset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareEvent<'a> {
    /// A file is being downloaded.
    Fetching {
        /// The file.
        file: &'a RemoteFile<'static>,
        /// Progress of the download.
        progress: DownloadProgress,
    },
    /// An archive is being unpacked.
    Unpacking {
        /// The archive.
        file: &'a RemoteFile<'static>,
    },
}

/// Errors of [`prepare_dataset`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// A download failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// An archive cannot be unpacked.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The published files cannot be read.
    #[error("`{name}` is published as {published}, which are not supported")]
    Unsupported {
        /// Name of the dataset.
        name: &'static str,
        /// Format of the published files.
        published: &'static str,
        /// Files that are read instead.
        expected: &'static str,
        /// Directory of these files.
        directory: PathBuf,
    },
    /// A file or directory cannot be written.
    #[error("cannot write `{path}`")]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
}

impl Diagnostic for PrepareError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Fetch(error) => error.hint(),
            Self::Archive(error) => error.hint(),
            Self::Unsupported { expected, directory, .. } => {
                Some(format!("put {expected} into `{}`", directory.display()))
            }
            Self::Io { .. } => Some("check permissions and free disk space".into()),
        }
    }
}

/// Returns `true` if the files of a dataset exist in the directory `data`.
pub fn is_prepared(source: &DatasetSource, data: &Path) -> bool {
    let directory = data.join(source.name);
    match source.format {
        PackageFormat::Plain => {
            source.files.iter().all(|file| directory.join(file.file_name).is_file())
        }
        PackageFormat::Archive => directory.is_dir(),
        PackageFormat::Unsupported { .. } => {
            csv_file(&directory, "smiles").is_some()
                || csv_file(&directory.join("raw"), "num-node-list").is_some()
        }
    }
}

/// Downloads and unpacks a dataset into the directory `data`, and returns its path.
///
/// Does nothing if the dataset exists already.
///
/// # Errors
/// Returns an error if the dataset cannot be downloaded or unpacked, or is not supported. Partial
/// downloads are kept and resumed by the next call.
pub fn prepare_dataset(
    source: &DatasetSource,
    data: &Path,
    fetcher: &Fetcher,
    cancel: &AtomicBool,
    mut report: impl FnMut(PrepareEvent<'_>),
) -> Result<PathBuf, PrepareError> {
    let directory = data.join(source.name);
    if is_prepared(source, data) {
        return Ok(directory);
    }
    let mut fetch = |file: &'static RemoteFile<'static>, into: &Path| {
        fetcher.fetch(file, into, cancel, &mut |progress| {
            report(PrepareEvent::Fetching { file, progress });
        })
    };
    match source.format {
        PackageFormat::Unsupported { published, expected } => {
            let name = source.name;
            return Err(PrepareError::Unsupported { name, published, expected, directory });
        }
        PackageFormat::Plain => {
            for file in source.files {
                fetch(file, &directory)?;
            }
        }
        PackageFormat::Archive => {
            let downloads = data.join("downloads").join(source.name);
            let file = &source.files[0]; // archives are single files
            let archive = fetch(file, &downloads)?;
            report(PrepareEvent::Unpacking { file });
            let max_bytes = file.max_bytes.saturating_mul(MAX_UNPACKED_RATIO);
            unpack_into(&archive, &downloads, &directory, max_bytes)?;
        }
    }
    Ok(directory)
}

/// Unpacks an archive into `directory`, stripping the top-level directory if it is the only entry.
fn unpack_into(
    archive: &Path,
    downloads: &Path,
    directory: &Path,
    max_bytes: u64,
) -> Result<(), PrepareError> {
    let failed = |source| PrepareError::Io { path: directory.to_owned(), source };
    let beside = AtomicDirectory::create(&downloads.join("content")).map_err(failed)?;
    let unpacked = beside.content().join("archive");
    unpack(archive, &unpacked, &UnpackLimits::with_max_bytes(max_bytes))?;
    let mut entries = Vec::new();
    for entry in unpacked.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // macOS adds this directory to archives.
        if entry.file_name() != "__MACOSX" {
            entries.push(entry.path());
        }
    }
    let content = match &entries[..] {
        [folder] if folder.is_dir() => folder.as_path(),
        _ => &unpacked,
    };
    fs::rename(content, directory).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;
    use crate::download::find_source;

    fn zipped(files: &[(&str, &str)]) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        for (name, content) in files {
            writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            writer.write_all(content.as_bytes()).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    fn offline() -> Fetcher {
        Fetcher { timeout: Duration::from_millis(200), retries: 0, initial_backoff: Duration::ZERO }
    }

    #[test]
    fn manually_downloaded_archive_is_unpacked() {
        let data = tempfile::tempdir().unwrap();
        let source = find_source("MUTAG").unwrap();
        let downloads = data.path().join("downloads/MUTAG");
        fs::create_dir_all(&downloads).unwrap();
        let archive = zipped(&[
            ("MUTAG/MUTAG_A.txt", "1, 2\n"),
            ("MUTAG/README.txt", "x"),
            ("__MACOSX/x", ""),
        ]);
        fs::write(downloads.join("MUTAG.zip"), archive).unwrap();
        assert!(!is_prepared(source, data.path()));
        let stop = AtomicBool::new(false);
        let directory = prepare_dataset(source, data.path(), &offline(), &stop, |_| {}).unwrap();
        assert_eq!(directory, data.path().join("MUTAG"));
        assert!(directory.join("MUTAG_A.txt").is_file() && is_prepared(source, data.path()));
        assert_eq!(
            fs::read_dir(&downloads).unwrap().count(),
            1,
            "temporary files were left beside the archive"
        );
        // The second call does nothing.
        assert_eq!(
            prepare_dataset(source, data.path(), &offline(), &stop, |_| {}).unwrap(),
            directory
        );
    }

    #[test]
    fn corrupt_archive_leaves_no_directory() {
        let data = tempfile::tempdir().unwrap();
        let downloads = data.path().join("downloads/MUTAG");
        fs::create_dir_all(&downloads).unwrap();
        fs::write(downloads.join("MUTAG.zip"), b"PK\x03\x04 and no more").unwrap();
        let source = find_source("MUTAG").unwrap();
        let error =
            prepare_dataset(source, data.path(), &offline(), &AtomicBool::new(false), |_| {})
                .unwrap_err();
        assert!(error.hint().unwrap().starts_with("delete `"), "{error}");
        assert!(!data.path().join("MUTAG").exists());
    }

    #[test]
    fn unsupported_dataset_is_not_downloaded() {
        let data = tempfile::tempdir().unwrap();
        let source = find_source("zinc").unwrap();
        let error =
            prepare_dataset(source, data.path(), &offline(), &AtomicBool::new(false), |_| {})
                .unwrap_err();
        assert!(error.hint().unwrap().contains("`smiles.csv`"), "{error}");
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
        fs::create_dir(data.path().join("zinc")).unwrap();
        fs::write(data.path().join("zinc/smiles.csv"), "smiles,y,split\n").unwrap();
        assert!(is_prepared(source, data.path()));
    }
}
