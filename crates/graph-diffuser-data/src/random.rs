//! One seed, named streams.
//!
//! A stream is a counter and a key: the n-th number is a hash of both, so a stream can be entered
//! at any place, and two purposes never share numbers. Nothing here keeps global state.

/// The source of everything random in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeedTree(u64);

impl SeedTree {
    /// All streams of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The stream of one purpose, such as `"init"`.
    pub fn stream(self, purpose: &str) -> RandomStream {
        self.stream_at(purpose, 0)
    }

    /// The `index`-th stream of one purpose: an epoch's shuffle, a step's dropout.
    ///
    /// Because it is found by number, resuming needs no saved generator state.
    pub fn stream_at(self, purpose: &str, index: u64) -> RandomStream {
        // FNV-1a over the name; `mix` then spreads the three parts over all bits.
        let name = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        RandomStream { key: mix(mix(mix(self.0) ^ name) ^ index), position: 0 }
    }
}

/// A sequence of random numbers with a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RandomStream {
    key: u64,
    position: u64,
}

impl RandomStream {
    /// What distinguishes this stream from all others; seeds counter-based operations.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.position += 1;
        mix(self.key.wrapping_add(self.position.wrapping_mul(GOLDEN)))
    }

    /// A whole number in `0..bound`, every one as likely.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "nothing is below zero");
        let bound = bound as u64;
        // Numbers past the last full multiple of `bound` would favour small results: draw again.
        let limit = u64::MAX - u64::MAX % bound;
        loop {
            let bits = self.next_u64();
            if bits < limit {
                return (bits % bound) as usize;
            }
        }
    }

    /// A number in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A draw from the standard normal distribution (Box-Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Puts `items` in random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of `SplitMix64`: a bijection in which every input bit moves every output bit.
fn mix(bits: u64) -> u64 {
    let bits = bits.wrapping_add(GOLDEN);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(mut stream: RandomStream) -> Vec<u64> {
        (0..4).map(|_| stream.next_u64()).collect()
    }

    #[test]
    fn a_stream_depends_on_seed_purpose_and_index_alone() {
        let first = numbers(SeedTree::new(7).stream("init"));
        assert_eq!(first, numbers(SeedTree::new(7).stream("init")));
        for other in [
            SeedTree::new(8).stream("init"),
            SeedTree::new(7).stream("shuffle"),
            SeedTree::new(7).stream_at("init", 1),
        ] {
            assert_ne!(first, numbers(other));
        }
    }

    #[test]
    fn streams_stay_the_same_between_releases() {
        // A change here changes every run: it belongs in the changelog.
        let mut stream = SeedTree::new(0).stream("init");
        assert_eq!(stream.next_u64(), 9_410_035_121_269_605_293);
        assert_eq!(stream.next_u64(), 12_961_009_126_451_292_710);
    }

    #[test]
    fn draws_have_the_moments_of_their_distribution() {
        let mut stream = SeedTree::new(1).stream("moments");
        let count = 100_000;
        let (mut uniform, mut normal, mut square, mut small) = (0.0, 0.0, 0.0, [0_u32; 3]);
        for _ in 0..count {
            uniform += stream.uniform();
            let draw = stream.normal();
            normal += draw;
            square += draw * draw;
            small[stream.below(3)] += 1;
        }
        let mean = |sum: f64| sum / f64::from(count);
        // Four standard errors each.
        assert!((mean(uniform) - 0.5).abs() < 4.0 * 0.2887 / 316.0);
        assert!(mean(normal).abs() < 4.0 / 316.0);
        assert!((mean(square) - 1.0).abs() < 4.0 * 1.414 / 316.0);
        assert!(small.iter().all(|&hits| (f64::from(hits) - 33_333.0).abs() < 4.0 * 149.0));
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut items: Vec<usize> = (0..100).collect();
        SeedTree::new(3).stream("shuffle").shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
