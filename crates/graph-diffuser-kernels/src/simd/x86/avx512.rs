//! AVX-512: sixteen lanes.

#[cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "the module uses dozens of intrinsics")
)]
use std::arch::x86_64::*;

use crate::simd::intrinsics::{dropout_mask, intrinsics, with};
use crate::simd::{Dropout, Kernel, Simd, prefetch};

#[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
pub(in crate::simd) fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

/// Proof of AVX-512 support, created only by `run_avx512`.
#[derive(Debug, Clone, Copy)]
struct Avx512(());

#[inline(always)]
fn first_16(count: usize) -> __mmask16 {
    if count >= 16 { 0xffff } else { (1_u16 << count) - 1 }
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    const REGISTERS: usize = 32;
    type V = __m512;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        with!(_mm512_set1_ps(value))
    }
    /// # Safety
    /// As in [`Simd::load`].
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        with!(_mm512_loadu_ps(from))
    }
    /// # Safety
    /// As in [`Simd::store`].
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: Self::V) {
        with!(_mm512_storeu_ps(to, value));
    }
    /// # Safety
    /// As in [`Simd::store_nontemporal`].
    #[inline(always)]
    unsafe fn store_nontemporal(self, to: *mut f32, value: Self::V) {
        with!(_mm512_stream_ps(to, value));
    }
    #[inline(always)]
    fn fence(self) {
        with!(_mm_sfence());
    }
    /// # Safety
    /// As in [`Simd::load_partial`].
    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V {
        with!(_mm512_maskz_loadu_ps(first_16(count), from))
    }
    /// # Safety
    /// As in [`Simd::store_partial`].
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, value: Self::V, count: usize) {
        with!(_mm512_mask_storeu_ps(to, first_16(count), value));
    }
    intrinsics! {
        add(a, b) = _mm512_add_ps;
        sub(a, b) = _mm512_sub_ps;
        mul(a, b) = _mm512_mul_ps;
        div(a, b) = _mm512_div_ps;
        mul_add(a, b, c) = _mm512_fmadd_ps;
        mul_sub(a, b, c) = _mm512_fmsub_ps;
        min(a, b) = _mm512_min_ps;
        max(a, b) = _mm512_max_ps;
        sqrt(a) = _mm512_sqrt_ps;
    }
    #[inline(always)]
    fn select_positive(self, condition: Self::V, then: Self::V, otherwise: Self::V) -> Self::V {
        with! {
            let positive = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(condition, _mm512_setzero_ps());
            _mm512_mask_blend_ps(positive, otherwise, then)
        }
    }
    #[inline(always)]
    fn keep_first(self, value: Self::V, count: usize, filler: f32) -> Self::V {
        with!(_mm512_mask_blend_ps(first_16(count), _mm512_set1_ps(filler), value))
    }
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        with!(_mm512_roundscale_ps::<0x08>(a))
    }
    #[inline(always)]
    fn exp2_int(self, n: Self::V) -> Self::V {
        with!(_mm512_scalef_ps(_mm512_set1_ps(1.0), n))
    }
    #[inline(always)]
    fn ldexp(self, a: Self::V, n: Self::V) -> Self::V {
        with!(_mm512_scalef_ps(a, n))
    }
    /// # Safety
    /// As in [`Simd::splat_pair`].
    #[inline(always)]
    unsafe fn splat_pair(self, from: *const f32) -> Self::V {
        with!(_mm512_castpd_ps(_mm512_set1_pd(from.cast::<f64>().read_unaligned())))
    }
    #[inline(always)]
    fn interleave(self, a: Self::V, b: Self::V) -> Self::V {
        with! {
            let order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            _mm512_permutex2var_ps(a, order, b)
        }
    }
    #[inline(always)]
    fn add_pairs(self, a: Self::V) -> Self::V {
        with! {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14);
            _mm512_permutexvar_ps(even, _mm512_add_ps(a, _mm512_permute_ps::<0b10_11_00_01>(a)))
        }
    }
    #[inline(always)]
    fn mantissa_exponent(self, a: Self::V) -> (Self::V, Self::V) {
        with!((_mm512_getmant_ps::<_MM_MANT_NORM_1_2, _MM_MANT_SIGN_SRC>(a), _mm512_getexp_ps(a)))
    }
    #[inline(always)]
    fn recip(self, a: Self::V) -> Self::V {
        with! {
            // The approximation has 14 bits; one Newton step doubles them.
            let guess = _mm512_rcp14_ps(a);
            _mm512_fmadd_ps(guess, _mm512_fnmadd_ps(a, guess, _mm512_set1_ps(1.0)), guess)
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
            let mut block = [_mm512_setzero_ps(); 16];
            // Constant loop bounds keep the vectors in registers; a load with an empty mask reads
            // nothing.
            for (row, vector) in block.iter_mut().enumerate() {
                let lanes = if row < rows { first_16(columns) } else { 0 };
                *vector = _mm512_maskz_loadu_ps(lanes, from.wrapping_add(row * from_step));
            }
            // Interleave pairs of values, then pairs of 64-bit halves, then 128-bit quarters.
            let mut other = block;
            for k in 0..8 {
                let (a, b) = (block[2 * k], block[2 * k + 1]);
                (other[2 * k], other[2 * k + 1]) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
            }
            for k in 0..4 {
                for half in 0..2 {
                    let (a, b) = (_mm512_castps_pd(other[4 * k + half]), _mm512_castps_pd(other[4 * k + 2 + half]));
                    block[4 * k + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
                    block[4 * k + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
                }
            }
            for k in 0..4 {
                for pair in 0..2 {
                    let (a, b) = (block[8 * pair + k], block[8 * pair + 4 + k]);
                    other[8 * pair + k] = _mm512_shuffle_f32x4::<0x88>(a, b);
                    other[8 * pair + 4 + k] = _mm512_shuffle_f32x4::<0xdd>(a, b);
                }
            }
            for k in 0..4 {
                let (a, b) = (other[k], other[8 + k]);
                (block[k], block[8 + k]) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
                let (a, b) = (other[4 + k], other[12 + k]);
                (block[4 + k], block[12 + k]) =
                    (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
            }
            for (column, vector) in block.into_iter().enumerate() {
                if column < columns {
                    _mm512_mask_storeu_ps(to.add(column * to_step), first_16(filled), vector);
                }
            }
        }
    }
    #[inline(always)]
    fn reduce_sum(self, a: Self::V) -> f32 {
        with!(_mm512_reduce_add_ps(a))
    }
    #[inline(always)]
    fn reduce_max(self, a: Self::V) -> f32 {
        with!(_mm512_reduce_max_ps(a))
    }
    dropout_mask! {
        splat = _mm512_set1_epi32, add = _mm512_add_epi32, mul = _mm512_mullo_epi32,
        xor = _mm512_xor_si512, shift_right = _mm512_srli_epi32,
        lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        keep_at_least = |bits, threshold, scale| {
            _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(bits, threshold), scale)
        },
    }
}
