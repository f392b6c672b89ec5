//! Cancellation of a forward pass from another thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flag by which another thread cancels a forward pass.
///
/// ```
/// use graph_diffuser::nn::CancelFlag;
///
/// let flag = CancelFlag::default();
/// let other = flag.clone();
/// assert!(!flag.is_canceled());
/// other.cancel();
/// assert!(flag.is_canceled());
/// ```
#[derive(Debug, Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

/// Payload with which a canceled pass unwinds.
struct Canceled;

impl CancelFlag {
    /// Cancels the pass.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the pass is canceled.
    pub fn is_canceled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Unwinds to [`catch_cancel`] if the pass is canceled, without the message of a panic.
    ///
    /// Layers return tensors, and only a pass of this kind can fail.
    pub(super) fn check(&self) {
        if self.is_canceled() {
            resume_unwind(Box::new(Canceled));
        }
    }
}

/// Calls `pass`; returns `None` if it is canceled. Panics continue.
pub(crate) fn catch_cancel<T>(pass: impl FnOnce() -> T) -> Option<T> {
    // Layers and batches are not changed by a forward pass.
    match catch_unwind(AssertUnwindSafe(pass)) {
        Ok(output) => Some(output),
        Err(payload) if payload.is::<Canceled>() => None,
        Err(payload) => resume_unwind(payload),
    }
}
