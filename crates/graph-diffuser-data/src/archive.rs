//! Unpacks archives that may mean harm.
//!
//! Everything goes into a new directory beside the target, which takes the target's name when all of it is there: a
//! target that exists is complete. Names that lead elsewhere, links, devices and sizes beyond the limits are refused.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

/// What an archive may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most files and directories.
    pub entries: usize,
    /// The most bytes when unpacked.
    pub bytes: u64,
    /// The most bytes for each byte of the archive, of what is unpacked past the first mebibyte.
    pub ratio: u64,
}

impl Limits {
    /// For an archive that should unpack to no more than so many bytes.
    ///
    /// Deflate cannot exceed a ratio of 1032; text of small numbers reaches 40.
    pub fn of_bytes(bytes: u64) -> Self {
        Self { entries: 10_000, bytes, ratio: 200 }
    }
}

/// Why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The archive or the directory cannot be read or written.
    #[error("cannot use `{path}`")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Neither zip nor gzip.
    #[error("`{path}` is neither a zip nor a tar.gz archive")]
    UnknownFormat {
        /// The archive.
        path: PathBuf,
    },
    /// It is cut, or its content does not fit its checksum.
    #[error("`{path}` is damaged or cut: {message}")]
    Damaged {
        /// The archive.
        path: PathBuf,
        /// What the reader says.
        message: String,
    },
    /// Something is already there.
    #[error("`{path}` already exists")]
    TargetExists {
        /// What exists.
        path: PathBuf,
    },
    /// A name that leads outside of the target.
    #[error("the entry `{name}` would be written elsewhere")]
    UnsafeName {
        /// The name.
        name: String,
    },
    /// A link, device or pipe.
    #[error("the entry `{name}` is neither a file nor a directory")]
    NotAFile {
        /// Its name.
        name: String,
    },
    /// An entry that nobody can read without a password.
    #[error("the entry `{name}` is encrypted")]
    Encrypted {
        /// Its name.
        name: String,
    },
    /// Two entries for one file, also where they differ in case alone.
    #[error("the entry `{name}` stands twice")]
    Duplicate {
        /// Its name.
        name: String,
    },
    /// More entries than the limit.
    #[error("more than {limit} entries")]
    TooManyEntries {
        /// The limit.
        limit: usize,
    },
    /// More bytes than the limit.
    #[error("it unpacks to more than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
}

impl ArchiveError {
    /// What the user can do about it, when we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Damaged { path, .. } | Self::UnknownFormat { path } => {
                Some(format!("delete `{}` and download it again", path.display()))
            }
            Self::TargetExists { .. } => Some("move it away first; nothing is overwritten".into()),
            Self::UnsafeName { .. }
            | Self::NotAFile { .. }
            | Self::Encrypted { .. }
            | Self::Duplicate { .. }
            | Self::TooManyEntries { .. }
            | Self::TooLarge { .. } => {
                Some("this is not the published archive; do not trust its source".into())
            }
            Self::Io { .. } => None,
        }
    }
}

/// Unpacks a zip or tar.gz archive, told by its first bytes, into the new directory `target`.
///
/// # Errors
/// If the archive is damaged or breaks a limit, or the target exists. Nothing is left behind then.
pub fn unpack(archive: &Path, target: &Path, limits: &Limits) -> Result<(), ArchiveError> {
    let mut start = Vec::new();
    let read = File::open(archive).and_then(|file| file.take(4).read_to_end(&mut start));
    read.map_err(|source| ArchiveError::Io { path: archive.into(), source })?;
    match start.as_slice() {
        [b'P', b'K', ..] => into_new(target, |directory| unzip(archive, directory, limits)),
        [0x1f, 0x8b, ..] => into_new(target, |directory| untar(archive, directory, limits)),
        _ => Err(ArchiveError::UnknownFormat { path: archive.into() }),
    }
}

fn into_new(
    target: &Path,
    fill: impl FnOnce(&Path) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    if target.symlink_metadata().is_ok() {
        return Err(ArchiveError::TargetExists { path: target.into() });
    }
    let failed = |source| ArchiveError::Io { path: target.into(), source };
    let parent =
        target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(failed)?;
    let beside =
        tempfile::Builder::new().prefix(".unpacking-").tempdir_in(parent).map_err(failed)?;
    // A directory inside, because the temporary one itself can be read by its owner alone.
    let directory = beside.path().join("content");
    fs::create_dir(&directory).map_err(failed)?;
    fill(&directory)?;
    fs::rename(&directory, target).map_err(failed)
}

fn unzip(path: &Path, directory: &Path, limits: &Limits) -> Result<(), ArchiveError> {
    let damaged = |error: zip::result::ZipError| ArchiveError::Damaged {
        path: path.into(),
        message: error.to_string(),
    };
    let io = |source| ArchiveError::Io { path: path.into(), source };
    let mut file = File::open(path).map_err(io)?;
    let announced = announced_entries(&mut file).map_err(io)?;
    let mut unpacked = Unpacked::new(path, directory, limits, file.metadata().map_err(io)?.len());
    let mut archive = zip::ZipArchive::new(BufReader::new(file)).map_err(damaged)?;
    // The reader keeps one entry a name, so a name that stands twice shows only in the count.
    if let Some(announced) = announced.filter(|&announced| announced > archive.len()) {
        return Err(ArchiveError::Duplicate { name: format!("one of {announced}") });
    }
    if archive.len() > limits.entries {
        return Err(ArchiveError::TooManyEntries { limit: limits.entries });
    }
    for number in 0..archive.len() {
        let name = archive.name_for_index(number).unwrap_or_default().to_owned();
        let mut entry = match archive.by_index(number) {
            Ok(entry) => entry,
            Err(zip::result::ZipError::UnsupportedArchive(
                zip::result::ZipError::PASSWORD_REQUIRED,
            )) => {
                return Err(ArchiveError::Encrypted { name });
            }
            Err(error) => return Err(damaged(error)),
        };
        const KIND: u32 = 0o170_000;
        let plain =
            entry.unix_mode().is_none_or(|mode| matches!(mode & KIND, 0 | 0o100_000 | 0o040_000));
        if !plain || entry.is_symlink() {
            return Err(ArchiveError::NotAFile { name });
        }
        let kind = if entry.is_dir() { Kind::Directory } else { Kind::File };
        unpacked.add(&name, kind, &mut entry)?;
    }
    Ok(())
}

/// How many entries the end of a zip file says there are, where it fits in the short form.
fn announced_entries(file: &mut File) -> io::Result<Option<usize>> {
    use std::io::{Seek, SeekFrom};
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(22 + 0xffff)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    file.seek(SeekFrom::Start(0))?;
    let place = tail.windows(4).rposition(|window| window == b"PK\x05\x06");
    let count = place.and_then(|place| tail.get(place + 10..place + 12));
    Ok(count
        .map(|bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
        .filter(|&count| count != 0xffff))
}

fn untar(path: &Path, directory: &Path, limits: &Limits) -> Result<(), ArchiveError> {
    let damaged =
        |error: io::Error| ArchiveError::Damaged { path: path.into(), message: error.to_string() };
    let io = |source| ArchiveError::Io { path: path.into(), source };
    let file = File::open(path).map_err(io)?;
    let mut unpacked = Unpacked::new(path, directory, limits, file.metadata().map_err(io)?.len());
    // Headers count too: 512 bytes an entry and as much to round it up, and some for long names.
    let most = unpacked.most().saturating_add(4096 * limits.entries as u64);
    let content = MultiGzDecoder::new(BufReader::new(file)).take(most);
    let mut archive = tar::Archive::new(content);
    for (number, entry) in archive.entries().map_err(damaged)?.enumerate() {
        let mut entry = entry.map_err(damaged)?;
        if number >= limits.entries {
            return Err(ArchiveError::TooManyEntries { limit: limits.entries });
        }
        let name = String::from_utf8(entry.path_bytes().into_owned()).map_err(|error| {
            ArchiveError::UnsafeName {
                name: String::from_utf8_lossy(error.as_bytes()).into_owned(),
            }
        })?;
        match entry.header().entry_type() {
            tar::EntryType::Regular => unpacked.add(&name, Kind::File, &mut entry)?,
            tar::EntryType::Directory => unpacked.add(&name, Kind::Directory, &mut entry)?,
            tar::EntryType::XGlobalHeader => {}
            _ => return Err(ArchiveError::NotAFile { name }),
        }
    }
    // To the end of the stream, where its checksum is.
    let mut content = archive.into_inner();
    io::copy(&mut content, &mut io::sink()).map_err(damaged)?;
    if content.limit() == 0 {
        Err(ArchiveError::TooLarge { limit: unpacked.most() })
    } else {
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

/// What has been written so far.
struct Unpacked<'a> {
    archive: &'a Path,
    directory: &'a Path,
    names: HashSet<String>,
    written: u64,
    most: u64,
}

impl<'a> Unpacked<'a> {
    fn new(archive: &'a Path, directory: &'a Path, limits: &Limits, archive_bytes: u64) -> Self {
        let most =
            limits.bytes.min(archive_bytes.saturating_mul(limits.ratio).saturating_add(1 << 20));
        Self { archive, directory, names: HashSet::new(), written: 0, most }
    }

    fn most(&self) -> u64 {
        self.most
    }

    fn add(&mut self, name: &str, kind: Kind, content: &mut impl Read) -> Result<(), ArchiveError> {
        let inside =
            safe_path(name).ok_or_else(|| ArchiveError::UnsafeName { name: name.into() })?;
        let path = self.directory.join(&inside);
        let failed = |source: io::Error| match source.kind() {
            // A file where another entry needs a directory, or the other way round.
            io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory => ArchiveError::Duplicate { name: name.into() },
            _ => ArchiveError::Io { path: path.clone(), source },
        };
        if kind == Kind::Directory {
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
            if self.written > self.most {
                return Err(ArchiveError::TooLarge { limit: self.most });
            }
            file.write_all(&buffer[..read]).map_err(failed)?;
        }
    }
}

/// The path below the target that a name stands for, if it stands for one on every system.
fn safe_path(name: &str) -> Option<PathBuf> {
    let strange = |letter: char| letter.is_control() || matches!(letter, '\\' | ':');
    if name.is_empty() || name.len() > 4096 || name.starts_with('/') || name.contains(strange) {
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
