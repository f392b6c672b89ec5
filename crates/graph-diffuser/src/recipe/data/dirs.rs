//! Directories of datasets and caches.

use std::path::PathBuf;

/// Directories of datasets and caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDirs {
    /// Directory of datasets, one subdirectory per dataset.
    pub data: PathBuf,
    /// Directory of files that can be regenerated.
    pub cache: PathBuf,
}

impl DataDirs {
    /// Returns `$GRAPH_DIFFUSER_DATA` (default `data`) and `$GRAPH_DIFFUSER_CACHE` (default: the
    /// user's cache directory).
    pub fn from_env() -> Self {
        let var =
            |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let caches = || {
            let caches = var("XDG_CACHE_HOME").or_else(|| var("LOCALAPPDATA"));
            caches
                .or_else(|| Some(var("HOME")?.join(".cache")))
                .map(|caches| caches.join("graph-diffuser"))
        };
        Self {
            data: var("GRAPH_DIFFUSER_DATA").unwrap_or_else(|| "data".into()),
            cache: var("GRAPH_DIFFUSER_CACHE")
                .or_else(caches)
                .unwrap_or_else(|| ".graph-diffuser-cache".into()),
        }
    }

    /// Returns the directory of parsed graphs.
    pub fn graph_cache(&self) -> PathBuf {
        self.cache.join("graphs")
    }

    /// Returns the directory of raw positional encodings.
    pub fn encoding_cache(&self) -> PathBuf {
        self.cache.join("structures")
    }
}
