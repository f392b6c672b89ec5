//! Implementations for x86-64.

// SAFETY of every block in the submodules: values of the implementing types exist only inside
// functions that are compiled with the target features and called only if the processor has them;
// the validity of pointers is guaranteed by the caller.
macro_rules! with {
    ($($body:tt)*) => {
        // SAFETY: see the comment above the macro.
        unsafe { $($body)* }
    };
}

/// Implements operations of [`Simd`](super::Simd) that are one intrinsic on whole vectors.
macro_rules! intrinsics {
    ($($name:ident($($argument:ident),*) = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: Self::V),*) -> Self::V {
            with!($intrinsic($($argument),*))
        }
    )*};
}

mod avx2;
mod avx512;

pub(super) use avx2::run_avx2;
pub(super) use avx512::run_avx512;
