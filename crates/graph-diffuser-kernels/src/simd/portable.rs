//! Fallback in scalar Rust, for any processor.

use super::{Dropout, Simd};

/// Scalar Rust on arrays of eight lanes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portable;

impl Portable {
    #[inline(always)]
    fn zip(a: [f32; 8], b: [f32; 8], with: impl Fn(f32, f32) -> f32) -> [f32; 8] {
        std::array::from_fn(|lane| with(a[lane], b[lane]))
    }
}

impl Simd for Portable {
    const LANES: usize = 8;
    const REGISTERS: usize = 16;
    type V = [f32; 8];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [value; 8]
    }
    /// # Safety
    /// As in [`Simd::load`].
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        // SAFETY: the caller guarantees eight readable values; the read is unaligned.
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }
    /// # Safety
    /// As in [`Simd::store`].
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: Self::V) {
        // SAFETY: the caller guarantees eight writable values; the write is unaligned.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(value) }
    }
    /// # Safety
    /// As in [`Simd::store_nontemporal`].
    #[inline(always)]
    unsafe fn store_nontemporal(self, to: *mut f32, value: Self::V) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.store(to, value) }
    }
    #[inline(always)]
    fn fence(self) {}
    /// # Safety
    /// As in [`Simd::load_partial`].
    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V {
        // SAFETY: only the first `count` values are read, which the caller guarantees to be
        // readable.
        std::array::from_fn(|lane| if lane < count { unsafe { *from.add(lane) } } else { 0.0 })
    }
    /// # Safety
    /// As in [`Simd::store_partial`].
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, value: Self::V, count: usize) {
        for (lane, value) in value.into_iter().enumerate().take(count) {
            // SAFETY: the caller guarantees `count` writable values.
            unsafe { *to.add(lane) = value };
        }
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Not `f32::mul_add`, which is a library call on processors without FMA.
        std::array::from_fn(|lane| a[lane] * b[lane] + c[lane])
    }
    #[inline(always)]
    fn mul_sub(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|lane| a[lane] * b[lane] - c[lane])
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn sqrt(self, a: Self::V) -> Self::V {
        a.map(f32::sqrt)
    }
    #[inline(always)]
    fn select_positive(self, condition: Self::V, then: Self::V, otherwise: Self::V) -> Self::V {
        std::array::from_fn(|lane| if condition[lane] > 0.0 { then[lane] } else { otherwise[lane] })
    }
    #[inline(always)]
    fn keep_first(self, value: Self::V, count: usize, filler: f32) -> Self::V {
        std::array::from_fn(|lane| if lane < count { value[lane] } else { filler })
    }
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        a.map(f32::round_ties_even)
    }
    #[inline(always)]
    fn exp2_int(self, n: Self::V) -> Self::V {
        n.map(|n| f32::from_bits(((n as i32 + 127) as u32) << 23))
    }
    /// # Safety
    /// As in [`Simd::splat_pair`].
    #[inline(always)]
    unsafe fn splat_pair(self, from: *const f32) -> Self::V {
        // SAFETY: the caller guarantees two readable values.
        std::array::from_fn(|lane| unsafe { *from.add(lane % 2) })
    }
    #[inline(always)]
    fn interleave(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|lane| if lane % 2 == 0 { a[lane / 2] } else { b[lane / 2] })
    }
    #[inline(always)]
    fn add_pairs(self, a: Self::V) -> Self::V {
        std::array::from_fn(|lane| if lane < 4 { a[2 * lane] + a[2 * lane + 1] } else { 0.0 })
    }
    #[inline(always)]
    fn mantissa_exponent(self, a: Self::V) -> (Self::V, Self::V) {
        (
            a.map(|a| f32::from_bits(a.to_bits() & 0x007f_ffff | 0x3f80_0000)),
            a.map(|a| ((a.to_bits() >> 23) as i32 - 127) as f32),
        )
    }
    #[inline(always)]
    fn reduce_sum(self, a: Self::V) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    fn reduce_max(self, a: Self::V) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
    #[inline(always)]
    fn dropout_mask(self, dropout: Dropout, index: u64) -> Self::V {
        std::array::from_fn(|lane| dropout.factor(index + lane as u64))
    }
}
