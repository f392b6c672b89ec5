//! Prefetch instructions, which do not depend on the instruction set of a kernel.

/// Prefetches the cache line at `from`, which may be any address, into the cache of this level, 1
/// or 2.
#[inline(always)]
pub(crate) fn prefetch<const LEVEL: usize>(from: *const f32) {
    const { assert!(LEVEL == 1 || LEVEL == 2, "other levels have no instruction") };
    // SAFETY of the blocks: prefetching has no side effects and never faults, whatever the address.
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match LEVEL {
            // SAFETY: see above.
            1 => unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) },
            // SAFETY: see above.
            _ => unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) },
        }
    }
    // The intrinsic is unstable.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        use std::arch::asm;
        let line = from.addr();
        match LEVEL {
            // SAFETY: see above.
            1 => unsafe {
                asm!(
                    "prfm pldl1keep, [{}]",
                    in(reg) line,
                    options(nomem, nostack, preserves_flags),
                );
            },
            // SAFETY: see above.
            _ => unsafe {
                asm!(
                    "prfm pldl2keep, [{}]",
                    in(reg) line,
                    options(nomem, nostack, preserves_flags),
                );
            },
        }
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
    let _ = from;
}
