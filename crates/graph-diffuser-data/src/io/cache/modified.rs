//! Error of a cache file that another program modifies while it is in use.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use crate::error::Diagnostic;

/// A graph cache was modified in place after it was opened, which this program never does.
///
/// Every file is validated when it is opened, so that reading a graph is not expected to fail, and
/// [`Graphs::get`](crate::Graphs::get) returns no `Result`. If it fails nevertheless, it unwinds
/// with this error, which functions that process whole datasets [catch](Self::catch) and return.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("another program has modified the graph cache `{path}` while it was in use")]
pub struct CacheModifiedError {
    path: PathBuf,
}

impl CacheModifiedError {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Unwinds to [`CacheModifiedError::catch`] without the message of a panic.
    pub(super) fn unwind(self) -> ! {
        resume_unwind(Box::new(self))
    }

    /// Calls `work`; panics other than this error continue.
    ///
    /// # Errors
    /// Returns this error if a graph that `work` reads is not in its cache file anymore.
    pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Self> {
        // What `work` has changed is dropped with it, or is in files that are replaced atomically.
        catch_unwind(AssertUnwindSafe(work)).map_err(|panic| match panic.downcast() {
            Ok(error) => *error,
            Err(panic) => resume_unwind(panic),
        })
    }
}

impl Diagnostic for CacheModifiedError {
    fn hint(&self) -> Option<String> {
        Some("repeat the command; the cache is then built again".into())
    }
}
