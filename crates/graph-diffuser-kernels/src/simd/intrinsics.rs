//! Macros that implement operations of [`Simd`](super::Simd) by intrinsics.

/// Evaluates code with intrinsics in the implementation of [`Simd`](super::Simd) for an instruction
/// set.
///
/// Values of the implementing types exist only where the processor supports the instruction set,
/// and only inside functions that are compiled for it; the validity of pointers is guaranteed by
/// the caller of an operation.
macro_rules! with {
    ($($body:tt)*) => {
        // SAFETY: see the documentation of the macro.
        unsafe { $($body)* }
    };
}

/// Implements operations that are one intrinsic on whole vectors.
macro_rules! intrinsics {
    ($($name:ident($($argument:ident),*) = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: Self::V),*) -> Self::V {
            with!($intrinsic($($argument),*))
        }
    )*};
}

/// Implements [`Simd::dropout_mask`](super::Simd::dropout_mask) by intrinsics on vectors of 32-bit
/// integers.
macro_rules! dropout_mask {
    (
        splat = $splat:ident, add = $add:ident, mul = $mul:ident, xor = $xor:ident,
        shift_right = $shift_right:ident, lanes = $lanes:expr, keep_at_least = $keep:expr,
    ) => {
        #[inline(always)]
        fn dropout_mask(self, dropout: Dropout, index: u64) -> Self::V {
            let last_lane = Self::LANES as u32 - 1;
            if (index as u32).checked_add(last_lane).is_none() {
                // The high word of the index changes within a vector that crosses a multiple of
                // 2³²; this is rare.
                let factors: [f32; Self::LANES] =
                    std::array::from_fn(|lane| dropout.factor(index + lane as u64));
                // SAFETY: the array has the length of a vector.
                return unsafe { self.load(factors.as_ptr()) };
            }
            with! {
                let hash32 = |bits| {
                    let bits = $xor(bits, $shift_right::<16>(bits));
                    let bits = $mul(bits, $splat(0x7feb_352d));
                    let bits = $xor(bits, $shift_right::<15>(bits));
                    let bits = $mul(bits, $splat(0x846c_a68b_u32 as _));
                    $xor(bits, $shift_right::<16>(bits))
                };
                let [low, high] = dropout.key;
                let first = hash32($add($lanes, $splat((index as u32).wrapping_add(low) as _)));
                let bits = hash32($xor(first, $splat((high ^ (index >> 32) as u32) as _)));
                $keep(bits, $splat(dropout.threshold as _), self.splat(dropout.scale))
            }
        }
    };
}

pub(super) use {dropout_mask, intrinsics, with};
