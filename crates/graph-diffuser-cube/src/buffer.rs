//! Buffers in device memory.

use cubecl::bytes::Bytes;
use cubecl::client::Client;
use cubecl::prelude::{BufferArg, CubeCount, CubeDim, CubeElement};
use cubecl::server::Handle;

use crate::UNITS;

/// Number of elements whose multiples are valid offsets of a binding: 256 bytes, the largest
/// alignment that WebGPU permits.
pub(crate) const ALIGNMENT: usize = 64;

/// Contiguous buffer of 32-bit elements in device memory; clones share their memory.
#[derive(Debug, Clone)]
pub struct Buffer {
    /// Memory on the device.
    handle: Handle,
    /// Number of elements.
    len: usize,
}

impl Buffer {
    /// Wraps memory of `len` elements of 32 bits.
    ///
    /// # Panics
    /// Panics if the memory is smaller.
    pub fn new(handle: Handle, len: usize) -> Self {
        assert!(handle.size_in_used() >= 4 * len as u64, "the memory has {len} elements");
        Self { handle, len }
    }

    /// Allocates `len` elements without initializing them.
    pub fn empty(client: &Client, len: usize) -> Self {
        Self { handle: client.empty(4 * len.max(1)), len }
    }

    /// Copies values to the device, without waiting for it.
    pub fn from_slice<E: CubeElement>(client: &Client, values: &[E]) -> Self {
        assert_eq!(size_of::<E>(), 4, "elements have 32 bits");
        if values.is_empty() {
            return Self::empty(client, 0);
        }
        Self {
            handle: client.create(Bytes::from_bytes_vec(E::as_bytes(values).to_vec())),
            len: values.len(),
        }
    }

    /// Returns `len` elements from `start` on, which share the memory of this buffer.
    ///
    /// # Panics
    /// Panics if the part does not fit, or `start` is not aligned.
    pub(crate) fn part(&self, start: usize, len: usize) -> Self {
        assert!(start.is_multiple_of(ALIGNMENT), "parts start at aligned elements");
        assert!(start + len <= self.len, "the part is within the buffer");
        let bytes = self.handle.size_in_used();
        let end = bytes - 4 * (start + len) as u64;
        Self { handle: self.handle.clone().offset_start(4 * start as u64).offset_end(end), len }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory on the device.
    pub fn into_handle(self) -> Handle {
        self.handle
    }

    /// Reads the elements back, waiting for the device.
    ///
    /// # Panics
    /// Panics if the device has failed.
    pub fn to_vec<E: CubeElement>(&self, client: &Client) -> Vec<E> {
        let bytes = client.read_one_unchecked(self.handle.clone());
        E::from_bytes(&bytes)[..self.len].to_vec()
    }

    /// Returns the buffer as an argument of a kernel.
    #[expect(unsafe_code, reason = "CubeCL trusts the length of a buffer, which `new` has checked")]
    pub(crate) fn arg(&self) -> BufferArg {
        // SAFETY: every constructor guarantees that the memory has this number of elements.
        unsafe { BufferArg::from_raw_parts(self.handle.clone(), self.len.max(1)) }
    }
}

/// Returns the memory of a device in bytes, if its driver reports it: CUDA does, and wgpu does not
/// unless it is built with SPIR-V or the Metal shading language.
pub fn device_memory(client: &Client) -> Option<u64> {
    client.properties().memory.max_memory()
}

/// Returns the units of a cube.
pub(crate) fn units() -> CubeDim {
    CubeDim::new_1d(UNITS as u32)
}

/// Returns the number of cubes with one unit for each of `count` elements.
///
/// A kernel launched with it compares `ABSOLUTE_POS` with the number of elements.
pub(crate) fn unit_per_element(count: usize) -> CubeCount {
    let cubes = count.div_ceil(UNITS).max(1);
    let width = cubes.min(32_768);
    CubeCount::new_2d(width as u32, cubes.div_ceil(width) as u32)
}
