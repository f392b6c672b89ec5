//! Vector operations used by kernels.

use super::Dropout;

/// Vector operations of one instruction set. A value of an implementing type proves that the
/// processor supports it.
///
/// Loads and stores take raw pointers: callers hold slices and check their lengths once per kernel.
pub(crate) trait Simd: Copy + Send + Sync {
    /// Number of `f32` lanes.
    const LANES: usize;
    /// Number of vector registers, which determines the sizes of register tiles.
    const REGISTERS: usize;
    /// Vector of `LANES` values.
    type V: Copy;

    fn splat(self, value: f32) -> Self::V;
    /// # Safety
    /// `LANES` values are readable at `from`.
    unsafe fn load(self, from: *const f32) -> Self::V;
    /// # Safety
    /// `LANES` values are writable at `to`.
    unsafe fn store(self, to: *mut f32, value: Self::V);
    /// Stores with a non-temporal hint that bypasses the caches, for data that is not read again
    /// soon. [`fence`](Self::fence) must be called before another thread reads it.
    ///
    /// # Safety
    /// `LANES` values are writable at `to`, which is aligned to the size of a vector.
    unsafe fn store_nontemporal(self, to: *mut f32, value: Self::V);
    /// Orders preceding non-temporal stores before all subsequent stores.
    fn fence(self);
    /// Loads the first `count < LANES` values and sets the other lanes to zero.
    ///
    /// # Safety
    /// `count` values are readable at `from`.
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V;
    /// Stores the first `count < LANES` lanes.
    ///
    /// # Safety
    /// `count` values are writable at `to`.
    unsafe fn store_partial(self, to: *mut f32, value: Self::V, count: usize);

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `a · b + c`, rounded once where the processor has FMA.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Returns `a · b - c`, rounded once where the processor has FMA.
    fn mul_sub(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Returns the minimum. If `b` is NaN the result is NaN; if `a` is NaN it is `b` or NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns the maximum. NaN is handled as in [`min`](Self::min).
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    fn sqrt(self, a: Self::V) -> Self::V;
    /// Selects `then` in lanes where `condition > 0`, `otherwise` in the others (also for NaN).
    fn select_positive(self, condition: Self::V, then: Self::V, otherwise: Self::V) -> Self::V;
    /// Keeps the first `count` lanes of `value` and sets the others to `filler`.
    fn keep_first(self, value: Self::V, count: usize, filler: f32) -> Self::V;
    /// Rounds to the nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// Returns `2ⁿ` for integers `n` from -126 to 127.
    fn exp2_int(self, n: Self::V) -> Self::V;
    /// Repeats the two values at `from` over all lanes.
    ///
    /// # Safety
    /// Two values are readable at `from`.
    unsafe fn splat_pair(self, from: *const f32) -> Self::V;
    /// Interleaves the lower halves: `a₀ b₀ a₁ b₁ …`.
    fn interleave(self, a: Self::V, b: Self::V) -> Self::V;
    /// Adds adjacent lanes: `a₀ + a₁`, `a₂ + a₃`, …; the upper half of the result is unspecified.
    fn add_pairs(self, a: Self::V) -> Self::V;
    /// Returns `(m, e)` with `a = m · 2ᵉ` and `m` in `[1, 2)`, for positive normal values.
    fn mantissa_exponent(self, a: Self::V) -> (Self::V, Self::V);
    fn reduce_sum(self, a: Self::V) -> f32;
    fn reduce_max(self, a: Self::V) -> f32;
    /// Returns the dropout factors of the entries `index`, `index + 1`, …; see [`Dropout::factor`].
    fn dropout_mask(self, dropout: Dropout, index: u64) -> Self::V;

    /// Returns `a · 2ⁿ` for integers `n` from -126 to 127.
    #[inline(always)]
    fn ldexp(self, a: Self::V, n: Self::V) -> Self::V {
        self.mul(a, self.exp2_int(n))
    }

    /// Returns `1 / a` to within two units in the last place, for values from `2^-100` to `2^126`.
    #[inline(always)]
    fn recip(self, a: Self::V) -> Self::V {
        self.div(self.splat(1.0), a)
    }

    /// Prefetches the cache line at `from`, which may be any address.
    #[inline(always)]
    fn prefetch(self, from: *const f32) {
        let _ = from;
    }

    /// Transposes a block of `rows` by `columns` values, at most `LANES` each. Each row of the
    /// result has `rows` values, padded with zeros up to `filled`, which is `rows` or `LANES`.
    ///
    /// # Safety
    /// `columns` values are readable in each of `rows` rows that are `from_step` apart, and
    /// `filled` values are writable in each of `columns` rows that are `to_step` apart.
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
                // SAFETY: guaranteed by the caller.
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

    /// Loads `count` values, at most `LANES`, and sets the other lanes to zero.
    ///
    /// # Safety
    /// `count` values are readable at `from`.
    #[inline(always)]
    unsafe fn load_up_to(self, from: *const f32, count: usize) -> Self::V {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if count >= Self::LANES { self.load(from) } else { self.load_partial(from, count) }
        }
    }

    /// Stores the first `count` lanes, at most `LANES`.
    ///
    /// # Safety
    /// `count` values are writable at `to`.
    #[inline(always)]
    unsafe fn store_up_to(self, to: *mut f32, value: Self::V, count: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if count >= Self::LANES {
                self.store(to, value);
            } else {
                self.store_partial(to, value, count);
            }
        }
    }

    /// Returns `eᵃ` with a relative error of about 1e-7; `a` is clamped to `[-87, 88]`.
    #[inline(always)]
    fn exp(self, a: Self::V) -> Self::V {
        let a = self.min(self.max(a, self.splat(-87.0)), self.splat(88.0));
        let n = self.round(self.mul(a, self.splat(std::f32::consts::LOG2_E)));
        // Split ln 2 into two parts so that `a - n ln 2` keeps its low bits.
        let rest = self.mul_add(n, self.splat(-0.693_359_4), a);
        let rest = self.mul_add(n, self.splat(2.121_944_4e-4), rest);
        let mut sum = self.splat(1.987_569_1e-4);
        for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
            sum = self.mul_add(sum, rest, self.splat(coefficient));
        }
        let sum = self.mul_add(sum, self.mul(rest, rest), self.add(rest, self.splat(1.0)));
        self.mul(sum, self.exp2_int(n))
    }

    /// Returns the natural logarithm of positive normal values with an error of about 1e-7.
    #[inline(always)]
    fn ln(self, a: Self::V) -> Self::V {
        let (m, e) = self.mantissa_exponent(a);
        // Reduce m from [1, 2) to [0.707, 1.414).
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

    /// Returns the logistic function `1 / (1 + e^-a)`.
    #[inline(always)]
    fn sigmoid(self, a: Self::V) -> Self::V {
        let one = self.splat(1.0);
        self.div(one, self.add(one, self.exp(self.sub(self.zero(), a))))
    }

    /// Returns `log σ(a) = min(a, 0) - log(1 + e^-|a|)`.
    #[inline(always)]
    fn log_sigmoid(self, a: Self::V) -> Self::V {
        let neg_abs = self.min(a, self.sub(self.zero(), a));
        let rest = self.ln(self.add(self.splat(1.0), self.exp(neg_abs)));
        self.sub(self.min(a, self.zero()), rest)
    }

    /// Clamps `a` to `±bound`.
    #[inline(always)]
    fn clamp(self, a: Self::V, bound: f32) -> Self::V {
        self.max(self.min(a, self.splat(bound)), self.splat(-bound))
    }
}
