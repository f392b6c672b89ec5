//! Progress of reading large files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Callback that receives the number of bytes read and the total number of bytes.
///
/// Neither decreases, and they are equal at the end of a successful read.
pub type ProgressFn<'a> = dyn FnMut(u64, u64) + 'a;

/// Counts the bytes read by several threads and reports them to one callback.
pub(crate) struct ProgressMeter<'a> {
    report: &'a mut ProgressFn<'a>,
    read: Arc<AtomicU64>,
    total: u64,
    last: u64,
}

impl<'a> ProgressMeter<'a> {
    /// Creates a meter for files that are each read `passes` times.
    pub(crate) fn new<'p>(
        files: impl Iterator<Item = &'p Path>,
        passes: u64,
        report: &'a mut ProgressFn<'a>,
    ) -> Self {
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let total = files.map(size).sum::<u64>() * passes;
        Self { report, read: Arc::default(), total, last: 0 }
    }

    /// Returns the shared counter of bytes read.
    pub(crate) fn bytes_read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// Reports the current progress.
    pub(crate) fn tick(&mut self) {
        // A file that grows while it is read must not exceed the total.
        self.last = self.read.load(Ordering::Relaxed).min(self.total).max(self.last);
        (self.report)(self.last, self.total);
    }

    /// Reports completion.
    pub(crate) fn finish(&mut self) {
        self.last = self.total;
        (self.report)(self.total, self.total);
    }
}
