//! Counter-based dropout masks: an entry is a pure function of its index, so masks need no memory.

/// Dropout mask that keeps an entry if a hash of its index and the key is at least the threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Key that identifies the mask.
    pub key: [u32; 2],
    /// Threshold below which an entry is dropped: the dropout probability times 2³².
    pub threshold: u32,
    /// Factor applied to kept entries, `1 / (1 - probability)`.
    pub scale: f32,
}

impl Dropout {
    /// Returns the factor of the entry at `index`: 0 if it is dropped, `scale` otherwise.
    pub fn factor(&self, index: u64) -> f32 {
        let [low, high] = self.key;
        let bits = hash32(hash32((index as u32).wrapping_add(low)) ^ high ^ (index >> 32) as u32);
        if bits < self.threshold { 0.0 } else { self.scale }
    }
}

/// Hashes 32 bits with the bijection "lowbias32", which has good avalanche and vectorizes well.
pub const fn hash32(bits: u32) -> u32 {
    let bits = (bits ^ (bits >> 16)).wrapping_mul(0x7feb_352d);
    let bits = (bits ^ (bits >> 15)).wrapping_mul(0x846c_a68b);
    bits ^ (bits >> 16)
}
