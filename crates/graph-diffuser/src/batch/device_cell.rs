//! Copies of a part of a batch on a GPU.

use std::sync::{Arc, OnceLock};

/// Copy of a part of a batch on the device of the batch, made when it is first needed.
///
/// Clones share the copy. It is derived from the part that contains it, so that cells are equal.
#[derive(Debug)]
pub(crate) struct DeviceCell<T>(Arc<OnceLock<T>>);

impl<T: Clone> DeviceCell<T> {
    /// Returns the copy, which the first call makes.
    pub(crate) fn get_or_init(&self, copy: impl FnOnce() -> T) -> T {
        self.0.get_or_init(copy).clone()
    }
}

impl<T> Default for DeviceCell<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for DeviceCell<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> PartialEq for DeviceCell<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for DeviceCell<T> {}
