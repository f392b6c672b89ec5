//! CubeDropout masks, equal to those of the CPU kernels.

use cubecl::prelude::*;

/// Dropout mask whose entries are a hash of their index, as in `graph_diffuser_kernels::Dropout`.
#[derive(Debug, Clone, Copy)]
pub struct CubeDropout {
    /// Key that identifies the mask.
    pub key: [u32; 2],
    /// Threshold below which an entry is dropped: the dropout probability times 2³².
    pub threshold: u32,
    /// Factor applied to kept entries, `1 / (1 - probability)`.
    pub scale: f32,
}

/// Returns the factor of the entry at `index`, which is below 2³².
#[cube]
pub(crate) fn dropout_factor(index: u32, low: u32, high: u32, threshold: u32, scale: f32) -> f32 {
    let bits = hash32(hash32(index + low) ^ high);
    select(bits < threshold, 0.0f32, scale)
}

/// Hashes 32 bits with "lowbias32"; integer operations wrap.
#[cube]
fn hash32(bits: u32) -> u32 {
    let first = (bits ^ (bits >> 16u32)) * 0x7feb_352du32;
    let second = (first ^ (first >> 15u32)) * 0x846c_a68bu32;
    second ^ (second >> 16u32)
}
