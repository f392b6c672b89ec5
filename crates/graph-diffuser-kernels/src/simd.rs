//! Portable SIMD layer: vectors of `f32` for the instruction sets of the processor.
//!
//! A kernel implements [`Kernel`] with a `run` method that is generic over [`Simd`]; [`Isa::run`]
//! instantiates it inside a function compiled with the required target features. All functions
//! between `run` and the methods of [`Simd`] must be `#[inline(always)]`, otherwise they are
//! compiled without these features. This includes closures passed to other threads: start parallel
//! work first, then call [`Isa::run`] inside each task.

mod dropout;
mod operations;
mod prefetch;

#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri))))]
mod intrinsics;
#[cfg(all(target_arch = "aarch64", not(miri)))]
mod neon;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

pub use dropout::{Dropout, hash32};
pub(crate) use operations::Simd;
pub(crate) use prefetch::prefetch;

#[cfg(all(target_arch = "aarch64", not(miri)))]
use neon::Neon;
use portable::Portable;

/// Instruction set that has kernels and is supported by this processor.
///
/// Values are created only for instruction sets that were detected, so holding one proves that the
/// processor supports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(InstructionSet);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InstructionSet {
    /// AVX-512F and AVX-512DQ: 16 lanes.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX2 and FMA: 8 lanes.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// NEON: 4 lanes.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    Neon,
    /// Scalar Rust on arrays of 8 lanes.
    Portable,
}

/// Instruction sets that need not be detected, fastest first. NEON is part of all 64-bit ARM
/// targets with a standard library; Miri lacks its intrinsics.
const ALWAYS_AVAILABLE: &[Isa] = &[
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    Isa(InstructionSet::Neon),
    Isa(InstructionSet::Portable),
];

/// Instruction set of [`Isa::best`].
static BEST: OnceLock<Isa> = OnceLock::new();

impl Isa {
    /// Returns the fastest instruction set of this processor, or the one of [`Isa::make_best`].
    pub fn best() -> Self {
        *BEST.get_or_init(|| Self::available()[0])
    }

    /// Makes this the instruction set that [`Isa::best`] returns, also where a faster one exists:
    /// results differ in rounding between instruction sets. Returns false, without an effect, if
    /// [`Isa::best`] has already returned another one.
    pub fn make_best(self) -> bool {
        *BEST.get_or_init(|| self) == self
    }

    /// Returns the name of this instruction set: `avx512`, `avx2`, `neon` or `portable`.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => "avx2",
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            InstructionSet::Neon => "neon",
            InstructionSet::Portable => "portable",
        }
    }

    /// Returns all instruction sets of this processor, fastest first.
    pub fn available() -> Vec<Self> {
        let mut available = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if avx2 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                available.push(Self(InstructionSet::Avx512));
            }
            if avx2 {
                available.push(Self(InstructionSet::Avx2));
            }
        }
        available.extend(ALWAYS_AVAILABLE);
        available
    }

    /// Runs `kernel` compiled for this instruction set.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            // SAFETY: `available`, the only constructor, has checked that the processor supports
            // it.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { x86::run_avx512(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => unsafe { x86::run_avx2(kernel) },
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            InstructionSet::Neon => kernel.run(Neon),
            InstructionSet::Portable => kernel.run(Portable),
        }
    }
}

/// Computation that is compiled once per instruction set.
pub(crate) trait Kernel {
    type Output;
    /// Runs the computation. Implementations must be `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}
