//! Limit on the number of shards of a process that compute at the same time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Counting semaphore: a shard holds a permit while it computes, but not while it waits for others.
#[derive(Debug)]
pub(crate) struct Permits {
    free: Mutex<usize>,
    released: Condvar,
}

impl Permits {
    /// Creates `count` permits.
    pub(crate) fn new(count: usize) -> Self {
        Self { free: Mutex::new(count), released: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit.
    pub(super) fn acquire(&self) {
        let mut free = self.lock();
        while *free == 0 {
            free = self.released.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
    }

    /// Returns a permit.
    pub(super) fn release(&self) {
        *self.lock() += 1;
        self.released.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn at_most_as_many_threads_as_permits_hold_one() {
        let (permits, holding) = (Permits::new(2), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        permits.acquire();
                        assert!(holding.fetch_add(1, Ordering::SeqCst) < 2);
                        thread::sleep(Duration::from_micros(50));
                        holding.fetch_sub(1, Ordering::SeqCst);
                        permits.release();
                    }
                });
            }
        });
        assert_eq!(*permits.lock(), 2);
    }
}
