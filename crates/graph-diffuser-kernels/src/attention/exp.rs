//! Exponentials of several vectors at once.

use std::f32::consts::{LN_2, LOG2_E};

use crate::simd::Simd;

/// Returns the exponentials of several vectors with values within `±87`, or of their negatives
/// where `negative`, with a relative error of about `1e-7 + 2e-8·|a|`.
///
/// Exponentials dominate the time of a row. One exponential is a chain of a dozen dependent steps;
/// here each step is done for all vectors before the next, and the polynomial is evaluated in
/// pairs, which exposes instruction-level parallelism. Compared with [`Simd::exp`], it omits the
/// clamping, the second part of `ln 2` and the rounding instruction.
#[inline(always)]
pub(super) fn exp<S: Simd, const N: usize>(
    simd: S,
    a: [S::V; N],
    negative: [bool; N],
) -> [S::V; N] {
    // 1.5 · 2²³: adding it rounds to an integer.
    let round_magic = simd.splat(12_582_912.0);
    let (mut rest, mut whole, mut low, mut middle, mut high) = (a, a, a, a, a);
    for k in 0..N {
        let log2_e = simd.splat(if negative[k] { -LOG2_E } else { LOG2_E });
        whole[k] = simd.sub(simd.mul_add(a[k], log2_e, round_magic), round_magic);
        rest[k] = simd.mul_sub(a[k], log2_e, whole[k]);
    }
    // 2ˣ for x within ±1/2 as 1 + x · p(x), where p interpolates at Chebyshev nodes.
    for k in 0..N {
        low[k] = simd.mul_add(rest[k], simd.splat(0.240_226_5), simd.splat(LN_2));
        middle[k] = simd.mul_add(rest[k], simd.splat(9.618_082e-3), simd.splat(5.550_357e-2));
        high[k] = simd.mul_add(rest[k], simd.splat(1.545_326_2e-4), simd.splat(1.339_097_9e-3));
    }
    for k in 0..N {
        let square = simd.mul(rest[k], rest[k]);
        middle[k] = simd.mul_add(high[k], square, middle[k]);
        high[k] = square;
    }
    for k in 0..N {
        low[k] = simd.mul_add(middle[k], high[k], low[k]);
    }
    for k in 0..N {
        rest[k] = simd.mul_add(low[k], rest[k], simd.splat(1.0));
    }
    for k in 0..N {
        rest[k] = simd.ldexp(rest[k], whole[k]);
    }
    rest
}
