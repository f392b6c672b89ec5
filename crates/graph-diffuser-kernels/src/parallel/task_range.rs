//! Tasks of one thread, from which other threads steal.

use std::ops::Range;

use super::job_slot::CacheAligned;
use super::sync::{AtomicU64, SeqCst};

/// Remaining contiguous tasks of one thread, packed into 64 bits: the start in the upper half, the
/// end in the lower.
pub(super) struct TaskRange(CacheAligned<AtomicU64>);

impl TaskRange {
    pub(super) fn new(tasks: Range<usize>) -> Self {
        assert!(u32::try_from(tasks.end).is_ok(), "too many tasks: {}", tasks.end);
        Self(CacheAligned(AtomicU64::new((tasks.start as u64) << 32 | tasks.end as u64)))
    }

    /// Takes the first task.
    pub(super) fn take_first(&self) -> Option<usize> {
        let previous = self.0.fetch_update(SeqCst, SeqCst, |remaining| {
            (!is_empty(remaining)).then(|| remaining + (1 << 32))
        });
        previous.ok().map(|remaining| (remaining >> 32) as usize)
    }

    /// Takes the last task.
    pub(super) fn take_last(&self) -> Option<usize> {
        let previous = self.0.fetch_update(SeqCst, SeqCst, |remaining| {
            (!is_empty(remaining)).then(|| remaining - 1)
        });
        previous.ok().map(|remaining| (remaining as u32 - 1) as usize)
    }
}

fn is_empty(remaining: u64) -> bool {
    remaining >> 32 >= u64::from(remaining as u32)
}
