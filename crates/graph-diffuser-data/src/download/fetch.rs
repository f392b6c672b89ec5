//! Resumable file downloads.
//!
//! A download is written to `NAME.part`, and later attempts resume it as long as the server still
//! has the same version of the file. A complete file is verified, synced to disk and renamed, so a
//! file with the final name is always complete. A file with a wrong checksum is kept as `NAME.bad`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use md5::{Digest, Md5};
use sha2::Sha256;
use ureq::http::{HeaderMap, StatusCode, header};

use super::catalog::RemoteFile;
use crate::atomic_file::rename_durably;
use crate::error::Diagnostic;

/// Downloader with timeout and retry settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetcher {
    /// Maximum time to wait for a response or for more data.
    pub timeout: Duration,
    /// Maximum number of consecutive retries without progress after transient failures.
    pub retries: u32,
    /// Delay before the first retry; doubled for each further one.
    pub initial_backoff: Duration,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            retries: 4,
            initial_backoff: Duration::from_secs(1),
        }
    }
}

/// Progress of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownloadProgress {
    /// Number of bytes on disk.
    pub done: u64,
    /// Size of the file in bytes, if known.
    pub total: Option<u64>,
}

/// Errors of [`Fetcher::fetch`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The connection failed, or broke more often than [`Fetcher::retries`].
    #[error("cannot download {url}: {message}")]
    Unreachable {
        /// URL of the file.
        url: String,
        /// Local path of the file.
        path: PathBuf,
        /// Message of the last failure.
        message: String,
    },
    /// The server responded with an error status.
    #[error("server returned HTTP status {status} for {url}")]
    Status {
        /// HTTP status code.
        status: u16,
        /// URL of the file.
        url: String,
        /// Local path of the file.
        path: PathBuf,
    },
    /// The server sent a web page instead of the file.
    #[error("server returned a web page instead of a file for {url}")]
    WebPage {
        /// URL of the file.
        url: String,
        /// Local path of the file.
        path: PathBuf,
    },
    /// The file is larger than [`RemoteFile::max_bytes`].
    #[error("{url} is larger than {limit} bytes")]
    TooLarge {
        /// URL of the file.
        url: String,
        /// Maximum size in bytes.
        limit: u64,
    },
    /// The checksum of the file differs from the published one.
    #[error("checksum mismatch: {algorithm} of `{path}` is {found}, expected {expected}")]
    ChecksumMismatch {
        /// Path to which the file was moved.
        path: PathBuf,
        /// Name of the algorithm.
        algorithm: &'static str,
        /// Checksum of the file.
        found: String,
        /// Published checksum.
        expected: String,
    },
    /// Another process is downloading the same file.
    #[error("`{path}` is being downloaded by another process")]
    Busy {
        /// Path of the partial file.
        path: PathBuf,
    },
    /// The caller canceled the download.
    #[error("download interrupted; run the same command again to resume it")]
    Canceled,
    /// A file cannot be written.
    #[error("cannot write `{path}`")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
}

impl Diagnostic for FetchError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Unreachable { url, path, .. }
            | Self::Status { url, path, .. }
            | Self::WebPage { url, path } => {
                Some(format!("download {url} manually and save it as `{}`", path.display()))
            }
            Self::ChecksumMismatch { path, .. } => Some(format!(
                "try again; if the error persists, the published file has changed (see `{}`)",
                path.display()
            )),
            Self::TooLarge { .. } => Some("this is not the published file".into()),
            Self::Busy { .. } => Some("wait until the other process has finished".into()),
            Self::Canceled | Self::Io { .. } => None,
        }
    }
}

/// Outcome of one attempt.
enum Attempt {
    Complete,
    /// A transient failure, with its message.
    Retry(String),
}

impl Fetcher {
    /// Downloads `file` into `directory` unless it exists there, and returns its path.
    ///
    /// # Errors
    /// Returns an error if the file cannot be downloaded or is not the published one.
    pub fn fetch(
        &self,
        file: &RemoteFile<'_>,
        directory: &Path,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(DownloadProgress),
    ) -> Result<PathBuf, FetchError> {
        let path = directory.join(file.file_name);
        let io = |source| FetchError::Io { path: path.clone(), source };
        fs::create_dir_all(directory).map_err(io)?;
        if path.is_file() {
            verify_checksum(file, &path, &path)?;
            return Ok(path);
        }
        let download = Download::open(self, file, &path)?;
        let mut failures = 0;
        loop {
            let before = download.length()?;
            let reason = match download.attempt(cancel, progress)? {
                Attempt::Complete => break,
                Attempt::Retry(reason) => reason,
            };
            failures = if download.length()? > before { 1 } else { failures + 1 };
            if failures > self.retries {
                return Err(download.unreachable(reason));
            }
            wait(self.initial_backoff.saturating_mul(1 << (failures - 1).min(10)), cancel)?;
        }
        download.finish()?;
        Ok(path)
    }
}

struct Download<'a> {
    remote: &'a RemoteFile<'a>,
    path: &'a Path,
    part: PathBuf,
    /// Holds the `ETag` or modification date of the partial file.
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
        let part = with_suffix(path, ".part");
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
            // Some network file systems do not support locks.
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
        if remote.url.starts_with("http://127.0.0.1") || remote.url.starts_with("http://localhost")
        {
            config = config.proxy(None);
        }
        let agent = config.build().new_agent();
        Ok(Self { remote, path, version: with_suffix(path, ".part.version"), part, file, agent })
    }

    fn io(&self) -> impl Fn(io::Error) -> FetchError + use<'_, 'a> {
        |source| FetchError::Io { path: self.part.clone(), source }
    }

    fn length(&self) -> Result<u64, FetchError> {
        Ok(self.file.metadata().map_err(self.io())?.len())
    }

    /// Requests the missing bytes and appends them.
    fn attempt(
        &self,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(DownloadProgress),
    ) -> Result<Attempt, FetchError> {
        let url = self.remote.url;
        let version = fs::read_to_string(&self.version).ok().filter(|version| !version.is_empty());
        let mut start = self.length()?;
        // Without a version, only the checksum can tell whether two parts belong together.
        if version.is_none() && self.remote.md5.is_none() && self.remote.sha256.is_none() {
            start = 0;
        }
        let mut request = self.agent.get(url);
        if start > 0 {
            request = request.header(header::RANGE, format!("bytes={start}-"));
            if let Some(version) = version {
                request = request.header(header::IF_RANGE, version);
            }
        }
        let response = match request.call() {
            Ok(response) => response,
            Err(ureq::Error::BadUri(message)) => return Err(self.unreachable(message)),
            Err(error) => return Ok(Attempt::Retry(error.to_string())),
        };
        let headers = response.headers();
        let status = response.status();
        match status {
            StatusCode::PARTIAL_CONTENT if range_start(headers) == Some(start) => {}
            StatusCode::OK => start = 0,
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if start > 0 => {
                self.restart(0)?;
                return Ok(Attempt::Retry("the file on the server has changed".into()));
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                return Ok(Attempt::Retry(format!(
                    "server returned HTTP status {}",
                    status.as_u16()
                )));
            }
            _ if status.is_server_error() => {
                return Ok(Attempt::Retry(format!(
                    "server returned HTTP status {}",
                    status.as_u16()
                )));
            }
            _ => {
                let (url, path) = (url.into(), self.path.into());
                return Err(FetchError::Status { status: status.as_u16(), url, path });
            }
        }
        if header_text(headers, header::CONTENT_TYPE)
            .is_some_and(|kind| kind.starts_with("text/html"))
        {
            return Err(FetchError::WebPage { url: url.into(), path: self.path.into() });
        }
        self.restart(start)?;
        fs::write(&self.version, version_of(headers).unwrap_or_default()).map_err(self.io())?;
        let rest = header_text(headers, header::CONTENT_LENGTH)
            .and_then(|length| length.parse::<u64>().ok());
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
            Err(FetchError::TooLarge { url: self.remote.url.into(), limit })
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
                return Err(FetchError::Canceled);
            }
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Attempt::Retry(error.to_string())),
            };
            done += read as u64;
            if done > limit {
                return too_large();
            }
            (&self.file).write_all(&buffer[..read]).map_err(self.io())?;
            progress(DownloadProgress { done, total: shown });
        }
        if total.is_some_and(|total| done < total) {
            return Ok(Attempt::Retry("connection closed before the end of the file".into()));
        }
        Ok(Attempt::Complete)
    }

    /// Truncates the partial file to `start` bytes and continues writing there.
    fn restart(&self, start: u64) -> Result<(), FetchError> {
        self.file.set_len(start).map_err(self.io())?;
        (&self.file).seek(SeekFrom::Start(start)).map_err(self.io())?;
        Ok(())
    }

    fn unreachable(&self, message: String) -> FetchError {
        FetchError::Unreachable { url: self.remote.url.into(), path: self.path.into(), message }
    }

    fn finish(self) -> Result<(), FetchError> {
        self.file.sync_all().map_err(self.io())?;
        // Removed before the checksum is verified, so that a wrong file is never resumed.
        let _ = fs::remove_file(&self.version);
        verify_checksum(self.remote, &self.part, self.path)?;
        rename_durably(&self.part, self.path).map_err(self.io())
    }
}

impl Drop for Download<'_> {
    /// Removes an empty partial file.
    fn drop(&mut self) {
        if self.file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            let _ = fs::remove_file(&self.part);
            let _ = fs::remove_file(&self.version);
        }
    }
}

/// Verifies the checksums of a file, and renames the file to `NAME.bad` if one is wrong.
fn verify_checksum(remote: &RemoteFile<'_>, current: &Path, path: &Path) -> Result<(), FetchError> {
    let io = |source| FetchError::Io { path: current.into(), source };
    let sum = |algorithm| match algorithm {
        "MD5" => sum_of::<Md5>(current),
        _ => sum_of::<Sha256>(current),
    };
    for (algorithm, expected) in [("MD5", remote.md5), ("SHA-256", remote.sha256)] {
        let Some(expected) = expected else { continue };
        let found = sum(algorithm).map_err(io)?;
        if found != expected {
            let aside = with_suffix(path, ".bad");
            fs::rename(current, &aside).map_err(io)?;
            let expected = expected.into();
            return Err(FetchError::ChecksumMismatch { path: aside, algorithm, found, expected });
        }
    }
    Ok(())
}

/// Returns the checksum of a file in hexadecimal digits.
fn sum_of<D: Digest>(path: &Path) -> io::Result<String> {
    let mut sum = D::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            let digits =
                sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
            return Ok(digits.concat());
        }
        sum.update(&buffer[..read]);
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn header_text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns the strong `ETag`, or the date of the last modification.
fn version_of(headers: &HeaderMap) -> Option<&str> {
    let tag = header_text(headers, header::ETAG).filter(|tag| tag.starts_with('"'));
    tag.or_else(|| header_text(headers, header::LAST_MODIFIED))
}

/// Parses the first position of a `Content-Range` header such as `bytes 100-199/200`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = header_text(headers, header::CONTENT_RANGE)?.strip_prefix("bytes ")?;
    range.split('-').next()?.trim().parse().ok()
}

fn wait(duration: Duration, cancel: &AtomicBool) -> Result<(), FetchError> {
    let slice = Duration::from_millis(50);
    let mut left = duration;
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(FetchError::Canceled);
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
