//! Downloads and unpacks published datasets into the directory where recipes expect them.
//!
//! ```text
//! data/
//!   peptides-func/             downloaded files
//!   ogbg-molhiv/               content of the archive: raw/ split/ mapping/
//!   zinc/                      CSV files converted from the archive: raw/ split/
//!   downloads/ogbg-molhiv/     the archive itself
//! ```
//!
//! An archive is unpacked into a temporary directory that is renamed last, so an existing directory
//! is complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::archive::{ArchiveError, UnpackLimits, unpack};
use super::catalog::{DatasetSource, PackageFormat, RemoteFile};
use super::fetch::{DownloadProgress, FetchError, Fetcher};
use crate::atomic_file::AtomicDirectory;
use crate::benchmarks::zinc;
use crate::error::{Diagnostic, LocatedError};
use crate::formats::ogb_csv::{self, csv_file};

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
    /// The downloaded files cannot be converted.
    #[error(transparent)]
    Convert(#[from] LocatedError),
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
            Self::Convert(error) => error.hint(),
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
        PackageFormat::ZincPickles => {
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
/// Returns an error if the dataset cannot be downloaded, unpacked or converted. Partial downloads
/// are kept and resumed by the next call.
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
        PackageFormat::ZincPickles => {
            let downloads = data.join("downloads").join(source.name);
            let mut paths = Vec::new();
            for file in source.files {
                paths.push(fetch(file, &downloads)?);
            }
            report(PrepareEvent::Unpacking { file: &source.files[0] });
            let converted = convert_zinc(&paths, &downloads, &directory, cancel);
            if converted.is_err() && cancel.load(Ordering::Relaxed) {
                return Err(FetchError::Canceled.into());
            }
            converted?;
        }
    }
    Ok(directory)
}

/// Converts the archive and the index files of ZINC to CSV files in `directory`.
fn convert_zinc(
    paths: &[PathBuf],
    downloads: &Path,
    directory: &Path,
    cancel: &AtomicBool,
) -> Result<(), PrepareError> {
    let failed = |source| PrepareError::Io { path: directory.to_owned(), source };
    let [archive, train, valid, test] = paths else {
        return Err(failed(io::Error::other("ZINC has one archive and three index files")));
    };
    let dataset = zinc::read_archive(archive, [train, valid, test], cancel)?;
    let beside = AtomicDirectory::create(&downloads.join("content")).map_err(failed)?;
    ogb_csv::write(&dataset, beside.content()).map_err(failed)?;
    fs::create_dir_all(directory).map_err(failed)?;
    // A dataset is complete if it has `raw`, so this comes last.
    for name in ["split", "raw"] {
        // An interrupted conversion has left the same files.
        if name == "split" && directory.join(name).exists() {
            continue;
        }
        fs::rename(beside.content().join(name), directory.join(name)).map_err(failed)?;
    }
    Ok(())
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
    use crate::download::test_server::{Server, complete, serve};

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

    /// Returns `zinc` with all files on a local server.
    fn served_zinc(files: &[(&'static str, Vec<u8>)]) -> (DatasetSource, Server) {
        let server = serve(files.iter().map(|(_, content)| complete(content)).collect());
        let remote = |(file_name, _): &(&'static str, _)| RemoteFile {
            url: format!("{}/{file_name}?dl=1", server.address).leak(),
            file_name,
            md5: None,
            sha256: None,
            bytes: None,
            max_bytes: 1 << 20,
        };
        let files = files.iter().map(remote).collect::<Vec<_>>().leak();
        (DatasetSource { files, ..*find_source("zinc").unwrap() }, server)
    }

    fn zinc_files(index: &str) -> Vec<(&'static str, Vec<u8>)> {
        let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        for name in ["train", "val", "test"] {
            let options = zip::write::SimpleFileOptions::default();
            writer.start_file(format!("molecules/{name}.pickle"), options).unwrap();
            let pickle = include_bytes!("../../tests/fixtures/zinc_protocol2.pickle");
            writer.write_all(pickle).unwrap();
        }
        let mut files = vec![("molecules.zip", writer.finish().unwrap().into_inner())];
        let indices = ["train.index", "val.index", "test.index"];
        files.extend(indices.map(|name| (name, index.as_bytes().to_vec())));
        files
    }

    #[test]
    fn downloaded_zinc_is_converted_and_read() {
        let data = tempfile::tempdir().unwrap();
        let (source, server) = served_zinc(&zinc_files("3,0,1\n"));
        let stop = AtomicBool::new(false);
        let mut unpacked = Vec::new();
        let directory = prepare_dataset(&source, data.path(), &offline(), &stop, |event| {
            if let PrepareEvent::Unpacking { file } = event {
                unpacked.push(file.file_name);
            }
        })
        .unwrap();
        assert_eq!(server.requests.join().unwrap().len(), 4);
        assert_eq!(unpacked, ["molecules.zip"]);
        assert!(is_prepared(&source, data.path()));
        let cache = data.path().join("cache");
        let dataset = zinc::read(&directory, &cache, &mut |_, _| {}).unwrap();
        assert_eq!(dataset.check(), Ok(()));
        assert_eq!(dataset.splits.valid, [3, 4, 5]);
        assert_eq!(dataset.schema, zinc::schema());
        let last = dataset.graphs.get(3);
        assert_eq!((last.num_nodes, last.edges.len()), (4, 6));
        assert_eq!(last.targets, crate::Targets::GraphValues(vec![3.0]));
        // The second call neither downloads nor converts.
        prepare_dataset(&source, data.path(), &offline(), &stop, |event| panic!("{event:?}"))
            .unwrap();
        // A conversion that was killed before its last step is completed.
        fs::rename(directory.join("raw"), data.path().join("removed")).unwrap();
        let cache = data.path().join("second_cache");
        prepare_dataset(&source, data.path(), &offline(), &stop, |_| {}).unwrap();
        let again = zinc::read(&directory, &cache, &mut |_, _| {}).unwrap();
        assert_eq!(again.fingerprint(), dataset.fingerprint());
    }

    #[test]
    fn unreadable_zinc_leaves_no_dataset() {
        let data = tempfile::tempdir().unwrap();
        let (source, _server) = served_zinc(&zinc_files("0,99\n"));
        let stop = AtomicBool::new(false);
        let error = prepare_dataset(&source, data.path(), &offline(), &stop, |_| {}).unwrap_err();
        assert!(error.to_string().contains("position 99 is out of range"), "{error}");
        assert!(error.hint().unwrap().contains("`smiles.csv`"));
        assert!(!is_prepared(&source, data.path()));
        // The files are kept, and CSV files may be provided instead.
        assert_eq!(fs::read_dir(data.path().join("downloads/zinc")).unwrap().count(), 4);
        fs::create_dir(data.path().join("zinc")).unwrap();
        fs::write(data.path().join("zinc/smiles.csv"), "smiles,y,split\n").unwrap();
        assert!(is_prepared(&source, data.path()));
    }
}
