//! The operations that a kernel is written in, and those that follow from others.

use super::Dropout;

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
    /// Past the caches where there is a way to, for what is not read soon. [`settle`](Self::settle) must follow
    /// before another thread may read it.
    ///
    /// # Safety
    /// `LANES` numbers can be written to `to`, which is a multiple of their size.
    unsafe fn stream(self, to: *mut f32, value: Self::V);
    /// What was streamed before is written before all that follows.
    fn settle(self);
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
        unsafe {
            if count >= Self::LANES { self.load(from) } else { self.load_partial(from, count) }
        }
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
