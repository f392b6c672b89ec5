//! Implementations for x86-64.

mod avx2;
mod avx512;

pub(super) use avx2::run_avx2;
pub(super) use avx512::run_avx512;
