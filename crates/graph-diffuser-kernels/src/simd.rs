//! Vectors of single-precision numbers, whatever the processor has.
//!
//! A kernel is a [`Kernel`] whose `run` is generic over [`Simd`]; [`Isa::run`] compiles it into a
//! function with the right target features. Everything between `run` and the methods here must be
//! `#[inline(always)]`, so that all of it ends up in that function. A closure given to another thread
//! does not: start parallel work first, then call [`Isa::run`] inside each piece.

use std::sync::OnceLock;

/// An instruction set that this processor has and this program has kernels for.
///
/// Only [`Isa::available`] makes one, so to hold one is to know that the processor has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Set);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    /// 16 lanes.
    Avx512,
    /// 8 lanes.
    Avx2,
    /// 8 lanes of plain Rust.
    Portable,
}

impl Isa {
    /// The widest that this processor has.
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Self::available()[0])
    }

    /// All that this processor has, the widest first.
    pub fn available() -> Vec<Self> {
        let mut available = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if avx2 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                available.push(Self(Set::Avx512));
            }
            if avx2 {
                available.push(Self(Set::Avx2));
            }
        }
        available.push(Self(Set::Portable));
        available
    }

    /// Runs `kernel` compiled for this instruction set.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            // SAFETY: `available`, the only source of these values, has asked the processor.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { x86::run_avx512(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { x86::run_avx2(kernel) },
            _ => kernel.run(Portable),
        }
    }
}

/// Work that is compiled once for each instruction set.
pub(crate) trait Kernel {
    type Output;
    /// Must be `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// The operations of one instruction set. A value of such a type proves that the processor has it.
///
/// Memory is reached by pointers: callers hold slices and know that `LANES` numbers are there.
pub(crate) trait Simd: Copy + Send + Sync {
    /// Numbers in a vector.
    const LANES: usize;
    /// A vector of numbers.
    type V: Copy;

    fn splat(self, value: f32) -> Self::V;
    /// # Safety
    /// `LANES` numbers can be read from `from`.
    unsafe fn load(self, from: *const f32) -> Self::V;
    /// # Safety
    /// `LANES` numbers can be written to `to`.
    unsafe fn store(self, to: *mut f32, value: Self::V);
    /// The first `count < LANES` numbers, zeros behind them.
    ///
    /// # Safety
    /// `count` numbers can be read from `from`.
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V;
    /// # Safety
    /// `count < LANES` numbers can be written to `to`.
    unsafe fn store_partial(self, to: *mut f32, value: Self::V, count: usize);

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, rounded once.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a · b - c`, rounded once.
    fn mul_sub(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    fn sqrt(self, a: Self::V) -> Self::V;
    /// `then` where `condition > 0`, `otherwise` elsewhere.
    fn select_positive(self, condition: Self::V, then: Self::V, otherwise: Self::V) -> Self::V;
    /// `value` in the first `count` lanes, `filler` in the others.
    fn keep_first(self, value: Self::V, count: usize, filler: f32) -> Self::V;
    /// The nearest whole number.
    fn round(self, a: Self::V) -> Self::V;
    /// `2ⁿ` for whole `n` from -126 to 127.
    fn two_to_the(self, n: Self::V) -> Self::V;
    /// The two numbers at `from` over and over.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn splat_pair(self, from: *const f32) -> Self::V;
    /// The first halves of both in turns: `a₀ b₀ a₁ b₁ …`.
    fn interleave(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a₀ + a₁`, `a₂ + a₃`, …; what is in the second half is not said.
    fn add_pairs(self, a: Self::V) -> Self::V;
    /// `(m, e)` with `a = m · 2ᵉ` and `m` in `[1, 2)`, for positive normal numbers.
    fn mantissa_exponent(self, a: Self::V) -> (Self::V, Self::V);
    fn sum(self, a: Self::V) -> f32;
    fn largest(self, a: Self::V) -> f32;
    /// `kept` where the entry at `index`, `index + 1`, … of a dropout mask is kept, zero elsewhere.
    fn dropout_mask(self, dropout: Dropout, index: u64) -> Self::V;

    /// `a · 2ⁿ` for whole `n` from -126 to 127.
    #[inline(always)]
    fn times_two_to_the(self, a: Self::V, n: Self::V) -> Self::V {
        self.mul(a, self.two_to_the(n))
    }

    /// `1 / a`, rounded within two units of the last place, for numbers from `2^-100` to `2^126`.
    #[inline(always)]
    fn inverse(self, a: Self::V) -> Self::V {
        self.div(self.splat(1.0), a)
    }

    /// Says that what is at `from` will be read soon. It need not be memory of ours.
    #[inline(always)]
    fn prefetch(self, from: *const f32) {
        let _ = from;
    }

    /// Puts columns of `from` into rows of `to`: `rows` by `columns` numbers, at most `LANES` of either, with
    /// zeros behind the `rows` numbers of a new row up to `filled`, which is `rows` or `LANES`.
    ///
    /// # Safety
    /// `columns` numbers can be read from each of `rows` places that are `from_step` apart, and `filled`
    /// numbers can be written to each of `columns` places that are `to_step` apart.
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
        for column in 0..columns {
            for row in 0..filled {
                // SAFETY: the caller says so.
                unsafe {
                    let value = if row < rows { *from.add(row * from_step + column) } else { 0.0 };
                    *to.add(column * to_step + row) = value;
                }
            }
        }
    }

    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }

    /// Loads `count` numbers, at most `LANES`; zeros behind them.
    ///
    /// # Safety
    /// `count` numbers can be read from `from`.
    #[inline(always)]
    unsafe fn load_up_to(self, from: *const f32, count: usize) -> Self::V {
        // SAFETY: passed on.
        unsafe { if count >= Self::LANES { self.load(from) } else { self.load_partial(from, count) } }
    }

    /// Stores the first `count` numbers, at most `LANES`.
    ///
    /// # Safety
    /// `count` numbers can be written to `to`.
    #[inline(always)]
    unsafe fn store_up_to(self, to: *mut f32, value: Self::V, count: usize) {
        // SAFETY: passed on.
        unsafe {
            if count >= Self::LANES {
                self.store(to, value);
            } else {
                self.store_partial(to, value, count);
            }
        }
    }

    /// `eᵃ` to about 1e-7; below -87 it is `e^-87`, above 88 `e^88`.
    #[inline(always)]
    fn exp(self, a: Self::V) -> Self::V {
        let a = self.min(self.max(a, self.splat(-87.0)), self.splat(88.0));
        let n = self.round(self.mul(a, self.splat(std::f32::consts::LOG2_E)));
        // ln 2 in two parts, so that `a - n ln 2` keeps its last bits.
        let rest = self.mul_add(n, self.splat(-0.693_359_4), a);
        let rest = self.mul_add(n, self.splat(2.121_944_4e-4), rest);
        let mut sum = self.splat(1.987_569_1e-4);
        for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
            sum = self.mul_add(sum, rest, self.splat(coefficient));
        }
        let sum = self.mul_add(sum, self.mul(rest, rest), self.add(rest, self.splat(1.0)));
        self.mul(sum, self.two_to_the(n))
    }

    /// Natural logarithm of positive normal numbers to about 1e-7.
    #[inline(always)]
    fn ln(self, a: Self::V) -> Self::V {
        let (m, e) = self.mantissa_exponent(a);
        // Bring m from [1, 2) to [0.707, 1.414).
        let high = self.sub(m, self.splat(std::f32::consts::SQRT_2));
        let m = self.select_positive(high, self.mul(m, self.splat(0.5)), m);
        let e = self.select_positive(high, self.add(e, self.splat(1.0)), e);
        let x = self.sub(m, self.splat(1.0));
        let square = self.mul(x, x);
        let mut sum = self.splat(7.037_683_6e-2);
        for coefficient in [
            -0.115_146_1,
            0.116_769_98,
            -0.124_201_41,
            0.142_493_23,
            -0.166_680_57,
            0.200_007_14,
            -0.249_999_94,
            0.333_333_3,
        ] {
            sum = self.mul_add(sum, x, self.splat(coefficient));
        }
        let sum = self.mul(self.mul(sum, x), square);
        let sum = self.mul_add(e, self.splat(-2.121_944_4e-4), sum);
        let sum = self.mul_add(square, self.splat(-0.5), sum);
        self.mul_add(e, self.splat(0.693_359_4), self.add(x, sum))
    }

    /// `1 / (1 + e^-a)`.
    #[inline(always)]
    fn sigmoid(self, a: Self::V) -> Self::V {
        let one = self.splat(1.0);
        self.div(one, self.add(one, self.exp(self.sub(self.zero(), a))))
    }
}

/// A dropout mask: an entry is kept where a hash of its index and the key reaches the threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Which mask.
    pub key: [u32; 2],
    /// Hashes below it are dropped.
    pub threshold: u32,
    /// What a kept entry is multiplied by.
    pub kept: f32,
}

impl Dropout {
    /// The factor of one entry.
    pub fn factor(&self, index: u64) -> f32 {
        let [low, high] = self.key;
        let bits = scramble(scramble((index as u32).wrapping_add(low)) ^ high ^ (index >> 32) as u32);
        if bits < self.threshold { 0.0 } else { self.kept }
    }
}

/// A bijection of 32 bits with good avalanche ("lowbias32"): two multiplications, which vectorise.
pub const fn scramble(bits: u32) -> u32 {
    let bits = (bits ^ (bits >> 16)).wrapping_mul(0x7feb_352d);
    let bits = (bits ^ (bits >> 15)).wrapping_mul(0x846c_a68b);
    bits ^ (bits >> 16)
}

/// Plain Rust, eight lanes at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

impl Portable {
    #[inline(always)]
    fn zip(a: [f32; 8], b: [f32; 8], with: impl Fn(f32, f32) -> f32) -> [f32; 8] {
        std::array::from_fn(|lane| with(a[lane], b[lane]))
    }
}

impl Simd for Portable {
    const LANES: usize = 8;
    type V = [f32; 8];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [value; 8]
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        // SAFETY: the caller says that eight numbers are there; arrays of f32 need no more alignment.
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: Self::V) {
        // SAFETY: the caller says that there is room for eight numbers.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(value) }
    }
    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V {
        // SAFETY: only the first `count` lanes are read, which the caller says are there.
        std::array::from_fn(|lane| if lane < count { unsafe { *from.add(lane) } } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, value: Self::V, count: usize) {
        for (lane, value) in value.into_iter().enumerate().take(count) {
            // SAFETY: the caller says that there is room for `count` numbers.
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
        // Not `f32::mul_add`, which is a library call where the processor has no such instruction.
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
    fn two_to_the(self, n: Self::V) -> Self::V {
        n.map(|n| f32::from_bits(((n as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn splat_pair(self, from: *const f32) -> Self::V {
        // SAFETY: the caller says that both are there.
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
    fn sum(self, a: Self::V) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    fn largest(self, a: Self::V) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
    #[inline(always)]
    fn dropout_mask(self, dropout: Dropout, index: u64) -> Self::V {
        std::array::from_fn(|lane| dropout.factor(index + lane as u64))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! The two instruction sets of x86-64.

    #[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "intrinsics are named by the thousand"))]
    use std::arch::x86_64::*;

    use super::{Dropout, Kernel, Simd};

    #[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
    pub(super) fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
        kernel.run(Avx512(()))
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
        kernel.run(Avx2(()))
    }

    /// Only `run_avx512` makes one.
    #[derive(Debug, Clone, Copy)]
    pub(super) struct Avx512(());

    /// Only `run_avx2` makes one.
    #[derive(Debug, Clone, Copy)]
    pub(super) struct Avx2(());

    #[inline(always)]
    fn first_16(count: usize) -> __mmask16 {
        if count >= 16 { 0xffff } else { (1_u16 << count) - 1 }
    }

    /// All bits of the first `count` lanes.
    #[inline(always)]
    unsafe fn first_8(count: usize) -> __m256i {
        const LADDER: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: eight numbers from 8 - min(count, 8) lie inside the ladder.
        unsafe { _mm256_loadu_si256(LADDER.as_ptr().add(8 - count.min(8)).cast()) }
    }

    // SAFETY of every block below: a value of the type exists only inside the function that was
    // compiled for, and called on, a processor with these instructions; pointers are the caller's.
    macro_rules! with {
        ($($body:tt)*) => {
            // SAFETY: see above the macro.
            unsafe { $($body)* }
        };
    }

    impl Simd for Avx512 {
        const LANES: usize = 16;
        type V = __m512;

        #[inline(always)]
        fn splat(self, value: f32) -> Self::V {
            with!(_mm512_set1_ps(value))
        }
        #[inline(always)]
        unsafe fn load(self, from: *const f32) -> Self::V {
            with!(_mm512_loadu_ps(from))
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32, value: Self::V) {
            with!(_mm512_storeu_ps(to, value));
        }
        #[inline(always)]
        unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V {
            with!(_mm512_maskz_loadu_ps(first_16(count), from))
        }
        #[inline(always)]
        unsafe fn store_partial(self, to: *mut f32, value: Self::V, count: usize) {
            with!(_mm512_mask_storeu_ps(to, first_16(count), value));
        }
        #[inline(always)]
        fn add(self, a: Self::V, b: Self::V) -> Self::V {
            with!(_mm512_add_ps(a, b))
        }
        #[inline(always)]
        fn sub(self, a: Self::V, b: Self::V) -> Self::V {
            with!(_mm512_sub_ps(a, b))
        }
        #[inline(always)]
        fn mul(self, a: Self::V, b: Self::V) -> Self::V {
            with!(_mm512_mul_ps(a, b))
        }
        #[inline(always)]
        fn div(self, a: Self::V, b: Self::V) -> Self::V {
            with!(_mm512_div_ps(a, b))
        }
        #[inline(always)]
        fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            with!(_mm512_fmadd_ps(a, b, c))
        }
        #[inline(always)]
        fn mul_sub(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            with!(_mm512_fmsub_ps(a, b, c))
        }
        #[inline(always)]
        fn min(self, a: Self::V, b: Self::V) -> Self::V {
            with!(_mm512_min_ps(a, b))
        }
        #[inline(always)]
        fn max(self, a: Self::V, b: Self::V) -> Self::V {
            with!(_mm512_max_ps(a, b))
        }
        #[inline(always)]
        fn sqrt(self, a: Self::V) -> Self::V {
            with!(_mm512_sqrt_ps(a))
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
        fn two_to_the(self, n: Self::V) -> Self::V {
            with!(_mm512_scalef_ps(_mm512_set1_ps(1.0), n))
        }
        #[inline(always)]
        fn times_two_to_the(self, a: Self::V, n: Self::V) -> Self::V {
            with!(_mm512_scalef_ps(a, n))
        }
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
        fn inverse(self, a: Self::V) -> Self::V {
            with! {
                // 14 bits, and twice as many after one step of Newton's.
                let guess = _mm512_rcp14_ps(a);
                _mm512_fmadd_ps(guess, _mm512_fnmadd_ps(a, guess, _mm512_set1_ps(1.0)), guess)
            }
        }
        #[inline(always)]
        fn prefetch(self, from: *const f32) {
            with!(_mm_prefetch::<_MM_HINT_T0>(from.cast()));
        }
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
                // Loops have constant ends so that vectors stay in registers; a load without lanes reads nothing.
                for (row, vector) in block.iter_mut().enumerate() {
                    let lanes = if row < rows { first_16(columns) } else { 0 };
                    *vector = _mm512_maskz_loadu_ps(lanes, from.wrapping_add(row * from_step));
                }
                // Pairs, fours, then quarters of vectors change places.
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
        fn sum(self, a: Self::V) -> f32 {
            with!(_mm512_reduce_add_ps(a))
        }
        #[inline(always)]
        fn largest(self, a: Self::V) -> f32 {
            with!(_mm512_reduce_max_ps(a))
        }
        #[inline(always)]
        fn dropout_mask(self, dropout: Dropout, index: u64) -> Self::V {
            with! {
                let scramble = |bits: __m512i| {
                    let bits = _mm512_xor_si512(bits, _mm512_srli_epi32::<16>(bits));
                    let bits = _mm512_mullo_epi32(bits, _mm512_set1_epi32(0x7feb_352d));
                    let bits = _mm512_xor_si512(bits, _mm512_srli_epi32::<15>(bits));
                    let bits = _mm512_mullo_epi32(bits, _mm512_set1_epi32(0x846c_a68b_u32 as i32));
                    _mm512_xor_si512(bits, _mm512_srli_epi32::<16>(bits))
                };
                let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
                let [low, high] = dropout.key;
                let start = (index as u32).wrapping_add(low) as i32;
                let first = scramble(_mm512_add_epi32(lanes, _mm512_set1_epi32(start)));
                // A vector that crosses a multiple of 2³² has two high words.
                let carried = (index as u32).wrapping_add(15) < index as u32;
                let word = (index >> 32) as u32;
                let high_word = if carried {
                    let low_lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32(index as u32 as i32));
                    let wrapped = _mm512_cmplt_epu32_mask(low_lanes, _mm512_set1_epi32(index as u32 as i32));
                    let (below, above) = ((word ^ high) as i32, (word.wrapping_add(1) ^ high) as i32);
                    _mm512_mask_blend_epi32(wrapped, _mm512_set1_epi32(below), _mm512_set1_epi32(above))
                } else {
                    _mm512_set1_epi32((word ^ high) as i32)
                };
                let bits = scramble(_mm512_xor_si512(first, high_word));
                let kept = _mm512_cmpge_epu32_mask(bits, _mm512_set1_epi32(dropout.threshold as i32));
                _mm512_maskz_mov_ps(kept, _mm512_set1_ps(dropout.kept))
            }
        }
    }

    impl Simd for Avx2 {
        const LANES: usize = 8;
        type V = __m256;

        #[inline(always)]
        fn splat(self, value: f32) -> Self::V {
            with!(_mm256_set1_ps(value))
        }
        #[inline(always)]
        unsafe fn load(self, from: *const f32) -> Self::V {
            with!(_mm256_loadu_ps(from))
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32, value: Self::V) {
            with!(_mm256_storeu_ps(to, value));
        }
        #[inline(always)]
        unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V {
            with!(_mm256_maskload_ps(from, first_8(count)))
        }
        #[inline(always)]
        unsafe fn store_partial(self, to: *mut f32, value: Self::V, count: usize) {
            with!(_mm256_maskstore_ps(to, first_8(count), value));
        }
        #[inline(always)]
        fn add(self, a: Self::V, b: Self::V) -> Self::V {
            with!(_mm256_add_ps(a, b))
        }
        #[inline(always)]
        fn sub(self, a: Self::V, b: Self::V) -> Self::V {
            with!(_mm256_sub_ps(a, b))
        }
        #[inline(always)]
        fn mul(self, a: Self::V, b: Self::V) -> Self::V {
            with!(_mm256_mul_ps(a, b))
        }
        #[inline(always)]
        fn div(self, a: Self::V, b: Self::V) -> Self::V {
            with!(_mm256_div_ps(a, b))
        }
        #[inline(always)]
        fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            with!(_mm256_fmadd_ps(a, b, c))
        }
        #[inline(always)]
        fn mul_sub(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            with!(_mm256_fmsub_ps(a, b, c))
        }
        #[inline(always)]
        fn min(self, a: Self::V, b: Self::V) -> Self::V {
            with!(_mm256_min_ps(a, b))
        }
        #[inline(always)]
        fn max(self, a: Self::V, b: Self::V) -> Self::V {
            with!(_mm256_max_ps(a, b))
        }
        #[inline(always)]
        fn sqrt(self, a: Self::V) -> Self::V {
            with!(_mm256_sqrt_ps(a))
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
        fn two_to_the(self, n: Self::V) -> Self::V {
            with! {
                let n = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(n))
            }
        }
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
        fn sum(self, a: Self::V) -> f32 {
            with! {
                let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
            }
        }
        #[inline(always)]
        fn largest(self, a: Self::V) -> f32 {
            with! {
                let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
                let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
            }
        }
        #[inline(always)]
        fn dropout_mask(self, dropout: Dropout, index: u64) -> Self::V {
            if (index as u32).checked_add(7).is_none() {
                // A vector that crosses a multiple of 2³² has two high words; it is rare.
                let factors: [f32; 8] = std::array::from_fn(|lane| dropout.factor(index + lane as u64));
                return with!(_mm256_loadu_ps(factors.as_ptr()));
            }
            with! {
                let scramble = |bits: __m256i| {
                    let bits = _mm256_xor_si256(bits, _mm256_srli_epi32::<16>(bits));
                    let bits = _mm256_mullo_epi32(bits, _mm256_set1_epi32(0x7feb_352d));
                    let bits = _mm256_xor_si256(bits, _mm256_srli_epi32::<15>(bits));
                    let bits = _mm256_mullo_epi32(bits, _mm256_set1_epi32(0x846c_a68b_u32 as i32));
                    _mm256_xor_si256(bits, _mm256_srli_epi32::<16>(bits))
                };
                let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                let [low, high] = dropout.key;
                let start = (index as u32).wrapping_add(low) as i32;
                let first = scramble(_mm256_add_epi32(lanes, _mm256_set1_epi32(start)));
                let high_word = _mm256_set1_epi32((high ^ (index >> 32) as u32) as i32);
                let bits = scramble(_mm256_xor_si256(first, high_word));
                // Unsigned `bits >= threshold` is `max(bits, threshold) == bits`.
                let threshold = _mm256_set1_epi32(dropout.threshold as i32);
                let kept = _mm256_cmpeq_epi32(_mm256_max_epu32(bits, threshold), bits);
                _mm256_and_ps(_mm256_castsi256_ps(kept), _mm256_set1_ps(dropout.kept))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies one of a few functions to many numbers.
    struct Apply<'a> {
        values: &'a [f32],
        function: usize,
    }

    impl Kernel for Apply<'_> {
        type Output = Vec<f32>;
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> Vec<f32> {
            let mut out = vec![0.0; self.values.len()];
            for (from, to) in self.values.chunks(S::LANES).zip(out.chunks_mut(S::LANES)) {
                // SAFETY: a chunk has the length that is given.
                unsafe {
                    let a = simd.load_up_to(from.as_ptr(), from.len());
                    let value = match self.function {
                        0 => simd.exp(a),
                        1 => simd.ln(simd.max(a, simd.splat(f32::MIN_POSITIVE))),
                        2 => simd.sigmoid(a),
                        3 => simd.splat(simd.sum(a)),
                        4 => simd.splat(simd.largest(a)),
                        5 => simd.select_positive(a, simd.splat(1.0), simd.splat(-1.0)),
                        6 => simd.keep_first(a, 3, 9.0),
                        8 => simd.inverse(a),
                        9 => simd.interleave(a, simd.sub(simd.zero(), a)),
                        10 => simd.add_pairs(a),
                        11 => simd.splat_pair(from.as_ptr()),
                        _ => simd.sqrt(simd.mul_add(a, a, simd.zero())),
                    };
                    simd.store_up_to(to.as_mut_ptr(), value, to.len());
                }
            }
            out
        }
    }

    fn worst(function: usize, values: &[f32], exact: fn(f64) -> f64) {
        for isa in Isa::available() {
            let ours = isa.run(Apply { values, function });
            for (ours, value) in ours.iter().zip(values) {
                let exact = exact(f64::from(*value));
                let error = (f64::from(*ours) - exact).abs() / exact.abs().max(1e-30);
                assert!(error < 4e-7, "{isa:?}: of {value} is {ours}, not {exact}");
            }
        }
    }

    #[test]
    fn functions_are_exact_to_rounding() {
        let values: Vec<f32> = (-8600..8700).map(|step| step as f32 * 0.01).collect();
        worst(0, &values, f64::exp);
        worst(2, &values, |value| 1.0 / (1.0 + (-value).exp()));
        worst(7, &values, f64::abs);
        let positive: Vec<f32> = (1..4000).map(|step| 1.01_f32.powi(step - 2000) * 1.37).collect();
        worst(8, &positive, |value| 1.0 / value);
        let away_from_one: Vec<f32> = positive.into_iter().filter(|value| (value - 1.0).abs() > 0.05).collect();
        worst(1, &away_from_one, f64::ln);
    }

    #[test]
    fn lanes_are_summed_compared_chosen_and_kept() {
        let values: Vec<f32> = (0..16).map(|lane| lane as f32 - 3.0).collect();
        for isa in Isa::available() {
            let lanes = if isa.0 == Set::Avx512 { 16 } else { 8 };
            let run = |function| isa.run(Apply { values: &values, function });
            assert_eq!(run(3)[0], values[..lanes].iter().sum::<f32>());
            assert_eq!(run(4)[0], values[lanes - 1]);
            assert_eq!(run(5)[..5], [-1.0, -1.0, -1.0, -1.0, 1.0]);
            assert_eq!(run(6)[..5], [-3.0, -2.0, -1.0, 9.0, 9.0]);
            let alternating = |lane: usize| if lane.is_multiple_of(2) { values[lane / 2] } else { -values[lane / 2] };
            assert_eq!(run(9)[..lanes], (0..lanes).map(alternating).collect::<Vec<f32>>());
            let pairs: Vec<f32> = values.chunks(2).map(|pair| pair[0] + pair[1]).collect();
            assert_eq!(run(10)[..lanes / 2], pairs[..lanes / 2]);
            assert_eq!(run(11)[..4], [-3.0, -2.0, -3.0, -2.0]);
        }
    }

    struct Transpose<'a>(&'a [f32], [usize; 2], bool);

    impl Kernel for Transpose<'_> {
        type Output = Vec<f32>;
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> Vec<f32> {
            let Self(from, [rows, columns], fill) = self;
            let (rows, columns) = (rows.min(S::LANES), columns.min(S::LANES));
            let filled = if fill { S::LANES } else { rows };
            let mut to = vec![9.0; 16 * 20];
            // SAFETY: 16 rows of 17 numbers are there, and room for 16 of 20.
            unsafe { simd.transpose(from.as_ptr(), 17, [rows, columns], to.as_mut_ptr(), 20, filled) };
            for (column, to) in to.chunks(20).enumerate() {
                for (row, value) in to.iter().enumerate() {
                    let expected = match (column < columns, row < rows, row < filled) {
                        (true, true, _) => from[row * 17 + column],
                        (true, false, true) => 0.0,
                        _ => 9.0,
                    };
                    assert_eq!(*value, expected, "row {row} of column {column} of {rows} by {columns}");
                }
            }
            to
        }
    }

    #[test]
    fn columns_become_rows() {
        let from: Vec<f32> = (0..16 * 17).map(|value| value as f32 + 1.0).collect();
        for isa in Isa::available() {
            for (rows, columns) in (0..=16).flat_map(|rows| (0..=16).map(move |columns| (rows, columns))) {
                for fill in [false, true] {
                    isa.run(Transpose(&from, [rows, columns], fill));
                }
            }
        }
    }

    struct Mask(Dropout, u64);

    impl Kernel for Mask {
        type Output = Vec<f32>;
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> Vec<f32> {
            let mut out = vec![0.0; S::LANES];
            // SAFETY: there is room for one vector.
            unsafe { simd.store(out.as_mut_ptr(), simd.dropout_mask(self.0, self.1)) };
            out
        }
    }

    #[test]
    fn masks_are_the_same_on_every_instruction_set() {
        let dropout = Dropout { key: [0xffff_fff0, 77], threshold: 1 << 31, kept: 2.0 };
        for index in [0, 5, 1 << 20, (1 << 32) - 6, (1 << 32) - 1, 1 << 32, (7 << 32) + 3] {
            for isa in Isa::available() {
                let mask = isa.run(Mask(dropout, index));
                let expected: Vec<f32> = (0..mask.len() as u64).map(|lane| dropout.factor(index + lane)).collect();
                assert_eq!(mask, expected, "{isa:?} at {index}");
            }
        }
    }
}
