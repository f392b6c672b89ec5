//! NEON: four lanes, on every 64-bit ARM processor with floating point.

#[cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "the module uses dozens of intrinsics")
)]
use std::arch::aarch64::*;

use super::intrinsics::{dropout_mask, intrinsics, with};
use super::{Dropout, Simd, prefetch};

/// Vectors of four lanes. The module is compiled only for targets that have NEON.
#[derive(Debug, Clone, Copy)]
pub(super) struct Neon;

/// Returns a mask with all bits set in the first `count` lanes.
#[inline(always)]
fn first_4(count: usize) -> uint32x4_t {
    const MASKS: [u32; 8] = [u32::MAX, u32::MAX, u32::MAX, u32::MAX, 0, 0, 0, 0];
    // SAFETY: the four values from index `4 - min(count, 4)` are within the array.
    unsafe { vld1q_u32(MASKS.as_ptr().add(4 - count.min(4))) }
}

/// Combines the lower halves, and the upper halves.
#[inline(always)]
fn combine_halves(a: float32x4_t, b: float32x4_t) -> [float32x4_t; 2] {
    with! {
        let (a, b) = (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
        [vreinterpretq_f32_f64(vtrn1q_f64(a, b)), vreinterpretq_f32_f64(vtrn2q_f64(a, b))]
    }
}

impl Simd for Neon {
    const LANES: usize = 4;
    const REGISTERS: usize = 32;
    type V = float32x4_t;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        with!(vdupq_n_f32(value))
    }
    /// # Safety
    /// As in [`Simd::load`].
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        with!(vld1q_f32(from))
    }
    /// # Safety
    /// As in [`Simd::store`].
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: Self::V) {
        with!(vst1q_f32(to, value));
    }
    /// # Safety
    /// As in [`Simd::store_nontemporal`].
    #[inline(always)]
    unsafe fn store_nontemporal(self, to: *mut f32, value: Self::V) {
        // The hint exists only for pairs of vectors, and has no intrinsic.
        with!(vst1q_f32(to, value));
    }
    #[inline(always)]
    fn fence(self) {}
    /// # Safety
    /// As in [`Simd::load_partial`].
    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V {
        with! {
            let zero = vdupq_n_f32(0.0);
            match count {
                0 => zero,
                1 => vld1q_lane_f32::<0>(from, zero),
                2 => vcombine_f32(vld1_f32(from), vget_high_f32(zero)),
                _ => {
                    let two = vcombine_f32(vld1_f32(from), vget_high_f32(zero));
                    vld1q_lane_f32::<2>(from.add(2), two)
                }
            }
        }
    }
    /// # Safety
    /// As in [`Simd::store_partial`].
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, value: Self::V, count: usize) {
        with! {
            match count {
                0 => {}
                1 => vst1q_lane_f32::<0>(to, value),
                2 => vst1_f32(to, vget_low_f32(value)),
                _ => {
                    vst1_f32(to, vget_low_f32(value));
                    vst1q_lane_f32::<2>(to.add(2), value);
                }
            }
        }
    }
    intrinsics! {
        add(a, b) = vaddq_f32;
        sub(a, b) = vsubq_f32;
        mul(a, b) = vmulq_f32;
        div(a, b) = vdivq_f32;
        min(a, b) = vminq_f32;
        max(a, b) = vmaxq_f32;
        sqrt(a) = vsqrtq_f32;
        round(a) = vrndnq_f32;
        interleave(a, b) = vzip1q_f32;
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        with!(vfmaq_f32(c, a, b))
    }
    #[inline(always)]
    fn mul_sub(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        with!(vfmaq_f32(vnegq_f32(c), a, b))
    }
    #[inline(always)]
    fn select_positive(self, condition: Self::V, then: Self::V, otherwise: Self::V) -> Self::V {
        with!(vbslq_f32(vcgtzq_f32(condition), then, otherwise))
    }
    #[inline(always)]
    fn keep_first(self, value: Self::V, count: usize, filler: f32) -> Self::V {
        with!(vbslq_f32(first_4(count), value, vdupq_n_f32(filler)))
    }
    #[inline(always)]
    fn exp2_int(self, n: Self::V) -> Self::V {
        with! {
            // The conversion to fixed point multiplies by 2²³.
            let exponent = vcvtq_n_s32_f32::<23>(n);
            vreinterpretq_f32_s32(vaddq_s32(exponent, vdupq_n_s32(127 << 23)))
        }
    }
    /// # Safety
    /// As in [`Simd::splat_pair`].
    #[inline(always)]
    unsafe fn splat_pair(self, from: *const f32) -> Self::V {
        with!(vreinterpretq_f32_f64(vdupq_n_f64(from.cast::<f64>().read_unaligned())))
    }
    #[inline(always)]
    fn add_pairs(self, a: Self::V) -> Self::V {
        with!(vpaddq_f32(a, a))
    }
    #[inline(always)]
    fn mantissa_exponent(self, a: Self::V) -> (Self::V, Self::V) {
        with! {
            let bits = vreinterpretq_u32_f32(a);
            let one = vreinterpretq_u32_f32(vdupq_n_f32(1.0));
            let mantissa = vorrq_u32(vandq_u32(bits, vdupq_n_u32(0x007f_ffff)), one);
            let exponent = vreinterpretq_s32_u32(vshrq_n_u32::<23>(bits));
            let exponent = vsubq_s32(exponent, vdupq_n_s32(127));
            (vreinterpretq_f32_u32(mantissa), vcvtq_f32_s32(exponent))
        }
    }
    #[inline(always)]
    fn prefetch(self, from: *const f32) {
        prefetch::<1>(from);
    }
    /// # Safety
    /// As in [`Simd::transpose`].
    #[inline(always)]
    unsafe fn transpose(
        self,
        from: *const f32,
        from_step: usize,
        [rows, columns]: [usize; 2],
        to: *mut f32,
        to_step: usize,
        filled: usize,
    ) {
        with! {
            let mut block = [vdupq_n_f32(0.0); 4];
            // Constant loop bounds keep the vectors in registers.
            for (row, vector) in block.iter_mut().enumerate() {
                if row < rows {
                    *vector = self.load_up_to(from.wrapping_add(row * from_step), columns);
                }
            }
            let [a, b, c, d] = block;
            let [first, third] = combine_halves(vtrn1q_f32(a, b), vtrn1q_f32(c, d));
            let [second, fourth] = combine_halves(vtrn2q_f32(a, b), vtrn2q_f32(c, d));
            for (column, vector) in [first, second, third, fourth].into_iter().enumerate() {
                if column < columns {
                    self.store_up_to(to.wrapping_add(column * to_step), vector, filled);
                }
            }
        }
    }
    #[inline(always)]
    fn reduce_sum(self, a: Self::V) -> f32 {
        with!(vaddvq_f32(a))
    }
    #[inline(always)]
    fn reduce_max(self, a: Self::V) -> f32 {
        with!(vmaxvq_f32(a))
    }
    dropout_mask! {
        splat = vdupq_n_u32, add = vaddq_u32, mul = vmulq_u32, xor = veorq_u32,
        shift_right = vshrq_n_u32,
        lanes = vld1q_u32([0, 1, 2, 3].as_ptr()),
        keep_at_least = |bits, threshold, scale| {
            let kept = vcgeq_u32(bits, threshold);
            vreinterpretq_f32_u32(vandq_u32(kept, vreinterpretq_u32_f32(scale)))
        },
    }
}
