//! How far a long reading has come.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Told the bytes read so far and the bytes to read in all; they only grow, and end equal when all went well.
pub type ProgressFn<'a> = dyn FnMut(u64, u64) + 'a;

/// Counts the bytes that several threads read, and tells one listener.
pub(crate) struct ProgressMeter<'a> {
    report: &'a mut ProgressFn<'a>,
    read: Arc<AtomicU64>,
    total: u64,
    last: u64,
}

impl<'a> ProgressMeter<'a> {
    /// For files that are each read so many times.
    pub(crate) fn new<'p>(
        files: impl Iterator<Item = &'p Path>,
        passes: u64,
        report: &'a mut ProgressFn<'a>,
    ) -> Self {
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let total = files.map(size).sum::<u64>() * passes;
        Self { report, read: Arc::default(), total, last: 0 }
    }

    /// What a reader adds its bytes to.
    pub(crate) fn read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// Tells how far it is.
    pub(crate) fn tick(&mut self) {
        // A file that grows while it is read must not make the bar run over.
        self.last = self.read.load(Ordering::Relaxed).min(self.total).max(self.last);
        (self.report)(self.last, self.total);
    }

    /// Tells that nothing is left to do.
    pub(crate) fn finish(&mut self) {
        self.last = self.total;
        (self.report)(self.total, self.total);
    }
}
