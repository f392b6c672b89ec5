//! The two instruction sets of x86-64.

// SAFETY of every block in the files below: a value of the type exists only inside the function that was
// compiled for, and called on, a processor with these instructions; pointers are the caller's.
macro_rules! with {
    ($($body:tt)*) => {
        // SAFETY: see above the macro.
        unsafe { $($body)* }
    };
}

mod avx2;
mod avx512;

pub(super) use avx2::run_avx2;
pub(super) use avx512::run_avx512;
