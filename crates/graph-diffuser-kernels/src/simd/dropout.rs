//! Dropout masks that need no memory: an entry follows from its index.

/// A dropout mask: an entry is kept where a hash of its index and the key reaches the threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Which mask.
    pub key: [u32; 2],
    /// Hashes below it are dropped.
    pub threshold: u32,
    /// What a kept entry is multiplied by.
    pub kept: f32,
}

impl Dropout {
    /// The factor of one entry.
    pub fn factor(&self, index: u64) -> f32 {
        let [low, high] = self.key;
        let bits = hash32(hash32((index as u32).wrapping_add(low)) ^ high ^ (index >> 32) as u32);
        if bits < self.threshold { 0.0 } else { self.kept }
    }
}

/// A bijection of 32 bits with good avalanche ("lowbias32"): two multiplications, which vectorise.
pub const fn hash32(bits: u32) -> u32 {
    let bits = (bits ^ (bits >> 16)).wrapping_mul(0x7feb_352d);
    let bits = (bits ^ (bits >> 15)).wrapping_mul(0x846c_a68b);
    bits ^ (bits >> 16)
}
