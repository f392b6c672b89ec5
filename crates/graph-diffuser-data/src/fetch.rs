//! Downloads a file so that what has its name is complete and right.
//!
//! Bytes go to `NAME.part`, which a later attempt goes on from as long as the server still has the same file; a
//! whole file is checked, written through to the disk and renamed. A file whose sum is wrong is kept as `NAME.bad`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use md5::{Digest, Md5};
use ureq::http::{HeaderMap, StatusCode, header};

use crate::catalog::RemoteFile;

/// How files are downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetcher {
    /// How long the server may be silent.
    pub timeout: Duration,
    /// How often a failure that may pass is tried again without a byte having come in between.
    pub retries: u32,
    /// How long to wait before the first retry; twice as long before each next one.
    pub pause: Duration,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), retries: 4, pause: Duration::from_secs(1) }
    }
}

/// How far a download is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownloadProgress {
    /// Bytes on disk.
    pub done: u64,
    /// Bytes in all, if the server says.
    pub total: Option<u64>,
}

/// Why a file was not downloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// No connection, or it broke too often.
    #[error("cannot download {address}: {message}")]
    Unreachable {
        /// Where from.
        address: String,
        /// Where to.
        path: PathBuf,
        /// What failed.
        message: String,
    },
    /// The server refuses.
    #[error("the server answers {status} for {address}")]
    Status {
        /// Its answer.
        status: u16,
        /// Where from.
        address: String,
        /// Where to.
        path: PathBuf,
    },
    /// The server sends a web page in place of the file.
    #[error("{address} is a web page, not the file")]
    WebPage {
        /// Where from.
        address: String,
        /// Where to.
        path: PathBuf,
    },
    /// The server sends more than the file can be.
    #[error("{address} is larger than {limit} bytes")]
    TooLarge {
        /// Where from.
        address: String,
        /// The most allowed.
        limit: u64,
    },
    /// The file is not the published one.
    #[error("the MD5 sum of `{path}` is {found}, not {expected}; it was put aside")]
    WrongSum {
        /// Where it was put.
        path: PathBuf,
        /// Its sum.
        found: String,
        /// The published sum.
        expected: String,
    },
    /// Somebody else downloads the same file.
    #[error("`{path}` is being downloaded by another process")]
    Busy {
        /// What is being written.
        path: PathBuf,
    },
    /// The caller said stop.
    #[error("the download was stopped; it goes on from there next time")]
    Cancelled,
    /// The disk fails.
    #[error("cannot write `{path}`")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl FetchError {
    /// What the user can do about it, when we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unreachable { address, path, .. }
            | Self::Status { address, path, .. }
            | Self::WebPage { address, path } => {
                Some(format!("download {address} elsewhere and put it at `{}`", path.display()))
            }
            Self::WrongSum { path, .. } => Some(format!(
                "run it again; if the sum stays wrong the file has changed: look at `{}`",
                path.display()
            )),
            Self::TooLarge { .. } => Some("this is not the published file".into()),
            Self::Busy { .. } => Some("wait for the other one to end".into()),
            Self::Cancelled | Self::Io { .. } => None,
        }
    }
}

/// What one attempt came to.
enum Attempt {
    Complete,
    /// What failed may pass.
    Again(String),
}

impl Fetcher {
    /// The path of `file` in `directory`, downloaded unless it is there already.
    ///
    /// # Errors
    /// If it cannot be downloaded or is not the published file.
    pub fn fetch(
        &self,
        file: &RemoteFile<'_>,
        directory: &Path,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(DownloadProgress),
    ) -> Result<PathBuf, FetchError> {
        let path = directory.join(file.file);
        let io = |source| FetchError::Io { path: path.clone(), source };
        fs::create_dir_all(directory).map_err(io)?;
        if path.is_file() {
            check_sum(file, &path, &path)?;
            return Ok(path);
        }
        let download = Download::open(self, file, &path)?;
        let mut failures = 0;
        loop {
            let before = download.length()?;
            let reason = match download.attempt(cancel, progress)? {
                Attempt::Complete => break,
                Attempt::Again(reason) => reason,
            };
            failures = if download.length()? > before { 1 } else { failures + 1 };
            if failures > self.retries {
                return Err(download.unreachable(reason));
            }
            wait(self.pause.saturating_mul(1 << (failures - 1).min(10)), cancel)?;
        }
        download.finish()?;
        Ok(path)
    }
}

struct Download<'a> {
    remote: &'a RemoteFile<'a>,
    path: &'a Path,
    part: PathBuf,
    /// Says which version of the file the part is of.
    version: PathBuf,
    file: File,
    agent: ureq::Agent,
}

impl<'a> Download<'a> {
    fn open(
        fetcher: &Fetcher,
        remote: &'a RemoteFile<'a>,
        path: &'a Path,
    ) -> Result<Self, FetchError> {
        let part = beside(path, ".part");
        let io = |source| FetchError::Io { path: part.clone(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&part)
            .map_err(io)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(FetchError::Busy { path: part }),
            // Some network file systems have no locks; a download without one is still better than none.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(10)
            .user_agent(concat!("graph-diffuser/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(fetcher.timeout))
            .timeout_connect(Some(fetcher.timeout))
            .timeout_recv_response(Some(fetcher.timeout))
            .timeout_per_read(Some(fetcher.timeout));
        if remote.address.starts_with("http://127.0.0.1")
            || remote.address.starts_with("http://localhost")
        {
            config = config.proxy(None);
        }
        let agent = config.build().new_agent();
        Ok(Self { remote, path, version: beside(path, ".part.version"), part, file, agent })
    }

    fn io(&self) -> impl Fn(io::Error) -> FetchError + use<'_, 'a> {
        |source| FetchError::Io { path: self.part.clone(), source }
    }

    fn length(&self) -> Result<u64, FetchError> {
        Ok(self.file.metadata().map_err(self.io())?.len())
    }

    /// Asks for what is missing and appends it.
    fn attempt(
        &self,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(DownloadProgress),
    ) -> Result<Attempt, FetchError> {
        let address = self.remote.address;
        let version = fs::read_to_string(&self.version).ok().filter(|version| !version.is_empty());
        let mut start = self.length()?;
        // Without a version only the sum can tell whether two halves belong together.
        if version.is_none() && self.remote.md5.is_none() {
            start = 0;
        }
        let mut request = self.agent.get(address);
        if start > 0 {
            request = request.header(header::RANGE, format!("bytes={start}-"));
            if let Some(version) = version {
                request = request.header(header::IF_RANGE, version);
            }
        }
        let response = match request.call() {
            Ok(response) => response,
            Err(ureq::Error::BadUri(message)) => return Err(self.unreachable(message)),
            Err(error) => return Ok(Attempt::Again(error.to_string())),
        };
        let headers = response.headers();
        let status = response.status();
        match status {
            StatusCode::PARTIAL_CONTENT if range_start(headers) == Some(start) => {}
            StatusCode::OK => start = 0,
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if start > 0 => {
                self.restart(0)?;
                return Ok(Attempt::Again("the server has another file than before".into()));
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                return Ok(Attempt::Again(format!("the server answers {}", status.as_u16())));
            }
            _ if status.is_server_error() => {
                return Ok(Attempt::Again(format!("the server answers {}", status.as_u16())));
            }
            _ => {
                let (address, path) = (address.into(), self.path.into());
                return Err(FetchError::Status { status: status.as_u16(), address, path });
            }
        }
        if text(headers, header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html")) {
            return Err(FetchError::WebPage { address: address.into(), path: self.path.into() });
        }
        self.restart(start)?;
        fs::write(&self.version, version_of(headers).unwrap_or_default()).map_err(self.io())?;
        let rest =
            text(headers, header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        let total = rest.map(|rest| start.saturating_add(rest));
        self.receive(response.into_body().into_reader(), start, total, cancel, progress)
    }

    fn receive(
        &self,
        mut body: impl Read,
        start: u64,
        total: Option<u64>,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(DownloadProgress),
    ) -> Result<Attempt, FetchError> {
        let limit = self.remote.max_bytes;
        let too_large = || {
            self.restart(0)?;
            Err(FetchError::TooLarge { address: self.remote.address.into(), limit })
        };
        if total.is_some_and(|total| total > limit) {
            return too_large();
        }
        let mut done = start;
        let mut buffer = vec![0; 1 << 16];
        let shown = total.or(self.remote.bytes);
        progress(DownloadProgress { done, total: shown });
        loop {
            if cancel.load(Ordering::Relaxed) {
                return Err(FetchError::Cancelled);
            }
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Attempt::Again(error.to_string())),
            };
            done += read as u64;
            if done > limit {
                return too_large();
            }
            (&self.file).write_all(&buffer[..read]).map_err(self.io())?;
            progress(DownloadProgress { done, total: shown });
        }
        if total.is_some_and(|total| done < total) {
            return Ok(Attempt::Again("the connection was cut".into()));
        }
        Ok(Attempt::Complete)
    }

    /// Keeps the first `start` bytes and writes behind them.
    fn restart(&self, start: u64) -> Result<(), FetchError> {
        self.file.set_len(start).map_err(self.io())?;
        (&self.file).seek(SeekFrom::Start(start)).map_err(self.io())?;
        Ok(())
    }

    fn unreachable(&self, message: String) -> FetchError {
        FetchError::Unreachable {
            address: self.remote.address.into(),
            path: self.path.into(),
            message,
        }
    }

    fn finish(self) -> Result<(), FetchError> {
        self.file.sync_all().map_err(self.io())?;
        // Gone before the sum is looked at: a wrong file is not to be gone on from.
        let _ = fs::remove_file(&self.version);
        check_sum(self.remote, &self.part, self.path)?;
        fs::rename(&self.part, self.path).map_err(self.io())?;
        // The name itself reaches the disk with its directory, where the system can do that.
        if let Some(Ok(directory)) = self.path.parent().map(File::open) {
            let _ = directory.sync_all();
        }
        Ok(())
    }
}

impl Drop for Download<'_> {
    /// A part of nothing is not left behind.
    fn drop(&mut self) {
        if self.file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            let _ = fs::remove_file(&self.part);
            let _ = fs::remove_file(&self.version);
        }
    }
}

/// Puts a file with the wrong sum aside, under the name that it should have had and `.bad`.
fn check_sum(remote: &RemoteFile<'_>, found_at: &Path, path: &Path) -> Result<(), FetchError> {
    let io = |source| FetchError::Io { path: found_at.into(), source };
    let Some(expected) = remote.md5 else { return Ok(()) };
    let found = md5_of(found_at).map_err(io)?;
    if found == expected {
        return Ok(());
    }
    let aside = beside(path, ".bad");
    fs::rename(found_at, &aside).map_err(io)?;
    Err(FetchError::WrongSum { path: aside, found, expected: expected.into() })
}

fn md5_of(path: &Path) -> io::Result<String> {
    let mut sum = Md5::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(format!("{:x}", sum.finalize()));
        }
        sum.update(&buffer[..read]);
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// A strong tag, or the date of the last change.
fn version_of(headers: &HeaderMap) -> Option<&str> {
    let tag = text(headers, header::ETAG).filter(|tag| tag.starts_with('"'));
    tag.or_else(|| text(headers, header::LAST_MODIFIED))
}

/// Where the sent part begins: `bytes 100-199/200`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = text(headers, header::CONTENT_RANGE)?.strip_prefix("bytes ")?;
    range.split('-').next()?.trim().parse().ok()
}

fn wait(duration: Duration, cancel: &AtomicBool) -> Result<(), FetchError> {
    let slice = Duration::from_millis(50);
    let mut left = duration;
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(FetchError::Cancelled);
        }
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(slice));
        left = left.saturating_sub(slice);
    }
}

#[cfg(test)]
mod tests;
