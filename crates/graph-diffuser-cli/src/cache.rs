//! Where the program keeps what it would otherwise compute again.

use std::env;
use std::path::PathBuf;

/// `GRAPH_DIFFUSER_CACHE`, or a directory where the system keeps caches.
pub(crate) fn directory() -> Option<PathBuf> {
    let named = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("GRAPH_DIFFUSER_CACHE").or_else(|| {
        let caches = named("XDG_CACHE_HOME").or_else(|| named("LOCALAPPDATA"));
        let caches = caches.or_else(|| Some(named("HOME")?.join(".cache")));
        Some(caches?.join("graph-diffuser"))
    })
}
