//! AVX2 with FMA: eight lanes.

#[cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "the module uses dozens of intrinsics")
)]
use std::arch::x86_64::*;

use crate::simd::intrinsics::{dropout_mask, intrinsics, with};
use crate::simd::{Dropout, Kernel, Simd, prefetch};

#[target_feature(enable = "avx2,fma")]
pub(in crate::simd) fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// Proof of AVX2 and FMA support, created only by `run_avx2`.
#[derive(Debug, Clone, Copy)]
struct Avx2(());

/// Returns a mask with all bits set in the first `count` lanes.
///
/// # Safety
/// The processor supports AVX.
#[inline(always)]
unsafe fn first_8(count: usize) -> __m256i {
    const MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: the eight values from index `8 - min(count, 8)` are within the array.
    unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - count.min(8)).cast()) }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    const REGISTERS: usize = 16;
    type V = __m256;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        with!(_mm256_set1_ps(value))
    }
    /// # Safety
    /// As in [`Simd::load`].
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        with!(_mm256_loadu_ps(from))
    }
    /// # Safety
    /// As in [`Simd::store`].
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: Self::V) {
        with!(_mm256_storeu_ps(to, value));
    }
    /// # Safety
    /// As in [`Simd::store_nontemporal`].
    #[inline(always)]
    unsafe fn store_nontemporal(self, to: *mut f32, value: Self::V) {
        with!(_mm256_stream_ps(to, value));
    }
    #[inline(always)]
    fn fence(self) {
        with!(_mm_sfence());
    }
    /// # Safety
    /// As in [`Simd::load_partial`].
    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V {
        with!(_mm256_maskload_ps(from, first_8(count)))
    }
    /// # Safety
    /// As in [`Simd::store_partial`].
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, value: Self::V, count: usize) {
        with!(_mm256_maskstore_ps(to, first_8(count), value));
    }
    intrinsics! {
        add(a, b) = _mm256_add_ps;
        sub(a, b) = _mm256_sub_ps;
        mul(a, b) = _mm256_mul_ps;
        div(a, b) = _mm256_div_ps;
        mul_add(a, b, c) = _mm256_fmadd_ps;
        mul_sub(a, b, c) = _mm256_fmsub_ps;
        min(a, b) = _mm256_min_ps;
        max(a, b) = _mm256_max_ps;
        sqrt(a) = _mm256_sqrt_ps;
    }
    #[inline(always)]
    fn select_positive(self, condition: Self::V, then: Self::V, otherwise: Self::V) -> Self::V {
        with! {
            let positive = _mm256_cmp_ps::<_CMP_GT_OQ>(condition, _mm256_setzero_ps());
            _mm256_blendv_ps(otherwise, then, positive)
        }
    }
    #[inline(always)]
    fn keep_first(self, value: Self::V, count: usize, filler: f32) -> Self::V {
        with!(_mm256_blendv_ps(_mm256_set1_ps(filler), value, _mm256_castsi256_ps(first_8(count))))
    }
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        with!(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn exp2_int(self, n: Self::V) -> Self::V {
        with! {
            let n = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(n))
        }
    }
    /// # Safety
    /// As in [`Simd::splat_pair`].
    #[inline(always)]
    unsafe fn splat_pair(self, from: *const f32) -> Self::V {
        with!(_mm256_castpd_ps(_mm256_set1_pd(from.cast::<f64>().read_unaligned())))
    }
    #[inline(always)]
    fn interleave(self, a: Self::V, b: Self::V) -> Self::V {
        with!(_mm256_permute2f128_ps::<0x20>(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)))
    }
    #[inline(always)]
    fn add_pairs(self, a: Self::V) -> Self::V {
        with! {
            let sums = _mm256_hadd_ps(a, a);
            _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 1, 4, 5, 0, 1, 4, 5))
        }
    }
    #[inline(always)]
    fn mantissa_exponent(self, a: Self::V) -> (Self::V, Self::V) {
        with! {
            let bits = _mm256_castps_si256(a);
            let mantissa = _mm256_or_si256(
                _mm256_and_si256(bits, _mm256_set1_epi32(0x007f_ffff)),
                _mm256_set1_epi32(0x3f80_0000),
            );
            let exponent = _mm256_sub_epi32(_mm256_srli_epi32::<23>(bits), _mm256_set1_epi32(127));
            (_mm256_castsi256_ps(mantissa), _mm256_cvtepi32_ps(exponent))
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
            let (whole, load) = (columns >= 8, first_8(columns));
            let mut block = [_mm256_setzero_ps(); 8];
            // Constant loop bounds keep the vectors in registers.
            for (row, vector) in block.iter_mut().enumerate() {
                if row < rows {
                    let from = from.wrapping_add(row * from_step);
                    *vector =
                        if whole { _mm256_loadu_ps(from) } else { _mm256_maskload_ps(from, load) };
                }
            }
            // Interleave pairs of values, then pairs of 64-bit halves, then 128-bit halves.
            let mut other = block;
            for k in 0..4 {
                let (a, b) = (block[2 * k], block[2 * k + 1]);
                (other[2 * k], other[2 * k + 1]) =
                    (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            }
            for k in 0..2 {
                for half in 0..2 {
                    let (a, b) = (other[4 * k + half], other[4 * k + 2 + half]);
                    let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
                    block[4 * k + 2 * half] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
                    block[4 * k + 2 * half + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
                }
            }
            for k in 0..4 {
                let (a, b) = (block[k], block[4 + k]);
                other[k] = _mm256_permute2f128_ps::<0x20>(a, b);
                other[4 + k] = _mm256_permute2f128_ps::<0x31>(a, b);
            }
            let (full, store) = (filled >= 8, first_8(filled));
            for (column, vector) in other.into_iter().enumerate() {
                if column < columns {
                    let to = to.wrapping_add(column * to_step);
                    if full {
                        _mm256_storeu_ps(to, vector);
                    } else {
                        _mm256_maskstore_ps(to, store, vector);
                    }
                }
            }
        }
    }
    #[inline(always)]
    fn reduce_sum(self, a: Self::V) -> f32 {
        with! {
            let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[inline(always)]
    fn reduce_max(self, a: Self::V) -> f32 {
        with! {
            let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    dropout_mask! {
        splat = _mm256_set1_epi32, add = _mm256_add_epi32, mul = _mm256_mullo_epi32,
        xor = _mm256_xor_si256, shift_right = _mm256_srli_epi32,
        lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
        keep_at_least = |bits, threshold, scale| {
            // Unsigned `bits >= threshold` is `max(bits, threshold) == bits`.
            let kept = _mm256_cmpeq_epi32(_mm256_max_epu32(bits, threshold), bits);
            _mm256_and_ps(_mm256_castsi256_ps(kept), scale)
        },
    }
}
