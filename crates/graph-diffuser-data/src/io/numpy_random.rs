//! NumPy's default random generator, to reproduce the random splits of published loaders.
//!
//! `SeedSequence` hashes the seed, `PCG64` (XSL-RR) generates 64 bits at a time, and
//! `Generator.permutation` shuffles with masked rejection sampling. Tests compare it bit for bit
//! with recorded NumPy output.

/// Equivalent of `numpy.random.default_rng(seed)`.
#[derive(Debug, Clone)]
pub(crate) struct NumpyRandom {
    state: u128,
    increment: u128,
    /// Unused upper half of the last 64-bit draw.
    half: Option<u32>,
}

const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

impl NumpyRandom {
    /// Creates a generator with this seed.
    pub(crate) fn new(seed: u64) -> Self {
        let [high, low, high_increment, low_increment] = seed_state(seed);
        let wide = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let mut random =
            Self { state: 0, increment: wide(high_increment, low_increment) << 1 | 1, half: None };
        random.step();
        random.state = random.state.wrapping_add(wide(high, low));
        random.step();
        random
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// Returns the next 64 random bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// Returns the next 32 random bits: the lower half of a 64-bit draw, then the upper half.
    fn next_u32(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        let bits = self.next_u64();
        self.half = Some((bits >> 32) as u32);
        bits as u32
    }

    /// Returns a uniform integer in `0..=last`, by rejection sampling of masked bits.
    fn up_to(&mut self, last: u32) -> u32 {
        let mask = u32::MAX.checked_shr(last.leading_zeros()).unwrap_or(0);
        loop {
            let drawn = self.next_u32() & mask;
            if drawn <= last {
                return drawn;
            }
        }
    }

    /// Shuffles `items` like `Generator.shuffle`.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let bound = u32::try_from(last).expect("a dataset has fewer than 2³² graphs");
            items.swap(last, self.up_to(bound) as usize);
        }
    }

    /// Returns a random permutation of `0..count` like `Generator.permutation`.
    pub(crate) fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut items: Vec<usize> = (0..count).collect();
        self.shuffle(&mut items);
        items
    }
}

/// Equivalent of `SeedSequence(seed).generate_state(4, uint64)`.
fn seed_state(seed: u64) -> [u64; 4] {
    const ROTATE: u32 = 16;
    let mut constant = 0x43b0_d7e5_u32;
    let mut hash = |mut value: u32| {
        value ^= constant;
        constant = constant.wrapping_mul(0x931e_8875);
        value = value.wrapping_mul(constant);
        value ^ value >> ROTATE
    };
    let mix = |first: u32, second: u32| {
        let mixed =
            0xca01_f9dd_u32.wrapping_mul(first).wrapping_sub(0x4973_f715_u32.wrapping_mul(second));
        mixed ^ mixed >> ROTATE
    };
    let mut pool = [seed as u32, (seed >> 32) as u32, 0, 0].map(&mut hash);
    for source in 0..4 {
        for target in (0..4).filter(|&target| target != source) {
            pool[target] = mix(pool[target], hash(pool[source]));
        }
    }
    let mut constant = 0x8b51_f9dd_u32;
    let mut words = pool.iter().cycle().map(|&word| {
        let mut value = word ^ constant;
        constant = constant.wrapping_mul(0x58f3_8ded);
        value = value.wrapping_mul(constant);
        value ^ value >> ROTATE
    });
    let mut word = || u64::from(words.next().expect("a cycle of a non-empty array is infinite"));
    [(); 4].map(|()| word() | word() << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded by `tests/fixtures/record_numpy.py`.
    const RECORDED: &str = include_str!("../../tests/fixtures/numpy_random.json");

    #[test]
    fn draws_and_permutations_equal_those_of_numpy() {
        let recorded: serde_json::Value = serde_json::from_str(RECORDED).unwrap();
        let integers = |value: &serde_json::Value| -> Vec<u64> {
            value.as_array().unwrap().iter().map(|item| item.as_u64().unwrap()).collect()
        };
        for case in recorded["cases"].as_array().unwrap() {
            let seed = case["seed"].as_u64().unwrap();
            let mut random = NumpyRandom::new(seed);
            assert_eq!(
                [(); 8].map(|()| random.next_u64()).to_vec(),
                integers(&case["bits"]),
                "seed {seed}"
            );
            let mut random = NumpyRandom::new(seed);
            for permutation in case["permutations"].as_array().unwrap() {
                let expected = integers(permutation);
                let drawn: Vec<u64> = random
                    .permutation(expected.len())
                    .into_iter()
                    .map(|item| item as u64)
                    .collect();
                assert_eq!(drawn, expected, "seed {seed}");
            }
        }
        let large = &recorded["large"];
        let drawn = NumpyRandom::new(42).permutation(large["count"].as_u64().unwrap() as usize);
        let positions = integers(&large["places"]);
        let found: Vec<u64> = positions.iter().map(|&at| drawn[at as usize] as u64).collect();
        assert_eq!(found, integers(&large["values"]));
    }
}
