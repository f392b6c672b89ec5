//! Puts a published dataset where recipes look for it: downloaded, unpacked, in a folder of its name.
//!
//! ```text
//! data/
//!   peptides-func/             files that are read as they are
//!   ogbg-molhiv/               what was in the archive: raw/ split/ mapping/
//!   downloads/ogbg-molhiv/     the archive itself
//! ```
//!
//! A folder that came out of an archive takes its name last, so one that is there is complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::archive::{ArchiveError, Limits, unpack};
use crate::catalog::{PackageFormat, RemoteFile, Source};
use crate::fetch::{DownloadProgress, FetchError, Fetcher};
use crate::ogb_csv::csv_file;

/// Bytes that an archive may unpack to for each byte that it may have.
const UNPACKED: u64 = 20;

/// What happens while a dataset is put in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareEvent<'a> {
    /// A file comes in.
    Fetching {
        /// Which.
        file: &'a RemoteFile<'static>,
        /// How far it is.
        progress: DownloadProgress,
    },
    /// An archive is opened.
    Unpacking {
        /// Which.
        file: &'a RemoteFile<'static>,
    },
}

/// Why a dataset is not in its place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// A file did not come.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// An archive cannot be opened.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// What is published cannot be read.
    #[error("`{name}` is published as {what}, which this program does not read")]
    Foreign {
        /// Its name.
        name: &'static str,
        /// What it is published as.
        what: &'static str,
        /// What is read instead.
        instead: &'static str,
        /// From where.
        directory: PathBuf,
    },
    /// The disk fails.
    #[error("cannot write `{path}`")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl PrepareError {
    /// What the user can do about it, when we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Fetch(error) => error.hint(),
            Self::Archive(error) => error.hint(),
            Self::Foreign { instead, directory, .. } => {
                Some(format!("put into `{}` {instead}", directory.display()))
            }
            Self::Io { .. } => Some("check free space and permissions".into()),
        }
    }
}

/// Whether a dataset is in its place below `data`.
pub fn is_prepared(source: &Source, data: &Path) -> bool {
    let directory = data.join(source.name);
    match source.form {
        PackageFormat::Plain => source.files.iter().all(|file| directory.join(file.file).is_file()),
        PackageFormat::Archive => directory.is_dir(),
        PackageFormat::Foreign { .. } => {
            csv_file(&directory, "smiles").is_some()
                || csv_file(&directory.join("raw"), "num-node-list").is_some()
        }
    }
}

/// Puts a dataset in its place below `data`, unless it is there, and says where that is.
///
/// # Errors
/// If it cannot be downloaded, unpacked or read at all. What was downloaded stays, and is gone on from.
pub fn install(
    source: &Source,
    data: &Path,
    fetcher: &Fetcher,
    cancel: &AtomicBool,
    mut tell: impl FnMut(PrepareEvent<'_>),
) -> Result<PathBuf, PrepareError> {
    let directory = data.join(source.name);
    if is_prepared(source, data) {
        return Ok(directory);
    }
    let mut fetch = |file: &'static RemoteFile<'static>, into: &Path| {
        fetcher.fetch(file, into, cancel, &mut |progress| {
            tell(PrepareEvent::Fetching { file, progress })
        })
    };
    match source.form {
        PackageFormat::Foreign { what, instead } => {
            return Err(PrepareError::Foreign { name: source.name, what, instead, directory });
        }
        PackageFormat::Plain => {
            for file in source.files {
                fetch(file, &directory)?;
            }
        }
        PackageFormat::Archive => {
            let downloads = data.join("downloads").join(source.name);
            let file = &source.files[0]; // the only one
            let archive = fetch(file, &downloads)?;
            tell(PrepareEvent::Unpacking { file });
            place(&archive, &downloads, &directory, file.max_bytes.saturating_mul(UNPACKED))?;
        }
    }
    Ok(directory)
}

/// Unpacks an archive and gives what is in it its place, without the folder that all of it stands in.
fn place(
    archive: &Path,
    downloads: &Path,
    directory: &Path,
    most_bytes: u64,
) -> Result<(), PrepareError> {
    let failed = |source| PrepareError::Io { path: directory.to_owned(), source };
    let beside =
        tempfile::Builder::new().prefix(".unpacked-").tempdir_in(downloads).map_err(failed)?;
    let unpacked = beside.path().join("content");
    unpack(archive, &unpacked, &Limits::of_bytes(most_bytes))?;
    let mut entries = Vec::new();
    for entry in unpacked.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // What macOS adds to archives.
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
    use crate::catalog;

    fn zipped(files: &[(&str, &str)]) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        for (name, content) in files {
            writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            writer.write_all(content.as_bytes()).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    fn offline() -> Fetcher {
        Fetcher { timeout: Duration::from_millis(200), retries: 0, pause: Duration::ZERO }
    }

    #[test]
    fn an_archive_that_was_put_there_by_hand_is_unpacked_into_its_place() {
        let data = tempfile::tempdir().unwrap();
        let source = catalog::source("MUTAG").unwrap();
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
        let directory = install(source, data.path(), &offline(), &stop, |_| {}).unwrap();
        assert_eq!(directory, data.path().join("MUTAG"));
        assert!(directory.join("MUTAG_A.txt").is_file() && is_prepared(source, data.path()));
        assert_eq!(
            fs::read_dir(&downloads).unwrap().count(),
            1,
            "something was left beside the archive"
        );
        // Once more there is nothing to do.
        assert_eq!(install(source, data.path(), &offline(), &stop, |_| {}).unwrap(), directory);
    }

    #[test]
    fn a_damaged_archive_leaves_nothing_in_its_place() {
        let data = tempfile::tempdir().unwrap();
        let downloads = data.path().join("downloads/MUTAG");
        fs::create_dir_all(&downloads).unwrap();
        fs::write(downloads.join("MUTAG.zip"), b"PK\x03\x04 and no more").unwrap();
        let source = catalog::source("MUTAG").unwrap();
        let error =
            install(source, data.path(), &offline(), &AtomicBool::new(false), |_| {}).unwrap_err();
        assert!(error.hint().unwrap().starts_with("delete `"), "{error}");
        assert!(!data.path().join("MUTAG").exists());
    }

    #[test]
    fn what_cannot_be_read_is_not_downloaded() {
        let data = tempfile::tempdir().unwrap();
        let source = catalog::source("zinc").unwrap();
        let error =
            install(source, data.path(), &offline(), &AtomicBool::new(false), |_| {}).unwrap_err();
        assert!(error.hint().unwrap().contains("`smiles.csv`"), "{error}");
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
        fs::create_dir(data.path().join("zinc")).unwrap();
        fs::write(data.path().join("zinc/smiles.csv"), "smiles,y,split\n").unwrap();
        assert!(is_prepared(source, data.path()));
    }
}
