//! Extraction of untrusted zip and tar.gz archives.
//!
//! Entries are extracted into a temporary directory beside the target, which is renamed once it is
//! complete, so an existing target is always complete. Path traversal, links, devices and archives
//! beyond the [`UnpackLimits`] are rejected.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::atomic_file::AtomicDirectory;
use crate::error::Diagnostic;

/// Limits on the content of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnpackLimits {
    /// Maximum number of files and directories.
    pub(crate) entries: usize,
    /// Maximum number of bytes after decompression.
    pub(crate) bytes: u64,
    /// Maximum compression ratio; the first mebibyte of the output is exempt.
    pub(crate) ratio: u64,
}

impl UnpackLimits {
    /// Returns limits for an archive that unpacks to at most `max_bytes`.
    ///
    /// The maximum ratio is 200: deflate cannot exceed 1032, and text of small numbers reaches 40.
    pub(crate) fn with_max_bytes(max_bytes: u64) -> Self {
        Self { entries: 10_000, bytes: max_bytes, ratio: 200 }
    }
}

/// Errors of unpacking an archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// A file or directory cannot be read or written.
    #[error("cannot access `{path}`")]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// The file is neither a zip nor a gzip archive.
    #[error("`{path}` is neither a zip nor a tar.gz archive")]
    UnknownFormat {
        /// Path of the archive.
        path: PathBuf,
    },
    /// The archive is truncated, or its content does not match its checksum.
    #[error("`{path}` is corrupt or truncated: {message}")]
    Damaged {
        /// Path of the archive.
        path: PathBuf,
        /// Message of the decoder.
        message: String,
    },
    /// The archive contains no files.
    #[error("`{path}` contains no files")]
    Empty {
        /// Path of the archive.
        path: PathBuf,
    },
    /// The target directory already exists.
    #[error("`{path}` already exists")]
    TargetExists {
        /// Path of the target directory.
        path: PathBuf,
    },
    /// The path of an entry is outside the target directory.
    #[error("archive entry `{name}` is outside the target directory or not portable")]
    UnsafeName {
        /// Name of the entry.
        name: String,
    },
    /// An entry is a link, device or pipe.
    #[error("archive entry `{name}` is not a regular file or directory")]
    NotAFile {
        /// Name of the entry.
        name: String,
    },
    /// An entry is encrypted.
    #[error("archive entry `{name}` is encrypted")]
    Encrypted {
        /// Name of the entry.
        name: String,
    },
    /// Two entries have the same path, ignoring case.
    #[error("duplicate archive entry `{name}`")]
    Duplicate {
        /// Name of the second entry.
        name: String,
    },
    /// The zip directory lists more entries than there are distinct names.
    #[error("archive with {entries} entries has duplicate names")]
    DuplicateNames {
        /// Number of entries that the archive declares.
        entries: usize,
    },
    /// The archive has too many entries.
    #[error("archive has more than {limit} entries")]
    TooManyEntries {
        /// Maximum number of entries.
        limit: usize,
    },
    /// The archive unpacks to more bytes than the limits allow.
    #[error("archive unpacks to more than {limit} bytes")]
    TooLarge {
        /// Maximum number of bytes.
        limit: u64,
    },
}

impl Diagnostic for ArchiveError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Damaged { path, .. } | Self::UnknownFormat { path } | Self::Empty { path } => {
                Some(format!("delete `{}` and download it again", path.display()))
            }
            Self::TargetExists { .. } => Some("move or remove the existing directory".into()),
            Self::UnsafeName { .. }
            | Self::NotAFile { .. }
            | Self::Encrypted { .. }
            | Self::Duplicate { .. }
            | Self::DuplicateNames { .. }
            | Self::TooManyEntries { .. }
            | Self::TooLarge { .. } => {
                Some("this is not the published archive; do not use it".into())
            }
            Self::Io { .. } => None,
        }
    }
}

/// Unpacks a zip or tar.gz archive into the new directory `target`.
///
/// The format is detected from the first bytes of the file.
///
/// # Errors
/// Returns an error if the archive is corrupt, unsafe or beyond a limit, or if the target exists.
/// No files remain after an error.
pub(crate) fn unpack(
    archive: &Path,
    target: &Path,
    limits: &UnpackLimits,
) -> Result<(), ArchiveError> {
    let mut start = Vec::new();
    let read = File::open(archive).and_then(|file| file.take(4).read_to_end(&mut start));
    read.map_err(|source| ArchiveError::Io { path: archive.into(), source })?;
    match start.as_slice() {
        [b'P', b'K', ..] => {
            fill_new_directory(archive, target, |directory| unzip(archive, directory, limits))
        }
        [0x1f, 0x8b, ..] => {
            fill_new_directory(archive, target, |directory| untar(archive, directory, limits))
        }
        _ => Err(ArchiveError::UnknownFormat { path: archive.into() }),
    }
}

fn fill_new_directory(
    archive: &Path,
    target: &Path,
    fill: impl FnOnce(&Path) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    if target.symlink_metadata().is_ok() {
        return Err(ArchiveError::TargetExists { path: target.into() });
    }
    let failed = |source| ArchiveError::Io { path: target.into(), source };
    let directory = AtomicDirectory::create(target).map_err(failed)?;
    fill(directory.content())?;
    if fs::read_dir(directory.content()).map_err(failed)?.next().is_none() {
        return Err(ArchiveError::Empty { path: archive.into() });
    }
    directory.persist().map_err(failed)
}

fn unzip(path: &Path, directory: &Path, limits: &UnpackLimits) -> Result<(), ArchiveError> {
    let damaged = |error: zip::result::ZipError| ArchiveError::Damaged {
        path: path.into(),
        message: error.to_string(),
    };
    let io = |source| ArchiveError::Io { path: path.into(), source };
    let mut file = File::open(path).map_err(io)?;
    let declared = declared_entries(&mut file).map_err(io)?;
    let mut unpacked = Unpacked::new(path, directory, limits, file.metadata().map_err(io)?.len());
    let mut archive = zip::ZipArchive::new(BufReader::new(file)).map_err(damaged)?;
    // The reader keeps one entry per name, so duplicates only show in the count.
    if let Some(entries) = declared.filter(|&declared| declared > archive.len()) {
        return Err(ArchiveError::DuplicateNames { entries });
    }
    if archive.len() > limits.entries {
        return Err(ArchiveError::TooManyEntries { limit: limits.entries });
    }
    for index in 0..archive.len() {
        let name = archive.name_for_index(index).unwrap_or_default().to_owned();
        let mut entry = match archive.by_index(index) {
            Ok(entry) => entry,
            Err(zip::result::ZipError::UnsupportedArchive(
                zip::result::ZipError::PASSWORD_REQUIRED,
            )) => {
                return Err(ArchiveError::Encrypted { name });
            }
            Err(error) => return Err(damaged(error)),
        };
        const FILE_TYPE_MASK: u32 = 0o170_000;
        let plain = entry
            .unix_mode()
            .is_none_or(|mode| matches!(mode & FILE_TYPE_MASK, 0 | 0o100_000 | 0o040_000));
        if !plain || entry.is_symlink() {
            return Err(ArchiveError::NotAFile { name });
        }
        let kind = if entry.is_dir() { EntryKind::Directory } else { EntryKind::File };
        unpacked.add(&name, kind, &mut entry)?;
    }
    Ok(())
}

/// Returns the number of entries in the end-of-central-directory record of a zip file.
///
/// Returns `None` for zip64 archives, whose count does not fit the 16-bit field.
fn declared_entries(file: &mut File) -> io::Result<Option<usize>> {
    use std::io::{Seek, SeekFrom};
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(22 + 0xffff)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    file.seek(SeekFrom::Start(0))?;
    let record = tail.windows(4).rposition(|window| window == b"PK\x05\x06");
    let count = record.and_then(|record| tail.get(record + 10..record + 12));
    Ok(count
        .map(|bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
        .filter(|&count| count != 0xffff))
}

fn untar(path: &Path, directory: &Path, limits: &UnpackLimits) -> Result<(), ArchiveError> {
    let damaged =
        |error: io::Error| ArchiveError::Damaged { path: path.into(), message: error.to_string() };
    let io = |source| ArchiveError::Io { path: path.into(), source };
    let file = File::open(path).map_err(io)?;
    let mut unpacked = Unpacked::new(path, directory, limits, file.metadata().map_err(io)?.len());
    // Headers count too: 512 bytes per entry, as much padding, and some for long names.
    let max_stream = unpacked.max_bytes.saturating_add(4096 * limits.entries as u64);
    let content = MultiGzDecoder::new(BufReader::new(file)).take(max_stream);
    let mut archive = tar::Archive::new(content);
    for (index, entry) in archive.entries().map_err(damaged)?.enumerate() {
        let mut entry = entry.map_err(damaged)?;
        if index >= limits.entries {
            return Err(ArchiveError::TooManyEntries { limit: limits.entries });
        }
        let name = String::from_utf8(entry.path_bytes().into_owned()).map_err(|error| {
            ArchiveError::UnsafeName {
                name: String::from_utf8_lossy(error.as_bytes()).into_owned(),
            }
        })?;
        match entry.header().entry_type() {
            tar::EntryType::Regular => unpacked.add(&name, EntryKind::File, &mut entry)?,
            tar::EntryType::Directory => unpacked.add(&name, EntryKind::Directory, &mut entry)?,
            tar::EntryType::XGlobalHeader => {}
            _ => return Err(ArchiveError::NotAFile { name }),
        }
    }
    // Reads to the end of the stream to verify the gzip checksum.
    let mut content = archive.into_inner();
    io::copy(&mut content, &mut io::sink()).map_err(damaged)?;
    if content.limit() == 0 {
        Err(ArchiveError::TooLarge { limit: unpacked.max_bytes })
    } else {
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    File,
    Directory,
}

/// The entries written so far.
struct Unpacked<'a> {
    archive: &'a Path,
    directory: &'a Path,
    /// Lowercase names, because some file systems ignore case.
    names: HashSet<String>,
    written: u64,
    max_bytes: u64,
}

impl<'a> Unpacked<'a> {
    fn new(
        archive: &'a Path,
        directory: &'a Path,
        limits: &UnpackLimits,
        archive_bytes: u64,
    ) -> Self {
        let by_ratio = archive_bytes.saturating_mul(limits.ratio).saturating_add(1 << 20);
        let max_bytes = limits.bytes.min(by_ratio);
        Self { archive, directory, names: HashSet::new(), written: 0, max_bytes }
    }

    fn add(
        &mut self,
        name: &str,
        kind: EntryKind,
        content: &mut impl Read,
    ) -> Result<(), ArchiveError> {
        let inside =
            safe_path(name).ok_or_else(|| ArchiveError::UnsafeName { name: name.into() })?;
        let path = self.directory.join(&inside);
        let failed = |source: io::Error| match source.kind() {
            // One entry is a file and another needs a directory of the same name.
            io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory => ArchiveError::Duplicate { name: name.into() },
            _ => ArchiveError::Io { path: path.clone(), source },
        };
        if kind == EntryKind::Directory {
            return fs::create_dir_all(&path).map_err(failed);
        }
        if inside.as_os_str().is_empty() {
            return Err(ArchiveError::UnsafeName { name: name.into() });
        }
        if !self.names.insert(inside.to_string_lossy().to_lowercase()) {
            return Err(ArchiveError::Duplicate { name: name.into() });
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = content.read(&mut buffer).map_err(|error| ArchiveError::Damaged {
                path: self.archive.into(),
                message: format!("{error} in `{name}`"),
            })?;
            if read == 0 {
                return file.sync_all().map_err(failed);
            }
            self.written += read as u64;
            if self.written > self.max_bytes {
                return Err(ArchiveError::TooLarge { limit: self.max_bytes });
            }
            file.write_all(&buffer[..read]).map_err(failed)?;
        }
    }
}

/// Returns the relative path of an entry, or `None` if it is not safe on every operating system.
fn safe_path(name: &str) -> Option<PathBuf> {
    let not_portable = |letter: char| letter.is_control() || matches!(letter, '\\' | ':');
    if name.is_empty() || name.len() > 4096 || name.starts_with('/') || name.contains(not_portable)
    {
        return None;
    }
    let mut path = PathBuf::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => return None,
            part if part.len() > 255 || path.components().count() > 64 => return None,
            part => path.push(part),
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests;
