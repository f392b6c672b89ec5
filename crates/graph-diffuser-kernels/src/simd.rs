//! Vectors of single-precision numbers, whatever the processor has.
//!
//! A kernel is a [`Kernel`] whose `run` is generic over [`Simd`]; [`Isa::run`] compiles it into a
//! function with the right target features. Everything between `run` and the methods here must be
//! `#[inline(always)]`, so that all of it ends up in that function. A closure given to another thread
//! does not: start parallel work first, then call [`Isa::run`] inside each piece.

mod dropout;
mod operations;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

pub use dropout::{Dropout, hash32};
pub(crate) use operations::Simd;

use portable::Portable;

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
