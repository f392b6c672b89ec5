//! Memory of the kernels: aligned buffers, a cache that reuses them, and uninitialized outputs.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffer of `f32` values, aligned to a cache line so that no vector crosses two: loading such a
/// vector takes twice as long.
#[derive(Debug)]
pub(crate) struct Buffer {
    ptr: NonNull<f32>,
    len: usize,
    /// Allocated number of values, at least `len`.
    capacity: usize,
}

// SAFETY: the buffer owns its values, as a `Vec` does.
unsafe impl Send for Buffer {}
// SAFETY: as above; values are mutated only through `&mut`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Size of a cache line in bytes.
    const CACHE_LINE: usize = 64;
    /// Values per cache line.
    pub(crate) const LINE: usize = Self::CACHE_LINE / size_of::<f32>();

    fn layout(len: usize) -> Layout {
        Layout::array::<f32>(len)
            .and_then(|layout| layout.align_to(Self::CACHE_LINE))
            .expect("the size of a buffer fits in isize")
    }

    /// Allocates `len` zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        if len == 0 {
            return Self { ptr: NonNull::dangling(), len, capacity: len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout is not empty.
        let ptr = unsafe { alloc_zeroed(layout) }.cast();
        Self {
            ptr: NonNull::new(ptr).unwrap_or_else(|| handle_alloc_error(layout)),
            len,
            capacity: len,
        }
    }

    /// Returns a pointer to at least `len` unspecified values, which are allocated if necessary.
    pub(crate) fn scratch(&mut self, len: usize) -> *mut f32 {
        if self.len < len {
            *self = Self::zeros(len);
        }
        self.ptr.as_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: the memory was allocated by `zeros` with this layout.
            unsafe { dealloc(self.ptr.as_ptr().cast(), Self::layout(self.capacity)) };
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: at least `len` values were allocated and initialized; the pointer dangles only if
        // `len` is zero.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

/// Spare buffers of a thread pool: touching new pages costs as much as the computation on them.
#[derive(Debug)]
pub(crate) struct BufferCache {
    spare: Mutex<Vec<Buffer>>,
    /// Maximum number of spare buffers.
    capacity: usize,
}

impl BufferCache {
    /// Creates a cache that keeps up to `capacity` spare buffers.
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { spare: Mutex::new(Vec::new()), capacity })
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Buffer>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `len` unspecified values, in the smallest spare buffer that is large enough.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> CachedBuffer {
        let mut spare = self.spare();
        let large_enough = (0..spare.len()).filter(|&at| spare[at].capacity >= len);
        let buffer = if let Some(at) = large_enough.min_by_key(|&at| spare[at].capacity) {
            let mut buffer = spare.swap_remove(at);
            buffer.len = len;
            buffer
        } else {
            // Free a buffer that is too small; the new one will serve both sizes.
            drop(spare.pop());
            drop(spare);
            Buffer::zeros(len)
        };
        CachedBuffer { buffer: ManuallyDrop::new(buffer), cache: self.clone() }
    }
}

/// Buffer that returns to its cache on drop, unless enough buffers are spare.
#[derive(Debug)]
pub(crate) struct CachedBuffer {
    buffer: ManuallyDrop<Buffer>,
    cache: Arc<BufferCache>,
}

impl Drop for CachedBuffer {
    fn drop(&mut self) {
        // SAFETY: the buffer is not used after it was taken.
        let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
        let mut spare = self.cache.spare();
        if spare.len() < self.cache.capacity {
            spare.push(buffer);
        }
    }
}

impl Deref for CachedBuffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.buffer
    }
}

impl DerefMut for CachedBuffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.buffer
    }
}

/// Output that has been allocated but not initialized: clearing memory that is about to be
/// overwritten takes time.
pub(crate) struct UninitBuffer {
    values: Vec<f32>,
    len: usize,
}

impl UninitBuffer {
    /// Allocates a buffer of `len` values.
    pub(crate) fn new(len: usize) -> Self {
        Self { values: Vec::with_capacity(len), len }
    }

    /// Returns the uninitialized values as a slice.
    pub(crate) fn as_uninit(&mut self) -> &mut [MaybeUninit<f32>] {
        &mut self.values.spare_capacity_mut()[..self.len]
    }

    /// Converts the buffer into a vector.
    ///
    /// # Safety
    /// All `len` values have been initialized.
    pub(crate) unsafe fn assume_init(mut self) -> Vec<f32> {
        // SAFETY: the capacity is at least `len`, and the caller guarantees that all values are
        // initialized.
        unsafe { self.values.set_len(self.len) };
        self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacities(cache: &BufferCache) -> Vec<usize> {
        cache.spare().iter().map(|buffer| buffer.capacity).collect()
    }

    #[test]
    fn cache_reuses_the_smallest_sufficient_buffer_and_frees_the_excess() {
        let cache = BufferCache::new(2);
        let addresses = {
            let buffers = [100, 300, 200].map(|len| cache.take(len));
            buffers.map(|buffer| buffer.as_ptr() as usize)
        };
        assert_eq!(capacities(&cache), [100, 300]);
        let mut reused = cache.take(150);
        assert_eq!((reused.len(), reused.as_ptr() as usize), (150, addresses[1]));
        reused.fill(1.0);
        assert!((reused.as_ptr() as usize).is_multiple_of(Buffer::CACHE_LINE));
        // No spare buffer is large enough: the remaining one is freed.
        drop(cache.take(400));
        assert_eq!(capacities(&cache), [400]);
        drop(reused);
        assert_eq!(capacities(&cache), [400, 300]);
    }
}
